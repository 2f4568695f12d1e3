package read_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/timeline"
	"github.com/tech-renaissance/trbench/timeline/read"
)

func public(t *testing.T, name string) (*timeline.Timeline, *timeline.Index) {
	t.Helper()
	tl, err := read.File(filepath.Join(corpus(t), name), read.Options{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	return tl, timeline.NewIndex(tl)
}

// TestPeersNumbers are what the tests of Holistic Trace Analysis and PyTorch's
// former TensorBoard plugin assert of the same files.
func TestPeersNumbers(t *testing.T) {
	tl, x := public(t, "hta_trace_compare_base.json.gz")
	steps := x.Steps(0)
	i := slices.IndexFunc(steps, func(s timeline.Step) bool { return s.Name == "ProfilerStep#1010" })
	if i < 0 {
		t.Fatalf("no step 1010 in %+v", steps)
	}
	s := steps[i]
	if s.Host.Ns() != 122149_000 || s.Ops != 1 {
		t.Errorf("step 1010: %d ns, %d GPU ops; want 122149000, 1", s.Host.Ns(), s.Ops)
	}
	cpu := 0 // operators, annotations (the step's too) and calls of the host
	for _, r := range tl.Ranges {
		if r.StartNs >= s.Host.FromNs && r.StartNs < s.Host.ToNs {
			cpu++
		}
	}
	for _, c := range tl.Calls {
		if c.StartNs >= s.Host.FromNs && c.StartNs < s.Host.ToNs {
			cpu++
		}
	}
	if cpu != 6 {
		t.Errorf("step 1010 has %d operators, annotations and calls, want 6", cpu)
	}

	tl, x = public(t, "hta_triton_example.json.gz")
	w, _ := x.DeviceSpan(0)
	if at := slices.IndexFunc(tl.Ranges, func(r timeline.Range) bool { return r.StartNs == 2413669096090100 }); at < 0 || tl.OriginNs != 1727743122000000000 {
		t.Errorf("nothing starts at 2413669096090100 ns, or the origin is %d", tl.OriginNs)
	}
	if w.FromNs != 2413669097444592 {
		t.Errorf("the kernel starts at %d", w.FromNs)
	}

	// The plugin's share is of kernels alone, copies and fills left out, within
	// the steps; over the GPU's span, all device work is 60.569 % busy.
	tl, x = public(t, "kineto_tb_resnet50_nw0_a.json.gz")
	f, _ := x.SpanFigures(0)
	steps = x.Steps(0)
	all, _ := timeline.StepsWindow(steps)
	if got := fmt.Sprintf("%.3f", 100*float64(f.BusyNs)/float64(f.SpanNs)); got != "60.569" || len(steps) != 6 {
		t.Errorf("busy %s %% of the span, %d steps", got, len(steps))
	}
	tl.Ops = slices.DeleteFunc(tl.Ops, func(o timeline.Op) bool { return o.Kind != timeline.Kernel })
	g := timeline.NewIndex(tl).DeviceFigures(0, all)
	if got := fmt.Sprintf("%.3f", 100*float64(g.BusyNs)/float64(g.SpanNs)); got != "54.889" {
		t.Errorf("kernels are busy %s %% of the steps, want 54.889", got)
	}
}

// TestOrderDoesNotMatter reads the same events shuffled, shifted and on other
// streams.
func TestOrderDoesNotMatter(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 2))
	var list []string
	at, c := int64(1000), 0
	const shift = 1 << 40
	write := func(list []string, shift int64, stream int) string {
		text := strings.Join(list, ",\n")
		text = strings.ReplaceAll(text, "STREAM7", fmt.Sprint(7+stream))
		text = strings.ReplaceAll(text, "STREAM9", fmt.Sprint(9+5*stream))
		var out bytes.Buffer
		for i, part := range strings.Split(text, "TS") {
			if i == 0 {
				out.WriteString(part)
				continue
			}
			var ns int64
			n, _ := fmt.Sscanf(part, "%d", &ns)
			_ = n
			rest := strings.TrimLeft(part, "0123456789")
			fmt.Fprintf(&out, "%d.%03d%s", (ns+shift)/1000, (ns+shift)%1000, rest)
		}
		return "[" + out.String() + "]"
	}
	for step := range 5 {
		begin := at
		for range 40 {
			c++
			at += 500 + r.Int64N(3000)
			call := at
			at += 500 + r.Int64N(2000)
			list = append(list, fmt.Sprintf(`{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":TS%d,"dur":%d.%03d,"args":{"correlation":%d}}`, call, (at-call)/1000, (at-call)%1000, c))
			for k := range 1 + r.IntN(2) {
				start := at + r.Int64N(5000)
				d := 200 + r.Int64N(4000)
				list = append(list, fmt.Sprintf(`{"ph":"X","cat":"kernel","name":"k%d","pid":0,"tid":STREAM%d,"ts":TS%d,"dur":%d.%03d,"args":{"device":0,"stream":STREAM%d,"correlation":%d}}`,
					r.IntN(6), 7+2*k, start, d/1000, d%1000, 7+2*k, c))
			}
		}
		list = append(list, fmt.Sprintf(`{"ph":"X","cat":"user_annotation","name":"ProfilerStep#%d","pid":1,"tid":1,"ts":TS%d,"dur":%d.%03d}`, step, begin, (at-begin)/1000, (at-begin)%1000))
	}
	all := func(text string, shift int64) string {
		tl := parse(t, text)
		x := timeline.NewIndex(tl)
		w, _ := x.DeviceSpan(0)
		steps := x.Steps(0)
		for i := range steps {
			s := &steps[i]
			for _, w := range []*timeline.Window{&s.Host, &s.GPU, &s.Within.Window, &s.Own.Window} {
				w.FromNs, w.ToNs = w.FromNs-shift, w.ToNs-shift
			}
		}
		return fmt.Sprintf("%v\n%+v\n%+v\n%+v\n%+v\n%+v", figures(x, 0), x.Integrity(0), steps, x.TopKernels(0, w, -1), x.LaunchStats(w), x.Delays(0, w))
	}
	want := all(write(list, 0, 0), 0)
	if !strings.Contains(want, "ProfilerStep#4") {
		t.Fatal(want)
	}
	shuffled := slices.Clone(list)
	r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	for name, text := range map[string]string{"shuffled": write(shuffled, 0, 0), "renumbered": write(shuffled, 0, 3)} {
		if got := all(text, 0); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
	if got := all(write(list, shift, 0), shift); got != want {
		t.Errorf("shifted:\n%s\nwant\n%s", got, want)
	}
}
