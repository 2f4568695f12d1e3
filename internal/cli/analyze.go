package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/timeline"
	"github.com/tech-renaissance/trbench/timeline/analysis"
	"github.com/tech-renaissance/trbench/timeline/read"
	"github.com/tech-renaissance/trbench/timeline/write"
)

type analyzeOptions struct {
	env                 *Env
	json, csv, markdown bool
	strict, diff        bool
	step, span          string
	devices             []string
	top                 counts
	chrome, out         string
}

// partialError is an answer that is only part of one: it was printed, and the
// program must not end as if all were well.
type partialError struct{ text, hint string }

func (e *partialError) Error() string { return e.text }

func newAnalyzeCmd(env *Env) *cobra.Command {
	o := &analyzeOptions{env: env, top: counts{values: []int{10}, min: 0, max: 1, top: 1000}}
	cmd := &cobra.Command{
		Use:   "analyze FILE...",
		Short: "say what bounds a recorded step, and what capturing it would buy",
		Long: `analyze reads recordings of a GPU and its host, this program's or another's:
PyTorch profiler traces (Kineto, Chrome JSON of any age, packed or not) and
Nsight Systems' SQLite exports. What a file is, is told by its content. Several
files are taken for the ranks of one job.

For each device it prints how far the recording can be trusted, busy and idle
time over the GPU's span and over the annotated steps, to whom each idle
nanosecond is charged, what launching cost, kernels and gaps, a verdict with its
rule, and between which times the step would take as one graph, or why that
cannot be said.

A file that is damaged is read as far as it can be understood; what was lost is
said, and the exit code is 3. So it is if no GPU work was recorded. --strict
refuses such files instead.

--json prints one flat object a device and line. Figures without a prefix are of
the span from the device's first op to its last, those with window_ of the
steps, or of what --step or --range chose. A name of unit ns is in nanoseconds.`,
		Example: `  trbench analyze rank0.json.gz rank1.json.gz
  trbench analyze trace.json --step=5..7 --markdown
  trbench analyze export.sqlite --device=0 --range=forward --json
  trbench analyze --diff before.json.gz after.json.gz
  trbench analyze export.sqlite --chrome=trace.json.gz --out=page`,
	}
	f := cmd.Flags()
	f.BoolVar(&o.json, "json", false, "print one flat JSON object a device and line")
	f.BoolVar(&o.csv, "csv", false, "print a CSV line a device, with the names of --json")
	f.BoolVar(&o.markdown, "markdown", false, "print a page in GitHub's dialect")
	f.StringVar(&o.step, "step", "", "steps to look at: a name, a number, or FIRST..LAST (default all that are annotated)")
	f.StringSliceVar(&o.devices, "device", nil, "devices to look at, by id (default all)")
	f.StringVar(&o.span, "range", "", "look at the host's ranges of this name instead of steps")
	f.Var(&o.top, "top", "how many kernels and gaps to list")
	f.BoolVar(&o.strict, "strict", false, "refuse files that are damaged")
	f.BoolVar(&o.diff, "diff", false, "set two files side by side: FILE FILE")
	f.StringVar(&o.chrome, "chrome", "", "write the recording as a Chrome trace for Perfetto, packed if it ends in .gz")
	f.StringVar(&o.out, "out", "", "folder for plots of a step and of gap lengths")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if err := o.validate(args); err != nil {
			return err
		}
		return o.run(args)
	}
	return cmd
}

func (o *analyzeOptions) validate(files []string) error {
	formats := 0
	for _, f := range []bool{o.json, o.csv, o.markdown} {
		if f {
			formats++
		}
	}
	switch {
	case len(files) == 0:
		return &usageError{text: "analyze needs at least one file", hint: "PyTorch's profiler writes one with export_chrome_trace, and nsys export --type=sqlite"}
	case formats > 1:
		return &usageError{text: "--json, --csv and --markdown exclude each other", hint: "run analyze once for each"}
	case o.step != "" && o.span != "":
		return &usageError{text: "--step and --range exclude each other", hint: "a step is a range too: name it with --range"}
	case o.diff && len(files) != 2:
		return &usageError{text: fmt.Sprintf("--diff compares two files, not %d", len(files)), hint: "trbench analyze --diff BASE HEAD"}
	case o.chrome != "" && len(files) != 1:
		return &usageError{text: fmt.Sprintf("--chrome writes one recording, not %d", len(files)), hint: "run analyze for each file"}
	}
	return nil
}

func (o *analyzeOptions) run(files []string) error {
	var list []report.Analysis
	var known []timeline.Device
	var partial []string
	advice := ""
	for _, f := range files {
		a, err := o.read(f)
		if err != nil {
			return err
		}
		if len(a.Devices) == 0 && len(a.Timeline.Ops) == 0 {
			partial = append(partial, f+": "+analysis.NoWork)
			advice = "record the GPU as well: PyTorch's profiler with ProfilerActivity.CPU and .CUDA, nsys with --trace=cuda,nvtx"
		}
		if read.Damaged(a.Timeline.Read) {
			partial = append(partial, f+" was read in part: "+strings.Join(report.Damage(a.Timeline.Read), "; "))
			advice = cmp.Or(advice, "figures are of what was read; record it anew if they matter")
		}
		known = append(known, a.Timeline.Devices...)
		if len(a.Devices) > 0 || len(a.Timeline.Ops) == 0 || o.diff { // not a rank without what --device names
			list = append(list, a)
		}
	}
	if err := o.haveDevices(files, known); err != nil {
		return err
	}
	if err := o.print(list); err != nil {
		return err
	}
	if o.chrome != "" {
		if err := o.export(&list[0]); err != nil {
			return err
		}
	}
	if o.out != "" {
		if err := o.draw(list); err != nil {
			return err
		}
	}
	if len(partial) > 0 {
		return &partialError{text: strings.Join(partial, "; "), hint: advice}
	}
	return nil
}

