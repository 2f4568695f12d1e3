package walk

import "github.com/tech-renaissance/trbench/workloads"

// Segments lists every segment that a run over the variants may visit, in a
// fixed order: for a training variant the begin of an epoch, a step on either
// half and the end; for a validation variant the same of validation; then the
// stand-alone chain.
func Segments(variants []workloads.Variant) []workloads.Segment {
	var out []workloads.Segment
	for _, v := range variants {
		begin, step, end := workloads.EpochBegin, workloads.TrainStep, workloads.EpochEnd
		if v.Val() {
			begin, step, end = workloads.ValBegin, workloads.ValBatch, workloads.ValEnd
		}
		for _, p := range []workloads.Phase{begin, step, end, workloads.Simple} {
			for _, h := range []workloads.Half{workloads.A, workloads.B} {
				out = append(out, workloads.Segment{Phase: p, Half: h, Variant: v})
				if p == workloads.ValBatch {
					out = append(out, workloads.Segment{Phase: p, Half: h, Variant: v, First: true})
				}
			}
		}
	}
	return out
}

// After is the step that follows a segment while its epoch of full batches goes
// on; ok is false where another variant or phase, or nothing, may follow.
func After(seg workloads.Segment) (next workloads.Segment, ok bool) {
	next = workloads.Segment{Phase: workloads.TrainStep, Half: workloads.A, Variant: seg.Variant}
	switch {
	case seg.Variant.Last() || seg.Variant.Val():
		return next, false
	case seg.Phase == workloads.TrainStep:
		next.Half = seg.Half.Other()
		return next, true
	}
	return next, seg.Phase == workloads.EpochBegin
}

// SegmentName is how messages name a segment: "train_step A final/full".
func SegmentName(s workloads.Segment) string {
	name := s.Phase.String() + " " + s.Half.String() + " " + s.Variant.String()
	if s.First {
		name += " (first)"
	}
	return name
}

// SegmentTable maps segments to a T, densely.
type SegmentTable[T any] struct {
	cells [workloads.NumPhases][2][workloads.NumVariants][2]T
}

// At returns the cell of a segment.
func (t *SegmentTable[T]) At(s workloads.Segment) *T {
	first := 0
	if s.First {
		first = 1
	}
	return &t.cells[s.Phase][s.Half][s.Variant][first]
}
