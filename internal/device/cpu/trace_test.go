package cpu

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/timeline"
	"github.com/tech-renaissance/trbench/workloads"
)

// recorded is a recording's index, with what its structure must be checked.
func (x *bench) recorded() *timeline.Index {
	x.t.Helper()
	t, err := x.g.Recorded()
	must(x.t, err)
	if t.Format != timeline.FormatCPU || len(t.Devices) != x.g.Ranks() || len(t.Threads) != x.g.Ranks() ||
		len(t.Streams) != x.g.Ranks()*int(workloads.NumStreams) {
		x.t.Fatalf("%s: %d devices, %d threads, %d streams", t.Format, len(t.Devices), len(t.Threads), len(t.Streams))
	}
	for i := range t.Devices {
		if t.Devices[i].ID != fmt.Sprint(i) || !t.Devices[i].Host || t.Threads[i].Name != device.TraceThread(i) {
			x.t.Errorf("device %+v, thread %+v of rank %d", t.Devices[i], t.Threads[i], i)
		}
	}
	return timeline.NewIndex(t)
}

// ran lists operators with their streams and the calls that launched them, in
// the order of names.
func ran(x *timeline.Index) []string {
	var out []string
	for i, o := range x.T.Ops {
		by := "nothing"
		if c := x.Launch[i]; c != timeline.None {
			by = x.T.Text(x.T.Calls[c].Name)
		}
		out = append(out, fmt.Sprintf("%s on %s of %s by %s", x.T.Text(o.Name), x.T.Streams[o.Stream].Name, x.T.Devices[o.Device].ID, by))
	}
	slices.Sort(out)
	return out
}

func called(x *timeline.Index) []string {
	var out []string
	for _, c := range x.T.Calls {
		if c.EndNs < c.StartNs {
			out = append(out, "backwards")
		}
		out = append(out, x.T.Text(c.Name))
	}
	return out
}

func TestTrace(t *testing.T) {
	x := open(t, 2, Options{})
	if _, err := x.g.Recorded(); err == nil {
		t.Error("something was recorded before anything was")
	}
	nothing := func(*memory) {}
	var execs [2]device.Exec
	var ops [2][]device.Op
	must(t, x.g.Each(func(r device.Rank) error {
		i := r.ID()
		a, b := x.op(r, workloads.DeepFwdBwd, "a", nothing), x.op(r, workloads.ZeroGrad, "b", nothing)
		ops[i] = []device.Op{a, b}
		g := x.fork(r, a, b, a)
		var err error
		execs[i], err = g.Instantiate()
		must(t, err, a.Submit(0), r.SyncAll(), g.Close())
		return nil
	}))
	steps := func(ranks ...int) {
		must(t, x.g.Each(func(r device.Rank) error {
			if i := r.ID(); slices.Contains(ranks, i) {
				e := x.event(r, "e")
				must(t, ops[i][0].Submit(0), r.Record(workloads.COMP1, e), r.Wait(workloads.UPDATE, e), ops[i][1].Submit(0),
					execs[i].Launch(workloads.COMP1, 0), e.Sync(), r.Sync(workloads.UPDATE), r.SyncAll())
			}
			return nil
		}))
	}
	steps(0) // not recorded
	must(t, x.g.Trace(true))
	begin := x.g.TraceNow()
	steps(0, 1)
	end := x.g.TraceNow()
	must(t, x.g.Trace(false))
	steps(0, 1) // nor this
	got := x.recorded()

	want := []string{}
	for i := range 2 {
		for _, o := range []string{"DEEP_FWD_BWD/a on COMP_1 of %d by launch graph", "DEEP_FWD_BWD/a on COMP_1 of %d by launch graph",
			"DEEP_FWD_BWD/a on COMP_1 of %d by submit operator", "ZERO_GRAD/b on UPDATE of %d by launch graph", "ZERO_GRAD/b on UPDATE of %d by submit operator"} {
			want = append(want, fmt.Sprintf(o, i))
		}
	}
	slices.Sort(want)
	if have := ran(got); !slices.Equal(have, want) {
		t.Errorf("ran\n%q, want\n%q", have, want)
	}
	calls := []string{"submit operator", "record event", "wait for event", "submit operator", "launch graph", "synchronize event", "synchronize stream", "synchronize all streams"}
	if have := called(got); !slices.Equal(have, append(calls, calls...)) {
		t.Errorf("calls %q", have)
	}
	for i, o := range got.T.Ops {
		if o.StartNs < begin || o.EndNs > end || o.EndNs < o.StartNs || !o.Timed {
			t.Errorf("op %d is at %d to %d, outside of %d to %d", i, o.StartNs, o.EndNs, begin, end)
		}
		if c := got.Launch[i]; c != timeline.None && (got.T.Calls[c].StartNs > o.StartNs || got.T.Threads[got.T.Calls[c].Thread].Name != device.TraceThread(int(o.Device))) {
			t.Errorf("op %d began before its launch, or on another rank's thread", i)
		}
	}
	for d := range got.T.Devices {
		if s := got.GraphStats(int32(d), timeline.Window{FromNs: begin, ToNs: end}); s.Launches != 1 || s.Ops != 3 || s.Short != 0 {
			t.Errorf("rank %d: %+v", d, s)
		}
	}

	// A second recording has nothing of the first.
	must(t, x.g.Trace(true))
	steps(1)
	if again := x.recorded(); len(again.T.Ops) != 5 || len(again.T.Calls) != len(calls) {
		t.Errorf("%d operators and %d calls", len(again.T.Ops), len(again.T.Calls))
	}
	must(t, x.g.Trace(false), x.g.Trace(false))
	must(t, x.g.Each(func(r device.Rank) error { return execs[r.ID()].Close() }))
}

