package workloads

// Words of the scalars tensor: 4 bytes each, F32 or I32 as named. They live
// in device memory so that a captured graph reads them afresh in each replay.
const (
	ScalarLR          = iota // F32 learning rate of the current step
	ScalarScale              // F32 loss scale
	ScalarNonFinite          // I32 1 if the last check found Inf or NaN
	ScalarSkip               // I32 1 if the current step must not change weights
	ScalarStep               // I32 steps begun so far, skipped ones included
	ScalarGrowth             // I32 finite steps since the scale last changed
	ScalarSkipped            // I32 steps skipped so far
	ScalarConsecutive        // I32 steps skipped in a row
	ScalarStop               // I32 1 once training has given up
	ScalarFault              // F32 added to a deep gradient by OpInject
	ScalarWords
)

// Scalars is the host's image of the scalars tensor.
type Scalars struct {
	LR, Scale                                                 float32
	NonFinite, Skip, Step, Growth, Skipped, Consecutive, Stop int32
	Fault                                                     float32
}

// ControlRule holds the constants of [Scalars.Advance].
type ControlRule struct {
	Dynamic        bool // the loss scale moves (AMP)
	GrowthInterval int32
	StopAfter      int32
	Rates          int // elements of the learning-rate table in use, at least 1
}

// MinScale and MaxScale bound the dynamic loss scale.
const (
	MinScale = 1.0 / 65536
	MaxScale = 16777216
)

// Advance applies the control rule after the finite check of a step: it sets
// skip, moves the loss scale, picks the learning rate of this step and counts
// it. The device (OpControl) and the host (--control=host) both use exactly
// this arithmetic, so their bits are equal.
func (s *Scalars) Advance(r ControlRule, table []float32) {
	k := min(int(s.Step), r.Rates-1)
	s.LR = table[k]
	s.Step++
	if s.NonFinite != 0 || s.Stop != 0 {
		s.Skip = 1
		s.Skipped++
		s.Consecutive++
		s.Growth = 0
		if r.Dynamic && s.NonFinite != 0 {
			s.Scale = max(s.Scale*0.5, MinScale)
		}
		if r.StopAfter > 0 && s.Consecutive >= r.StopAfter {
			s.Stop = 1
		}
		return
	}
	s.Skip, s.Consecutive = 0, 0
	s.Growth++
	if r.Dynamic && s.Growth >= r.GrowthInterval {
		s.Scale = min(s.Scale*2, MaxScale)
		s.Growth = 0
	}
}
