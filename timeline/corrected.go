package timeline

// Lengthening is by how much recording lengthens an op, as a calibration chain
// tells: the same short kernels run with and without tracing, the traced ones'
// mean length less the untraced time a kernel. Both in ns of the device's
// clock; UncertaintyNs is the half width of its interval. It may be negative: the
// untraced time holds what lies between one kernel and the next as well, which
// nothing but a recording could tell apart, so this is the least by which
// recording lengthens. Busy time corrected by it is rather too long, and idle
// time too short, by no more than that stretch a kernel.
type Lengthening struct{ ByNs, UncertaintyNs int64 }

// Corrected is a time with the range that its uncertainty leaves.
type Corrected struct{ Ns, LowNs, HighNs int64 }

// CorrectedBusy is the busy time of a device had each kernel ended earlier by
// what recording lengthens it.
//
// With d the lengthening, kernel i at [s, e) counts as [s, max(s, e - d)), other
// ops as they are, and corrected busy is the length of the union of these,
// inside the window. So a kernel shorter than d counts nothing, none counts less
// than that, and where another op runs meanwhile nothing is taken away: the
// device was busy either way. The union never grows with d, so its range is that
// of d less and d plus the uncertainty.
//
// It corrects lengths only. That traced ops also start later moves idle time,
// which is what the traced step's inflation is for.
func (x *Index) CorrectedBusy(device int32, w Window, d Lengthening) Corrected {
	u := max(d.UncertaintyNs, -d.UncertaintyNs)
	return Corrected{
		Ns:     x.shortened(&x.devices[device], w, d.ByNs),
		LowNs:  x.shortened(&x.devices[device], w, d.ByNs+u),
		HighNs: x.shortened(&x.devices[device], w, d.ByNs-u),
	}
}

func (x *Index) shortened(l *lane, w Window, by int64) int64 {
	var sum int64
	reached := w.FromNs // all before is counted
	for _, op := range l.ops {
		o := &x.T.Ops[op]
		if o.StartNs >= w.ToNs {
			break
		}
		end := o.EndNs
		if o.Kind == Kernel {
			end -= by // may lie before the start: then the kernel counts nothing
		}
		end = min(end, w.ToNs)
		if from := max(o.StartNs, reached); end > from {
			sum += end - from
			reached = end
		}
	}
	return sum
}

// Idle is what a step that was timed without recording leaves beside corrected
// busy time, per step.
type Idle struct {
	Corrected
	// Failed says that it is negative: the two measurements contradict each
	// other, or the correction is wrong, and the row must not be used. It is
	// shown as it is, never as 0.
	Failed bool
}

// IdleOf is the untraced step time less corrected busy time, with its range. A
// range that reaches below 0 does not fail it, a value below 0 does.
func (c Corrected) IdleOf(stepTimeNs int64) Idle {
	i := Corrected{Ns: stepTimeNs - c.Ns, LowNs: stepTimeNs - c.HighNs, HighNs: stepTimeNs - c.LowNs}
	return Idle{Corrected: i, Failed: i.Ns < 0}
}
