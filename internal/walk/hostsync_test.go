package walk

import (
	"fmt"
	"testing"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

// hostTrace is a rank that runs nothing and writes down, in order, what is
// submitted and what the host waits for.
type hostTrace struct {
	device.Rank
	w      *workloads.Workload
	pinned []byte
	list   []traced
	shared map[[4]int]bool // whether two sub-graphs in their variants conflict
}

// traced is a sub-graph launched, or a moment at which the first upTo entries
// of the list that ran on the stream are done.
type traced struct {
	launch  bool
	id      workloads.SubGraph
	variant workloads.Variant
	stream  workloads.Stream
	upTo    int
}

type tracedOp struct {
	device.Op
	b *workloads.Bound
}

func (o tracedOp) Bound() *workloads.Bound { return o.b }
func (o tracedOp) Calls() int              { return 1 }

// tracedEvent is what a stream had been given when it was recorded. The host
// never finds it reached before it waits.
type tracedEvent struct {
	r    *hostTrace
	s    workloads.Stream
	upTo int
}

func (e *tracedEvent) Query() (bool, error) { return false, nil }
func (e *tracedEvent) Sync() error {
	e.r.list = append(e.r.list, traced{stream: e.s, upTo: e.upTo})
	return nil
}

func (r *hostTrace) ID() int                                       { return 0 }
func (r *hostTrace) Pinned() []byte                                { return r.pinned }
func (r *hostTrace) Prepare(b *workloads.Bound) (device.Op, error) { return tracedOp{b: b}, nil }
func (r *hostTrace) NewEvent(string) (device.Event, error)         { return &tracedEvent{r: r}, nil }
func (r *hostTrace) Read(x workloads.Region, dst []byte) error     { clear(dst); return nil }
func (r *hostTrace) Write(workloads.Region, []byte) error          { return nil }
func (r *hostTrace) Wait(s workloads.Stream, e device.Event) error {
	return fmt.Errorf("%s waits for an event", s)
}
func (r *hostTrace) Record(s workloads.Stream, e device.Event) error {
	e.(*tracedEvent).s, e.(*tracedEvent).upTo = s, len(r.list)
	return nil
}
func (r *hostTrace) Sync(s workloads.Stream) error {
	r.list = append(r.list, traced{stream: s, upTo: len(r.list)})
	return nil
}

func (r *hostTrace) Launch(id workloads.SubGraph, v workloads.Variant, c *Counts) error {
	r.list = append(r.list, traced{launch: true, id: id, variant: v, stream: id.Info().Stream})
	return nil
}

// unsynced lists the pairs of sub-graphs on different streams that touch common
// bytes, at least one writing, where the host submitted the second without
// having seen the first done.
func (r *hostTrace) unsynced(c workloads.Control) []string {
	var out []string
	for j, b := range r.list {
		for i, a := range r.list[:j] {
			if !a.launch || !b.launch || a.stream == b.stream {
				continue
			}
			pair := [4]int{int(a.id), int(a.variant), int(b.id), int(b.variant)}
			conflict, known := r.shared[pair]
			if !known {
				conflict = conflicting(r.w.Bounds(a.id, a.variant, c), r.w.Bounds(b.id, b.variant, c))
				r.shared[pair] = conflict
			}
			if !conflict {
				continue
			}
			done := false
			for _, s := range r.list[i:j] {
				done = done || !s.launch && s.stream == a.stream && s.upTo > i
			}
			if !done {
				out = append(out, fmt.Sprintf("%d: %s (%s), %d: %s (%s)", i, a.id, a.variant, j, b.id, b.variant))
			}
		}
	}
	return out
}

func conflicting(a, b []*workloads.Bound) bool {
	over := func(x, y []workloads.Region) bool {
		for _, r := range x {
			for _, s := range y {
				if r.Overlaps(s) {
					return true
				}
			}
		}
		return false
	}
	for _, x := range a {
		for _, y := range b {
			if over(x.Writes, y.Writes) || over(x.Writes, y.Reads) || over(x.Reads, y.Writes) {
				return true
			}
		}
	}
	return false
}

// With joins on the host no stream waits for another, so of any two sub-graphs
// that share data the host must have seen the first done before it submits the
// second, within a segment and from one to the next.
func TestHostJoinsOrderEverything(t *testing.T) {
	var script []workloads.Segment
	epoch := func(steps int) {
		script = append(script, workloads.Segment{Phase: workloads.EpochBegin, Variant: workloads.FinalFull})
		for i := range steps {
			script = append(script, workloads.Segment{Phase: workloads.TrainStep, Half: workloads.Half(i % 2), Variant: workloads.FinalFull})
		}
		script = append(script,
			workloads.Segment{Phase: workloads.TrainStep, Half: workloads.Half(steps % 2), Variant: workloads.FinalLast},
			workloads.Segment{Phase: workloads.EpochEnd, Variant: workloads.FinalFull})
	}
	epoch(3)
	script = append(script, workloads.Segment{Phase: workloads.ValBegin, Variant: workloads.ValFull})
	for i := range 3 {
		v := workloads.ValFull
		if i == 2 {
			v = workloads.ValLast
		}
		script = append(script, workloads.Segment{Phase: workloads.ValBatch, Half: workloads.Half(i % 2), Variant: v, First: i == 0})
	}
	script = append(script, workloads.Segment{Phase: workloads.ValEnd, Variant: workloads.ValFull})
	epoch(2)

	for _, s := range []workloads.Spec{
		{},
		{Precision: workloads.AMP, EMA: true},
		{Precision: workloads.AMP, EMA: true, Optimizer: workloads.LARS, Ranks: 2},
		{Optimizer: workloads.LARS, FreezeStem: true},
		{Optimizer: workloads.Nesterov, EMA: true, FreezeStem: true},
	} {
		for _, control := range []workloads.Control{workloads.ControlDevice, workloads.ControlHost} {
			t.Run(fmt.Sprintf("%s/%s/ema=%v/frozen=%v/%s", s.Precision, s.Optimizer, s.EMA, s.FreezeStem, control), func(t *testing.T) {
				s.Model, s.Batch, s.LastTrainBatch, s.LastValBatch = "golden-tiny", 2, 1, 1
				w, err := workloads.New(s, workloads.Target{Lowering: workloads.Fused})
				if err != nil {
					t.Fatal(err)
				}
				r := &hostTrace{w: w, pinned: make([]byte, w.PinnedBytes), shared: map[[4]int]bool{}}
				table, err := Prepare(r, w, workloads.AllVariants())
				if err != nil {
					t.Fatal(err)
				}
				walker, err := NewWalker(r, table, Config{SyncHost, control}, r, noFeed)
				if err != nil {
					t.Fatal(err)
				}
				for _, seg := range script {
					if err := walker.Run(seg); err != nil {
						t.Fatal(err)
					}
				}
				bad := r.unsynced(control)
				for _, pair := range bad[:min(len(bad), 5)] {
					t.Errorf("submitted without waiting for the first: %s", pair)
				}
				if len(bad) > 5 {
					t.Errorf("and %d more", len(bad)-5)
				}

				// The check can tell: on every stream there are joins without
				// which some pair is not ordered.
				all := r.list
				needed := map[string]bool{}
				for i, x := range all {
					if x.launch {
						continue
					}
					r.list = append(append([]traced(nil), all[:i]...), all[i+1:]...)
					for k := range r.list {
						if !r.list[k].launch && r.list[k].upTo > i {
							r.list[k].upTo--
						}
					}
					if len(r.unsynced(control)) > 0 {
						needed[x.stream.String()] = true
					}
				}
				r.list = all
				if !needed["COMP_1"] || !needed["TRANS"] || !needed["UPDATE"] && control == workloads.ControlDevice {
					t.Errorf("dropping host joins is noticed on %v only", needed)
				}
			})
		}
	}
}
