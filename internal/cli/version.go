package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/tech-renaissance/trbench/results"
)

func newVersionCmd(env *Env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "print which build this is",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			p := program()
			if asJSON {
				return printJSON(env.Stdout, p)
			}
			_, err := fmt.Fprintf(env.Stdout, "trbench %s\n", describe(p))
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// program reads what the linker left in the binary.
func program() results.Program {
	p := results.Program{Version: "unknown", Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return p
	}
	p.Version = info.Main.Version
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			p.Revision = s.Value
		case "vcs.modified":
			p.Dirty = s.Value == "true"
		}
	}
	return p
}

func describe(p results.Program) string {
	text := p.Version
	if p.Revision != "" {
		text += " revision " + p.Revision
	}
	if p.Dirty {
		text += " with local changes"
	}
	return fmt.Sprintf("%s, built with %s for %s/%s", text, p.Go, runtime.GOOS, runtime.GOARCH)
}

// printJSON writes a value the way every command's --json does.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
