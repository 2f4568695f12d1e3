package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/report/page"
	"github.com/tech-renaissance/trbench/results"
)

type reportOptions struct {
	env    *Env
	out    string
	html   string
	asked  bool // for a page
	format names
	phases bool
}

func newReportCmd(env *Env) *cobra.Command {
	o := &reportOptions{env: env, format: names{known: report.Formats()}}
	cmd := &cobra.Command{
		Use:   "report RECORD...",
		Short: "make tables and plots from records",
		Long: `report makes tables and plots from records alone; nothing is run. Several
records become one report, with a column for what differs between them: two
revisions side by side, or a sweep whose batches were recorded in several files.
They must have a workload in common.

Without --out a table goes to stdout, or the one text format that --format
names. With --html a page is
written that a browser opens from disk: the verdict, warnings, sortable tables,
charts to zoom into, and of runs with --trace a step of each configuration as
it was recorded, from the timelines that lie beside the records; it loads
nothing from anywhere. With --out each format becomes a file in that folder: report.txt,
report.md, report.csv, report.bench (Go's benchmark format, for benchstat) and
plots as PNG and SVG.

benchstat compares the modes with

  benchstat -col /mode report.bench

With 3 processes every delta but those of counts is ~, as its test needs at
least 4 on either side.`,
		Example: `  trbench report base.json head.json
  trbench report base.json --format=gobench
  trbench report base.json head.json --out=page --format=markdown,plots
  trbench report base.json --html=page.html
  trbench report base.json --phases`,
	}
	f := cmd.Flags()
	f.StringVar(&o.out, "out", "", "folder for the report (default: a table on stdout)")
	f.StringVar(&o.html, "html", "", "write a page for a browser to this file")
	f.Var(&o.format, "format", strings.Join(report.Formats(), ", ")+" (default all with --out, else table)")
	f.BoolVar(&o.phases, "phases", false, "print where the wall time of each process went, in place of the figures; a page has it as well")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.asked = cmd.Flags().Changed("html")
		return o.run(args)
	}
	return cmd
}

func (o *reportOptions) run(files []string) error {
	if o.asked && o.html == "" {
		return errNoPageName()
	}
	if o.phases && (o.asked || o.out != "" || o.format.values != nil) {
		return &bench.InputError{Name: "--phases", Reason: "is a table on stdout, so it cannot be used with --out, --html or --format", Hint: "drop them, or --phases: a page has the table"}
	}
	if len(files) == 0 {
		return &usageError{text: "report needs at least one record", hint: "trbench run makes one; it says where"}
	}
	var records []report.Named
	if err := o.once(files); err != nil {
		return err
	}
	for _, f := range files {
		r, err := results.ReadFile(o.env.path(f))
		if err != nil {
			return err
		}
		records = append(records, report.Named{Name: filepath.Base(f), Record: r, Dir: filepath.Dir(o.env.path(f))})
	}
	if err := comparable(records); err != nil {
		return err
	}
	if o.phases {
		return o.printPhases(records)
	}
	if o.html != "" {
		if err := o.env.writePage(o.env.Stdout, o.html, records, page.Extra{}); err != nil {
			return err
		}
		if o.out == "" && o.format.values == nil {
			return nil
		}
	}
	if o.out == "" {
		return o.print(records)
	}
	formats := o.format.values
	if formats == nil {
		formats = report.Formats()
	}
	written, notes, err := report.Write(o.env.path(o.out), formats, records)
	if err != nil {
		return &bench.InputError{Name: "--out " + o.out, Reason: "cannot be written: " + err.Error()}
	}
	out := &printer{w: o.env.Stdout}
	for _, f := range written {
		out.linef("%s", o.env.short(f))
	}
	for _, n := range notes {
		out.linef("not drawn: %s", n)
	}
	return out.err
}

// once refuses a file that is given twice, under whatever names: it would be
// compared with itself. Two files with the same content are taken for two: they
// are somebody's copies.
func (o *reportOptions) once(files []string) error {
	var seen []os.FileInfo
	for i, f := range files {
		info, err := os.Stat(o.env.path(f))
		if err != nil {
			return nil // the reader says it better
		}
		for j, other := range seen {
			if os.SameFile(info, other) {
				reason := "is given twice"
				if files[j] != f {
					reason = "is the same file as " + files[j]
				}
				return &bench.InputError{Name: "record " + files[i], Reason: reason + ", so there is nothing to compare", Hint: "give each record once"}
			}
		}
		seen = append(seen, info)
	}
	return nil
}

// writePage writes a page, with the timelines that lie beside its records, and
// says to whom where.
func (e *Env) writePage(says io.Writer, name string, records []report.Named, extra page.Extra) error {
	file := e.path(name)
	extra.Timelines, extra.TimelineNotes = page.ReadTimelines(records)
	if err := page.WriteFile(file, records, extra); err != nil {
		return &bench.InputError{Name: "--html " + name, Reason: "cannot be written: " + err.Error()}
	}
	out := &printer{w: says}
	out.linef("%s", e.short(file))
	return out.err
}

func errNoPageName() error {
	return &bench.InputError{Name: "--html", Reason: "is empty", Hint: "name a file: --html=page.html"}
}

// comparable refuses records that cannot stand in one table: of different
// workloads. A sweep recorded in several files, batch by batch, can.
func comparable(records []report.Named) error {
	have := map[string]bool{}
	first := ""
	for _, r := range records {
		if len(r.Record.Cells) == 0 {
			continue
		}
		shared := first == ""
		for _, c := range r.Record.Cells {
			shared = shared || have[c.Key.Workload]
		}
		if !shared {
			return &bench.InputError{
				Name:   "record " + r.Name,
				Reason: fmt.Sprintf("has no workload in common with %s, so there is nothing to set side by side", first),
				Hint:   "make a report of each",
			}
		}
		if first == "" {
			first = r.Name
		}
		for _, c := range r.Record.Cells {
			have[c.Key.Workload] = true
		}
	}
	return nil
}

// printPhases says where processes' time went, if any record knows.
func (o *reportOptions) printPhases(records []report.Named) error {
	told, err := report.Phases(o.env.Stdout, records)
	if err == nil && !told {
		return &bench.InputError{Name: "--phases", Reason: "has nothing to print: no process of these records says where its time went; records have it from 1.3 on"}
	}
	return err
}

// print writes one text format to stdout.
func (o *reportOptions) print(records []report.Named) error {
	format := report.FormatTable
	if len(o.format.values) > 0 {
		format = o.format.values[0]
	}
	if len(o.format.values) > 1 {
		return &bench.InputError{Name: "--format", Reason: fmt.Sprintf("names %d formats, which need a folder", len(o.format.values)), Hint: "add --out=DIR"}
	}
	switch format {
	case report.FormatTable:
		return report.Tables(o.env.Stdout, records)
	case report.FormatMarkdown:
		return report.Markdown(o.env.Stdout, records)
	case report.FormatCSV:
		return report.CSV(o.env.Stdout, records)
	case report.FormatGobench:
		return report.Gobench(o.env.Stdout, records)
	}
	return &bench.InputError{Name: "--format=" + format, Reason: "needs a folder", Hint: "add --out=DIR"}
}
