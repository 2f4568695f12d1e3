package walk

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

// fakeRank writes down every call. It has memory but runs nothing.
type fakeRank struct {
	device.Rank
	w      *workloads.Workload
	arena  []byte
	pinned []byte
	log    []string
	block  time.Duration // of each Sync
	fail   string        // the call that fails
	busy   bool          // no event is reached before the host waits for it
}

func newFakeRank(w *workloads.Workload) *fakeRank {
	return &fakeRank{w: w, arena: make([]byte, w.ArenaBytes), pinned: make([]byte, w.PinnedBytes)}
}

func (r *fakeRank) did(format string, args ...any) error {
	s := fmt.Sprintf(format, args...)
	r.log = append(r.log, s)
	if r.fail != "" && strings.HasPrefix(s, r.fail) {
		return errors.New("refused")
	}
	return nil
}

func (r *fakeRank) take() []string {
	l := r.log
	r.log = nil
	return l
}

type fakeOp struct {
	r *fakeRank
	b *workloads.Bound
}

func (o *fakeOp) Bound() *workloads.Bound          { return o.b }
func (o *fakeOp) Calls() int                       { return 1 }
func (o *fakeOp) Submit(v workloads.Variant) error { return o.r.did("submit %s", o.b.Name) }

type fakeEvent struct {
	r    *fakeRank
	name string
}

func (e *fakeEvent) Sync() error {
	time.Sleep(e.r.block)
	return e.r.did("host waits for %s", e.name)
}
func (e *fakeEvent) Query() (bool, error) { return !e.r.busy, nil }

func (r *fakeRank) ID() int { return 0 }
func (r *fakeRank) Prepare(b *workloads.Bound) (device.Op, error) {
	return &fakeOp{r, b}, r.did("prepare %s/%s", b.SubGraph, b.Name)
}
func (r *fakeRank) NewEvent(name string) (device.Event, error) { return &fakeEvent{r, name}, nil }
func (r *fakeRank) Record(s workloads.Stream, e device.Event) error {
	return r.did("record %s on %s", e.(*fakeEvent).name, s)
}
func (r *fakeRank) Wait(s workloads.Stream, e device.Event) error {
	return r.did("%s waits for %s", s, e.(*fakeEvent).name)
}
func (r *fakeRank) Sync(s workloads.Stream) error {
	time.Sleep(r.block)
	return r.did("sync %s", s)
}
func (r *fakeRank) SyncAll() error { return r.did("sync all") }
func (r *fakeRank) Read(x workloads.Region, dst []byte) error {
	copy(dst, r.arena[x.Off:x.End()])
	return r.did("read %d", x.Bytes)
}
func (r *fakeRank) Write(x workloads.Region, src []byte) error {
	copy(r.arena[x.Off:x.End()], src)
	return r.did("write %d", x.Bytes)
}
func (r *fakeRank) Fill(x workloads.Region, b byte) error {
	for i := range r.arena[x.Off:x.End()] {
		r.arena[x.Off+int64(i)] = b
	}
	return r.did("fill %d", x.Bytes)
}
func (r *fakeRank) Pinned() []byte { return r.pinned }

// fakeLauncher logs sub-graphs.
type fakeLauncher struct {
	r    *fakeRank
	cost time.Duration
}

func (l fakeLauncher) Launch(id workloads.SubGraph, v workloads.Variant, c *Counts) error {
	time.Sleep(l.cost)
	c.Host++
	return l.r.did("launch %s", id)
}

