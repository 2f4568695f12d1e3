package write

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tech-renaissance/trbench/timeline"
)

// layout says on which pid and tid everything stands.
type layout struct {
	x     *timeline.Index
	shift int64 // added to all times

	processes []uint32 // pid by process; the last is for threads of none
	threads   []track  // by thread; the last is for events of none
	devices   []uint32 // pid by device
	streams   []track  // by stream; the rest are one a device, for ops of none
	orphans   bool     // whether something stands on the last thread
	counters  bool     // whether a counter belongs to no process

	events [][]int32 // by thread: calls, then ranges from len(calls) on, in order
	ops    [][]int32 // by stream, as streams
}

// track is a thread or stream: one tid, and one more for each overlap.
type track struct {
	pid  uint32
	tids []uint32
	name string
	id   string
}

func newLayout(x *timeline.Index) *layout {
	t := x.T
	l := &layout{x: x}
	l.collect()
	l.origin()

	used := numbering{pids: map[uint32]bool{}, tids: map[uint32]bool{}, next: 1}
	for i := range t.Processes {
		l.processes = append(l.processes, used.pid(t.Processes[i].ID))
	}
	l.processes = append(l.processes, 0)
	homeless := func() uint32 {
		if l.processes[len(t.Processes)] == 0 {
			l.processes[len(t.Processes)] = used.pid("")
		}
		return l.processes[len(t.Processes)]
	}
	for i := range t.Threads {
		th := &t.Threads[i]
		k := track{name: th.Name, id: th.ID}
		if p := th.Process; p >= 0 && int(p) < len(t.Processes) {
			k.pid = l.processes[p]
		} else {
			k.pid = homeless()
		}
		if k.name == "" {
			k.name = "thread " + th.ID
		}
		l.threads = append(l.threads, k)
	}
	last := track{name: "no thread"}
	if l.orphans {
		last.pid = homeless()
		if len(t.Processes) == 1 {
			last.pid = l.processes[0]
		}
	}
	if l.counters && len(t.Processes) != 1 {
		homeless()
	}
	l.threads = append(l.threads, last)
	// All natural numbers come before any that is made up, so that these do
	// not take one away.
	for i := range t.Threads {
		l.threads[i].tids = used.natural(l.threads[i].pid, t.Threads[i].ID)
	}
	for range t.Devices {
		l.devices = append(l.devices, used.pid(""))
	}
	for i := range t.Streams {
		s := &t.Streams[i]
		k := track{name: s.Name, id: s.ID}
		if d := s.Device; d >= 0 && int(d) < len(l.devices) {
			k.pid = l.devices[d]
		} else {
			k.pid = homeless()
		}
		if k.name == "" {
			k.name = "stream " + s.ID
		}
		k.tids = used.natural(0, s.ID)
		l.streams = append(l.streams, k)
	}
	for d := range t.Devices {
		l.streams = append(l.streams, track{pid: l.devices[d], name: "no stream"})
	}
	for i, events := range l.events {
		l.threads[i].tids = used.lanes(l.threads[i].tids, l.nested(events, nil), i < len(t.Threads))
	}
	for i, ops := range l.ops {
		l.streams[i].tids = used.lanes(l.streams[i].tids, l.apart(ops, nil), i < len(t.Streams))
	}
	return l
}

