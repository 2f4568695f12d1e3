package workloads

import (
	"fmt"
	"slices"
	"strings"
)

// A Sequence is a run of segments with event joins, for the hazard check: it
// knows from the schedule what is ordered and from the regions what must be.
// The two are found independently of each other, once, when it is made.
type Sequence struct {
	w         *Workload
	control   Control
	steps     []seqStep
	labels    []string // of segments
	conflicts []conflict
}

// seqStep is an item of work, or an edge.
type seqStep struct {
	segment int
	kind    stepKind
	stream  Stream // of the item; the waiter of an edge
	waited  Stream
	at      int // edge: steps index of the point waited for; -1: the waited stream as it is now
	name    string
	id      SubGraph
	variant Variant
	half    Half
}

type stepKind uint8

const (
	stepEdge    stepKind = iota
	stepRun              // a sub-graph
	stepFeed             // the host fills a pinned half
	stepControl          // the host reads and writes the scalars
)

// Edge is an ordering edge of a sequence: Waiter's later work waits for
// Waited's work so far.
type Edge struct {
	Index          int // position in the sequence, for [Sequence.Without]
	Segment        string
	Join           string
	Waiter, Waited Stream
}

func (e Edge) String() string {
	return fmt.Sprintf("%s waits for %s (%s, %s)", e.Waiter, e.Waited, e.Join, e.Segment)
}

// Hazard is a pair of accesses to one region, at least one a write, that
// nothing orders.
type Hazard struct {
	First, Second string // "TRANSFER_A in train_step 3"
	Region        Region
	Tensor        string
}

func (h Hazard) Error() string {
	return fmt.Sprintf("%s and %s are not ordered, and both touch %s (%s)", h.First, h.Second, h.Tensor, h.Region)
}

// Sequence lays out segments one after another, with every join of the
// schedule's script, those that [Workload.Schedule] leaves out included. With
// ControlHost the host's work on the scalars is part of it, behind the host's
// wait for UPDATE, and the operators are those of host control.
func (w *Workload) Sequence(segs []Segment, c Control) *Sequence {
	return w.sequence(segs, c, w.script)
}

// ScheduledSequence is the same with the joins that modes walk.
func (w *Workload) ScheduledSequence(segs []Segment, c Control) *Sequence {
	return w.sequence(segs, c, w.Schedule)
}

func (w *Workload) sequence(segs []Segment, c Control, actions func(Segment) []Action) *Sequence {
	q := &Sequence{w: w, control: c}
	consumed := [2]int{-1, -1}
	for i, seg := range segs {
		q.labels = append(q.labels, fmt.Sprintf("%s %d", seg.Phase, i))
		add := func(s seqStep) {
			s.segment = i
			q.steps = append(q.steps, s)
		}
		for _, a := range actions(seg) {
			switch a.Kind {
			case ActRun:
				add(seqStep{kind: stepRun, stream: a.SubGraph.Info().Stream, id: a.SubGraph, variant: seg.Variant})
				if a.SubGraph == TransferA || a.SubGraph == TransferB {
					consumed[a.SubGraph-TransferA] = len(q.steps) - 1
				}
			case ActJoin:
				if a.DeviceControl && c == ControlHost {
					continue
				}
				add(seqStep{kind: stepEdge, stream: a.Waiter, waited: a.Waited, at: -1, name: a.Join})
			case ActFeed:
				if at := consumed[a.Half]; at >= 0 {
					add(seqStep{kind: stepEdge, stream: HOST, waited: TRANS, at: at, name: "pinned"})
				}
				add(seqStep{kind: stepFeed, stream: HOST, half: a.Half})
			case ActControl:
				if c == ControlHost {
					add(seqStep{kind: stepEdge, stream: HOST, waited: UPDATE, at: -1, name: "host control"})
					add(seqStep{kind: stepControl, stream: HOST})
				}
			}
		}
	}
	q.findConflicts()
	return q
}

// clock counts, per stream, the items that are ordered before a point.
type clock [NumStreams + 1]int

func (c *clock) join(o clock) {
	for i := range c {
		c[i] = max(c[i], o[i])
	}
}

// clocks returns the clock of every step, leaving out the edges marked in drop.
func (q *Sequence) clocks(drop []bool) []clock {
	var now [NumStreams + 1]clock
	out := make([]clock, len(q.steps))
	for i, s := range q.steps {
		if s.stream != HOST {
			now[s.stream].join(now[HOST]) // submitted after what the host has seen
		}
		switch {
		case s.kind != stepEdge:
			now[s.stream][s.stream]++
		case drop[i]:
		case s.at >= 0:
			now[s.stream].join(out[s.at])
		default:
			now[s.stream].join(now[s.waited])
		}
		out[i] = now[s.stream]
	}
	return out
}

