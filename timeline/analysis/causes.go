package analysis

import (
	"fmt"
	"slices"

	"github.com/tech-renaissance/trbench/timeline"
)

// MaxDispatchNs is how much of each part of a gap, before, inside and behind
// the launching call, can be the price of launching: a framework's dispatcher
// takes 20 to 200 us a launch. What goes beyond has another cause.
const MaxDispatchNs = 200_000

// Causes divide a window's idle time by what could be done about it. They sum
// to it.
type Causes struct {
	// LaunchNs is the price of launching one by one: dispatching, inside the
	// calls, and behind them (but not between the ops of one graph).
	LaunchNs int64
	// SyncNs is what blocking calls cost: while blocked, and dispatching in gaps
	// that began while the launching thread was blocked, as it could not be ahead
	// then.
	SyncNs int64
	// InputNs is time under the data loader.
	InputNs int64
	// GraphNs is between ops of one graph launch.
	GraphNs int64
	// HostNs is host code, and calls, beyond MaxDispatchNs of a gap: loading a
	// module, computing something.
	HostNs int64
	// WaitNs is submitted work beyond MaxDispatchNs of a gap: it waited for
	// something else than its launch.
	WaitNs int64
	// OverheadNs is the profiler's own.
	OverheadNs int64
	// UnlinkedNs ended in ops without a launch on record.
	UnlinkedNs int64

	// dispatchAfterSyncNs is the part of SyncNs that is dispatching.
	dispatchAfterSyncNs int64
}

// SumNs is the sum of the causes.
func (c Causes) SumNs() int64 {
	return c.LaunchNs + c.SyncNs + c.InputNs + c.GraphNs + c.HostNs + c.WaitNs + c.OverheadNs + c.UnlinkedNs
}

func (a *Device) causes() Causes {
	x := a.index
	var c Causes
	for _, w := range a.Windows {
		for _, g := range x.DeviceGaps(a.device, w) {
			s := x.SplitOf(g)
			c.UnlinkedNs += s.UnlinkedNs
			c.GraphNs += s.InGraphNs
			c.SyncNs += s.Late.SyncNs
			c.InputNs += s.Late.FeedNs
			c.OverheadNs += s.Late.OverheadNs
			// Up to a limit it is launching, beyond it something else.
			upTo := func(ns int64, beyond *int64) int64 {
				*beyond += max(0, ns-MaxDispatchNs)
				return min(ns, MaxDispatchNs)
			}
			c.LaunchNs += upTo(s.InAPINs, &c.HostNs) + upTo(s.AfterAPINs-s.InGraphNs, &c.WaitNs)
			dispatch := upTo(s.HostLateNs-s.Late.SyncNs-s.Late.FeedNs-s.Late.OverheadNs, &c.HostNs)
			if g.Launch != timeline.None && a.blocked.at(x.T.Calls[g.Launch].Thread, g.FromNs) {
				c.SyncNs += dispatch
				c.dispatchAfterSyncNs += dispatch
			} else {
				c.LaunchNs += dispatch
			}
		}
	}
	return c
}

// blocking are, by thread, when it was blocked by the device.
type blocking map[int32][]timeline.Window

func blockedThreads(t *timeline.Timeline) blocking {
	b := blocking{}
	for i := range t.Calls {
		c := &t.Calls[i]
		if blocks(t, c) && c.EndNs > c.StartNs {
			b[c.Thread] = append(b[c.Thread], timeline.Window{FromNs: c.StartNs, ToNs: c.EndNs})
		}
	}
	for th, ws := range b {
		b[th] = merge(ws)
	}
	return b
}

// blocks tells whether a call waits for the device: it synchronises, or it is a
// copy that does not return before it is done.
func blocks(t *timeline.Timeline, c *timeline.Call) bool {
	return c.Class == timeline.CallSync || c.Class == timeline.CallCopy && isBlockingCopy(t.Text(c.Name))
}

func isBlockingCopy(name string) bool {
	switch timeline.CleanAPIName(name) {
	case "cudaMemcpy", "cudaMemcpy2D", "cudaMemcpy3D", "cudaMemcpyToSymbol", "cudaMemcpyFromSymbol", "hipMemcpy",
		"cuMemcpy", "cuMemcpyHtoD", "cuMemcpyDtoH", "hipMemcpyWithStream", "hipMemcpyDtoH", "hipMemcpyHtoD":
		return true
	}
	return false
}

