package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/timeline/write"
)

// besideRecord is what --trace says without a folder.
const besideRecord = "beside the record"

// defaultTraceSteps are few: each is kept event by event.
const defaultTraceSteps = 3

// traceFlag is --trace[=DIR].
type traceFlag struct {
	on  bool
	dir string // empty: beside the record
}

var _ pflag.Value = (*traceFlag)(nil)

func (t *traceFlag) Type() string { return "DIR" }

func (t *traceFlag) String() string {
	if t.on && t.dir == "" {
		return besideRecord
	}
	return t.dir
}

func (t *traceFlag) Set(s string) error {
	switch s {
	case "":
		return fmt.Errorf("is empty; it takes a folder for the timelines, or no value to put them beside the record")
	case besideRecord:
		s = ""
	}
	t.on, t.dir = true, s
	return nil
}

// addTrace adds the flags of the traced pass.
func (o *runOptions) addTrace(f *pflag.FlagSet) {
	f.Var(&o.trace, "trace", "record a few steps of each configuration after all that is timed: where a step's time goes; timelines go to DIR")
	f.Lookup("trace").NoOptDefVal = besideRecord
	f.Var(&o.traceSteps, "trace-steps", fmt.Sprintf("steps to record with --trace (default %d)", defaultTraceSteps))
}

// tracedSteps is how many steps the flags ask to record.
func (o *runOptions) tracedSteps() (int, error) {
	switch {
	case !o.trace.on && o.traceSteps.values != nil:
		return 0, &bench.InputError{Name: "--trace-steps", Reason: "would be ignored without --trace", Hint: "add --trace"}
	case !o.trace.on:
		return 0, nil
	case o.traceSteps.values != nil:
		return o.traceSteps.first(), nil
	}
	return defaultTraceSteps, nil
}

// readyTrace finds what would stop a traced pass, before anything is timed, and
// settles where timelines go. It may try the profiler, so it comes after the
// machine was calibrated.
func (s *runSession) readyTrace(device Device, dir string) error {
	if s.plan.TraceSteps == 0 {
		return nil
	}
	if s.env.Engine.CheckTrace != nil {
		if err := s.env.Engine.CheckTrace(device.Name, true); err != nil {
			return traceProblem("--trace", err, withoutTrace)
		}
	}
	if s.target != "" && isFolder(s.target) {
		// Timelines are named after the record, so its name is settled now.
		file, err := results.NewName(s.target, s.record.Created)
		if err != nil {
			return outProblem("--out", err)
		}
		s.target = file
	}
	switch {
	case dir != "":
		s.traceDir = s.env.path(dir)
		if err := os.MkdirAll(s.traceDir, 0o777); err != nil {
			return &bench.InputError{Name: "--trace=" + dir, Reason: "cannot be used: " + err.Error()}
		}
		return s.takeTimelines("--trace=" + dir)
	case s.target != "":
		s.traceDir = filepath.Dir(s.target)
	}
	return nil
}

// takeTimelines finds out whether timelines can be written to a folder of their
// own, and keeps runs off whose timelines would have the same names.
func (s *runSession) takeTimelines(flag string) (err error) {
	if err := results.CheckWritable(filepath.Join(s.traceDir, s.timelineName()+traceSuffix)); err != nil {
		return outProblem(flag, err)
	}
	if s.traceLock, err = lockFile(filepath.Join(s.traceDir, s.timelineName()+traceSuffix)); err != nil {
		return &bench.InputError{Name: flag, Reason: fmt.Sprintf("holds timelines named %s-..., and is being written by another run", s.timelineName()),
			Hint: "give each run a folder of its own, or records of different names"}
	}
	return nil
}

// withoutTrace is what to do where run cannot record.
const withoutTrace = "drop --trace to time without a traced pass"

// traceProblem says that a recording, asked for by the flag or command of that
// name, cannot be had.
func traceProblem(name string, err error, hint string) error {
	return &bench.InputError{Name: name, Reason: "cannot be had: " + strings.ReplaceAll(err.Error(), "\n", "; "), Hint: hint}
}

