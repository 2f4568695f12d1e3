package cli

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
)

// infoReport is what info prints, and its JSON.
type infoReport struct {
	Program   results.Program `json:"program"`
	Host      results.Host    `json:"host"`
	Devices   []infoDevice    `json:"devices"`
	Workloads []string        `json:"workloads"`
}

type infoDevice struct {
	Name        string `json:"name"`
	Usable      bool   `json:"usable"`
	MaxRanks    int    `json:"max_ranks"`
	Description string `json:"description"`
	Missing     string `json:"missing,omitempty"`
}

func newInfoCmd(env *Env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "info",
		Short: "say what this machine has and what is missing",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			info := gatherInfo(env)
			if asJSON {
				return printJSON(env.Stdout, info)
			}
			return info.print(env)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func gatherInfo(env *Env) infoReport {
	info := infoReport{
		Program:   program(),
		Host:      results.Host{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU()},
		Workloads: workloads.Models(),
	}
	for _, d := range env.Engine.Devices() {
		info.Devices = append(info.Devices, infoDevice{d.Name, d.Missing == "", d.MaxRanks, d.Description, d.Missing})
	}
	return info
}

func (i infoReport) print(env *Env) error {
	if _, err := fmt.Fprintf(env.Stdout, "trbench %s\nmachine: %s/%s, %d CPUs\n\n",
		describe(i.Program), i.Host.OS, i.Host.Arch, i.Host.CPUs); err != nil {
		return err
	}
	g := report.Grid{Header: []string{"device", "usable", "ranks", "what"}, Left: 4}
	for _, d := range i.Devices {
		usable, ranks, what := "yes", strconv.Itoa(d.MaxRanks), d.Description
		if !d.Usable {
			usable, ranks, what = "no", "-", d.Missing
		}
		g.Rows = append(g.Rows, []string{d.Name, usable, ranks, what})
	}
	if err := g.Write(env.Stdout); err != nil {
		return err
	}
	_, err := fmt.Fprintf(env.Stdout, "\nworkloads: %s\n", strings.Join(i.Workloads, ", "))
	return err
}
