package timeline

import "slices"

// Figures are busy and idle time of a device or a stream within a window.
type Figures struct {
	Window Window
	// SpanNs is the window's length; BusyNs of it is covered by ops, each
	// nanosecond counted once, and IdleNs is the rest. Split charges it.
	SpanNs, BusyNs, IdleNs int64
	Split                  Split
	// Gaps counts the idle stretches.
	Gaps int
	// Ops start in the window. Linked ones have a launch on record. ZeroOps
	// have no length. Kernels, Copies, Fills and Envelopes are the ops by kind;
	// with envelopes, BusyNs is an upper bound, as a graph's own gaps are busy.
	Ops, Linked, ZeroOps              int
	Kernels, Copies, Fills, Envelopes int
	// OpsNs sums the lengths of these ops, overlaps counted as often as they
	// occur and nothing clipped.
	OpsNs int64
}

// Unlinked is how many ops have no launch on record.
func (f Figures) Unlinked() int { return f.Ops - f.Linked }

// DeviceFigures are a device's figures within a window; [Index.DeviceSpan]
// gives the one from its first op to its last.
func (x *Index) DeviceFigures(device int32, w Window) Figures {
	return x.figures(&x.devices[device], w)
}

// StreamFigures are one stream's.
func (x *Index) StreamFigures(stream int32, w Window) Figures {
	return x.figures(&x.streams[stream], w)
}

// SpanFigures are a device's figures over its span; false without timed ops.
func (x *Index) SpanFigures(device int32) (Figures, bool) {
	w, ok := x.DeviceSpan(device)
	if !ok {
		return Figures{}, false
	}
	return x.DeviceFigures(device, w), true
}

func (x *Index) figures(l *lane, w Window) Figures {
	f := Figures{Window: w, SpanNs: max(0, w.Ns())}
	f.BusyNs = covered(l.busy, w)
	for _, g := range x.gapsIn(l, w) {
		f.Gaps++
		f.IdleNs += g.Ns()
		f.Split = f.Split.Add(x.SplitOf(g))
	}
	from, to := x.starting(l, w)
	for _, op := range l.ops[from:to] {
		o := &x.T.Ops[op]
		f.Ops++
		f.OpsNs += o.EndNs - o.StartNs
		if o.EndNs == o.StartNs {
			f.ZeroOps++
		}
		if x.Launch[op] != None {
			f.Linked++
		}
		switch o.Kind {
		case Kernel:
			f.Kernels++
		case Copy:
			f.Copies++
		case Fill:
			f.Fills++
		case Envelope:
			f.Envelopes++
		}
	}
	return f
}

// covered is how much of a window lies in ordered, separate stretches.
func covered(busy []Window, w Window) int64 {
	i, _ := slices.BinarySearchFunc(busy, w.FromNs, func(b Window, ns int64) int {
		if b.ToNs <= ns {
			return -1
		}
		return 1
	})
	var sum int64
	for ; i < len(busy) && busy[i].FromNs < w.ToNs; i++ {
		sum += busy[i].clip(w).Ns()
	}
	return sum
}
