package timeline

import (
	"cmp"
	"slices"
	"strings"
)

// LeadStep begins the names of annotated steps that a recording begins with and
// whose figures do not count: until the host is ahead and the profiler ready.
const LeadStep = "lead "

// Step is one annotated step, as a device saw it. A step on the host and its
// work on the device are not at the same time: Host is the annotation, GPU goes
// from the first start to the last end of what was launched in it.
type Step struct {
	Name string
	Host Window
	// Within are the device's figures during Host, whatever step the work was
	// launched in.
	Within Figures
	// GPU is empty, and Own with it, if the step launched nothing here. Own are
	// the device's figures during GPU.
	GPU Window
	Own Figures
	// Ops, Kernels and Launches were launched in the step; OpsNs sums the ops'
	// lengths. LaunchHostNs sums the launching calls'.
	Ops, Kernels, Launches int
	OpsNs, LaunchHostNs    int64
}

// Steps are the annotated steps ([RangeStep]) of a device, in order: those of
// the threads that launch work there, or where none of these has any, all. A
// step inside of another is left out.
func (x *Index) Steps(device int32) []Step {
	t, l := x.T, &x.devices[device]
	here := make(map[int32]bool)
	for _, op := range l.ops {
		if c := x.Launch[op]; c != None {
			here[t.Calls[c].Thread] = true
		}
	}
	var mine, all []int32
	for i := range t.Ranges {
		if r := &t.Ranges[i]; r.Class == RangeStep && r.EndNs > r.StartNs {
			all = append(all, int32(i))
			if here[r.Thread] {
				mine = append(mine, int32(i))
			}
		}
	}
	if len(mine) == 0 {
		mine = all
	}
	slices.SortFunc(mine, func(a, b int32) int {
		p, q := &t.Ranges[a], &t.Ranges[b]
		return cmp.Or(cmp.Compare(p.StartNs, q.StartNs), cmp.Compare(q.EndNs, p.EndNs), strings.Compare(t.Text(p.Name), t.Text(q.Name)))
	})
	var steps []Step
	for _, i := range mine {
		r := &t.Ranges[i]
		if n := len(steps); n > 0 && r.EndNs <= steps[n-1].Host.ToNs {
			continue
		}
		steps = append(steps, Step{Name: t.Text(r.Name), Host: Window{r.StartNs, r.EndNs}})
	}
	counted := make([]bool, len(t.Calls))
	for _, op := range l.ops {
		c := x.Launch[op]
		if c == None {
			continue
		}
		call, o := &t.Calls[c], &t.Ops[op]
		i, found := slices.BinarySearchFunc(steps, call.StartNs, func(s Step, ns int64) int { return cmp.Compare(s.Host.FromNs, ns) })
		if !found {
			i--
		}
		if i < 0 || call.StartNs >= steps[i].Host.ToNs {
			continue
		}
		s := &steps[i]
		if s.Ops == 0 {
			s.GPU = Window{o.StartNs, o.EndNs}
		}
		s.GPU.ToNs = max(s.GPU.ToNs, o.EndNs)
		s.Ops++
		s.OpsNs += o.EndNs - o.StartNs
		if o.Kind == Kernel {
			s.Kernels++
		}
		if !counted[c] {
			counted[c] = true
			s.Launches++
			s.LaunchHostNs += max(0, call.EndNs-call.StartNs)
		}
	}
	for i := range steps {
		s := &steps[i]
		s.Within = x.figures(l, s.Host)
		if s.Ops > 0 {
			s.Own = x.figures(l, s.GPU)
		}
	}
	return steps
}

// StepsWindow is from the first step's start to the last one's end on the host;
// false without steps.
func StepsWindow(steps []Step) (Window, bool) {
	if len(steps) == 0 {
		return Window{}, false
	}
	w := steps[0].Host
	for _, s := range steps {
		w.ToNs = max(w.ToNs, s.Host.ToNs)
	}
	return w, true
}