// ordered says whether item a comes before item b (a earlier in the list).
func (q *Sequence) ordered(c []clock, a, b int) bool {
	s := q.steps[a].stream
	return c[a][s] <= c[b][s]
}

// conflict is a pair of items on different streams that touch a region, at
// least one writing.
type conflict struct {
	a, b   int
	region Region
}

// Hazards returns every conflicting pair that no path of edges orders.
func (q *Sequence) Hazards() []Hazard { return q.Without() }

// Without is Hazards with some edges dropped.
func (q *Sequence) Without(edges ...int) []Hazard {
	var out []Hazard
	names := map[Region]string{}
	q.unordered(edges, func(k conflict) bool {
		name, ok := names[k.region]
		if !ok {
			name = q.w.nameOf(k.region)
			names[k.region] = name
		}
		out = append(out, Hazard{q.label(k.a), q.label(k.b), k.region, name})
		return true
	})
	return out
}

// Notices says whether Without would report anything.
func (q *Sequence) Notices(edges ...int) bool {
	found := false
	q.unordered(edges, func(conflict) bool {
		found = true
		return false
	})
	return found
}

// unordered calls yield for the conflicts that nothing orders without some
// edges, until it says stop.
func (q *Sequence) unordered(edges []int, yield func(conflict) bool) {
	drop := make([]bool, len(q.steps))
	for _, e := range edges {
		drop[e] = true
	}
	c := q.clocks(drop)
	for _, k := range q.conflicts {
		if !q.ordered(c, k.a, k.b) && !yield(k) {
			return
		}
	}
}

func (q *Sequence) label(i int) string {
	s := q.steps[i]
	switch s.kind {
	case stepFeed:
		return fmt.Sprintf("the host's feed of half %s in %s", s.half, q.labels[s.segment])
	case stepControl:
		return "the host's control in " + q.labels[s.segment]
	}
	return fmt.Sprintf("%s in %s", s.id, q.labels[s.segment])
}

// access is what an item touches, sorted and merged.
type access struct{ reads, writes []Region }

func (q *Sequence) access(s seqStep) access {
	switch s.kind {
	case stepFeed:
		return access{writes: []Region{q.w.Tensors[q.w.Known.Pinned[s.half]].Region}}
	case stepControl: // it has a copy of the rate table
		r := []Region{q.w.Tensors[q.w.Known.Scalars].Region}
		return access{r, r}
	}
	var a access
	for _, b := range q.w.Bounds(s.id, s.variant, q.control) {
		a.reads = append(a.reads, b.Reads...)
		a.writes = append(a.writes, b.Writes...)
	}
	return access{merge(a.reads), merge(a.writes)}
}

func merge(rs []Region) []Region {
	slices.SortFunc(rs, func(a, b Region) int {
		if a.Space != b.Space {
			return int(a.Space) - int(b.Space)
		}
		return int(min(max(a.Off-b.Off, -1), 1))
	})
	var out []Region
	for _, r := range rs {
		if n := len(out); n > 0 && out[n-1].Space == r.Space && r.Off <= out[n-1].End() {
			out[n-1].Bytes = max(out[n-1].End(), r.End()) - out[n-1].Off
			continue
		}
		out = append(out, r)
	}
	return out
}

// clash finds the first common range of two merged lists.
func clash(a, b []Region) (Region, bool) {
	for i, j := 0, 0; i < len(a) && j < len(b); {
		x, y := a[i], b[j]
		if x.Overlaps(y) {
			off := max(x.Off, y.Off)
			return Region{x.Space, off, min(x.End(), y.End()) - off}, true
		}
		if x.Space < y.Space || x.Space == y.Space && x.End() <= y.End() {
			i++
		} else {
			j++
		}
	}
	return Region{}, false
}

