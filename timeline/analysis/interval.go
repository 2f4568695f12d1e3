package analysis

import (
	"cmp"
	"slices"

	"github.com/tech-renaissance/trbench/timeline"
)

// Constants of a captured step on an NVIDIA H200, driver 580, in November 2026.
// Those of nodes and launches were measured by this program's calibration. The
// other three come from pairs of an eager recording and the same step timed as
// one graph: they are the least, rounded up, with which the intervals of the five
// resnet18-cifar pairs hold the timed step. The resnet50 pairs had no part in them.
const (
	NodeGapPs         = 680_000 // between two nodes of a graph, at most
	GraphLaunchNs     = 2000    // a graph launch, on the host
	GraphLaunchNodePs = 4300    // and for each of its nodes
	// OverlapNodeNs a node and OverlapPercent of the busy time, whichever is less,
	// is what a graph hid by running nodes side by side that eager's streams had
	// ordered: beginning and ending a kernel leave room beside it, its work does not.
	OverlapNodeNs, OverlapPercent = 1150, 16
	// DriftPercent is by how much the same graph was slower timed than recorded:
	// clocks follow power and heat, and a recorded pass is short.
	DriftPercent = 4
	// MaxSpread is how many times the lower end the upper one may be; from there on
	// nothing is told.
	MaxSpread = 4
	// ConstantsOf says whose they are.
	ConstantsOf = "measured on an NVIDIA H200, driver 580, November 2026: 0.68 us between graph nodes, 2.0 us + 4.3 ns a node for a graph launch; " +
		"from five pairs with a graph: another order hides up to 1.15 us a node and 16 % of the busy time, busy time drifts by 4 %"
)

// stretch is what a captured step is told from: an eager one's figures.
type stretch struct {
	spanNs, busyNs int64
	// launchNs of the idle time is surely removed, perhapsNs may be, and the rest
	// stays.
	launchNs, perhapsNs int64
}

// stretches are the steps on the device, or all that was chosen as one.
func (a *Device) stretches() []stretch {
	windows := [][]timeline.Window{a.Windows}
	switch c := cycles(a.Steps); {
	case a.Over == OverSteps && len(c) == a.Cycles:
		windows = windows[:0]
		for i := range c {
			windows = append(windows, c[i:i+1])
		}
	case a.Cycles > 1 && a.Over != OverSteps:
		windows = windows[:0]
		for i := range a.Steps {
			windows = append(windows, []timeline.Window{a.Steps[i].Host})
		}
	}
	out := make([]stretch, len(windows))
	for i, ws := range windows {
		part := Device{index: a.index, device: a.device, blocked: a.blocked, Windows: ws}
		f, c := sum(a.index, a.device, ws), part.causes()
		out[i] = stretch{f.SpanNs, f.BusyNs, c.LaunchNs, c.dispatchAfterSyncNs + c.HostNs + c.WaitNs + c.OverheadNs + c.UnlinkedNs}
	}
	if n := int64(a.Cycles); len(out) == 1 && n > 1 {
		s := &out[0]
		*s = stretch{s.spanNs / n, s.busyNs / n, s.launchNs / n, s.perhapsNs / n}
	}
	return out
}

// interval fills in the times of a captured step of so many nodes, of which the
// host needs feedNs for its input.
func (c *Capture) interval(list []stretch, nodes int, feedNs int64) {
	n := int64(max(1, nodes))
	launch := GraphLaunchNs + n*GraphLaunchNodePs/1000
	of := func(f func(stretch) int64) int64 { return median(mapped(list, f)) }
	kept := func(s stretch) int64 { return s.spanNs - s.launchNs - s.perhapsNs } // busy time and what surely stays
	c.OrderedLowNs = of(kept)
	c.LowNs = of(func(s stretch) int64 { return kept(s) - min(n*OverlapNodeNs, s.busyNs*OverlapPercent/100) })
	high := of(func(s stretch) int64 {
		return kept(s) + s.perhapsNs + s.busyNs*DriftPercent/100 + (n-1)*NodeGapPs/1000 + launch
	})
	eager := of(func(s stretch) int64 { return s.spanNs + s.busyNs*DriftPercent/100 })
	// The host feeds and launches beside the device: a step is no faster than that,
	// and no slower than eager's for it.
	host := min(feedNs+launch, eager)
	c.HighNs, c.LossNs = min(eager, max(high, host)), max(0, high-eager)
	c.LowNs = max(c.LowNs, host)
	c.OrderedLowNs = min(max(c.OrderedLowNs, c.LowNs), c.HighNs)
}

func mapped(list []stretch, f func(stretch) int64) []int64 {
	out := make([]int64, len(list))
	for i, s := range list {
		out[i] = f(s)
	}
	return out
}

// median is the mean of the middle two if there are two.
func median(values []int64) int64 {
	slices.SortFunc(values, cmp.Compare[int64])
	n := len(values)
	if n == 0 {
		return 0
	}
	p, q := values[(n-1)/2], values[n/2]
	return p + (q-p)/2
}
