package timeline

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// Index is a timeline made ready for questions: ops joined with their launches,
// ops in order, gaps, and what each launching thread did when. Its methods are
// about one device, or one stream of it, within a window; they change nothing,
// so any number of goroutines may ask at a time.
//
// All that depends on an order uses times and names, never an event's place in
// the recording or a stream's number: a recording that is shuffled, shifted or
// renumbered has the same figures. (The one exception are two launches of ops
// at the very same time that agree in all but their correlation.) Times must lie
// within 2^62 ns of 0, so that differences are exact.
type Index struct {
	T *Timeline
	// Launch has, for each op, the index of the call that launched it, or None.
	Launch []int32
	// OpsOf has, for each call, how many ops it launched, untimed ones too.
	OpsOf []int32

	devices, streams []lane
	threads          []activity
	firstCallNs      int64 // MaxInt64 without calls
}

// lane is the work of a device, or of one of its streams.
type lane struct {
	ops   []int32  // timed ops in order
	later []bool   // by place in ops: not the first of its correlation here
	busy  []Window // what ops cover, merged and in order
	gaps  []Gap    // between what is in busy
}

// Window is a stretch of the time axis, [FromNs, ToNs).
type Window struct{ FromNs, ToNs int64 }

// Ns is how long the window is.
func (w Window) Ns() int64 { return w.ToNs - w.FromNs }

// clip is the part of w inside of o; it is empty, not negative, outside.
func (w Window) clip(o Window) Window {
	from := min(max(w.FromNs, o.FromNs), o.ToNs)
	return Window{from, max(from, min(w.ToNs, o.ToNs))}
}

// NewIndex makes a timeline ready, in O(n log n).
//
// An op is launched by a call of the same correlation: of several, by the first
// whose name contains launch, memcpy or memset with a small or a large first
// letter, else by the first. The first is the one that began first, and of
// those that began together, the one that ended last (it holds the other).
func NewIndex(t *Timeline) *Index {
	x := &Index{
		T: t, firstCallNs: math.MaxInt64,
		Launch: make([]int32, len(t.Ops)), OpsOf: make([]int32, len(t.Calls)),
		devices: make([]lane, len(t.Devices)), streams: make([]lane, len(t.Streams)),
	}
	for i := range t.Calls {
		x.firstCallNs = min(x.firstCallNs, t.Calls[i].StartNs)
	}
	x.link()
	x.order()
	x.watch()
	return x
}

func (x *Index) link() {
	t := x.T
	launching := make([]bool, len(t.Names))
	for i, s := range t.Names {
		launching[i] = namesLaunch(s)
	}
	launches := newNumbers(t) // by correlation: the call's index and 1
	for i := range t.Calls {
		c := &t.Calls[i]
		if c.Correlation == 0 {
			continue
		}
		if old := launches.get(c.Correlation); old == 0 || x.before(launching, int32(i), old-1) {
			launches.set(c.Correlation, int32(i)+1)
		}
	}
	for i := range t.Ops {
		x.Launch[i] = None
		if k := t.Ops[i].Correlation; k != 0 {
			if c := launches.get(k) - 1; c >= 0 {
				x.Launch[i] = c
				x.OpsOf[c]++
			}
		}
	}
}