// Kinds are those that a graph's nodes have.
func TestTraceKinds(t *testing.T) {
	x := open(t, 1, Options{})
	must(t, x.g.Trace(true))
	x.do(func(r device.Rank) {
		for _, op := range []workloads.Op{workloads.OpChain, workloads.OpZero, workloads.OpCopyIn} {
			b := x.bound(workloads.ZeroGrad, op.String(), func(*memory) {})
			b.Op, b.Out = op, []workloads.Operand{{Region: workloads.Region{Bytes: 12}}}
			o, err := r.Prepare(b)
			must(t, err, o.Submit(0))
		}
		must(t, r.SyncAll())
	})
	got := x.recorded()
	var kinds []timeline.Kind
	for _, o := range got.T.Ops {
		if kinds = append(kinds, o.Kind); (o.Kind == timeline.Kernel) != (o.Bytes == 0) {
			t.Errorf("%d bytes", o.Bytes)
		}
	}
	if want := []timeline.Kind{timeline.Kernel, timeline.Fill, timeline.Copy}; !slices.Equal(kinds, want) {
		t.Errorf("kinds %v, want %v", kinds, want)
	}
	if c := got.T.Calls[1]; c.Class != timeline.CallCopy {
		t.Errorf("a fill's call is %+v", c)
	}
}

// BenchmarkSubmit is what a submission costs with recording off and on.
func BenchmarkSubmit(b *testing.B) {
	for _, on := range []bool{false, true} {
		b.Run(fmt.Sprintf("trace=%t", on), func(b *testing.B) {
			d := New(Options{})
			d.compile = func(*workloads.Bound, *memory, *stream) (func(), error) { return func() {}, nil }
			g, err := d.Open(&workloads.Workload{Spec: workloads.Spec{Ranks: 1}, ArenaBytes: 64, PinnedBytes: 64})
			if err != nil {
				b.Fatal(err)
			}
			defer g.Close()
			if on {
				if err := g.(device.Tracer).Trace(true); err != nil {
					b.Fatal(err)
				}
			}
			err = g.Rank(0).Do(func() error {
				o, err := g.Rank(0).Prepare(&workloads.Bound{Node: &workloads.Node{Name: "n", Op: workloads.OpChain}, SubGraph: workloads.ZeroGrad})
				if err != nil {
					return err
				}
				b.ReportAllocs()
				for b.Loop() {
					if err := o.Submit(0); err != nil {
						return err
					}
				}
				return g.Rank(0).SyncAll()
			})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}
