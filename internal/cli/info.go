package cli

import (
	"cmp"
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
	Libraries []LibraryState  `json:"libraries,omitempty"`
	Tool      *Tool           `json:"nvtx,omitempty"`
	Workloads []string        `json:"workloads"`
	// Calibration is measured where it is asked for.
	Calibration *calibration `json:"calibration,omitempty"`
}

type infoDevice struct {
	Name        string `json:"name"`
	Usable      bool   `json:"usable"`
	MaxRanks    int    `json:"max_ranks"`
	Description string `json:"description"`
	Missing     string `json:"missing,omitempty"`
}

func newInfoCmd(env *Env) *cobra.Command {
	var asJSON, measure bool
	var libraries Libraries
	cmd := &cobra.Command{
		Use:   "info",
		Short: "say what this machine has and what is missing",
		Args:  noArgs,
		Long: `info lists the devices, the GPU's libraries with the files that were opened,
and what to install where something is missing. With --calibrate it also measures
what small things take on the device that a run would use, in a few seconds:
calls, launches, graphs, waits, and what one launch costs, layer by layer.`,
		Example: `  trbench info
  trbench info --calibrate
  trbench info --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := env.useLibraries(libraries, "auto", nil); err != nil {
				return err
			}
			info := gatherInfo(env)
			if measure {
				var err error
				if info.Calibration, err = env.calibrate(cmd.Context()); err != nil {
					return err
				}
			}
			if asJSON {
				return printJSON(env.Stdout, info)
			}
			if err := info.print(env); err != nil || !measure {
				return err
			}
			return info.Calibration.print(env)
		},
	}
	libraries.addLibraries(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&measure, "calibrate", false, "measure what calls, launches, graphs and waits take, and what one launch costs")
	return cmd
}

func gatherInfo(env *Env) infoReport {
	info := infoReport{
		Program:   env.identity(),
		Host:      results.Host{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU()},
		Workloads: workloads.Models(),
	}
	if env.Engine.Tool != nil {
		info.Tool = new(env.Engine.Tool())
	}
	for _, d := range env.Engine.Devices("") {
		info.Devices = append(info.Devices, infoDevice{d.Name, d.Missing == "", d.MaxRanks, d.Description, d.Missing})
	}
	if env.Engine.Libraries != nil {
		info.Libraries = env.Engine.Libraries()
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
			usable, ranks = "no", "-"
			what, _, _ = strings.Cut(d.Missing, "; ") // the rest follows the libraries
		}
		g.Rows = append(g.Rows, []string{d.Name, usable, ranks, what})
	}
	if err := g.Write(env.Stdout); err != nil {
		return err
	}
	if err := i.printLibraries(env); err != nil {
		return err
	}
	if i.Tool != nil {
		if _, err := fmt.Fprintf(env.Stdout, "\nNVTX: %s\n", i.Tool.sentence()); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(env.Stdout, "\nworkloads: %s\n", strings.Join(i.Workloads, ", "))
	return err
}

// printLibraries shows each library's own file, and in full what is missing;
// JSON has their parts as well.
func (i infoReport) printLibraries(env *Env) error {
	if len(i.Libraries) == 0 {
		return nil
	}
	out := &printer{w: env.Stdout}
	out.linef("")
	g := report.Grid{Header: []string{"library", "version", "file"}, Left: 3}
	for _, l := range i.Libraries {
		row := []string{l.Name, cmp.Or(l.Version, "-"), "-"}
		if len(l.Files) > 0 {
			row[2] = l.Files[0]
		}
		g.Rows = append(g.Rows, row)
	}
	out.grid(g)
	for _, l := range i.Libraries {
		if l.Missing != "" {
			out.linef("no %s: %s", l.Name, l.Missing)
		}
	}
	return out.err
}
