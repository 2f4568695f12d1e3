package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/timeline"
	"github.com/tech-renaissance/trbench/timeline/read"
)

// Steps of a block that is timed beside a recording, so that the recording's
// inflation is known. Two blocks are.
const (
	besideTimeline      = 20
	besideTimelineOnCPU = 2
)

// timeline is profile without a tool: the replicate of run --trace, with one
// configuration and little that is timed, whose figures are printed and of which
// no record is kept.
func (o *profileOptions) timeline(ctx context.Context) error {
	if o.dryRun {
		return &bench.InputError{Name: "--dry-run", Reason: "would be ignored: no tool is started", Hint: "drop it, or name a tool behind --"}
	}
	steps := o.steps
	if steps.values == nil {
		steps.values = []int{defaultTraceSteps}
	}
	if n := steps.first(); n > bench.MaxTraceSteps {
		return &bench.InputError{Name: "--steps", Reason: fmt.Sprintf("must be at most %d without a tool, not %d: each is kept event by event", bench.MaxTraceSteps, n)}
	}
	plan, device, err := o.validate()
	if err != nil {
		return err
	}
	if err := o.canRecord(device); err != nil {
		return err
	}
	file, err := o.timelineFile(plan.Configurations[0])
	if err != nil {
		return err
	}
	lock, err := lockFile(file)
	if err != nil {
		return &bench.InputError{Name: o.outFlag(), Reason: err.Error(), Hint: "give each timeline a file of its own"}
	}
	defer lock.release()
	plan.Steps, plan.Blocks, plan.Single, plan.TraceSteps = besideTimeline, bench.LeastBlocks, 1, steps.first()
	if device.Name == "cpu" {
		plan.Steps = besideTimelineOnCPU
	}
	plan.Warmup = new(o.warmup.first())
	record := &results.Record{Created: o.env.Now().UTC(), Seed: plan.Seed, Quick: plan.Quick, Device: results.Device{Name: device.Name, Description: device.Description}}
	watch := newWatch(o.env, plan, false)
	r := bench.Run{
		Plan: plan, Record: record, Dir: o.env.WorkDir, Replicate: o.env.replicate, Watch: watch.tell,
		TraceFiles: func(bench.CellRequest) []string { return []string{file} },
	}
	err = r.Do(ctx)
	watch.end()
	if err != nil {
		return err
	}
	return o.shown(record)
}

// canRecord finds what would stop the recording, before anything is run.
func (o *profileOptions) canRecord(device Device) error {
	if o.env.Engine.CheckTrace == nil {
		return nil
	}
	if err := o.env.Engine.CheckTrace(device.Name, true); err != nil {
		return traceProblem("a timeline", err, "name a tool to run the steps under instead: trbench profile [flags] -- nsys")
	}
	return nil
}

// outFlag is --out as it was given.
func (o *profileOptions) outFlag() string { return strings.TrimSpace("--out " + o.out) }

// timelineFile is where the timeline goes. Its folder is there, and what the file
// holds already is nothing, or an older timeline.
func (o *profileOptions) timelineFile(k results.ConfigurationKey) (string, error) {
	base, err := o.report("timeline", []string{traceSuffix}, k)
	if err != nil {
		return "", err
	}
	file := base + traceSuffix
	// Whoever names a JSON file gets that one, packed or not.
	if strings.HasSuffix(base, ".json") || strings.HasSuffix(base, ".json.gz") {
		file = base
	}
	flag := o.outFlag()
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		return "", &bench.InputError{Name: flag, Reason: "cannot be used: " + err.Error()}
	}
	if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		if t, err := read.File(file, read.Options{}); err != nil || t.Format != timeline.FormatOwn {
			return "", &bench.InputError{Name: flag, Reason: fmt.Sprintf("cannot be used: %s is there, and is no timeline of this program", o.env.short(file)), Hint: "name another file"}
		}
		return file, nil
	}
	if err := results.CheckWritable(file); err != nil {
		return "", outProblem(flag, err)
	}
	return file, nil
}

// shown prints what the recording says, and where it is. One that failed is no
// success: its figures must not be used, whatever can be seen in it.
func (o *profileOptions) shown(r *results.Record) error {
	cell := &r.Cells[0]
	t := cell.Configurations[0].Trace
	if t == nil || t.File == "" {
		why := "the replicate says nothing of it"
		if t != nil && t.Failed != "" {
			why = t.Failed
		}
		return fmt.Errorf("no timeline of %s, %s was written: %s", cell.Key.Name(), cell.Configurations[0].Key, why)
	}
	if err := report.Recorded(o.env.Stdout, r); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(o.env.Stdout, "Timeline: %s\n", o.env.short(t.File)); err != nil {
		return err
	}
	if t.Failed != "" {
		return &partialError{text: "the recording failed: " + t.Failed, hint: "the timeline shows what was recorded; do not use its figures"}
	}
	return nil
}
