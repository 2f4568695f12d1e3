package timeline

import (
	"cmp"
	"slices"
	"strings"
)

// CallStats is what calls of one name, or of one class, cost the host.
type CallStats struct {
	Name  string
	Class CallClass
	// HostNs are the calls' own lengths, host clock.
	HostNs Distribution
	// Ops were launched by them; Unmatched calls launched nothing on record.
	Ops, Unmatched int
}

// LaunchStats are all launching calls, kernels, graphs, copies and fills, by
// name, the costliest in sum first, and all of them together.
type LaunchStats struct {
	All    CallStats
	ByName []CallStats
	// Syncs are the blocking calls, together.
	Syncs CallStats
}

// launches tells whether a class of call makes the device run something.
func (c CallClass) launches() bool {
	return c == CallLaunch || c == CallGraphLaunch || c == CallCopy
}

// LaunchStats describes the calls that began in a window of the host's time. A
// call counts as launching by its class, or because something on record was
// launched by it; nested records of one launch (a runtime call and the driver
// call inside) count once, as the call that [NewIndex] chose, where they share
// a correlation that launched something.
func (x *Index) LaunchStats(w Window) LaunchStats {
	t := x.T
	chosen := newNumbers(t)
	for i := range t.Calls {
		if x.OpsOf[i] > 0 {
			chosen.set(t.Calls[i].Correlation, 1)
		}
	}
	type key struct {
		name  Name
		class CallClass
	}
	byName := map[key]*callSum{}
	var all, syncs callSum
	all.Class, syncs.Class = CallLaunch, CallSync
	for i := range t.Calls {
		c := &t.Calls[i]
		if c.StartNs < w.FromNs || c.StartNs >= w.ToNs {
			continue
		}
		if c.Class == CallSync {
			syncs.add(c, 0)
		}
		if x.OpsOf[i] == 0 {
			if nested := chosen.get(c.Correlation) != 0; nested || !c.Class.launches() {
				continue
			}
		}
		k := key{c.Name, c.Class}
		s := byName[k]
		if s == nil {
			s = &callSum{CallStats: CallStats{Name: t.Text(c.Name), Class: c.Class}}
			byName[k] = s
		}
		s.add(c, x.OpsOf[i])
		all.add(c, x.OpsOf[i])
	}
	out := LaunchStats{All: all.done(), Syncs: syncs.done()}
	for _, s := range byName {
		out.ByName = append(out.ByName, s.done())
	}
	slices.SortFunc(out.ByName, func(a, b CallStats) int {
		return cmp.Or(cmp.Compare(b.HostNs.SumNs, a.HostNs.SumNs), strings.Compare(a.Name, b.Name), cmp.Compare(a.Class, b.Class))
	})
	return out
}

type callSum struct {
	CallStats
	ns []int64
}

func (s *callSum) add(c *Call, ops int32) {
	s.ns = append(s.ns, max(0, c.EndNs-c.StartNs))
	s.Ops += int(ops)
	if ops == 0 {
		s.Unmatched++
	}
}

func (s *callSum) done() CallStats {
	s.HostNs = Distribute(s.ns)
	return s.CallStats
}

// Delays are launch delays of a device: from a call's start on the host to the
// start of the first op it launched here, one a launch. They are signed: where
// the recording's clocks disagree an op starts before its call, and a clipped
// figure would hide that.
type Delays struct {
	Ns       Distribution
	Negative int
}

// Delays describes the ops that start in a window.
func (x *Index) Delays(device int32, w Window) Delays {
	var d Delays
	var ns []int64
	l := &x.devices[device]
	from, to := x.starting(l, w)
	for i := from; i < to; i++ {
		op := l.ops[i]
		if c := x.Launch[op]; c != None && !l.later[i] {
			v := x.T.Ops[op].StartNs - x.T.Calls[c].StartNs
			if v < 0 {
				d.Negative++
			}
			ns = append(ns, v)
		}
	}
	d.Ns = Distribute(ns)
	return d
}

// ShortKernels counts kernels that took the device less time than their launch
// took the host. Of is how many kernels were compared: those that a call
// launched alone, as a graph's launch is not the price of one kernel.
type ShortKernels struct {
	Count, Of int
	// GPUNs and HostNs sum the short kernels and their launches.
	GPUNs, HostNs int64
}

// ShortKernels compares the kernels that start in a window.
func (x *Index) ShortKernels(device int32, w Window) ShortKernels {
	var s ShortKernels
	l := &x.devices[device]
	from, to := x.starting(l, w)
	for _, op := range l.ops[from:to] {
		c := x.Launch[op]
		if c == None || x.OpsOf[c] != 1 || x.T.Ops[op].Kind != Kernel {
			continue
		}
		s.Of++
		gpu, host := x.T.Ops[op].EndNs-x.T.Ops[op].StartNs, x.T.Calls[c].EndNs-x.T.Calls[c].StartNs
		if gpu < host {
			s.Count++
			s.GPUNs += gpu
			s.HostNs += host
		}
	}
	return s
}

