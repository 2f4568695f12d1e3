package cuda

import (
	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/workloads"
)

// ordering decides what each operator of a capture follows, in place of what
// its stream holds. It asks for no more than needed: an edge that others imply
// is left out.
type ordering struct {
	serial bool
	ops    []*op
	tails  [][]driver.GraphNode // the last nodes of each operator
	before []bits               // the operators that precede each
	ends   bits                 // operators that none follows yet
	now    bits                 // what precedes the operator being submitted
}

// bits is a set of small numbers.
type bits []uint64

func (b *bits) add(i int) {
	for len(*b) <= i/64 {
		*b = append(*b, 0)
	}
	(*b)[i/64] |= 1 << (i % 64)
}

func (b *bits) drop(i int) {
	if i/64 < len(*b) {
		(*b)[i/64] &^= 1 << (i % 64)
	}
}

func (b *bits) merge(o bits) {
	for len(*b) < len(o) {
		*b = append(*b, 0)
	}
	for i, w := range o {
		(*b)[i] |= w
	}
}

func (b bits) has(i int) bool { return i/64 < len(b) && b[i/64]>>(i%64)&1 != 0 }

// follows lists the operators that the next one has to follow, latest first,
// without those that another of them follows.
func (q *ordering) follows(o *op) (direct []int) {
	q.now = nil
	for j := len(q.ops) - 1; j >= 0; j-- {
		if q.now.has(j) || !q.serial && !conflict(q.ops[j], o) {
			continue
		}
		direct = append(direct, j)
		q.now.add(j)
		q.now.merge(q.before[j])
		if q.serial {
			break
		}
	}
	return direct
}

// conflict says whether two operators may not run at once: both touch some
// bytes and one writes them, or both count on the counters of a stream, or both
// are plans of one library handle, which promises nothing of plans at once.
func conflict(a, b *op) bool {
	return a.counters && b.counters && a.stream == b.stream || a.state != nil && a.state == b.state ||
		meet(a.b.Writes, b.b.Writes) || meet(a.b.Writes, b.b.Reads) || meet(a.b.Reads, b.b.Writes)
}

func meet(a, b []workloads.Region) bool {
	for i := range a {
		for j := range b {
			if a[i].Overlaps(b[j]) {
				return true
			}
		}
	}
	return false
}

// order makes the next nodes of the operator's stream follow what the operator
// has to follow.
func (c *capture) order(o *op) error {
	q := c.edges
	if q == nil {
		return nil
	}
	var nodes []driver.GraphNode
	for _, j := range q.follows(o) {
		nodes = append(nodes, q.tails[j]...)
		q.ends.drop(j)
	}
	return c.r.api.StreamSetCaptureDependencies(c.r.streams[o.stream], nodes)
}

// ordered notes the nodes that the operator became.
func (c *capture) ordered(o *op) error {
	q := c.edges
	if q == nil {
		return nil
	}
	info, err := c.r.api.StreamGetCaptureInfo(c.r.streams[o.stream])
	if err != nil {
		return err
	}
	q.ends.add(len(q.ops))
	q.ops, q.tails, q.before = append(q.ops, o), append(q.tails, info.Follows), append(q.before, q.now)
	return nil
}

// gather makes the origin hold all that no operator follows, and the other
// streams nothing that it does not: the end asks that all is joined.
func (c *capture) gather() error {
	q := c.edges
	if q == nil {
		return nil
	}
	var nodes []driver.GraphNode
	for j := range q.ops {
		if q.ends.has(j) {
			nodes = append(nodes, q.tails[j]...)
		}
	}
	return c.r.api.StreamSetCaptureDependencies(c.r.streams[c.origin], nodes)
}
