package timeline

import (
	"cmp"
	"slices"
)

// HostLate says what the launching thread did while the device waited for it to
// begin the launch. Each nanosecond counts once, for the first of these that
// the thread was in; the parts sum to the whole.
type HostLate struct {
	OverheadNs int64 // the profiler at work on itself
	SyncNs     int64 // blocked in a synchronising call
	FeedNs     int64 // fetching or preparing input, calls inside included
	CallNs     int64 // another API call
	OperatorNs int64 // a framework's operator
	UserNs     int64 // a range that the user named; a step alone is not one
	PythonNs   int64 // an interpreter's frame, nothing more precise
	NothingNs  int64 // nothing recorded

	// OperatorCallNs is the part of CallNs inside an operator: calls that a
	// library makes for itself.
	OperatorCallNs int64
}

// SumNs is the sum of the parts.
func (h HostLate) SumNs() int64 {
	return h.OverheadNs + h.SyncNs + h.FeedNs + h.CallNs + h.OperatorNs + h.UserNs + h.PythonNs + h.NothingNs
}

func (h HostLate) add(o HostLate) HostLate {
	h.OverheadNs += o.OverheadNs
	h.SyncNs += o.SyncNs
	h.FeedNs += o.FeedNs
	h.CallNs += o.CallNs
	h.OperatorNs += o.OperatorNs
	h.UserNs += o.UserNs
	h.PythonNs += o.PythonNs
	h.NothingNs += o.NothingNs
	h.OperatorCallNs += o.OperatorCallNs
	return h
}

// doing is what a thread does, the first of several counts.
type doing uint8

const (
	doingOverhead doing = iota
	doingSync
	doingFeed
	doingCall
	doingOperator
	doingUser
	doingPython
	doingNothing
	doings = int(doingNothing) // that are recorded

	// doingOperatorCall is doingCall while an operator is open.
	doingOperatorCall doing = doingNothing + 1
)

func (h *HostLate) part(d doing) *int64 {
	return [...]*int64{&h.OverheadNs, &h.SyncNs, &h.FeedNs, &h.CallNs, &h.OperatorNs, &h.UserNs, &h.PythonNs, &h.NothingNs}[d]
}

// activity is what a thread did, in order, without overlaps; what is between
// was not recorded.
type activity []stretch

type stretch struct {
	Window
	doing doing
}

// watch finds what each thread that launches something did.
func (x *Index) watch() {
	t := x.T
	launches := make([]bool, len(t.Threads))
	for i, n := range x.OpsOf {
		if th := t.Calls[i].Thread; n > 0 && th >= 0 && int(th) < len(launches) {
			launches[th] = true
		}
	}
	// each tells of every interval of a launching thread. It runs twice, to
	// count and to collect: growing would take twice the memory.
	each := func(tell func(thread int32, from, to int64, d doing)) {
		has := func(thread int32, from, to int64) bool {
			return thread >= 0 && int(thread) < len(launches) && launches[thread] && to > from
		}
		for i := range t.Calls {
			if c := &t.Calls[i]; has(c.Thread, c.StartNs, c.EndNs) {
				d := doingCall
				if c.Class == CallSync {
					d = doingSync
				}
				tell(c.Thread, c.StartNs, c.EndNs, d)
			}
		}
		for i := range t.Ranges {
			r := &t.Ranges[i]
			if d, ok := doingOf(r.Class); ok && has(r.Thread, r.StartNs, r.EndNs) {
				tell(r.Thread, r.StartNs, r.EndNs, d)
			}
		}
	}
	counts := make([]int, len(t.Threads))
	each(func(thread int32, _, _ int64, _ doing) { counts[thread] += 2 })
	edges := make([][]edge, len(t.Threads))
	for i, n := range counts {
		if n > 0 {
			edges[i] = make([]edge, 0, n)
		}
	}
	each(func(thread int32, from, to int64, d doing) {
		edges[thread] = append(edges[thread], edge{from, d, 1}, edge{to, d, -1})
	})
	x.threads = make([]activity, len(t.Threads))
	for i, e := range edges {
		x.threads[i] = sweep(e)
		edges[i] = nil
	}
}

func doingOf(c RangeClass) (doing, bool) {
	switch c {
	case RangeUser:
		return doingUser, true
	case RangeOperator:
		return doingOperator, true
	case RangeFeed:
		return doingFeed, true
	case RangeOverhead:
		return doingOverhead, true
	case RangePython:
		return doingPython, true
	}
	return doingNothing, false // a step says nothing of what is done in it
}

type edge struct {
	at    int64
	doing doing
	by    int8
}

func sweep(edges []edge) activity {
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Compare(a.at, b.at) })
	var out activity
	var open [doings]int
	now, since := doingNothing, int64(0)
	for i := 0; i < len(edges); {
		at := edges[i].at
		for ; i < len(edges) && edges[i].at == at; i++ {
			open[edges[i].doing] += int(edges[i].by)
		}
		next := doing(slices.IndexFunc(open[:], func(n int) bool { return n > 0 }))
		if next > doingNothing { // IndexFunc's -1
			next = doingNothing
		}
		if next == doingCall && open[doingOperator] > 0 {
			next = doingOperatorCall
		}
		if next == now {
			continue
		}
		if now != doingNothing {
			out = append(out, stretch{Window{since, at}, now})
		}
		now, since = next, at
	}
	return out
}

// lateness says what a thread did in a window.
func (x *Index) lateness(thread int32, w Window) HostLate {
	var h HostLate
	rest := w.Ns()
	if thread >= 0 && int(thread) < len(x.threads) {
		a := x.threads[thread]
		i, _ := slices.BinarySearchFunc(a, w.FromNs, func(s stretch, ns int64) int {
			if s.ToNs <= ns {
				return -1
			}
			return 1
		})
		for ; i < len(a) && a[i].FromNs < w.ToNs; i++ {
			n, d := a[i].clip(w).Ns(), a[i].doing
			if d == doingOperatorCall {
				h.OperatorCallNs += n
				d = doingCall
			}
			*h.part(d) += n
			rest -= n
		}
	}
	h.NothingNs += rest
	return h
}
