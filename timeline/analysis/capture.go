package analysis

import (
	"fmt"
	"strings"

	"github.com/tech-renaissance/trbench/timeline"
)

// Capture is how long a step would take as one graph: a time between LowNs and
// HighNs, if the recording can carry that.
//
// With n nodes a step, T its time, U busy, and the idle time divided into what
// capture surely removes (LaunchNs of [Causes]), what it may remove, P
// (dispatching behind a blocking call, long host code, long waits, the profiler's
// overhead, what has no launch on record), and the rest R:
//
//	in order = max(U + R, what the host still must do)
//	low      = max(U + R - what another order of the nodes hides, what the host still must do)
//	high     = min(T, max(U + R + P + (n-1) d + G, what the host still must do)) + drift of U
//
// d is the gap between graph nodes and G the price of a graph launch. What the
// host still must do is feeding input and launching one graph. T, U, R and P are
// a step's, and each sum is the median over the steps.
//
// U is no lower end: kernels that eager's streams ran one after another run side
// by side where a graph orders them by the bytes they touch.
//
// The interval is of a step that nobody records. It comes from times of the GPU,
// which recording hardly lengthens, and for its upper end from gaps, which it
// does. T is the recorded step, which may be far longer than one that is not: what
// capture gains is told by a step timed without a profiler.
type Capture struct {
	// Withheld says why there is no interval.
	Withheld string
	// Per is what times are of: "step", "span" where no steps are known, or "range"
	// where one was chosen.
	Per   string
	Steps int
	// Ops and Nodes are per step: nodes are the ops, and launches of graphs that
	// there are already.
	Ops, Nodes float64
	// EagerNs is the step as recorded, BusyNs how much of it the GPU was busy.
	EagerNs, BusyNs, LowNs, HighNs int64
	// OrderedLowNs is the lower end for a graph that keeps the order of the
	// streams, as one recorded from them does. LowNs lies below it, since a graph
	// can order its nodes by their data alone.
	OrderedLowNs int64
	// LossNs is by how much the step could get longer; HighNs stops at the eager
	// step and its drift.
	LossNs int64
	// Cannot lists what cannot be captured, or stands in the way.
	Cannot []string
}

func (a *Device) capture() Capture {
	c := Capture{Per: "span", Steps: 1}
	switch {
	case a.Cycles > 0:
		c.Per, c.Steps = "step", a.Cycles
	case a.Over != OverSpan:
		c.Per = "range"
	}
	f := a.Window
	list := a.stretches()
	c.EagerNs = median(mapped(list, func(s stretch) int64 { return s.spanNs }))
	c.BusyNs = median(mapped(list, func(s stretch) int64 { return s.busyNs }))
	c.Ops = float64(f.Ops) / float64(c.Steps)
	c.Cannot = a.obstacles()
	nodes := f.Ops
	if a.Graphs.Launches > 0 {
		nodes += a.Graphs.Launches - a.Graphs.Ops
	}
	c.Nodes = float64(nodes) / float64(c.Steps)
	switch bad := a.badShare(); {
	case bad > MaxBad:
		c.Withheld = fmt.Sprintf("%.1f %% of the ops have no launch, or no times, on record; at most 5 %% may", 100*bad)
		return c
	case f.Ops == 0:
		c.Withheld = "nothing ran on the GPU there"
		return c
	case f.Envelopes > 0:
		c.Withheld = "graph replays are recorded as one event each, so busy time is not known"
		return c
	case a.index.T.Devices[a.device].Host:
		c.Withheld = "the device is a CPU, where a launch costs next to nothing"
		return c
	case a.Graphs.Launches > 0 && nodes <= c.Steps:
		c.Withheld = "the step is one graph already"
		return c
	case a.Read.Truncated && len(a.Steps) == 0:
		c.Withheld = "the recording stops in the middle, and no steps are annotated"
		return c
	}
	c.interval(list, nodes/c.Steps, a.feedNs()/int64(max(1, len(a.Steps))))
	if c.LowNs > 0 && c.HighNs/c.LowNs >= MaxSpread {
		c.Withheld = fmt.Sprintf("it would lie between %.3f and %.3f ms, which tells nothing: what most of the idle time is due to, capture may remove or not", float64(c.LowNs)/1e6, float64(c.HighNs)/1e6)
	}
	return c
}