// collect sorts events by track and time.
func (l *layout) collect() {
	t := l.x.T
	l.events = make([][]int32, len(t.Threads)+1)
	thread := func(i int32) int32 {
		if i < 0 || int(i) >= len(t.Threads) {
			l.orphans = true
			return int32(len(t.Threads))
		}
		return i
	}
	counts := make([]int, len(l.events))
	for i := range t.Calls {
		counts[thread(t.Calls[i].Thread)]++
	}
	for i := range t.Ranges {
		counts[thread(t.Ranges[i].Thread)]++
	}
	for i, n := range counts {
		l.events[i] = make([]int32, 0, n)
	}
	for i := range t.Calls {
		k := thread(t.Calls[i].Thread)
		l.events[k] = append(l.events[k], int32(i))
	}
	for i := range t.Ranges {
		k := thread(t.Ranges[i].Thread)
		l.events[k] = append(l.events[k], int32(len(t.Calls)+i))
	}
	for i := range t.Counters {
		if p := t.Counters[i].Process; p < 0 || int(p) >= len(t.Processes) {
			l.counters = true
		}
	}
	for _, e := range l.events {
		slices.SortFunc(e, l.compareEvents)
	}
	l.ops = make([][]int32, len(t.Streams)+len(t.Devices))
	for i := range t.Ops {
		o := &t.Ops[i]
		if !l.timed(o) {
			continue
		}
		if s := o.Stream; s >= 0 && int(s) < len(t.Streams) {
			l.ops[s] = append(l.ops[s], int32(i))
		} else {
			k := len(t.Streams) + int(o.Device)
			l.ops[k] = append(l.ops[k], int32(i))
		}
	}
	for _, ops := range l.ops {
		slices.SortFunc(ops, func(a, b int32) int {
			p, q := &t.Ops[a], &t.Ops[b]
			return cmp.Or(cmp.Compare(p.StartNs, q.StartNs), cmp.Compare(p.EndNs, q.EndNs), cmp.Compare(a, b))
		})
	}
}

// timed tells whether an event can carry an op: it has times, and a device.
func (l *layout) timed(o *timeline.Op) bool {
	return o.Timed && o.EndNs >= o.StartNs && o.Device >= 0 && int(o.Device) < len(l.x.T.Devices)
}

// times are an event's, a negative length being none.
func (l *layout) times(event int32) (start, end int64) {
	t := l.x.T
	if n := int32(len(t.Calls)); event < n {
		c := &t.Calls[event]
		return c.StartNs, max(c.StartNs, c.EndNs)
	} else {
		r := &t.Ranges[event-n]
		return r.StartNs, max(r.StartNs, r.EndNs)
	}
}

// compareEvents puts what holds another before it: Perfetto nests what begins
// together in the order of the file. A range holds a call of the same times.
func (l *layout) compareEvents(a, b int32) int {
	s0, e0 := l.times(a)
	s1, e1 := l.times(b)
	if c := cmp.Or(cmp.Compare(s0, s1), cmp.Compare(e1, e0)); c != 0 {
		return c
	}
	n := int32(len(l.x.T.Calls))
	if (a < n) != (b < n) {
		return cmp.Compare(b, a) // ranges are numbered behind calls
	}
	return cmp.Compare(a, b)
}

// Times stay as they are where the first lies between these: Perfetto drops
// negative times, readers take a time of 0 for none, and far from 0 a float64,
// which is what most readers make of a number, is coarser than a nanosecond.
const (
	leastNs = 1
	mostNs  = 1_000_000_000_000
	firstNs = 1000 // where the first is put otherwise
)

// origin finds by how much times must be shifted.
func (l *layout) origin() {
	t := l.x.T
	first := int64(math.MaxInt64)
	for i := range t.Ops {
		if o := &t.Ops[i]; l.timed(o) {
			first = min(first, o.StartNs)
		}
	}
	for i := range t.Calls {
		first = min(first, t.Calls[i].StartNs)
	}
	for i := range t.Ranges {
		first = min(first, t.Ranges[i].StartNs)
	}
	for i := range t.Counters {
		first = min(first, t.Counters[i].AtNs)
	}
	if first != math.MaxInt64 && (first < leastNs || first > mostNs) {
		l.shift = firstNs - first
	}
}

// readings are what readers make of an event's times: exactly what is written,
// or what is left when decimal microseconds become a float64, times 1000, cut
// off. Perfetto does the latter to start and length, as of late 2025 with a float
// that is a sum of two, before with the one next to the number. A nanosecond is
// lost to it now and then, and two events that touched overlap by it: it would
// drop the second. So events must be apart, or nested, in every reading.
const readings = 3

