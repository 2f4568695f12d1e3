package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
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
said, and the exit code is 3. Of an SQLite export that was cut short nothing can
be read. The exit code is 3 as well if no GPU work was recorded, and if one of
several files could not be read at all: it is left out. --strict refuses such
files instead.

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
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for name, empty := range map[string]bool{"step": o.step == "", "range": o.span == "", "device": len(o.devices) == 0, "chrome": o.chrome == "", "out": o.out == ""} {
			if empty && cmd.Flags().Changed(name) {
				return &usageError{text: "--" + name + " is empty", hint: "leave it out, or give it a value"}
			}
		}
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
	case backwards(o.step):
		return &bench.InputError{Name: fmt.Sprintf("--step %q", o.step), Reason: "ends before it begins", Hint: "FIRST..LAST, such as 5..7"}
	case o.diff && len(files) != 2:
		return &usageError{text: fmt.Sprintf("--diff compares two files, not %d", len(files)), hint: "trbench analyze --diff BASE HEAD"}
	case o.chrome != "" && len(files) != 1:
		return &usageError{text: fmt.Sprintf("--chrome writes one recording, not %d", len(files)), hint: "run analyze for each file"}
	}
	return nil
}

// backwards tells whether steps are FIRST..LAST with the last one first.
func backwards(steps string) bool {
	first, last, _ := strings.Cut(steps, "..")
	from, err := strconv.Atoi(first)
	to, err2 := strconv.Atoi(last)
	return err == nil && err2 == nil && from > to
}

func (o *analyzeOptions) run(files []string) error {
	if !o.diff {
		if err := o.env.once("trace", ": it would be two ranks of one job", files); err != nil {
			return err
		}
	}
	var list []report.Analysis
	var known []timeline.Device
	var partial []string
	advice := ""
	var first error // why a file is left out
	out := &printer{w: o.env.Stderr}
	for _, f := range files {
		a, err := o.read(f)
		var selection *analysis.SelectionError
		var unread *read.Error
		switch {
		case errors.As(err, &selection):
			// What is chosen need not be in all ranks' files.
			first = cmp.Or(first, error(&bench.InputError{Name: fmt.Sprintf("%s %q", selection.What, selection.Value), Reason: "is not in " + f, Hint: selection.Known}))
			if len(files) > 1 && !o.diff {
				out.linef("%s is left out: it has no %q", f, selection.Value)
				continue
			}
			return first
		case errors.As(err, &unread):
			first = cmp.Or(first, err)
			if o.strict || o.diff || len(files) == 1 {
				return err
			}
			a = report.Analysis{Timeline: &timeline.Timeline{Source: f}, Unread: unread.Reason}
			partial = append(partial, f+" is left out: it "+unread.Reason)
		case err != nil:
			return err
		}
		if a.Unread == "" {
			why, hint := doubts(f, &a)
			partial = append(partial, why...)
			advice = cmp.Or(advice, hint)
		}
		known = append(known, a.Timeline.Devices...)
		if len(a.Devices) > 0 || len(a.Timeline.Ops) == 0 || o.diff { // not a rank without what --device names
			list = append(list, a)
		}
	}
	if err := o.haveDevices(files, known); err != nil {
		return err
	}
	if out.err != nil {
		return out.err
	}
	if !slices.ContainsFunc(list, func(a report.Analysis) bool { return a.Unread == "" }) {
		return first // none is left
	}
	// Files come first: one that cannot be written is known before all is printed.
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
	if err := o.print(list); err != nil {
		return err
	}
	if len(partial) > 0 {
		return &partialError{text: strings.Join(partial, "; "), hint: advice}
	}
	return nil
}

// doubts are why a file's answer is only part of one, and what to do about it.
func doubts(file string, a *report.Analysis) (why []string, advice string) {
	switch {
	case len(a.Timeline.Ops) == 0:
		why = append(why, file+": "+analysis.NoWork)
		advice = "record the GPU as well: PyTorch's profiler with ProfilerActivity.CPU and .CUDA, nsys with --trace=cuda,nvtx"
	case len(a.Devices) > 0 && !slices.ContainsFunc(a.Devices, func(d analysis.Device) bool { return d.Span.Ops > 0 }):
		why = append(why, file+": none of its GPU work has usable times")
	}
	if read.Damaged(a.Timeline.Read) {
		why = append(why, file+" was read in part: "+strings.Join(report.Damage(a.Timeline.Read), "; "))
		if advice != "" {
			return why, "what is lost may have held it: take the whole file, or record anew"
		}
		advice = "figures are of what was read; record it anew if they matter"
	}
	return why, advice
}

