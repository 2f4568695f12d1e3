package analysis

import (
	"cmp"
	"slices"

	"github.com/tech-renaissance/trbench/timeline"
)

// Side is a quantity in one of two recordings: a step's, if steps are known,
// else the whole window's.
type Side struct {
	// Median, Min and Max are over the steps; all are the same for a window.
	Median, Min, Max int64
	Steps            int // 0: a window without steps
}

// Difference is one quantity of two recordings.
type Difference struct {
	// Group is step, cause, launch or kernel; Name what it is, in Unit ns or "".
	Group, Name, Unit string
	Base, Head        Side
	// Marked says that no step of one lies within the range of the other's, of at
	// least MinSteps each: more than the steps of one recording differ.
	Marked bool
}

// MinSteps is how many steps on both sides a difference needs to be marked.
// Three of three that are separate come by chance once in ten times, four of
// four once in 35.
const MinSteps = 4

// Diff compares two devices: the step, the causes of its gaps, launches and
// kernels by name. What is the same on both sides is there too.
func Diff(base, head *Device) []Difference {
	a, b := base.quantities(), head.quantities()
	keys := map[quantity]bool{}
	for k := range a {
		keys[k] = true
	}
	for k := range b {
		keys[k] = true
	}
	out := make([]Difference, 0, len(keys))
	for k := range keys {
		d := Difference{Group: groupWords[k.group], Name: k.name, Unit: k.unit, Base: side(a[k], base.parts(k)), Head: side(b[k], head.parts(k))}
		apart := d.Base.Max < d.Head.Min || d.Head.Max < d.Base.Min
		d.Marked = apart && d.Base.Steps >= MinSteps && d.Head.Steps >= MinSteps
		out = append(out, d)
	}
	slices.SortFunc(out, func(p, q Difference) int {
		return cmp.Or(
			cmp.Compare(slices.Index(groupWords[:], p.Group), slices.Index(groupWords[:], q.Group)),
			// Times before counts, so that the order within each is by what it costs.
			cmp.Compare(q.Unit, p.Unit),
			cmp.Compare(magnitude(q), magnitude(p)),
			cmp.Compare(p.Name, q.Name),
		)
	})
	return out
}

func magnitude(d Difference) int64 {
	n := d.Head.Median - d.Base.Median
	return max(n, -n)
}

var groupWords = [...]string{"step", "cause", "launch", "kernel"}

type quantity struct {
	group      int
	name, unit string
}

// parts is how many values a quantity has: figures of the device go by cycles if
// the steps have them, calls and kernels by the step that made them.
func (a *Device) parts(k quantity) int {
	if c := cycles(a.Steps); k.group < 2 && len(c) > 0 {
		return len(c)
	}
	return len(a.Steps)
}

// side sums up the values of a quantity by step; steps in which it did not occur
// count as 0.
func side(values []int64, steps int) Side {
	s := Side{Steps: steps}
	n := max(steps, 1)
	values = append(slices.Clone(values), make([]int64, n)...)[:n]
	slices.Sort(values)
	s.Min, s.Max, s.Median = values[0], values[len(values)-1], values[(len(values)-1)/2]
	return s
}

// quantities are all quantities, a value a step.
func (a *Device) quantities() map[quantity][]int64 {
	out := map[quantity][]int64{}
	x, t := a.index, a.index.T
	steps := a.Steps
	n := max(len(steps), 1)
	add := func(step int, k quantity, v int64) {
		if out[k] == nil {
			out[k] = make([]int64, n)
		}
		out[k][step] += v
	}
	where := func(ns int64) int {
		if len(steps) == 0 {
			if a.Over == OverSpan || inside(a.Windows, ns) {
				return 0
			}
			return timeline.None
		}
		i, found := slices.BinarySearchFunc(steps, ns, func(s timeline.Step, ns int64) int { return cmp.Compare(s.Host.FromNs, ns) })
		if !found {
			i--
		}
		if i < 0 || ns >= steps[i].Host.ToNs {
			return timeline.None
		}
		return i
	}
	parts := cycles(steps)
	if len(parts) == 0 {
		for _, s := range steps {
			parts = append(parts, s.Host)
		}
	}
	for i := range max(len(parts), 1) {
		f, c := a.Window, a.Causes
		if len(parts) > 0 {
			f = x.DeviceFigures(a.device, parts[i])
			part := Device{index: x, device: a.device, blocked: a.blocked, Windows: parts[i : i+1]}
			c = part.causes()
		}
		for _, q := range []struct {
			group      int
			name, unit string
			v          int64
		}{
			{0, "length", "ns", f.SpanNs}, {0, "busy", "ns", f.BusyNs}, {0, "idle", "ns", f.IdleNs}, {0, "gaps", "", int64(f.Gaps)},
			{0, "host_late", "ns", f.Split.HostLateNs}, {0, "in_api", "ns", f.Split.InAPINs}, {0, "after_api", "ns", f.Split.AfterAPINs}, {0, "unlinked", "ns", f.Split.UnlinkedNs},
			{1, "launching", "ns", c.LaunchNs}, {1, "sync", "ns", c.SyncNs}, {1, "input", "ns", c.InputNs}, {1, "inside graphs", "ns", c.GraphNs},
			{1, "host code", "ns", c.HostNs}, {1, "other waits", "ns", c.WaitNs}, {1, "profiler overhead", "ns", c.OverheadNs}, {1, "unlinked", "ns", c.UnlinkedNs},
		} {
			add(i, quantity{q.group, q.name, q.unit}, q.v)
		}
	}
	for _, op := range x.DeviceOps(a.device) {
		o := &t.Ops[op]
		i := 0
		if c := x.Launch[op]; len(steps) > 0 {
			if c == timeline.None {
				continue // of no step that is known
			}
			i = where(t.Calls[c].StartNs)
		} else {
			i = where(o.StartNs)
		}
		if i < 0 {
			continue
		}
		name := t.Text(o.Name)
		add(i, quantity{3, name, "ns"}, o.EndNs-o.StartNs)
		add(i, quantity{3, name, ""}, 1)
	}
	for i := range t.Calls {
		c := &t.Calls[i]
		if x.OpsOf[i] == 0 && c.Class != timeline.CallSync {
			continue
		}
		if s := where(c.StartNs); s >= 0 {
			name := t.Text(c.Name)
			add(s, quantity{2, name, "ns"}, max(0, c.EndNs-c.StartNs))
			add(s, quantity{2, name, ""}, 1)
		}
	}
	return out
}
