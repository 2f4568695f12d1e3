package worker

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/device/cpu"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/timeline"
	"github.com/tech-renaissance/trbench/timeline/read"
	"github.com/tech-renaissance/trbench/workloads"
)

// What is recorded of steps is what their schedule has, on every rank, in every
// mode, and leaves the same bits as steps that nothing recorded.
func TestRecord(t *testing.T) {
	spec := tinySpec()
	spec.Ranks = 2
	s := open(t, spec, cpu.Options{}, Options{})
	const steps = 3
	after := func(x *Executor, run func() error) *State {
		t.Helper()
		must(t, s.Restore(), x.Begin(), run())
		return state(t, s)
	}
	for _, k := range eachMode() {
		t.Run(k.String(), func(t *testing.T) {
			x := executor(t, s, k)
			want := after(x, func() error {
				if err := x.Submit(steps); err != nil {
					return err
				}
				return x.Wait()
			})
			x.Clocks()
			counts := x.Counts()
			var rec *timeline.Timeline
			got := after(x, func() (err error) { rec, err = x.Record(steps); return err })
			equal(t, "recorded", got, want)
			i := timeline.NewIndex(rec)
			for d := range rec.Devices {
				all := i.Steps(int32(d))
				if len(all) != steps {
					t.Fatalf("rank %d: %d steps", d, len(all))
				}
				for n, st := range all {
					kernels := 0
					for _, nodes := range []string{"kernel", "collective"} {
						kernels += int(counts.GraphNodes[nodes])
					}
					if k.Mode != "eager" && st.Kernels != kernels || int64(st.Launches) != *counts.Launches.Host {
						t.Errorf("rank %d, step %d: %d kernels by %d launches; the graphs have %d nodes, and the step makes %d launches",
							d, n, st.Kernels, st.Launches, kernels, *counts.Launches.Host)
					}
				}
			}
			feeds := 0
			for _, r := range rec.Ranges {
				if r.Class == timeline.RangeFeed {
					feeds++
				}
			}
			// A batch a rank and step; mode step may leave the last one to the next run.
			if feeds < 2*(steps-1) || feeds > 2*steps {
				t.Errorf("%d batches were fed", feeds)
			}
		})
	}
	// Off means off: nothing more is noted.
	for i := range s.traces {
		if s.traces[i] != nil {
			t.Errorf("rank %d is still recorded", i)
		}
	}
}

// The file of a configuration opens as a Chrome trace, and has the figures that
// the recording has.
func TestTraceFile(t *testing.T) {
	dir := t.TempDir()
	cell := results.DefaultCellKey()
	cell.Workload, cell.Batch, cell.GPUs = "golden-tiny", 2, 1
	keys := eachMode()
	req := bench.CellRequest{Cell: cell, Configurations: keys, Steps: 2, Blocks: 1, Single: 1, Warmup: new(0), Quick: true, Seed: 1, TraceSteps: 2}
	for _, k := range keys {
		req.TraceFiles = append(req.TraceFiles, filepath.Join(dir, k.Mode+".trace.json.gz"))
	}
	c, err := RunCell(t.Context(), cpu.New(cpu.Options{}), req)
	must(t, err)
	for i := range c.Configurations {
		tr := c.Configurations[i].Trace
		if tr.Failed != "" || tr.File != req.TraceFiles[i] {
			t.Fatalf("%s: %q, %q", keys[i], tr.Failed, tr.File)
		}
		again, err := read.File(tr.File, read.Options{})
		must(t, err)
		if read.Damaged(again.Read) || len(again.Devices) != 1 || !again.Devices[0].Host {
			t.Errorf("%s: %+v, %+v", keys[i], again.Read, again.Devices)
		}
		x := timeline.NewIndex(again)
		st := slices.DeleteFunc(x.Steps(0), func(s timeline.Step) bool { return strings.HasPrefix(s.Name, timeline.LeadStep) })
		if len(st) != 3 {
			t.Fatalf("%s: %d steps", keys[i], len(st))
		}
		var busy, idle []float64
		for n := range 2 {
			f := x.DeviceFigures(0, timeline.Window{FromNs: st[n].GPU.FromNs, ToNs: st[n+1].GPU.FromNs})
			busy, idle = append(busy, float64(f.BusyNs)), append(idle, float64(f.IdleNs))
		}
		for name, want := range map[string][]float64{results.BusyNs: busy, results.IdleNs: idle} {
			var got []float64
			for _, s := range tr.Metric(name).Samples {
				got = append(got, s.Value)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %s is %v in the record and %v in the file", keys[i], name, got, want)
			}
		}
	}
	// A place where no file can be is the trace's failure, not the cell's.
	must(t, os.RemoveAll(dir))
	c, err = RunCell(t.Context(), cpu.New(cpu.Options{}), req)
	must(t, err)
	for _, x := range c.Configurations {
		if x.Trace == nil || !strings.HasPrefix(x.Trace.Failed, "write trace ") || x.Trace.File != "" || x.Metric(results.StepTimeNs) == nil {
			t.Errorf("%s: %+v", x.Key, x.Trace)
		}
	}
}

// An epoch's last batch and a validation are steps as well.
func TestRecordOtherVariants(t *testing.T) {
	for _, v := range []workloads.Variant{workloads.FinalLast, workloads.ValFull} {
		s := open(t, tinySpec(), cpu.Options{}, Options{Variants: []workloads.Variant{v}, Timed: v})
		x := executor(t, s, key("step/inside/device"))
		must(t, s.Restore(), x.Begin())
		rec, err := x.Record(3)
		must(t, err)
		i := timeline.NewIndex(rec)
		st := i.Steps(0)
		if len(st) != 3 || slices.ContainsFunc(st, func(s timeline.Step) bool { return s.Kernels == 0 || s.Kernels != st[0].Kernels }) {
			t.Errorf("variant %d: %+v", v, st)
		}
	}
}
