package walk

import (
	"fmt"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

// Feeder fills a pinned half with a batch. index counts the batches fed so far
// in the split (training and validation apart). dst is the whole half: images
// (U8) first, labels (I32) at the workload's labels offset. It runs on the
// rank's thread, between steps' submissions, and must not allocate. The same
// arguments always give the same bytes.
type Feeder func(v workloads.Variant, half workloads.Half, index int64, dst []byte) error

// Position is where a runner stands in its data. Restoring it together with
// the rank's memory repeats the same steps.
type Position struct {
	// Train and Val are the batches that submitted segments took so far in each
	// split; one fed ahead counts once a segment takes it.
	Train, Val int64
	// Half is the half that the next step or validation batch runs on.
	Half workloads.Half
	// First says that no batch of the current validation was submitted yet.
	First bool
}

// Feed keeps the two pinned halves of a rank: it waits until the device has
// consumed a half and only then has the next batch written there. It belongs
// to its rank's thread.
type Feed struct {
	rank     device.Rank
	feeder   Feeder
	half     [2][]byte
	consumed [2]device.Event
	pos      Position
	ahead    batch
	// owner is, for each half, the feed of the rank that wrote it last: the
	// rank's configurations share the halves.
	owner *[2]*Feed
}

// batch is one that lies in a half before a segment has taken it.
type batch struct {
	ok      bool
	half    workloads.Half
	variant workloads.Variant
	index   int64
}

// NewFeed makes the consumed events. It runs on the rank's thread.
func NewFeed(r device.Rank, t *Table, feeder Feeder) (*Feed, error) {
	f := &Feed{rank: r, feeder: feeder, owner: &t.halves}
	pinned := r.Pinned()
	for _, h := range []workloads.Half{workloads.A, workloads.B} {
		f.half[h] = HalfBytes(t.w, pinned, h)
		e, err := r.NewEvent("consumed " + h.String())
		if err != nil {
			return nil, fmt.Errorf("event for the consumed half %s: %w", h, err)
		}
		f.consumed[h] = e
	}
	return f, nil
}

// HalfBytes is a half's part of the pinned memory.
func HalfBytes(w *workloads.Workload, pinned []byte, h workloads.Half) []byte {
	reg := w.Tensors[w.Known.Pinned[h]].Region
	return pinned[reg.Off:reg.End():reg.End()]
}

// Fill has the next batch of the variant's split in the half when it returns.
// If it was not fed ahead, Fill waits until the half is consumed, which sw
// counts as blocked, and writes it. A wait that is over before it begins is
// not timed: reading the clock twice would take longer than it.
func (f *Feed) Fill(v workloads.Variant, h workloads.Half, sw *Stopwatch) error {
	b := f.next(v, h)
	if !f.holds(b) {
		reached, err := f.consumed[h].Query()
		if err == nil && !reached {
			sw.Mark()
			err = f.consumed[h].Sync()
			sw.Waited()
		}
		if err != nil {
			return fmt.Errorf("wait until half %s is consumed: %w", h, err)
		}
		if err := f.write(b); err != nil {
			return err
		}
	}
	f.ahead.ok = false
	*f.count(v)++
	return nil
}

// Ahead writes the batch that a later Fill of the variant and half will ask
// for, if the half is consumed already; it never waits. Whoever submits a
// segment as a whole feeds the next one behind it, as the others feed it in
// the middle of theirs.
func (f *Feed) Ahead(v workloads.Variant, h workloads.Half) error {
	b := f.next(v, h)
	if f.holds(b) {
		return nil
	}
	reached, err := f.consumed[h].Query()
	if err != nil {
		return fmt.Errorf("ask whether half %s is consumed: %w", h, err)
	}
	if !reached {
		return nil
	}
	if err := f.write(b); err != nil {
		return err
	}
	f.ahead = b
	return nil
}

// count is how far the variant's split has come.
func (f *Feed) count(v workloads.Variant) *int64 {
	if v.Val() {
		return &f.pos.Val
	}
	return &f.pos.Train
}

func (f *Feed) next(v workloads.Variant, h workloads.Half) batch {
	return batch{true, h, v, *f.count(v)}
}

// holds says that the batch lies in its half, unread.
func (f *Feed) holds(b batch) bool { return f.ahead == b && f.owner[b.half] == f }

func (f *Feed) write(b batch) error {
	f.ahead.ok = false
	f.owner[b.half] = f
	if err := f.feeder(b.variant, b.half, b.index, f.half[b.half]); err != nil {
		return fmt.Errorf("feed batch %d into half %s: %w", b.index, b.half, err)
	}
	return nil
}

// Consumed marks the work now on s as the last that reads the pinned half.
func (f *Feed) Consumed(s workloads.Stream, h workloads.Half) error {
	if err := f.rank.Record(s, f.consumed[h]); err != nil {
		return fmt.Errorf("record that half %s is consumed: %w", h, err)
	}
	return nil
}

// Position returns where the feed stands.
func (f *Feed) Position() Position { return f.pos }

// SetPosition moves it. The rank is drained, and its halves may hold anything.
func (f *Feed) SetPosition(p Position) { f.pos, f.ahead.ok = p, false }

// Advance moves the half once a segment was submitted.
func (f *Feed) Advance(seg workloads.Segment) {
	switch seg.Phase {
	case workloads.EpochBegin, workloads.ValBegin:
		f.pos.Half, f.pos.First = workloads.A, true
	case workloads.TrainStep, workloads.ValBatch:
		f.pos.Half, f.pos.First = seg.Half.Other(), false
	}
}
