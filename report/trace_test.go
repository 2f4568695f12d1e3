package report_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/timeline"
)

// trained is a made-up recording of one step of so many kernels, launched one by
// one, in some graphs, or as one graph. Kernels are the same in all; a launch
// takes the host about 5 us, half of them inside the call, a graph's 9 us, and
// it feeds the next batch in between.
func trained(mode string, kernels int) (*timeline.Index, timeline.Window) {
	var b timeline.Builder
	b.Name("")
	t := &b.T
	t.Threads = []timeline.Thread{{Process: timeline.None, ID: "1"}}
	t.Devices = []timeline.Device{{ID: "0", Name: "made up"}}
	t.Streams = []timeline.Stream{{ID: "7", Name: "COMP_1"}, {ID: "13", Name: "UPDATE"}, {ID: "14", Name: "TRANS"}}
	r := rand.New(rand.NewPCG(7, 7))
	host, gpu := int64(0), int64(0)
	call := func(name string, class timeline.CallClass, ns, correlation int64) {
		t.Calls = append(t.Calls, timeline.Call{StartNs: host, EndNs: host + ns, Name: b.Name(name), Class: class, Correlation: correlation})
		host += ns
	}
	op := func(stream int32, kind timeline.Kind, from, ns, correlation int64) {
		t.Ops = append(t.Ops, timeline.Op{StartNs: from, EndNs: from + ns, Stream: stream, Kind: kind, Timed: true, Correlation: correlation, Name: b.Name("k")})
	}
	perGraph := map[string]int{"eager": 1, "graph": kernels / 20, "step": kernels}[mode]
	correlation := int64(0)
	for i := range kernels {
		// Convolutions are long, what comes after them is short.
		ns := 1200 + r.Int64N(1300)
		switch {
		case i > kernels/5 && i < kernels/4: // large ones, behind which the host gets ahead
			ns = 6000 + r.Int64N(9000)
		case i%3 == 0:
			ns = 2500 + r.Int64N(4500)
		}
		stream := int32(0)
		if i >= kernels*9/10 { // the optimizer
			stream, ns = 1, 2000+r.Int64N(4000)
		}
		if i%perGraph == 0 {
			correlation++
			if mode == "eager" {
				host += 1000 + r.Int64N(2500)
				call("cuLaunchKernelEx", timeline.CallLaunch, 1800+r.Int64N(1800), correlation)
			} else {
				host += 1000
				call("cuGraphLaunch", timeline.CallGraphLaunch, 9000, correlation)
			}
			gpu = max(gpu, host+700)
		} else {
			gpu += 900
		}
		if mode != "step" && (i == kernels/3 || i == kernels*9/10) {
			call("cuEventRecord", timeline.CallOther, 1200, 0)
			if i == kernels/3 {
				host += 60000 // feeds the next batch
			}
		}
		if i == kernels/4 {
			from := gpu
			if mode == "eager" {
				call("cuMemcpyHtoDAsync", timeline.CallCopy, 5000, 1e6)
				from = max(gpu, host+1500)
				op(2, timeline.Copy, from, 90000, 1e6)
			} else {
				op(2, timeline.Copy, from, 90000, correlation)
			}
		}
		op(stream, timeline.Kernel, gpu, ns, correlation)
		gpu += ns + r.Int64N(300)
	}
	gpu = t.Ops[len(t.Ops)-1].EndNs
	call("cuStreamSynchronize", timeline.CallSync, max(0, gpu-host), 0)
	return timeline.NewIndex(t), timeline.Window{FromNs: 0, ToNs: gpu}
}

var madeUp = report.About{Subtitle: []string{"Made-up timelines of 800 kernels, to show the picture; nothing was measured."}}

// showPicture prints a picture's title and compares it with its golden.
func showPicture(p report.Picture, err error) {
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s: %s\n", p.Name, p.Title)
	for _, n := range p.Notes {
		fmt.Println(n)
	}
	var png bytes.Buffer
	if err := p.Encode(&png, report.PNG); err != nil {
		fmt.Println(err)
	} else if err := golden(p.Name, png.Bytes()); err != nil {
		fmt.Println(err)
	}
}

func ExampleStepTimelines() {
	var steps []report.TracedStep
	for _, mode := range []string{"eager", "graph", "step"} {
		x, w := trained(mode, 800)
		steps = append(steps, report.TracedStep{Label: mode, Index: x, Window: w})
	}
	showPicture(report.StepTimelines(madeUp, steps))
	// Output: trace_step: Where does the device wait in a step?
}