func (l *layout) read(start, end int64) (starts, ends [readings]int64) {
	start, end = start+l.shift, end+l.shift
	starts[0], ends[0] = start, end
	for i, f := range [...]func(int64) int64{nearest, summed} {
		starts[i+1] = f(start)
		ends[i+1] = starts[i+1] + f(end-start)
	}
	return starts, ends
}

func nearest(ns int64) int64 { return int64(float64(ns) / 1000 * 1000) }

func summed(ns int64) int64 { return int64((float64(ns/1000) + float64(ns%1000)/1000) * 1000) }

// nested gives each event the first lane where it lies between others or wholly
// inside one, and returns how many lanes there are.
func (l *layout) nested(events []int32, visit func(event int32, lane int)) int {
	var lanes [][readings][]int64 // ends of what is open, the innermost last
	for _, e := range events {
		starts, ends := l.read(l.times(e))
		at := slices.IndexFunc(lanes, func(lane [readings][]int64) bool {
			for k, open := range lane {
				for len(open) > 0 && open[len(open)-1] <= starts[k] {
					open = open[:len(open)-1]
				}
				if len(open) > 0 && open[len(open)-1] < ends[k] {
					return false
				}
			}
			return true
		})
		if at < 0 {
			at, lanes = len(lanes), append(lanes, [readings][]int64{})
		}
		for k := range lanes[at] {
			open := lanes[at][k]
			for len(open) > 0 && open[len(open)-1] <= starts[k] {
				open = open[:len(open)-1]
			}
			lanes[at][k] = append(open, ends[k])
		}
		if visit != nil {
			visit(e, at)
		}
	}
	return len(lanes)
}

// apart gives each op the first lane where nothing runs any more.
func (l *layout) apart(ops []int32, visit func(op int32, lane int)) int {
	var lanes [][readings]int64 // where the last ends
	for _, op := range ops {
		o := &l.x.T.Ops[op]
		starts, ends := l.read(o.StartNs, o.EndNs)
		at := slices.IndexFunc(lanes, func(last [readings]int64) bool {
			return last[0] <= starts[0] && last[1] <= starts[1] && last[2] <= starts[2]
		})
		if at < 0 {
			at, lanes = len(lanes), append(lanes, [readings]int64{})
		}
		lanes[at] = ends
		if visit != nil {
			visit(op, at)
		}
	}
	return len(lanes)
}

// numbering hands out pids and tids from 1 to 2^32-1, each once in the file: a
// tid may be the pid of its own process alone.
type numbering struct {
	pids, tids map[uint32]bool
	next       uint32
}

func (n *numbering) fresh() uint32 {
	for n.pids[n.next] || n.tids[n.next] {
		n.next++
	}
	return n.next
}

func (n *numbering) pid(id string) uint32 {
	v, ok := number(id)
	if !ok || n.pids[v] || n.tids[v] {
		v = n.fresh()
	}
	n.pids[v] = true
	return v
}

// natural is the recording's own number as a tid, or none yet.
func (n *numbering) natural(pid uint32, id string) []uint32 {
	v, ok := number(id)
	if !ok || n.tids[v] || n.pids[v] && v != pid {
		return nil
	}
	n.tids[v] = true
	return []uint32{v}
}

// lanes completes tids to as many as are needed; a named track has one always.
func (n *numbering) lanes(tids []uint32, need int, named bool) []uint32 {
	if named {
		need = max(need, 1)
	}
	for len(tids) < need {
		v := n.fresh()
		n.tids[v] = true
		tids = append(tids, v)
	}
	return tids
}

// number reads a pid or tid that Perfetto takes.
func number(id string) (uint32, bool) {
	v, err := strconv.ParseUint(id, 10, 32)
	return uint32(v), err == nil && v > 0 && v <= math.MaxUint32 && !strings.HasPrefix(id, "0")
}