func (b blocking) at(thread int32, ns int64) bool {
	ws := b[thread]
	i, _ := slices.BinarySearchFunc(ws, ns, func(w timeline.Window, ns int64) int {
		if w.ToNs < ns {
			return -1
		}
		return 1
	})
	return i < len(ws) && ws[i].FromNs <= ns && thread != timeline.None
}

// Words of a verdict.
const (
	LaunchBound = "launch bound"
	GPUBound    = "GPU bound"
	InputBound  = "input bound"
	SyncBound   = "sync bound"
	Unclear     = "unclear"
)

// Verdict says what bounds a window.
type Verdict struct {
	Word string
	// Share of the window says so, in 0..1: that is busy for GPU bound, else idle
	// for the named cause. It is 0 for unclear.
	Share  float64
	Reason string
}

// What the verdict's rule is made of.
const (
	// GPUBoundFrom is the busy share from which a window is GPU bound.
	GPUBoundFrom = 0.80
	// CauseFrom is the share of idle time that a cause needs to be the verdict.
	CauseFrom = 0.50
	// MaxBad is the share of ops without a launch, or without times, beyond which
	// there is no verdict.
	MaxBad = 0.05
)

// Rule is the verdict's rule in words.
const Rule = "GPU bound from 80 % busy; else launch, sync or input bound, by the cause of at least half of the idle time; else unclear. " +
	"No verdict if more than 5 % of the ops have no launch, or no times, on record."

func (a *Device) verdict() Verdict {
	f, c := a.Window, a.Causes
	if f.SpanNs <= 0 {
		return Verdict{Word: Unclear, Reason: "the window has no length"}
	}
	share := func(ns int64) float64 { return float64(ns) / float64(f.SpanNs) }
	if bad := a.badShare(); bad > MaxBad {
		return Verdict{Unclear, 0, fmt.Sprintf("%.1f %% of the ops have no launch, or no times, on record, so causes cannot be told; the device is busy for %.1f %% of the %s",
			100*bad, 100*share(f.BusyNs), a.place())}
	}
	if b := share(f.BusyNs); b >= GPUBoundFrom {
		v := Verdict{GPUBound, b, fmt.Sprintf("the device is busy for %.1f %% of the %s", 100*b, a.place())}
		if f.Envelopes > 0 {
			return Verdict{Unclear, 0, v.Reason + ", but graph replays are recorded as one event each and count as busy from end to end"}
		}
		return v
	}
	if a.Window.Ops == 0 {
		return Verdict{Unclear, 0, fmt.Sprintf("nothing ran on the device in the %s", a.place())}
	}
	best := Verdict{Word: Unclear}
	var most int64
	for _, v := range []struct {
		word, why string
		ns        int64
	}{
		{LaunchBound, "launching one by one", c.LaunchNs}, {SyncBound, "waiting for the device on the host", c.SyncNs}, {InputBound, "the data loader", c.InputNs},
	} {
		if v.ns > most {
			most = v.ns
			best = Verdict{v.word, share(v.ns), fmt.Sprintf("the device is idle for %.1f %% of the %s, and %.1f %% of the %s is %s", 100*share(f.IdleNs), a.place(), 100*share(v.ns), a.place(), v.why)}
		}
	}
	if float64(most) < CauseFrom*float64(f.IdleNs) || most == 0 {
		return Verdict{Unclear, 0, fmt.Sprintf("the device is idle for %.1f %% of the %s, and no single cause makes half of that", 100*share(f.IdleNs), a.place())}
	}
	return best
}

func (a *Device) place() string {
	switch a.Over {
	case OverSpan:
		return "recorded span"
	case OverSteps:
		return "steps"
	}
	if a.Cycles > 0 {
		return "chosen steps"
	}
	return a.Over
}

// badShare is the share of ops without a launch, or without times.
func (a *Device) badShare() float64 {
	ops, bad := a.Window.Ops+a.Integrity.Untimed, a.Window.Unlinked()+a.Integrity.Untimed
	if ops == 0 {
		return 0
	}
	return float64(bad) / float64(ops)
}