func tiny(t testing.TB) *workloads.Workload {
	t.Helper()
	w, err := workloads.New(workloads.Spec{Model: "golden-tiny", Batch: 2, Precision: workloads.AMP, EMA: true},
		workloads.Target{Lowering: workloads.Fused})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func noFeed(workloads.Variant, workloads.Half, int64, []byte) error { return nil }

var stepB = workloads.Segment{Phase: workloads.TrainStep, Half: workloads.B, Variant: workloads.FinalFull}

func newWalker(t *testing.T, cfg Config, launch time.Duration) (*fakeRank, *Walker) {
	t.Helper()
	w := tiny(t)
	r := newFakeRank(w)
	table, err := Prepare(r, w, []workloads.Variant{workloads.FinalFull})
	if err != nil {
		t.Fatal(err)
	}
	walker, err := NewWalker(r, table, cfg, fakeLauncher{r, launch}, noFeed)
	if err != nil {
		t.Fatal(err)
	}
	r.take()
	return r, walker
}

func TestWalkFollowsTheSchedule(t *testing.T) {
	for _, cfg := range []Config{{SyncEvent, workloads.ControlDevice}, {SyncHost, workloads.ControlDevice},
		{SyncEvent, workloads.ControlHost}, {SyncHost, workloads.ControlHost}} {
		t.Run(cfg.Sync.String()+" "+cfg.Control.String(), func(t *testing.T) {
			r, w := newWalker(t, cfg, 0)
			if err := w.Run(stepB); err != nil {
				t.Fatal(err)
			}
			var runs, want []string
			counts := map[string]int{}
			for _, l := range r.log {
				verb, rest, _ := strings.Cut(l, " ")
				counts[verb]++
				if verb == "launch" {
					runs = append(runs, rest)
				}
			}
			joins := 0
			for _, a := range r.w.Schedule(stepB) {
				if a.Kind == workloads.ActRun {
					want = append(want, a.SubGraph.String())
				}
				if a.Kind == workloads.ActJoin {
					joins++
				}
			}
			if !slices.Equal(runs, want) {
				t.Errorf("launched %v, want %v", runs, want)
			}
			st := w.Stats()
			if cfg.Sync == SyncHost {
				if counts["record"] != 1 { // the consumed half alone
					t.Errorf("%d records with host joins", counts["record"])
				}
				if counts["sync"] == 0 || counts["sync"] > joins+1 || st.Counts.Sync != int64(counts["sync"]) {
					t.Errorf("%d syncs (counted %d) for %d joins", counts["sync"], st.Counts.Sync, joins)
				}
			} else if control := counts["sync"]; (cfg.Control == workloads.ControlHost) != (control == 1) {
				t.Errorf("%d syncs with control %s", control, cfg.Control)
			}
			if host := cfg.Control == workloads.ControlHost; (counts["write"] == 1) != host || (counts["read"] == 1) != host {
				t.Errorf("%d reads and %d writes of the scalars", counts["read"], counts["write"])
			}
			if p := w.Position(); p.Train != 1 || p.Val != 0 || p.Half != workloads.A {
				t.Errorf("position %+v", p)
			}
		})
	}
}

func TestFeedWaitsForTheTransferBefore(t *testing.T) {
	r, w := newWalker(t, Config{}, 0)
	r.busy, r.block = true, time.Millisecond
	if err := w.Run(stepB); err != nil {
		t.Fatal(err)
	}
	// The step on B transfers the next batch into A.
	wait := slices.Index(r.log, "host waits for consumed A")
	launch := slices.Index(r.log, "launch TRANSFER_A")
	record := slices.Index(r.log, "record consumed A on TRANS")
	if wait < 0 || launch < wait || record != launch+1 {
		t.Errorf("wait at %d, launch at %d, record at %d of %v", wait, launch, record, r.log)
	}
	if st := w.Stats(); st.SyncWait < r.block || st.Counts.Sync != 0 {
		t.Errorf("blocked for %v in %d joins", st.SyncWait, st.Counts.Sync)
	}
	// What is consumed already is not waited for, nor timed.
	r.busy = false
	r.take()
	w.ResetStats()
	if err := w.Run(stepB); err != nil {
		t.Fatal(err)
	}
	if st := w.Stats(); st.SyncWait != 0 || slices.Contains(r.log, "host waits for consumed A") {
		t.Errorf("blocked for %v: %v", st.SyncWait, r.log)
	}
}

// A batch fed ahead is taken by the segment it was meant for and by no other,
// and only while nobody else wrote the half.
func TestFeedAhead(t *testing.T) {
	w := tiny(t)
	r := newFakeRank(w)
	table, err := Prepare(r, w, []workloads.Variant{workloads.FinalFull})
	if err != nil {
		t.Fatal(err)
	}
	var fed []string
	feed := func() *Feed {
		f, err := NewFeed(r, table, func(v workloads.Variant, h workloads.Half, index int64, dst []byte) error {
			fed = append(fed, fmt.Sprintf("%s %s %d", v, h, index))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	f, other := feed(), feed()
	var sw Stopwatch
	do := func(what string, err error, want ...string) {
		t.Helper()
		if err != nil || !slices.Equal(fed, want) {
			t.Errorf("%s: fed %q, want %q; %v", what, fed, want, err)
		}
		fed = nil
	}
	const full, last, val = workloads.FinalFull, workloads.FinalLast, workloads.ValFull
	do("fill", f.Fill(full, workloads.A, &sw), "final/full A 0")
	do("ahead", f.Ahead(full, workloads.B), "final/full B 1")
	do("ahead again", f.Ahead(full, workloads.B))
	if p := f.Position(); p.Train != 1 {
		t.Errorf("a batch fed ahead counts already: %+v", p)
	}
	do("take", f.Fill(full, workloads.B, &sw))
	if p := f.Position(); p.Train != 2 {
		t.Errorf("position %+v after two batches", p)
	}
	do("fill behind it", f.Fill(full, workloads.B, &sw), "final/full B 2")

	for _, c := range []struct {
		name  string
		spoil func() error
	}{
		{"another variant", func() error { return f.Fill(last, workloads.A, &sw) }},
		{"another split", func() error { return f.Fill(val, workloads.A, &sw) }},
		{"another position", func() error { f.SetPosition(Position{Train: 7}); return nil }},
		{"another configuration", func() error { return other.Fill(full, workloads.A, &sw) }},
	} {
		f.SetPosition(Position{Train: 3})
		if err := errors.Join(f.Ahead(full, workloads.A), c.spoil()); err != nil {
			t.Fatal(err)
		}
		fed = nil
		n := f.Position().Train
		do(c.name, f.Fill(full, workloads.A, &sw), fmt.Sprintf("final/full A %d", n))
	}

	r.busy = true
	r.take()
	do("what is not consumed is left to Fill", f.Ahead(full, workloads.B))
	if slices.Contains(r.log, "host waits for consumed B") {
		t.Error("Ahead waited")
	}
	n := f.Position().Train
	do("which waits", f.Fill(full, workloads.B, &sw), fmt.Sprintf("final/full B %d", n))
	if !slices.Contains(r.log, "host waits for consumed B") {
		t.Error("Fill did not wait")
	}
}

func TestAfter(t *testing.T) {
	for _, c := range []struct{ seg, want string }{
		{"epoch_begin A final/full", "train_step A final/full"},
		{"train_step A final/full", "train_step B final/full"},
		{"train_step B final/full", "train_step A final/full"},
		{"train_step A final/last", ""}, {"epoch_end A final/full", ""}, {"val_begin A val/full", ""}, {"val_batch A val/full", ""},
		{"simple A final/full", ""},
	} {
		for _, seg := range Segments(workloads.AllVariants()) {
			if SegmentName(seg) != c.seg {
				continue
			}
			got := ""
			if next, ok := After(seg); ok {
				got = SegmentName(next)
			}
			if got != c.want {
				t.Errorf("after %s comes %q, want %q", c.seg, got, c.want)
			}
		}
	}
}

func TestClocksAddUp(t *testing.T) {
	const launch, block = 200 * time.Microsecond, 300 * time.Microsecond
	r, w := newWalker(t, Config{SyncHost, workloads.ControlDevice}, launch)
	r.block = block
	begin := time.Now()
	if err := w.Run(stepB); err != nil {
		t.Fatal(err)
	}
	wall := time.Since(begin)
	st := w.Stats()
	if st.Total() > wall || st.Total() < wall-5*time.Millisecond {
		t.Errorf("the clocks add up to %v of %v", st.Total(), wall)
	}
	if st.Submit < time.Duration(st.Counts.Host)*launch {
		t.Errorf("submit %v for %d launches", st.Submit, st.Counts.Host)
	}
	if st.SyncWait < time.Duration(st.Counts.Sync)*block || st.Counts.Sync == 0 {
		t.Errorf("blocked %v in %d joins", st.SyncWait, st.Counts.Sync)
	}
	if st.Host <= 0 {
		t.Errorf("host time %v", st.Host)
	}
	w.ResetStats()
	if w.Stats() != (Stats{}) {
		t.Errorf("after reset: %+v", w.Stats())
	}
}

func TestHostControlIsTheRule(t *testing.T) {
	r, w := newWalker(t, Config{SyncEvent, workloads.ControlHost}, 0)
	reg := r.w.Tensor(r.w.Known.Scalars).Region
	before := workloads.Scalars{Scale: 64, NonFinite: 1, Step: 3, Growth: 2}
	copy(r.arena[reg.Off:], before.Encode())
	if err := w.Run(stepB); err != nil {
		t.Fatal(err)
	}
	want := before
	want.Advance(r.w.ControlRule(), r.w.Spec.Hyper.LearningRates)
	if got := workloads.DecodeScalars(r.arena[reg.Off:]); got != want {
		t.Errorf("scalars %+v, want %+v", got, want)
	}
}

func TestErrorsNameThePlace(t *testing.T) {
	for _, c := range []struct{ fail, want string }{
		{"launch DEEP_FWD_BWD", "train_step B final/full: launch DEEP_FWD_BWD: refused"},
		{"COMP_1 waits", `join "forward" on COMP_1`},
		{"host waits", "wait until half A is consumed"},
	} {
		r, w := newWalker(t, Config{}, 0)
		r.fail, r.busy = c.fail, true
		if err := w.Run(stepB); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.fail, err, c.want)
		}
	}
	_, w := newWalker(t, Config{}, 0)
	bad := workloads.Segment{Phase: workloads.ValBatch, Variant: workloads.ValFull}
	if err := w.Run(bad); err == nil || !strings.Contains(err.Error(), "val_batch A val/full: the variant was not prepared") {
		t.Errorf("got %v", err)
	}
}

func TestTableSharesOwners(t *testing.T) {
	w := tiny(t)
	r := newFakeRank(w)
	all := []workloads.Variant{0, 1, 2, 3, 4, 5}
	table, err := Prepare(r, w, all)
	if err != nil {
		t.Fatal(err)
	}
	filled, captured, _ := w.Totals()
	size := table.Size()
	if size.Entries != 6*33 || size.Filled != filled || size.Owned != captured || size.Bytes <= 0 {
		t.Errorf("size %+v, atlas %d filled, %d captured", size, filled, captured)
	}
	if len(r.log) != size.Prepared {
		t.Errorf("%d operators prepared, the table says %d", len(r.log), size.Prepared)
	}
	seen := map[string]bool{}
	for _, v := range all {
		for id := range workloads.NumSubGraphs {
			dev, host := table.Ops(id, v, workloads.ControlDevice), table.Ops(id, v, workloads.ControlHost)
			want := w.Bounds(id, v, workloads.ControlDevice)
			if len(dev) != len(want) {
				t.Fatalf("%s %s: %d operators, want %d", id, v, len(dev), len(want))
			}
			for i := range dev {
				if dev[i].Bound() != want[i] {
					t.Errorf("%s %s: operator %d is %s", id, v, i, dev[i].Bound().Name)
				}
			}
			for _, op := range host {
				if op.Bound().DeviceControl || !slices.Contains(dev, op) {
					t.Errorf("%s %s: host control has %s", id, v, op.Bound().Name)
				}
			}
			seen[id.String()] = seen[id.String()] || len(dev) > 0
		}
	}
	if !seen["SIMPLE_TASK_GRAPH"] || !seen["TRANSFER_A"] || seen["DEEP_COMM"] {
		t.Errorf("slots %v", seen)
	}
	r.fail = "prepare DEEP_FWD_BWD"
	if _, err := Prepare(r, w, all); err == nil || !strings.Contains(err.Error(), "prepare DEEP_FWD_BWD (begin/full): operator 0") {
		t.Errorf("got %v", err)
	}
}

func TestSnapshot(t *testing.T) {
	w := tiny(t)
	r := newFakeRank(w)
	for i := range r.arena {
		r.arena[i] = byte(i * 7)
	}
	for i := range r.pinned {
		r.pinned[i] = byte(i)
	}
	before, pinned := slices.Clone(r.arena), slices.Clone(r.pinned)
	s, err := TakeSnapshot(r, w)
	if err != nil {
		t.Fatal(err)
	}
	clear(r.arena)
	clear(r.pinned)
	if err := s.Restore(r); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(pinned, r.pinned) {
		t.Error("the pinned halves differ")
	}
	kept := int64(0)
	fixed := make([]bool, len(r.arena))
	for _, tensor := range w.Tensors {
		if tensor.Role != workloads.RoleActivation && tensor.Region.Space == workloads.Arena {
			for i := tensor.Region.Off; i < tensor.Region.End(); i++ {
				fixed[i] = true
			}
		}
	}
	for i, f := range fixed {
		want := byte(0xff)
		if f {
			want = before[i]
			kept++
		}
		// Alignment gaps between kept tensors may be either.
		if f && r.arena[i] != want || !f && r.arena[i] != want {
			t.Fatalf("byte %d is %#x, want %#x", i, r.arena[i], want)
		}
	}
	if s.Bytes() != kept+int64(len(r.pinned)) {
		t.Errorf("the snapshot has %d bytes, want %d", s.Bytes(), kept+int64(len(r.pinned)))
	}
}