// before tells whether call a is the launch rather than b of its correlation.
func (x *Index) before(launching []bool, a, b int32) bool {
	p, q := &x.T.Calls[a], &x.T.Calls[b]
	named := func(n Name) int {
		if n >= 0 && int(n) < len(launching) && launching[n] {
			return 0
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(named(p.Name), named(q.Name)),
		x.compareCalls(a, b),
	) < 0
}

// compareCalls orders calls by what they are, not by where they stand.
func (x *Index) compareCalls(a, b int32) int {
	if a == b {
		return 0
	}
	p, q := &x.T.Calls[a], &x.T.Calls[b]
	if c := cmp.Or(cmp.Compare(p.StartNs, q.StartNs), cmp.Compare(q.EndNs, p.EndNs)); c != 0 {
		return c
	}
	return cmp.Or(
		strings.Compare(x.T.Text(p.Name), x.T.Text(q.Name)),
		strings.Compare(x.threadKey(p.Thread), x.threadKey(q.Thread)),
		cmp.Compare(p.Class, q.Class),
	)
}

func (x *Index) threadKey(i int32) string {
	t := x.T
	if i < 0 || int(i) >= len(t.Threads) {
		return ""
	}
	th := &t.Threads[i]
	if th.Process >= 0 && int(th.Process) < len(t.Processes) {
		return t.Processes[th.Process].ID + "/" + th.ID
	}
	return th.ID
}

// namesLaunch is the rule for the launch among several calls.
func namesLaunch(s string) bool {
	for _, w := range [...]string{"aunch", "emcpy", "emset"} {
		for rest, at := s, 0; ; {
			i := strings.Index(rest[at:], w)
			if i < 0 {
				break
			}
			i += at
			if i > 0 {
				switch c := rest[i-1] | 0x20; {
				case w == "aunch" && c == 'l', w != "aunch" && c == 'm':
					return true
				}
			}
			at = i + 1
		}
	}
	return false
}

// usable tells whether an op has times that figures can use.
func usable(o *Op) bool { return o.Timed && o.EndNs >= o.StartNs }

func (x *Index) order() {
	t := x.T
	byDevice, byStream := make([]int32, len(t.Devices)), make([]int32, len(t.Streams))
	for i := range t.Ops {
		o := &t.Ops[i]
		if !usable(o) {
			continue
		}
		if d := o.Device; d >= 0 && int(d) < len(byDevice) {
			byDevice[d]++
		}
		if s := o.Stream; s >= 0 && int(s) < len(byStream) {
			byStream[s]++
		}
	}
	for d, n := range byDevice {
		x.devices[d].ops = make([]int32, 0, n)
	}
	for s, n := range byStream {
		x.streams[s].ops = make([]int32, 0, n)
	}
	sorted := make([]sortable, 0, len(t.Ops))
	for i := range t.Ops {
		if o := &t.Ops[i]; usable(o) {
			sorted = append(sorted, sortable{o.StartNs, o.EndNs, int32(i)})
		}
	}
	slices.SortFunc(sorted, func(a, b sortable) int {
		switch {
		case a.start != b.start:
			return cmp.Compare(a.start, b.start)
		case a.end != b.end:
			return cmp.Compare(a.end, b.end)
		}
		return x.compareTied(a.op, b.op)
	})
	for _, s := range sorted {
		o := &t.Ops[s.op]
		if d := o.Device; d >= 0 && int(d) < len(x.devices) {
			x.devices[d].ops = append(x.devices[d].ops, s.op)
		}
		if s2 := o.Stream; s2 >= 0 && int(s2) < len(x.streams) {
			x.streams[s2].ops = append(x.streams[s2].ops, s.op)
		}
	}
	seen, lanes := newNumbers(t), int32(0)
	for _, kind := range [][]lane{x.devices, x.streams} {
		for i := range kind {
			lanes++
			kind[i].fill(x, seen, lanes)
		}
	}
}

type sortable struct {
	start, end int64
	op         int32
}

// compareTied orders ops that began and ended together. The first of them is
// who ends the gap before it, so the order must not be the recording's: the one
// that was launched first comes first, and before it one without a launch, which
// as a rule was launched before the recording began.
func (x *Index) compareTied(a, b int32) int {
	p, q := x.Launch[a], x.Launch[b]
	switch {
	case p == None && q != None:
		return -1
	case p != None && q == None:
		return 1
	case p != None:
		if c := x.compareCalls(p, q); c != 0 {
			return c
		}
	}
	return strings.Compare(x.T.Text(x.T.Ops[a].Name), x.T.Text(x.T.Ops[b].Name))
}

// fill finds what ops cover and the gaps between. seen has for each correlation
// the number of the last lane with an op of it; number is this one's.
func (l *lane) fill(x *Index, seen *numbers, number int32) {
	l.later = make([]bool, len(l.ops))
	gaps := 0
	for i, end := 0, int64(math.MinInt64); i < len(l.ops); i++ {
		o := &x.T.Ops[l.ops[i]]
		if o.StartNs > end && i > 0 {
			gaps++
		}
		end = max(end, o.EndNs)
	}
	if len(l.ops) > 0 {
		l.busy, l.gaps = make([]Window, 0, gaps+1), make([]Gap, 0, gaps)
	}
	var last int32 = None // the op that ended last so far
	for i, op := range l.ops {
		o := &x.T.Ops[op]
		if o.Correlation != 0 {
			if seen.get(o.Correlation) == number {
				l.later[i] = true
			} else {
				seen.set(o.Correlation, number)
			}
		}
		switch n := len(l.busy); {
		case n == 0:
			l.busy = append(l.busy, Window{o.StartNs, o.EndNs})
			last = op
		case o.StartNs <= l.busy[n-1].ToNs:
			if o.EndNs > l.busy[n-1].ToNs {
				l.busy[n-1].ToNs, last = o.EndNs, op
			}
		default:
			l.gaps = append(l.gaps, x.gap(l.busy[n-1].ToNs, last, op, l.later[i]))
			l.busy = append(l.busy, Window{o.StartNs, o.EndNs})
			last = op
		}
	}
}

// span is from the first start to the last end.
func (l *lane) span() (Window, bool) {
	if len(l.busy) == 0 {
		return Window{}, false
	}
	return Window{l.busy[0].FromNs, l.busy[len(l.busy)-1].ToNs}, true
}

// DeviceSpan is from the first op's start to the last end on a device; false
// where the device has no timed op.
func (x *Index) DeviceSpan(device int32) (Window, bool) { return x.devices[device].span() }

// StreamSpan is DeviceSpan for one stream.
func (x *Index) StreamSpan(stream int32) (Window, bool) { return x.streams[stream].span() }

// DeviceOps are the timed ops of a device in order of (start, end). The caller
// must not change the slice.
func (x *Index) DeviceOps(device int32) []int32 { return x.devices[device].ops }

// StreamOps is DeviceOps for one stream.
func (x *Index) StreamOps(stream int32) []int32 { return x.streams[stream].ops }

// starting are the places in l.ops of the ops that count for a window: those
// that start in it, and at its end too if that is where the lane ends, so that
// the span's window holds all.
func (x *Index) starting(l *lane, w Window) (from, to int) {
	at := func(ns int64) int {
		i, _ := slices.BinarySearchFunc(l.ops, ns, func(op int32, ns int64) int {
			return cmp.Compare(x.T.Ops[op].StartNs, ns)
		})
		return i
	}
	from, to = at(w.FromNs), at(w.ToNs)
	if s, ok := l.span(); ok && w.ToNs >= s.ToNs {
		to = len(l.ops)
	}
	return from, max(from, to)
}