// traceSuffix ends the names of the timelines that run --trace and profile write.
const traceSuffix = ".trace.json.gz"

// traceFiles names the timelines of a cell: NAME-CELL-CONFIGURATION.trace.json.gz,
// after the record.
func (s *runSession) traceFiles(req bench.CellRequest) []string {
	if s.traceDir == "" {
		return nil
	}
	var out []string
	for i := range req.Configurations {
		out = append(out, filepath.Join(s.traceDir, s.timelineName()+"-"+s.cellWord(req.Cell)+"-"+configurationWord(req.Configurations, i)+traceSuffix))
	}
	return out
}

// timelineName begins the names of this run's timelines.
func (s *runSession) timelineName() string {
	if s.target != "" {
		return strings.TrimSuffix(strings.TrimSuffix(filepath.Base(s.target), ".gz"), ".json")
	}
	return "trbench-" + s.record.Created.UTC().Format("20060102T150405Z")
}

// keptTimelines is the folder of the timelines that a record names; empty where
// it names none, or they lie beside it.
func keptTimelines(r *results.Record, record string) string {
	for _, file := range timelinesOf(r, record) {
		if dir := filepath.Dir(file); dir != filepath.Dir(record) {
			return dir
		}
	}
	return ""
}

// timelines are the files that a process is to write, as they were before.
type timelines map[string]os.FileInfo // nil for one that was not there

func statTimelines(files []string) timelines {
	t := timelines{}
	for _, f := range files {
		t[f], _ = os.Stat(f)
	}
	return t
}

// discardOthers removes what is there now and was not, whole or in parts. The
// process that wrote it has ended. What cannot be removed stays: the failure
// that it is about comes first.
func (t timelines) discardOthers() {
	for f, was := range t {
		if now, err := os.Stat(f); err == nil && now.Mode().IsRegular() && (was == nil || !os.SameFile(was, now)) {
			_ = os.Remove(f)
		}
		_ = write.Discard(f)
	}
}

// cellWord names a cell of the plan, and no other one, in a file's name.
func (s *runSession) cellWord(k results.CellKey) string {
	word := func(k results.CellKey) string { return fmt.Sprintf("%s-b%d-g%d", k.Workload, k.Batch, k.GPUs) }
	at, same := 0, 0
	for i, other := range s.plan.Cells {
		if other == k {
			at = i
		}
		if word(other) == word(k) {
			same++
		}
	}
	if same > 1 {
		return fmt.Sprintf("%s-cell%d", word(k), at)
	}
	return word(k)
}

// configurationWord names a configuration of a list likewise.
func configurationWord(keys []results.ConfigurationKey, i int) string {
	word := strings.ReplaceAll(keys[i].String(), "/", "-")
	if ns := keys[i].DispatchNs; ns > 0 {
		word += fmt.Sprintf("-dispatch%dns", ns)
	}
	return word
}

// timelinesOf are the files of a record's timelines. In the record a name is
// relative to the record's folder, or absolute.
func timelinesOf(r *results.Record, record string) (files []string) {
	for i := range r.Cells {
		for j := range r.Cells[i].Configurations {
			if t := r.Cells[i].Configurations[j].Trace; t != nil && t.File != "" {
				files = append(files, results.TraceFile(filepath.Dir(record), t.File))
			}
		}
	}
	return files
}

// settleTraceFiles makes the names of timelines relative to the record, where
// they lie below it.
func settleTraceFiles(r *results.Record, record string) {
	for i := range r.Cells {
		for j := range r.Cells[i].Configurations {
			t := r.Cells[i].Configurations[j].Trace
			if t == nil || !filepath.IsAbs(t.File) {
				continue
			}
			if rel, err := filepath.Rel(filepath.Dir(record), t.File); err == nil && filepath.IsLocal(rel) {
				t.File = filepath.ToSlash(rel)
			}
		}
	}
}
