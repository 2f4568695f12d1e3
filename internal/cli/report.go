package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
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
	tables names
	sweep  bool
	beside string
	floor  counts
}

func newReportCmd(env *Env) *cobra.Command {
	o := &reportOptions{env: env, format: names{known: report.Formats()}, tables: names{known: report.TableNames()},
		floor: counts{min: 1, max: 1, top: bench.MaxDispatchNs}}
	cmd := &cobra.Command{
		Use:   "report RECORD...",
		Short: "make tables and plots from records",
		Long: `report makes tables and plots from records alone; nothing is run. Several
records become one report, with a column for what differs between them: two
revisions side by side, or a sweep whose batches were recorded in several files.
They must have a workload in common. With --sweep they are parts of one table
instead, of any number of workloads.

Without --out a table goes to stdout, or the one text format that --format
names. With --html a page is
written that a browser opens from disk: the verdict, warnings, sortable tables,
charts to zoom into, and of runs with --trace a step of each configuration as
it was recorded, from the timelines that lie beside the records; it loads
nothing from anywhere. With --out each format becomes a file in that folder: report.txt,
report.md, report.csv, report.bench (Go's benchmark format, for benchstat) and
plots as PNG and SVG.

--beside=FILE sets what another program printed of the same steps beside the
cells, and onto the plot of host speed: a line of JSON a turn, with peer, model,
batch, precision, mode and step_ms, and version, submit_ms and kernels where known.
--tables=NAME,... prints single tables.

benchstat compares the modes with

  benchstat -col /mode report.bench

With 3 processes every delta but those of counts is ~, as its test needs at
least 4 on either side.`,
		Example: `  trbench report base.json head.json
  trbench report base.json --format=gobench
  trbench report base.json head.json --out=page --format=markdown,plots
  trbench report base.json --html=page.html
  trbench report base.json --tables=phases,figures
  trbench report base.json --sweep --tables=figures --format=markdown`,
	}
	f := cmd.Flags()
	f.StringVar(&o.out, "out", "", "folder for the report (default: a table on stdout)")
	f.StringVar(&o.html, "html", "", "write a page for a browser to this file")
	f.Var(&o.format, "format", strings.Join(report.Formats(), ", ")+" (default all with --out, else table)")
	f.BoolVar(&o.sweep, "sweep", false, "the records are parts of one sweep, of one or more workloads: one table and one set of plots, each row once")
	f.Var(&o.tables, "tables", "print these tables alone: "+strings.Join(report.TableNames(), ", ")+"; as Markdown with --format=markdown")
	f.StringVar(&o.beside, "beside", "", "another program's results of the same steps, as JSON lines: a file, or a folder of .jsonl")
	f.Var(&o.floor, "launch-floor-ns", "what a kernel's launch takes in a loop in C (scripts/launch_floor.cu), for the table bound")
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
	if err := o.checkTables(); err != nil {
		return err
	}
	if len(files) == 0 {
		return &usageError{text: "report needs at least one record", hint: "trbench run makes one; it says where"}
	}
	var records []report.Named
	if err := o.env.once("record", ", so there is nothing to compare", files); err != nil {
		return err
	}
	for _, f := range files {
		r, err := results.ReadFile(o.env.path(f))
		if err != nil {
			return err
		}
		records = append(records, report.Named{Name: filepath.Base(f), Record: r, Dir: filepath.Dir(o.env.path(f))})
	}
	if o.sweep {
		joined, err := report.Join(records)
		if err != nil {
			return &bench.InputError{Name: "--sweep", Reason: "cannot be used: " + err.Error(), Hint: "without --sweep records of one workload stand side by side"}
		}
		records = []report.Named{joined}
	}
	if err := comparable(records); err != nil {
		return err
	}
	if o.beside != "" {
		var err error
		if records[0].Peers, err = report.ReadPeers(o.env.path(o.beside)); err != nil {
			return &bench.InputError{Name: "--beside", Reason: "cannot be used: " + err.Error()}
		}
		if !report.PeersFit(records[0].Peers, records) {
			return &bench.InputError{Name: "--beside", Reason: "would be ignored: none of its results is of a cell in these records",
				Hint: "workload, batch and precision must be those of a cell on one GPU"}
		}
	}
	if o.floor.values != nil {
		records[0].LaunchFloorNs = float64(o.floor.first())
	}
	if o.tables.given {
		return o.printTables(records)
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

// once refuses a file, a record or a trace, that is given twice, under whatever
// names, and says what would come of it. Two files with the same content are taken
// for two: they are somebody's copies.
func (e *Env) once(what, so string, files []string) error {
	var seen []os.FileInfo
	for i, f := range files {
		info, err := os.Stat(e.path(f))
		if err != nil {
			return nil // the reader says it better
		}
		for j, other := range seen {
			if os.SameFile(info, other) {
				reason := "is given twice"
				if files[j] != f {
					reason = "is the same file as " + files[j]
				}
				return &bench.InputError{Name: what + " " + files[i], Reason: reason + so, Hint: "give each " + what + " once"}
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

// checkTables refuses what --tables would ignore, and what would be ignored
// without it.
func (o *reportOptions) checkTables() error {
	bound := slices.Contains(o.tables.values, "bound")
	refuse := func(name, reason, hint string) error {
		return &bench.InputError{Name: name, Reason: reason, Hint: hint}
	}
	switch f := o.format.values; {
	case o.tables.given && (o.asked || o.out != ""):
		return refuse("--tables", "prints on stdout, so it cannot be used with --out or --html", "drop them: they have what the records carry")
	case o.tables.given && (len(f) > 1 || len(f) == 1 && f[0] != report.FormatTable && f[0] != report.FormatMarkdown):
		return refuse("--format="+o.format.String(), "has no single tables", "--tables goes with --format=table or markdown")
	case bound && o.floor.values == nil:
		return refuse("--tables=bound", "needs what a launch takes in a loop in C", "add --launch-floor-ns=N; scripts/launch_floor.cu measures it")
	case o.beside != "" && o.tables.given && !slices.Contains(o.tables.values, "peers"):
		return refuse("--beside", "would be ignored without --tables=peers", "add it, or drop this")
	case o.beside != "" && o.html == "" && len(f) > 0 && !slices.ContainsFunc(f, setsBeside):
		return refuse("--beside", "would be ignored with --format="+o.format.String(), "table, markdown and plots, and --html, set peers beside the records")
	case o.floor.values != nil && !bound:
		return refuse("--launch-floor-ns", "would be ignored without --tables=bound", "add it, or drop this")
	}
	return nil
}

// setsBeside says that a format has a place for what others measured.
func setsBeside(format string) bool {
	return format == report.FormatTable || format == report.FormatMarkdown || format == report.FormatPlots
}

// printTables writes the tables that were asked for.
func (o *reportOptions) printTables(records []report.Named) error {
	format := report.FormatTable
	if o.format.values != nil {
		format = o.format.values[0]
	}
	empty, err := report.Selected(o.env.Stdout, format, records, o.tables.values)
	if err != nil || len(empty) == 0 {
		return err
	}
	return &bench.InputError{Name: "--tables=" + strings.Join(empty, ","), Reason: "finds nothing to show in these records", Hint: report.TableNeeds(empty)}
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
