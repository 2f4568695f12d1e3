package timeline

import (
	"cmp"
	"slices"
	"strings"
)

// Share is the device's time under ranges of one name: of ops whose launching
// call began in such a range on its thread.
type Share struct {
	Name, Domain string
	// Launches are calls, Ops what they launched.
	Launches, Ops int
	// GPUNs sums the ops' lengths, overlaps counted as often as they occur.
	// SelfNs is the part under no chosen range further inside. SelfNs of all
	// shares and the rest sum to OpsNs of the figures.
	GPUNs, SelfNs int64
}

// Shares are what a device did by range of the host, the largest first, and
// what was launched under none of them or has no launch on record. pick chooses
// ranges, as by class; nil chooses those of the user and steps.
func (x *Index) Shares(device int32, w Window, pick func(*Range) bool) (shares []Share, rest Share) {
	if pick == nil {
		pick = func(r *Range) bool { return r.Class == RangeUser || r.Class == RangeStep }
	}
	t, l := x.T, &x.devices[device]
	from, to := x.starting(l, w)
	ops := make([]struct { // by call
		n  int
		ns int64
	}, len(t.Calls))
	for _, op := range l.ops[from:to] {
		o, c := &t.Ops[op], x.Launch[op]
		n := o.EndNs - o.StartNs
		if c == None || t.Calls[c].Thread < 0 || int(t.Calls[c].Thread) >= len(t.Threads) {
			rest.Ops++
			rest.GPUNs += n
			if c != None {
				rest.Launches++ // a call without a thread; its ops are one each
			}
			continue
		}
		ops[c].n++
		ops[c].ns += n
	}
	calls := make([][]int32, len(t.Threads))
	for c := range ops {
		if ops[c].n > 0 {
			th := t.Calls[c].Thread
			calls[th] = append(calls[th], int32(c))
		}
	}
	ranges := make([][]int32, len(t.Threads))
	for i := range t.Ranges {
		r := &t.Ranges[i]
		if th := r.Thread; th >= 0 && int(th) < len(calls) && len(calls[th]) > 0 && r.EndNs > r.StartNs && pick(r) {
			ranges[th] = append(ranges[th], int32(i))
		}
	}
	type key struct{ name, domain string }
	byName := map[key]*Share{}
	for th := range calls {
		var counted []key // a name once, however deep it recurs
		x.walkRanges(calls[th], ranges[th], func(call int32, open []int32) {
			s := ops[call]
			counted = counted[:0]
			if len(open) == 0 {
				rest.Launches++
				rest.Ops += s.n
				rest.GPUNs += s.ns
				return
			}
			for i := len(open) - 1; i >= 0; i-- {
				r := &t.Ranges[open[i]]
				k := key{t.Text(r.Name), t.Text(r.Domain)}
				if slices.Contains(counted, k) {
					continue
				}
				counted = append(counted, k)
				sh := byName[k]
				if sh == nil {
					sh = &Share{Name: k.name, Domain: k.domain}
					byName[k] = sh
				}
				sh.Launches++
				sh.Ops += s.n
				sh.GPUNs += s.ns
				if i == len(open)-1 {
					sh.SelfNs += s.ns
				}
			}
		})
	}
	rest.SelfNs = rest.GPUNs
	for _, s := range byName {
		shares = append(shares, *s)
	}
	slices.SortFunc(shares, func(a, b Share) int {
		return cmp.Or(cmp.Compare(b.GPUNs, a.GPUNs), strings.Compare(a.Name, b.Name), strings.Compare(a.Domain, b.Domain))
	})
	return shares, rest
}

// walkRanges tells for each call of a thread which ranges it began in, the
// innermost last: of several it is the one that began last, and of those that
// began together, the one that ends first.
func (x *Index) walkRanges(calls, ranges []int32, visit func(call int32, open []int32)) {
	t := x.T
	slices.SortFunc(calls, func(a, b int32) int { return cmp.Compare(t.Calls[a].StartNs, t.Calls[b].StartNs) })
	slices.SortFunc(ranges, func(a, b int32) int {
		p, q := &t.Ranges[a], &t.Ranges[b]
		return cmp.Or(cmp.Compare(p.StartNs, q.StartNs), cmp.Compare(q.EndNs, p.EndNs),
			strings.Compare(t.Text(p.Name), t.Text(q.Name)), strings.Compare(t.Text(p.Domain), t.Text(q.Domain)))
	})
	var open []int32
	next := 0
	for _, c := range calls {
		at := t.Calls[c].StartNs
		for ; next < len(ranges) && t.Ranges[ranges[next]].StartNs <= at; next++ {
			// What ended goes as soon as something comes: a stack would do if
			// ranges always nested, which start/end ranges need not.
			open = slices.DeleteFunc(open, func(r int32) bool { return t.Ranges[r].EndNs <= t.Ranges[ranges[next]].StartNs })
			open = append(open, ranges[next])
		}
		open = slices.DeleteFunc(open, func(r int32) bool { return t.Ranges[r].EndNs <= at })
		visit(c, open)
	}
}

