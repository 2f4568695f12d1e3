package analysis

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tech-renaissance/trbench/timeline"
)

// Options choose what is looked at. The zero value is everything.
type Options struct {
	// Steps names steps, by name, by the number at the end of their name, or as
	// FIRST..LAST of such numbers. Range names a range of the host; all of that
	// name are meant.
	Steps, Range string
	// Devices are ids; nil is all.
	Devices []string
	// Top is how many kernels and gaps are listed.
	Top int
}

// SelectionError is a choice that fits nothing in a recording.
type SelectionError struct{ What, Value, Known string }

func (e *SelectionError) Error() string {
	return fmt.Sprintf("%s: no %q in the trace; %s", e.What, e.Value, e.Known)
}

// Device is what a recording says of one device. All times are in ns.
type Device struct {
	File, Format string
	Rank         int // timeline.None if unknown
	ID, Name     string
	Read         timeline.ReadReport

	// Span are the figures from the first op to the last.
	Span      timeline.Figures
	Integrity timeline.Integrity

	// Steps are the annotated steps that were chosen, and OnHost the figures from
	// the first one's begin to the last one's end on the host.
	Steps  []timeline.Step
	OnHost timeline.Figures
	// Window are the figures of what the verdict is about, which Over names: the
	// steps on the device, what was chosen, or the span if nothing is annotated.
	// There is more than one window where a range occurs more than once; the
	// figures are their sums. It holds Cycles steps, 0 if that is not known.
	//
	// A host that runs ahead is done with a step long before the device is. So
	// from two steps on, steps on the device go from the first op of the first
	// step to the first op of the last: one cycle less than there are steps, and
	// each whole. A single step is taken from its begin on the host to its last
	// end on host and device.
	Over    string
	Windows []timeline.Window
	Window  timeline.Figures
	Cycles  int

	// Launches are the host's calls, of all devices, that began in the windows.
	Launches timeline.LaunchStats
	Delays   timeline.Delays
	Short    timeline.ShortKernels
	Graphs   timeline.GraphStats
	Kernels  []timeline.KernelStats
	Gaps     []timeline.Surroundings
	// GapNs are the lengths of the window's gaps.
	GapNs timeline.Distribution

	Causes  Causes
	Verdict Verdict
	Capture Capture

	index     *timeline.Index
	launching map[int32]bool // threads that launched what ran here
	device    int32
	blocked   blocking
	host      []timeline.Window // where the host's calls count
}

// Index is the recording, and Number the device's place in it.
func (a *Device) Index() *timeline.Index { return a.index }

// Number: see Index.
func (a *Device) Number() int32 { return a.device }

// Over words.
const (
	OverSteps = "steps on the device"
	OverSpan  = "span"
)

// everything is all of a recording's time.
var everything = timeline.Window{FromNs: -1 << 62, ToNs: 1<<62 - 1}

