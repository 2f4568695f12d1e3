package walk

import (
	"fmt"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

// Feeder fills a pinned half with a batch. index counts the batches fed so far
// in the split (training and validation apart). dst is the whole half: images
// (U8) first, labels (I32) at the workload's labels offset. It runs on the
// rank's thread, between steps' submissions, and must not allocate.
type Feeder func(v workloads.Variant, half workloads.Half, index int64, dst []byte) error

// Position is where a runner stands in its data. Restoring it together with
// the rank's memory repeats the same steps.
type Position struct {
	// Train and Val are the batches fed so far in each split.
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
}

// NewFeed makes the consumed events. It runs on the rank's thread.
func NewFeed(r device.Rank, w *workloads.Workload, feeder Feeder) (*Feed, error) {
	f := &Feed{rank: r, feeder: feeder}
	pinned := r.Pinned()
	for _, h := range []workloads.Half{workloads.A, workloads.B} {
		f.half[h] = HalfBytes(w, pinned, h)
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

// Fill waits for the half to be consumed, which sw counts as blocked, and
// fills it with the next batch of the variant's split.
func (f *Feed) Fill(v workloads.Variant, h workloads.Half, sw *Stopwatch) error {
	sw.Mark()
	err := f.consumed[h].Sync()
	sw.Waited()
	if err != nil {
		return fmt.Errorf("wait until half %s is consumed: %w", h, err)
	}
	index := &f.pos.Train
	if v.Val() {
		index = &f.pos.Val
	}
	if err := f.feeder(v, h, *index, f.half[h]); err != nil {
		return fmt.Errorf("feed batch %d into half %s: %w", *index, h, err)
	}
	*index++
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

// SetPosition moves it. The rank is drained.
func (f *Feed) SetPosition(p Position) { f.pos = p }

// Advance moves the half once a segment was submitted.
func (f *Feed) Advance(seg workloads.Segment) {
	switch seg.Phase {
	case workloads.EpochBegin, workloads.ValBegin:
		f.pos.Half, f.pos.First = workloads.A, true
	case workloads.TrainStep, workloads.ValBatch:
		f.pos.Half, f.pos.First = seg.Half.Other(), false
	}
}