// GraphStats are the graph launches that ran on a device.
type GraphStats struct {
	// Launches had at least one op start in the window; Ops are all that they
	// launched there.
	Launches, Ops int
	// MinOps, MedianOps and MaxOps are ops a launch.
	MinOps, MedianOps, MaxOps int
	// HostNs are the launching calls' lengths, each once.
	HostNs Distribution
	// Short are launches with fewer ops than others of the same graph: cut off
	// by the recording's ends, or records lost. None where the recording does
	// not say which graph an op is of.
	Short int
	// Envelopes are replays recorded as one op.
	Envelopes int
}

// GraphStats describes the graph launches whose ops start in a window.
func (x *Index) GraphStats(device int32, w Window) GraphStats {
	s := GraphStats{Short: None}
	type launch struct {
		ops   int
		graph uint64
	}
	byCall := map[int32]*launch{}
	l := &x.devices[device]
	from, to := x.starting(l, w)
	for _, op := range l.ops[from:to] {
		o, c := &x.T.Ops[op], x.Launch[op]
		if o.Kind == Envelope {
			s.Envelopes++
		}
		if c == None || x.T.Calls[c].Class != CallGraphLaunch {
			continue
		}
		g := byCall[c]
		if g == nil {
			g = &launch{}
			byCall[c] = g
		}
		g.ops++
		if o.Graph != 0 {
			g.graph = o.Graph
		}
	}
	var ops, ns []int64
	most := map[uint64]int{}
	for c, g := range byCall {
		ops = append(ops, int64(g.ops))
		ns = append(ns, max(0, x.T.Calls[c].EndNs-x.T.Calls[c].StartNs))
		s.Ops += g.ops
		if g.graph != 0 {
			most[g.graph] = max(most[g.graph], g.ops)
		}
	}
	s.Launches, s.HostNs = len(byCall), Distribute(ns)
	d := Distribute(ops)
	s.MinOps, s.MedianOps, s.MaxOps = int(d.MinNs), int(d.P50Ns), int(d.MaxNs)
	if len(most) > 0 {
		s.Short = 0
		for _, g := range byCall {
			if g.graph != 0 && g.ops < most[g.graph] {
				s.Short++
			}
		}
	}
	return s
}

// Depth is how many ops are submitted and not started from a time on.
type Depth struct {
	AtNs int64
	Ops  int
}

// QueueDepth is the queue of a device over time: an op waits in it from the
// start of its launching call to its own start. Ops without a launch, and those
// that start no later than their call, never wait in it. A graph's ops all
// enter with its launch. The last depth is 0.
func (x *Index) QueueDepth(device int32) []Depth { return x.depth(x.devices[device].ops) }

// StreamQueueDepth is QueueDepth for one stream.
func (x *Index) StreamQueueDepth(stream int32) []Depth { return x.depth(x.streams[stream].ops) }

func (x *Index) depth(ops []int32) []Depth {
	enter, leave := make([]int64, 0, len(ops)), make([]int64, 0, len(ops))
	for _, op := range ops {
		if c := x.Launch[op]; c != None && x.T.Calls[c].StartNs < x.T.Ops[op].StartNs {
			enter = append(enter, x.T.Calls[c].StartNs)
			leave = append(leave, x.T.Ops[op].StartNs)
		}
	}
	slices.Sort(enter)
	slices.Sort(leave)
	var out []Depth
	for i, j := 0, 0; j < len(leave); {
		at := leave[j]
		if i < len(enter) {
			at = min(at, enter[i])
		}
		for i < len(enter) && enter[i] == at {
			i++
		}
		for j < len(leave) && leave[j] == at {
			j++
		}
		if n := len(out); n == 0 || out[n-1].Ops != i-j {
			out = append(out, Depth{at, i - j})
		}
	}
	return out
}

// QueueStats sums up a queue within a window.
type QueueStats struct {
	Max int
	// EmptyNs is how long nothing was waiting. OpNs is the depth summed over
	// time: over the window's length it is the mean depth.
	EmptyNs, OpNs int64
}

// QueueStatsOf sums up what QueueDepth returned.
func QueueStatsOf(depths []Depth, w Window) QueueStats {
	var s QueueStats
	add := func(from, to int64, depth int) {
		if n := (Window{from, to}).clip(w).Ns(); n > 0 {
			s.Max = max(s.Max, depth)
			s.OpNs += n * int64(depth)
			if depth == 0 {
				s.EmptyNs += n
			}
		}
	}
	at, depth := w.FromNs, 0
	for _, d := range depths {
		add(min(at, d.AtNs), d.AtNs, depth)
		at, depth = d.AtNs, d.Ops
	}
	add(at, max(at, w.ToNs), depth)
	return s
}