func ExampleGapLengths() {
	var sets []report.GapSet
	for _, mode := range []string{"eager", "graph", "step"} {
		x, w := trained(mode, 800)
		sets = append(sets, report.GapSet{Label: mode, Gaps: x.DeviceGaps(0, w), Steps: 1})
	}
	showPicture(report.GapLengths(madeUp, sets))
	// Output:
	// trace_gaps: How long are the gaps, and how much idle time do they make?
	// Gaps so short that together they make less than 0.1% of the idle time are not drawn; the figures on the right have them.
}

func ExampleStepBars() {
	var steps []report.StepParts
	for i, batch := range []int{1, 16, 64} {
		for _, mode := range []string{"eager", "graph", "step"} {
			x, w := trained(mode, 800)
			f := x.DeviceFigures(0, w)
			busy := float64(f.BusyNs) * []float64{1, 1.7, 5}[i]
			// What the device does meanwhile the host is not late for.
			rest := []float64{1, 0.4, 0.02}[i]
			steps = append(steps, report.StepParts{Batch: batch, Label: mode, Steps: 1, BusyNs: busy,
				HostLateNs: rest * float64(f.Split.HostLateNs), InAPINs: rest * float64(f.Split.InAPINs), AfterAPINs: float64(f.Split.AfterAPINs),
				StepTimeNs: 0.85 * (busy + rest*float64(f.Split.HostLateNs+f.Split.InAPINs) + float64(f.Split.AfterAPINs))})
		}
	}
	showPicture(report.StepBars(madeUp, steps))
	// Output: trace_parts: What does a step's time go to on the device, by batch?
}

func TestTracePicturesThatCannotBe(t *testing.T) {
	x, w := trained("step", 20)
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"no step":     {second(report.StepTimelines(report.About{}, nil)), "trace_step is not drawn: no configuration has a traced step"},
		"no window":   {second(report.StepTimelines(report.About{}, []report.TracedStep{{Index: x, Window: timeline.Window{FromNs: 5, ToNs: 5}}})), "no configuration"},
		"no index":    {second(report.StepTimelines(report.About{}, []report.TracedStep{{Window: w}})), "no configuration"},
		"no device":   {second(report.StepTimelines(report.About{}, []report.TracedStep{{Index: x, Window: w, Device: 3}})), "no configuration"},
		"no gaps":     {second(report.GapLengths(report.About{Name: "mine"}, []report.GapSet{{Label: "a", Steps: 1}})), "mine is not drawn: no configuration has a gap"},
		"no parts":    {second(report.StepBars(report.About{}, nil)), "no configuration has a traced step"},
		"wrong parts": {second(report.StepBars(report.About{}, []report.StepParts{{BusyNs: -5}, {BusyNs: 1e300}, {}})), "no configuration has a traced step"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, c.err, c.want)
		}
	}
}

func second(_ report.Picture, err error) error { return err }

// TestTracePicturesOfOddSteps draws what is rare, in both formats.
func TestTracePicturesOfOddSteps(t *testing.T) {
	x, w := trained("eager", 5)
	long := strings.Repeat("long ", 50) + "\x00\u202e"
	var steps []report.TracedStep
	for i := range 9 {
		steps = append(steps, report.TracedStep{Label: fmt.Sprint(long, i), Index: x, Window: timeline.Window{FromNs: w.FromNs - int64(i)*1e9, ToNs: w.ToNs + 1}})
	}
	gap := timeline.Gap{FromNs: 5, ToNs: 6, LateToNs: 5, APIToNs: 5, Launch: timeline.None, After: timeline.None, Before: timeline.None}
	a, err := report.StepTimelines(report.About{}, steps)
	if err != nil || len(a.Notes) != 1 {
		t.Error(err, a.Notes)
	}
	b, err := report.GapLengths(report.About{}, []report.GapSet{{Label: long, Gaps: []timeline.Gap{gap}, Steps: 3}, {Label: "none", Steps: 1}})
	if err != nil || len(b.Notes) != 1 {
		t.Error(err, b.Notes)
	}
	c, err := report.StepBars(report.About{}, []report.StepParts{{Label: long, BusyNs: 3, UnlinkedNs: 5}, {Label: "bad", BusyNs: -1}})
	if err != nil || len(c.Notes) != 1 {
		t.Error(err, c.Notes)
	}
	for _, p := range []report.Picture{a, b, c} {
		for _, format := range []string{report.PNG, report.SVG} {
			var out bytes.Buffer
			if err := p.Encode(&out, format); err != nil || out.Len() == 0 || out.Len() > 1<<20 {
				t.Errorf("%s as %s: %v, %d bytes", p.Name, format, err, out.Len())
			}
		}
	}
}