// read reads and analyses one file. Errors call it by the name it was given.
func (o *analyzeOptions) read(file string) (report.Analysis, error) {
	t, err := read.File(o.env.path(file), read.Options{Strict: o.strict})
	if err != nil {
		var unread *read.Error
		if errors.As(err, &unread) {
			unread.File = file
		}
		return report.Analysis{}, err
	}
	t.Source = file
	devices, err := analysis.Devices(timeline.NewIndex(t), analysis.Options{Steps: o.step, Range: o.span, Devices: o.devicesOf(t), Top: o.top.values[0]})
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

// haveDevices refuses devices that no file has, if any has one.
func (o *analyzeOptions) haveDevices(files []string, known []timeline.Device) error {
	var ids []string
	for _, d := range known {
		if !slices.Contains(ids, d.ID) {
			ids = append(ids, d.ID)
		}
	}
	for _, id := range o.devices {
		if len(ids) == 0 || slices.Contains(ids, id) {
			continue
		}
		where, they := "not in "+files[0], "it has"
		if len(files) > 1 {
			where, they = "in no file", "they have"
		}
		return &bench.InputError{Name: fmt.Sprintf("--device %q", id), Reason: "is " + where, Hint: they + " " + analysis.Listed("device", ids)}
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
	bases, heads := working(base), working(head)
	var pairs []report.DevicePair
	for _, b := range bases {
		for _, h := range heads {
			if b.ID == h.ID || len(bases) == 1 && len(heads) == 1 {
				pairs = append(pairs, report.DevicePair{Base: b, Head: h})
			}
		}
	}
	switch {
	case len(pairs) == 0 && hasChoice(base) && hasChoice(head):
		return &bench.InputError{Name: "--diff", Reason: fmt.Sprintf("needs one device on each side, or the same ids: %s has %s, %s has %s",
			base.Timeline.Source, ids(bases), head.Timeline.Source, ids(heads)), Hint: "name one of each with --device"}
	case len(pairs) == 0:
		return nil // one of them has nothing to compare, which is said elsewhere
	case o.json:
		return report.DiffJSON(w, pairs)
	case o.csv:
		return report.DiffCSV(w, pairs)
	case o.markdown:
		return report.DiffMarkdown(w, pairs)
	}
	return report.DiffText(w, pairs)
}

// hasChoice tells whether it is for the choice of devices alone that a recording
// has none to compare.
func hasChoice(a report.Analysis) bool {
	return len(a.Timeline.Ops) > 0 && (len(a.Devices) == 0 || len(working(a)) > 0)
}

// ids names devices.
func ids(list []*analysis.Device) string {
	if len(list) == 0 {
		return "none of those chosen"
	}
	words := make([]string, len(list))
	for i, d := range list {
		words[i] = d.ID
	}
	if len(list) == 1 {
		return "device " + words[0]
	}
	return "devices " + strings.Join(words, ", ")
}

// working are the devices with work that has times.
func working(a report.Analysis) []*analysis.Device {
	var out []*analysis.Device
	for i := range a.Devices {
		if d := &a.Devices[i]; d.Span.Ops > 0 {
			out = append(out, d)
		}
	}
	return out
}

// export writes the recording. What is there is replaced only if it is empty or
// a trace of this program's: the next file could be the only copy of another's.
func (o *analyzeOptions) export(a *report.Analysis) error {
	if there, err := os.Stat(o.env.path(o.chrome)); err == nil && there.Mode().IsRegular() && there.Size() > 0 && !read.IsOwn(o.env.path(o.chrome)) {
		return &bench.InputError{Name: "--chrome " + o.chrome, Reason: "is there, and is no trace that trbench wrote", Hint: "name another file, or remove it"}
	}
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
		out.linef("%s", why)
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