// KernelStats are the ops of one name and kind.
type KernelStats struct {
	Name string
	Kind Kind
	// GPUNs are their lengths; its Count is how many there were.
	GPUNs Distribution
}

// TopKernels are the ops that start in a window by name, the largest sum first;
// n below 0 is all of them.
func (x *Index) TopKernels(device int32, w Window, n int) []KernelStats {
	l := &x.devices[device]
	from, to := x.starting(l, w)
	type key struct {
		name Name
		kind Kind
	}
	lengths := map[key][]int64{}
	for _, op := range l.ops[from:to] {
		o := &x.T.Ops[op]
		k := key{o.Name, o.Kind}
		lengths[k] = append(lengths[k], o.EndNs-o.StartNs)
	}
	out := make([]KernelStats, 0, len(lengths))
	for k, ns := range lengths {
		out = append(out, KernelStats{Name: x.T.Text(k.name), Kind: k.kind, GPUNs: Distribute(ns)})
	}
	slices.SortFunc(out, func(a, b KernelStats) int {
		return cmp.Or(cmp.Compare(b.GPUNs.SumNs, a.GPUNs.SumNs), strings.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	if n >= 0 && len(out) > n {
		out = out[:n]
	}
	return out
}

// Surroundings say where a gap stands.
type Surroundings struct {
	Gap   Gap
	Split Split
	// Before and After name the ops around it, Launch the call that launched
	// After; empty where there is none.
	Before, After, Launch string
	// Ranges are those of the launching thread that cover the end of
	// host_late's part, where the launch began, or the gap's start if it began
	// before; the innermost last.
	Ranges []string
	// Calls are other calls of that thread that overlap the gap, the one with
	// the largest overlap first, at most 3.
	Calls []string
}

// TopGaps are the n longest gaps of a device in a window, the earlier first of
// equal ones, with what was around. It looks at all ranges and calls for each
// gap, so n is to be what a reader reads.
func (x *Index) TopGaps(device int32, w Window, n int) []Surroundings {
	gaps := slices.Clone(x.DeviceGaps(device, w))
	slices.SortFunc(gaps, func(a, b Gap) int {
		return cmp.Or(cmp.Compare(b.Ns(), a.Ns()), cmp.Compare(a.FromNs, b.FromNs))
	})
	gaps = gaps[:min(max(n, 0), len(gaps))]
	out := make([]Surroundings, len(gaps))
	byThread := map[int32][]int{}
	for i, g := range gaps {
		s := &out[i]
		s.Gap, s.Split = g, x.SplitOf(g)
		if g.Before != None {
			s.Before = x.T.Text(x.T.Ops[g.Before].Name)
		}
		if g.After != None {
			s.After = x.T.Text(x.T.Ops[g.After].Name)
		}
		if g.Launch != None {
			c := &x.T.Calls[g.Launch]
			s.Launch = x.T.Text(c.Name)
			if c.Thread != None {
				byThread[c.Thread] = append(byThread[c.Thread], i)
			}
		}
	}
	x.surround(out, byThread)
	return out
}

// surround looks through ranges and calls once, for all gaps together.
func (x *Index) surround(out []Surroundings, byThread map[int32][]int) {
	t := x.T
	ranges := make([][]int32, len(out))
	for i := range t.Ranges {
		r := &t.Ranges[i]
		for _, k := range byThread[r.Thread] {
			if at := out[k].Gap.LateToNs; r.StartNs <= at && r.EndNs > at {
				ranges[k] = append(ranges[k], int32(i))
			}
		}
	}
	type overlap struct {
		call int32
		ns   int64
	}
	calls := make([][]overlap, len(out))
	for i := range t.Calls {
		c := &t.Calls[i]
		for _, k := range byThread[c.Thread] {
			g := &out[k].Gap
			if n := (Window{c.StartNs, c.EndNs}).clip(Window{g.FromNs, g.ToNs}).Ns(); n > 0 && int32(i) != g.Launch {
				calls[k] = append(calls[k], overlap{int32(i), n})
			}
		}
	}
	for k := range out {
		slices.SortFunc(ranges[k], func(a, b int32) int {
			p, q := &t.Ranges[a], &t.Ranges[b]
			return cmp.Or(cmp.Compare(p.StartNs, q.StartNs), cmp.Compare(q.EndNs, p.EndNs), strings.Compare(t.Text(p.Name), t.Text(q.Name)))
		})
		for _, r := range ranges[k] {
			out[k].Ranges = append(out[k].Ranges, t.Text(t.Ranges[r].Name))
		}
		slices.SortFunc(calls[k], func(a, b overlap) int {
			return cmp.Or(cmp.Compare(b.ns, a.ns), x.compareCalls(a.call, b.call))
		})
		for i, c := range calls[k] {
			if i == 3 {
				break
			}
			out[k].Calls = append(out[k].Calls, t.Text(t.Calls[c.call].Name))
		}
	}
}
