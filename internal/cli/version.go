package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
			if asJSON {
				return printJSON(env.Stdout, env.identity())
			}
			_, err := fmt.Fprintf(env.Stdout, "trbench %s\n", describe(program()))
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// program reads what the linker left in the binary. go run leaves no
// revision; a checkout around the working folder or the binary says at least
// what was checked out.
func program() results.Program {
	info, _ := debug.ReadBuildInfo()
	return programOf(info, func() string {
		if dir, err := os.Getwd(); err == nil {
			if r := checkoutRevision(dir); r != "" {
				return r
			}
		}
		self, err := os.Executable()
		if err != nil {
			return ""
		}
		return checkoutRevision(filepath.Dir(self))
	})
}

// identity is program with the hash of its file, which takes a fifth of a second.
func (env *Env) identity() results.Program {
	p := program()
	p.Executable, _ = fileHash(env.Executable) // unknown, then
	return p
}

// fileHash is a regular file's SHA-256 in hex. Others may never end, or wait for
// someone who writes them.
func fileHash(name string) (string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("is no regular file")
	}
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func programOf(info *debug.BuildInfo, checkout func() string) results.Program {
	p := results.Program{Version: "unknown", Go: runtime.Version()}
	if info != nil {
		p.Version = info.Main.Version
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				p.Revision, p.RevisionFrom = s.Value, results.FromBuild
			case "vcs.modified":
				p.Dirty = new(s.Value == "true")
			}
		}
	}
	if p.Revision == "" {
		p.Dirty = nil
		if p.Revision = checkout(); p.Revision != "" {
			p.RevisionFrom = results.FromCheckout
		}
	}
	return p
}

func describe(p results.Program) string {
	text := p.Version
	if p.Revision != "" {
		text += " revision " + p.Revision
	}
	if p.RevisionFrom == results.FromCheckout {
		text += " (from the checkout)"
	}
	if p.Dirty != nil && *p.Dirty {
		text += " with local changes"
	}
	return fmt.Sprintf("%s, built with %s for %s/%s", text, p.Go, runtime.GOOS, runtime.GOARCH)
}

// unlike says of a program that is not this one which it is, and which this is.
func unlike(other, this results.Program) string {
	a, b := describe(other), describe(this)
	if a == b {
		return fmt.Sprintf("another build of trbench %s, whose SHA-256 is %s, and this one's %s", a, other.Executable, this.Executable)
	}
	return fmt.Sprintf("trbench %s, and this is %s", a, b)
}

// printJSON writes a value the way every command's --json does.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