// findConflicts finds all pairs on different streams. What two items share
// depends on what they are alone, not on when they run.
func (q *Sequence) findConflicts() {
	type key struct {
		kind stepKind
		id   SubGraph
		v    Variant
		half Half
	}
	index := map[key]int{}
	var touched []access
	what := make([]int, len(q.steps)) // index into touched
	for i, s := range q.steps {
		if s.kind == stepEdge {
			continue
		}
		k := key{s.kind, s.id, s.variant, s.half}
		at, ok := index[k]
		if !ok {
			at = len(touched)
			index[k] = at
			touched = append(touched, q.access(s))
		}
		what[i] = at
	}
	type answer struct {
		r         Region
		known, ok bool
	}
	n := len(touched)
	answers := make([]answer, n*n)
	for j, t := range q.steps {
		if t.kind == stepEdge {
			continue
		}
		for i, s := range q.steps[:j] {
			if s.kind == stepEdge || s.stream == t.stream {
				continue
			}
			ans := &answers[what[i]*n+what[j]]
			if !ans.known {
				ans.known = true
				x, y := touched[what[i]], touched[what[j]]
				for _, try := range [][2][]Region{{x.writes, y.writes}, {x.writes, y.reads}, {x.reads, y.writes}} {
					if ans.r, ans.ok = clash(try[0], try[1]); ans.ok {
						break
					}
				}
			}
			if ans.ok {
				q.conflicts = append(q.conflicts, conflict{i, j, ans.r})
			}
		}
	}
}

// nameOf names the tensor at the start of a region.
func (w *Workload) nameOf(r Region) string {
	if r.Space == Pinned {
		return "pinned memory"
	}
	for _, s := range w.Scratch {
		if s.Overlaps(r) {
			return "scratch"
		}
	}
	if t, _, ok := w.Locate(r.Off); ok {
		return t.Name
	}
	var names []string
	for _, t := range w.Tensors {
		if t.Role == RoleActivation && t.Region.Overlaps(r) {
			names = append(names, t.Name)
		}
	}
	if len(names) > 3 {
		names = append(names[:3], "...")
	}
	return strings.Join(names, ", ")
}

// Implied is an edge that other edges make superfluous in a sequence.
type Implied struct {
	Edge Edge
	// Path is the chain of edges that orders what Edge orders; empty if the
	// edge has no work before it on the waited stream or behind it on the waiter.
	Path []Edge
}

// Edges splits the sequence's edges: kept ones each order some pair of items
// that no other kept edge orders; implied ones order nothing beyond the kept.
func (q *Sequence) Edges() (kept []Edge, implied []Implied) {
	drop := make([]bool, len(q.steps))
	full := q.clocks(drop)
	for i, s := range q.steps {
		if s.kind != stepEdge {
			continue
		}
		drop[i] = true
		if !q.sameOrder(full, q.clocks(drop)) {
			drop[i] = false
			kept = append(kept, q.edge(i))
		}
	}
	for i := range q.steps {
		if drop[i] {
			implied = append(implied, Implied{q.edge(i), q.path(i, drop)})
		}
	}
	return kept, implied
}

// Dropped returns the indices of implied edges, to leave out together with
// one more.
func Dropped(implied []Implied) []int {
	var out []int
	for _, e := range implied {
		out = append(out, e.Edge.Index)
	}
	return out
}

// sameOrder compares the order of items.
func (q *Sequence) sameOrder(a, b []clock) bool {
	for i, s := range q.steps {
		if s.kind != stepEdge && a[i] != b[i] {
			return false
		}
	}
	return true
}

func (q *Sequence) edge(i int) Edge {
	s := q.steps[i]
	return Edge{Index: i, Segment: q.labels[s.segment], Join: s.name, Waiter: s.stream, Waited: s.waited}
}

// path finds edges that lead from the last item before edge i on the waited
// stream to the first item behind it on the waiter.
func (q *Sequence) path(i int, drop []bool) []Edge {
	e := q.steps[i]
	from, to := -1, -1
	until := i
	if e.at >= 0 {
		until = e.at + 1
	}
	for k := until - 1; k >= 0 && from < 0; k-- {
		if q.steps[k].kind != stepEdge && q.steps[k].stream == e.waited {
			from = k
		}
	}
	for k := i + 1; k < len(q.steps) && to < 0; k++ {
		if q.steps[k].kind != stepEdge && (q.steps[k].stream == e.stream || e.stream == HOST) {
			to = k
		}
	}
	if from < 0 || to < 0 {
		return nil
	}
	// reach[s] is the path by which stream s is ordered after from, so far.
	var reach [NumStreams + 1][]Edge
	var has [NumStreams + 1]bool
	has[e.waited] = true
	for k := from + 1; k <= to; k++ {
		s := q.steps[k]
		if has[HOST] && s.stream != HOST && !has[s.stream] {
			has[s.stream], reach[s.stream] = true, reach[HOST]
		}
		if s.kind == stepEdge && !drop[k] && !has[s.stream] && has[s.waited] && (s.at < 0 || s.at >= from) {
			has[s.stream] = true
			reach[s.stream] = append(slices.Clone(reach[s.waited]), q.edge(k))
		}
	}
	return reach[q.steps[to].stream]
}