// Devices analyses each device with work on record, in the order of their ids.
// The error is a [*SelectionError]; a recording without any work has none.
func Devices(x *timeline.Index, o Options) ([]Device, error) {
	t := x.T
	var out []Device
	var known []string
	order := make([]int32, 0, len(t.Devices))
	for d := range t.Devices {
		order = append(order, int32(d))
	}
	slices.SortStableFunc(order, func(a, b int32) int { return compareIDs(t.Devices[a].ID, t.Devices[b].ID) })
	for _, d := range order {
		id := t.Devices[d].ID
		known = append(known, id)
		if o.Devices != nil && !slices.Contains(o.Devices, id) {
			continue
		}
		a, err := device(x, d, o)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	for _, id := range o.Devices {
		if len(t.Ops) > 0 && !slices.Contains(known, id) {
			return nil, &SelectionError{"--device", id, "it has " + Listed("device", known)}
		}
	}
	return out, nil
}

func compareIDs(a, b string) int {
	p, err := strconv.ParseInt(a, 10, 64)
	q, err2 := strconv.ParseInt(b, 10, 64)
	if err == nil && err2 == nil {
		return cmp.Compare(p, q)
	}
	return strings.Compare(a, b)
}

// Listed names what there is to choose from, of many the first few.
func Listed(what string, known []string) string {
	switch n := len(known); {
	case n == 0:
		return "no " + what
	case n > 12:
		return fmt.Sprintf("%d %ss: %s ... %s", n, what, strings.Join(known[:4], ", "), known[n-1])
	}
	if len(known) > 1 {
		what += "s"
	}
	return what + " " + strings.Join(known, ", ")
}

func device(x *timeline.Index, d int32, o Options) (Device, error) {
	t := x.T
	a := Device{File: t.Source, Format: t.Format, Rank: timeline.None, ID: t.Devices[d].ID, Name: t.Devices[d].Name, Read: t.Read, index: x, device: d, blocked: blockedThreads(t)}
	for _, p := range t.Processes {
		if p.Rank != timeline.None {
			a.Rank = p.Rank
			break
		}
	}
	a.Integrity = x.Integrity(d)
	span, ok := x.DeviceSpan(d)
	if !ok {
		a.Over, a.Verdict = OverSpan, Verdict{Word: Unclear, Reason: "none of its work has usable times"}
		a.Capture.Withheld = a.Verdict.Reason
		return a, nil
	}
	a.Span = x.DeviceFigures(d, span)
	a.launching = map[int32]bool{}
	for _, op := range x.DeviceOps(d) {
		if c := x.Launch[op]; c != timeline.None {
			a.launching[t.Calls[c].Thread] = true
		}
	}
	if err := a.choose(o, span); err != nil {
		return a, err
	}
	a.Window = a.Span
	if a.Over != OverSpan {
		a.Window = sum(x, d, a.Windows)
	}
	hull := timeline.Window{FromNs: a.Windows[0].FromNs, ToNs: a.Windows[len(a.Windows)-1].ToNs}
	if w, ok := timeline.StepsWindow(a.Steps); ok {
		a.OnHost = x.DeviceFigures(d, w)
	}
	if len(a.host) > 1 {
		a.Launches = timeline.NewIndex(within(t, a.host)).LaunchStats(everything)
	} else {
		a.Launches = x.LaunchStats(a.host[0])
	}
	a.Delays, a.Short, a.Graphs = x.Delays(d, hull), x.ShortKernels(d, hull), x.GraphStats(d, hull)
	a.Kernels = kernels(x, d, a.Windows)
	if o.Top >= 0 && len(a.Kernels) > o.Top {
		a.Kernels = a.Kernels[:o.Top]
	}
	a.Gaps = a.topGaps(o.Top)
	var lengths []int64
	for _, w := range a.Windows {
		lengths = append(lengths, timeline.GapLengths(x.DeviceGaps(d, w))...)
	}
	a.GapNs = timeline.Distribute(lengths)
	a.Causes = a.causes()
	a.Verdict = a.verdict()
	a.Capture = a.capture()
	return a, nil
}

// choose finds the windows that the options mean.
func (a *Device) choose(o Options, span timeline.Window) error {
	x := a.index
	a.Steps = x.Steps(a.device)
	switch {
	case o.Range != "":
		var found []timeline.Window
		names := map[string]bool{}
		var known []string
		for i := range x.T.Ranges {
			r := &x.T.Ranges[i]
			name := x.T.Text(r.Name)
			if name == o.Range && r.EndNs > r.StartNs {
				found = append(found, timeline.Window{FromNs: r.StartNs, ToNs: r.EndNs})
			}
			if r.Class <= timeline.RangeStep && !names[name] && len(known) < 100 {
				names[name] = true
				known = append(known, name)
			}
		}
		if len(found) == 0 {
			return &SelectionError{"--range", o.Range, "it has " + Listed("range", known)}
		}
		a.Over, a.Windows = "range "+o.Range, merge(found)
		a.Steps, a.host = nil, a.Windows
	case o.Steps != "":
		chosen := slices.DeleteFunc(slices.Clone(a.Steps), func(s timeline.Step) bool { return !matches(s.Name, o.Steps) })
		if len(chosen) == 0 {
			var known []string
			for _, s := range a.Steps {
				known = append(known, s.Name)
			}
			return &SelectionError{"--step", o.Steps, "it has " + Listed("step", known)}
		}
		a.Steps, a.Over = chosen, "step "+o.Steps
		for _, s := range chosen {
			a.Windows = append(a.Windows, s.Host)
		}
		a.Windows = merge(a.Windows)
		a.host, a.Cycles = a.Windows, len(chosen)
	default:
		counted := slices.DeleteFunc(slices.Clone(a.Steps), func(s timeline.Step) bool { return strings.HasPrefix(s.Name, timeline.LeadStep) })
		if len(counted) > 0 {
			a.Steps = counted
		}
		if w, ok := timeline.StepsWindow(a.Steps); ok {
			a.Over, a.host = OverSteps, []timeline.Window{w}
			a.Windows, a.Cycles = []timeline.Window{w}, len(a.Steps)
			if c := cycles(a.Steps); len(c) > 0 {
				a.Windows, a.Cycles = []timeline.Window{{FromNs: c[0].FromNs, ToNs: c[len(c)-1].ToNs}}, len(c)
			} else {
				for _, s := range a.Steps {
					a.Windows[0].ToNs = max(a.Windows[0].ToNs, s.GPU.ToNs)
				}
			}
			break
		}
		a.Over, a.Windows = OverSpan, []timeline.Window{span}
		a.host = []timeline.Window{everything} // the host begins earlier
	}
	return nil
}

// cycles are the steps on the device, from a step's first op to the next one's;
// none if a step did nothing there, or they are out of order.
func cycles(steps []timeline.Step) []timeline.Window {
	var out []timeline.Window
	for i := range steps {
		if steps[i].Ops == 0 {
			return nil
		}
		if i == 0 {
			continue
		}
		w := timeline.Window{FromNs: steps[i-1].GPU.FromNs, ToNs: steps[i].GPU.FromNs}
		if w.Ns() <= 0 {
			return nil
		}
		out = append(out, w)
	}
	return out
}

// matches tells whether a step is meant: by its name, by the number at its end,
// or by FIRST..LAST.
func matches(name, want string) bool {
	if name == want {
		return true
	}
	word := strings.TrimRight(name, "0123456789")
	n, err := strconv.Atoi(name[len(word):])
	if err != nil {
		return false
	}
	first, last, between := strings.Cut(want, "..")
	from, err := strconv.Atoi(first)
	if err != nil {
		return false
	}
	if !between {
		return n == from
	}
	to, err := strconv.Atoi(last)
	return err == nil && n >= from && n <= to
}

// merge puts windows in order and joins those that touch.
func merge(ws []timeline.Window) []timeline.Window {
	slices.SortFunc(ws, func(a, b timeline.Window) int {
		return cmp.Or(cmp.Compare(a.FromNs, b.FromNs), cmp.Compare(a.ToNs, b.ToNs))
	})
	var out []timeline.Window
	for _, w := range ws {
		if n := len(out); n > 0 && w.FromNs <= out[n-1].ToNs {
			out[n-1].ToNs = max(out[n-1].ToNs, w.ToNs)
			continue
		}
		out = append(out, w)
	}
	return out
}

// sum adds the figures of separate windows.
func sum(x *timeline.Index, d int32, ws []timeline.Window) timeline.Figures {
	var all timeline.Figures
	for i, w := range ws {
		f := x.DeviceFigures(d, w)
		if i == 0 {
			all = f
			continue
		}
		all.Window.ToNs = f.Window.ToNs
		all.SpanNs += f.SpanNs
		all.BusyNs += f.BusyNs
		all.IdleNs += f.IdleNs
		all.Split = all.Split.Add(f.Split)
		all.Gaps += f.Gaps
		all.Ops += f.Ops
		all.Linked += f.Linked
		all.ZeroOps += f.ZeroOps
		all.Kernels += f.Kernels
		all.Copies += f.Copies
		all.Fills += f.Fills
		all.Envelopes += f.Envelopes
		all.OpsNs += f.OpsNs
	}
	return all
}

// within is a recording with the calls that begin in windows alone.
func within(t *timeline.Timeline, ws []timeline.Window) *timeline.Timeline {
	c := *t
	c.Ranges, c.Counters = nil, nil
	c.Calls = slices.DeleteFunc(slices.Clone(t.Calls), func(c timeline.Call) bool { return !inside(ws, c.StartNs) })
	return &c
}

// inside tells whether a time lies in one of ordered windows.
func inside(ws []timeline.Window, ns int64) bool {
	i, found := slices.BinarySearchFunc(ws, ns, func(w timeline.Window, ns int64) int {
		switch {
		case w.ToNs <= ns:
			return -1
		case w.FromNs > ns:
			return 1
		}
		return 0
	})
	return found && i < len(ws)
}

// kernels are the ops that start in windows by name, the largest sum first.
func kernels(x *timeline.Index, d int32, ws []timeline.Window) []timeline.KernelStats {
	if len(ws) == 1 {
		return x.TopKernels(d, ws[0], -1)
	}
	c := *x.T
	c.Calls, c.Ranges, c.Counters = nil, nil, nil
	c.Ops = slices.DeleteFunc(slices.Clone(x.T.Ops), func(o timeline.Op) bool { return o.Device != d || !inside(ws, o.StartNs) })
	return timeline.NewIndex(&c).TopKernels(d, everything, -1)
}

func (a *Device) topGaps(n int) []timeline.Surroundings {
	var all []timeline.Surroundings
	ws := a.Windows
	if len(ws) > 100 { // each asks for all ranges
		ws = ws[:100]
	}
	for _, w := range ws {
		all = append(all, a.index.TopGaps(a.device, w, n)...)
	}
	slices.SortStableFunc(all, func(p, q timeline.Surroundings) int {
		return cmp.Compare(q.Gap.Ns(), p.Gap.Ns())
	})
	return all[:min(max(n, 0), len(all))]
}
