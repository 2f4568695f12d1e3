package timeline

import "slices"

// Gap is a stretch in which nothing ran on a device (or a stream), between two
// ops. It falls into three parts in order of time, any of which may be empty:
//
//	[FromNs, LateToNs)  the host had not begun the call that launched After
//	[LateToNs, APIToNs) the host was inside that call
//	[APIToNs, ToNs)     submitted, not started: latency, dependency, or inside a graph
//
// or, where After has no launch on record, it is unlinked as a whole.
type Gap struct {
	FromNs, ToNs      int64
	LateToNs, APIToNs int64 // FromNs where unlinked
	// Before is the op that ended last before the gap and After the one that
	// ends it, or None at the end of a window.
	Before, After int32
	// Launch is the call that launched After, or None: then the gap is unlinked.
	Launch int32
	// InGraph says that After is a later op of a graph launch that began at or
	// before FromNs: nothing but the graph stands between the two.
	InGraph bool
}

// gap charges the time between two ops.
//
// With p and s its ends and the launch at [a0, a1], host_late is
// max(0, min(s, a0) - p), in_api max(0, min(a1, s) - max(p, a0)), and after_api
// the rest. An op that is not the first of its correlation is after_api as a
// whole if its call began at or before p: the call is charged once, to the
// first.
func (x *Index) gap(p int64, before, after int32, later bool) Gap {
	s, launch := x.T.Ops[after].StartNs, x.Launch[after]
	g := Gap{FromNs: p, ToNs: s, LateToNs: p, APIToNs: p, Before: before, After: after, Launch: launch}
	if launch == None {
		return g
	}
	c := &x.T.Calls[launch]
	if later && c.StartNs <= p {
		g.InGraph = c.Class == CallGraphLaunch
		return g
	}
	g.LateToNs = min(max(c.StartNs, p), s)
	g.APIToNs = min(max(c.EndNs, g.LateToNs), s)
	return g
}

// Ns is how long the gap is.
func (g Gap) Ns() int64 { return g.ToNs - g.FromNs }

// HostLateNs, InAPINs, AfterAPINs and UnlinkedNs are the gap's four parts. They
// sum to Ns.
func (g Gap) HostLateNs() int64 { return g.LateToNs - g.FromNs }

// InAPINs: see HostLateNs.
func (g Gap) InAPINs() int64 { return g.APIToNs - g.LateToNs }

// AfterAPINs: see HostLateNs.
func (g Gap) AfterAPINs() int64 {
	if g.Launch == None {
		return 0
	}
	return g.ToNs - g.APIToNs
}

// UnlinkedNs: see HostLateNs.
func (g Gap) UnlinkedNs() int64 {
	if g.Launch != None {
		return 0
	}
	return g.Ns()
}

// Clip is the part of the gap inside a window; each part of it keeps its cause.
func (g Gap) Clip(w Window) Gap {
	in := func(ns int64) int64 { return min(max(ns, w.FromNs), w.ToNs) }
	g.FromNs, g.LateToNs, g.APIToNs, g.ToNs = in(g.FromNs), in(g.LateToNs), in(g.APIToNs), in(g.ToNs)
	return g
}

// Split says to whom idle time is charged. The first four sum to the idle time.
type Split struct {
	HostLateNs, InAPINs, AfterAPINs, UnlinkedNs int64

	// Late says what the launching thread did during HostLateNs; its parts sum
	// to that.
	Late HostLate
	// InGraphNs is the part of AfterAPINs between ops of one graph launch.
	InGraphNs int64
	// The parts of UnlinkedNs: before the recording's first API call, later but
	// before an op without a launch, and after the last op, where a window
	// reaches beyond it.
	UnlinkedBeforeNs, UnlinkedInsideNs, UnlinkedEndNs int64
}

// IdleNs is the sum of the four parts.
func (s Split) IdleNs() int64 { return s.HostLateNs + s.InAPINs + s.AfterAPINs + s.UnlinkedNs }

// Add sums two splits, as of several devices or steps.
func (s Split) Add(o Split) Split {
	s.HostLateNs += o.HostLateNs
	s.InAPINs += o.InAPINs
	s.AfterAPINs += o.AfterAPINs
	s.UnlinkedNs += o.UnlinkedNs
	s.InGraphNs += o.InGraphNs
	s.UnlinkedBeforeNs += o.UnlinkedBeforeNs
	s.UnlinkedInsideNs += o.UnlinkedInsideNs
	s.UnlinkedEndNs += o.UnlinkedEndNs
	s.Late = s.Late.add(o.Late)
	return s
}

// SplitOf charges one gap.
func (x *Index) SplitOf(g Gap) Split {
	s := Split{HostLateNs: g.HostLateNs(), InAPINs: g.InAPINs(), AfterAPINs: g.AfterAPINs(), UnlinkedNs: g.UnlinkedNs()}
	if g.InGraph {
		s.InGraphNs = s.AfterAPINs
	}
	switch {
	case g.Launch != None:
		if s.HostLateNs > 0 {
			s.Late = x.lateness(x.T.Calls[g.Launch].Thread, Window{g.FromNs, g.LateToNs})
		}
	case g.After == None:
		s.UnlinkedEndNs = s.UnlinkedNs
	case x.T.Ops[g.After].StartNs < x.firstCallNs:
		s.UnlinkedBeforeNs = s.UnlinkedNs
	default:
		s.UnlinkedInsideNs = s.UnlinkedNs
	}
	return s
}

// gapsIn are a lane's gaps inside a window, clipped to it. Beyond the lane's
// ops, a window has a gap before the first op, which is charged as any other,
// and one after the last, which is unlinked: nothing on record ended it.
func (x *Index) gapsIn(l *lane, w Window) []Gap {
	if w.Ns() <= 0 {
		return nil
	}
	span, ok := l.span()
	if !ok {
		return []Gap{{FromNs: w.FromNs, ToNs: w.ToNs, LateToNs: w.FromNs, APIToNs: w.FromNs, Before: None, After: None, Launch: None}}
	}
	var out []Gap
	keep := func(g Gap) {
		if g = g.Clip(w); g.Ns() > 0 {
			out = append(out, g)
		}
	}
	if w.FromNs < span.FromNs {
		keep(x.gap(w.FromNs, None, l.ops[0], false))
	}
	first, _ := slices.BinarySearchFunc(l.gaps, w.FromNs, func(g Gap, ns int64) int {
		if g.ToNs <= ns {
			return -1
		}
		return 1
	})
	if first == 0 && w.FromNs <= span.FromNs && w.ToNs >= span.ToNs && len(out) == 0 && w.ToNs == span.ToNs {
		return l.gaps[:len(l.gaps):len(l.gaps)] // the whole lane: nothing to clip
	}
	for _, g := range l.gaps[first:] {
		if g.FromNs >= w.ToNs {
			break
		}
		keep(g)
	}
	if w.ToNs > span.ToNs {
		keep(Gap{FromNs: span.ToNs, ToNs: w.ToNs, LateToNs: span.ToNs, APIToNs: span.ToNs, Before: None, After: None, Launch: None})
	}
	return out
}

// DeviceGaps are the gaps of a device inside a window, in order and clipped to
// it. The caller must not change the slice.
func (x *Index) DeviceGaps(device int32, w Window) []Gap { return x.gapsIn(&x.devices[device], w) }

// StreamGaps is DeviceGaps for one stream: an idle stream waits as often for
// others as for the host, which is after_api.
func (x *Index) StreamGaps(stream int32, w Window) []Gap { return x.gapsIn(&x.streams[stream], w) }