func (o *analyzeOptions) read(file string) (report.Analysis, error) {
	t, err := read.File(o.env.path(file), read.Options{Strict: o.strict})
	if err != nil {
		return report.Analysis{}, err
	}
	t.Source = file
	devices, err := analysis.Devices(timeline.NewIndex(t), analysis.Options{Steps: o.step, Range: o.span, Devices: o.devicesOf(t), Top: o.top.values[0]})
	var s *analysis.SelectionError
	if errors.As(err, &s) {
		return report.Analysis{}, &bench.InputError{Name: s.What, Reason: fmt.Sprintf("%s has no %q", file, s.Value), Hint: s.Known}
	}
	return report.Analysis{Timeline: t, Devices: devices}, err
}

// devicesOf are the devices to look at in a recording; nil is all. Those that it
// lacks are left out: each rank of a job may have a device of its own, and so may
// each side of --diff.
func (o *analyzeOptions) devicesOf(t *timeline.Timeline) []string {
	if o.devices == nil {
		return nil
	}
	here := []string{}
	for _, d := range t.Devices {
		if slices.Contains(o.devices, d.ID) {
			here = append(here, d.ID)
		}
	}
	return here
}

// haveDevices refuses devices that no file has.
func (o *analyzeOptions) haveDevices(files []string, known []timeline.Device) error {
	var ids []string
	for _, d := range known {
		if !slices.Contains(ids, d.ID) {
			ids = append(ids, d.ID)
		}
	}
	for _, id := range o.devices {
		if slices.Contains(ids, id) {
			continue
		}
		who, they := files[0]+" has no", "it has"
		if len(files) > 1 {
			who, they = "no file has", "they have"
		}
		return &bench.InputError{Name: "--device", Reason: fmt.Sprintf("%s %q", who, id), Hint: they + " " + analysis.Listed("device", ids)}
	}
	return nil
}

func (o *analyzeOptions) print(list []report.Analysis) error {
	w := o.env.Stdout
	if o.diff {
		return o.printDiff(w, list[0], list[1])
	}
	switch {
	case o.json:
		return report.AnalysisJSON(w, list)
	case o.csv:
		return report.AnalysisCSV(w, list)
	case o.markdown:
		return report.AnalysisMarkdown(w, list)
	}
	return report.AnalysisText(w, list)
}

// printDiff compares the devices of the same id, or the only ones.
func (o *analyzeOptions) printDiff(w io.Writer, base, head report.Analysis) error {
	pairs := 0
	for i := range base.Devices {
		b := &base.Devices[i]
		for j := range head.Devices {
			h := &head.Devices[j]
			if b.ID != h.ID && (len(base.Devices) > 1 || len(head.Devices) > 1) {
				continue
			}
			pairs++
			list := analysis.Diff(b, h)
			var err error
			switch {
			case o.json:
				err = report.DiffJSON(w, list)
			case o.csv:
				err = report.DiffCSV(w, list)
			case o.markdown:
				err = report.DiffMarkdown(w, b, h, list)
			default:
				err = report.DiffText(w, b, h, list)
			}
			if err != nil {
				return err
			}
		}
	}
	if pairs == 0 && len(base.Timeline.Ops) > 0 && len(head.Timeline.Ops) > 0 {
		return &bench.InputError{Name: "--diff", Reason: "the files have no device in common", Hint: "name one of each with --device"}
	}
	return nil
}

func (o *analyzeOptions) export(a *report.Analysis) error {
	var x *timeline.Index
	if len(a.Devices) > 0 {
		x = a.Devices[0].Index()
	} else {
		x = timeline.NewIndex(a.Timeline)
	}
	if err := write.File(o.env.path(o.chrome), x); err != nil {
		return &bench.InputError{Name: "--chrome " + o.chrome, Reason: "cannot be written: " + err.Error()}
	}
	return nil
}

// draw makes the pictures that our own traces have.
func (o *analyzeOptions) draw(list []report.Analysis) error {
	dir := o.env.path(o.out)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return &bench.InputError{Name: "--out " + o.out, Reason: "cannot be made: " + err.Error()}
	}
	out := &printer{w: o.env.Stderr}
	pictures, absent := report.AnalysisPictures(list)
	for _, why := range absent {
		out.linef("not drawn: %s", why)
	}
	files, err := report.Save(dir, []string{report.PNG, report.SVG}, pictures)
	if err != nil {
		return &bench.InputError{Name: "--out " + o.out, Reason: "cannot be written: " + err.Error()}
	}
	for _, f := range files {
		out.linef("%s", o.env.short(f))
	}
	return out.err
}