// feedNs is how long the launching threads were under the data loader.
func (a *Device) feedNs() int64 {
	t := a.index.T
	var ws []timeline.Window
	for i := range t.Ranges {
		r := &t.Ranges[i]
		if r.Class != timeline.RangeFeed || !a.launching[r.Thread] {
			continue
		}
		for _, w := range a.host {
			if from, to := max(w.FromNs, r.StartNs), min(w.ToNs, r.EndNs); to > from {
				ws = append(ws, timeline.Window{FromNs: from, ToNs: to})
			}
		}
	}
	var sum int64
	for _, w := range merge(ws) {
		sum += w.Ns()
	}
	return sum
}

// obstacles are what cannot be captured.
func (a *Device) obstacles() []string {
	t := a.index.T
	var syncs, copies, allocations, events int
	var blocked int64
	for i := range t.Calls {
		c := &t.Calls[i]
		if !a.launching[c.Thread] || !inside(a.host, c.StartNs) {
			continue
		}
		switch name := strings.ToLower(t.Text(c.Name)); {
		case c.Class == timeline.CallSync:
			syncs++
			blocked += c.EndNs - c.StartNs
		case blocks(t, c):
			copies++
			blocked += c.EndNs - c.StartNs
		case strings.Contains(name, "eventquery") || strings.Contains(name, "streamquery"):
			events++
		case isAllocation(name):
			allocations++
		}
	}
	per := ""
	if len(a.Steps) > 1 {
		per = fmt.Sprintf(" in %d steps", len(a.Steps))
	}
	var out []string
	if syncs > 0 {
		out = append(out, fmt.Sprintf("%s%s, blocked for %.3f ms: they end a capture, so the step falls into parts there", plural(syncs, "synchronising call"), per, float64(blocked)/1e6))
	}
	if copies > 0 {
		out = append(out, fmt.Sprintf("%s blocking the host%s", plural(copies, "cop"), per))
	}
	if events > 0 {
		out = append(out, fmt.Sprintf("%s of an event or a stream%s, which a capture refuses on captured work", plural(events, "quer"), per))
	}
	if allocations > 0 {
		out = append(out, fmt.Sprintf("%s of memory%s: a graph needs its addresses fixed", plural(allocations, "allocation"), per))
	}
	if ns := a.feedNs(); ns > 0 {
		out = append(out, fmt.Sprintf("the data loader, %.3f ms%s on the launching thread", float64(ns)/1e6, per))
	}
	if n := len(a.Steps); n > 1 {
		low, high := a.Steps[0].Ops, a.Steps[0].Ops
		for _, s := range a.Steps {
			low, high = min(low, s.Ops), max(high, s.Ops)
		}
		if low != high {
			out = append(out, fmt.Sprintf("steps differ in their work, %d to %d ops: a graph replays one sequence", low, high))
		}
	}
	if a.Graphs.Launches > 0 {
		out = append(out, fmt.Sprintf("%d ops in %s are captured already", a.Graphs.Ops, plural(a.Graphs.Launches, "graph launch")))
	}
	return out
}

func isAllocation(name string) bool {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "cuda"), "hip")
	switch name {
	case "malloc", "free", "mallocmanaged", "mallochost", "freehost", "hostalloc", "mallocpitch", "hostmalloc":
		return true
	}
	return strings.HasPrefix(name, "cumemalloc") || strings.HasPrefix(name, "cumemfree")
}

// plural is a count with its noun; a noun that ends in a consonant and y comes
// without the y.
func plural(n int, noun string) string {
	one, more := noun, noun+"s"
	switch {
	case noun == "cop" || noun == "quer":
		one, more = noun+"y", noun+"ies"
	case strings.HasSuffix(noun, "ch"):
		more = noun + "es"
	}
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
