package report_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/timeline"
	"github.com/tech-renaissance/trbench/timeline/analysis"
	"github.com/tech-renaissance/trbench/timeline/read"
)

// analysed is a recording with what is found in it.
func analysed(t *testing.T, tl *timeline.Timeline, o analysis.Options) report.Analysis {
	t.Helper()
	devices, err := analysis.Devices(timeline.NewIndex(tl), o)
	if err != nil {
		t.Fatal(err)
	}
	return report.Analysis{Timeline: tl, Devices: devices}
}

// usual is the recording of a trainer that launches its kernels one by one.
func usual(t *testing.T) *timeline.Timeline {
	t.Helper()
	tl, err := read.File("../timeline/read/testdata/eager.json", read.Options{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	tl.Source = "eager.json"
	return tl
}

// odd has one of each thing that a table says something about, and only then: 23
// steps of graph and single launches, what a host can be late for, ops that
// overlap, that come early, that are there twice, without length, times or
// launch, a device without times and one without launches, and a file that was
// damaged.
func odd() *timeline.Timeline {
	var b timeline.Builder
	b.Name("")
	t := &b.T
	t.Source, t.Format = "folder/odd|trace.json", timeline.FormatKineto
	t.Processes = []timeline.Process{{ID: "1", Rank: 3}}
	t.Threads = []timeline.Thread{{ID: "1"}}
	t.Devices = []timeline.Device{{ID: "0", Name: "made up <0>"}, {ID: "1"}, {ID: "2", Name: "other"}}
	t.Streams = []timeline.Stream{{ID: "7", Process: timeline.None}, {ID: "8", Process: timeline.None}, {ID: "1", Device: 1, Process: timeline.None}, {ID: "2", Device: 2, Process: timeline.None}}
	t.Read = timeline.ReadReport{
		Bytes: 1000, LostBytes: 60, LostAt: 500, LostEvents: 2, Dropped: 4, BadTimes: 2, Truncated: true, Repaired: 3, RepairedAt: 77,
		NotRecorded: []string{"copies", "events"}, Notes: []string{"A note of the reader's."}, OverheadNs: 9,
	}
	call := func(name string, class timeline.CallClass, from, to, correlation int64) {
		t.Calls = append(t.Calls, timeline.Call{StartNs: from, EndNs: to, Name: b.Name(name), Class: class, Correlation: correlation})
	}
	op := func(name string, kind timeline.Kind, stream int32, from, to, correlation int64) *timeline.Op {
		t.Ops = append(t.Ops, timeline.Op{StartNs: from, EndNs: to, Name: b.Name(name), Kind: kind, Device: t.Streams[stream].Device, Stream: stream, Timed: true, Correlation: correlation})
		return &t.Ops[len(t.Ops)-1]
	}
	during := func(name string, class timeline.RangeClass, from, to int64) {
		t.Ranges = append(t.Ranges, timeline.Range{StartNs: from, EndNs: to, Name: b.Name(name), Class: class})
	}
	op("before all calls", timeline.Kernel, 0, -5_000, -4_000, 0)
	for i := range int64(23) {
		at, c := i*100_000, i*10
		during(fmt.Sprintf("ProfilerStep#%d", i+1), timeline.RangeStep, at, at+100_000)
		call("cudaLaunchKernel", timeline.CallLaunch, at+1_000, at+3_000, c+1)
		op("void a_kernel_with_a_name<that | is>(longer, than, what, a, table, has, room, for, in, one, of, its, columns)", timeline.Kernel, 0, at+5_000, at+9_000, c+1)
		call("cudaGraphLaunch", timeline.CallGraphLaunch, at+10_000, at+14_000, c+2)
		for k := range int64(3) {
			if i == 5 && k == 2 {
				continue // a replay with an op less
			}
			o := op("inside", timeline.Kernel, 0, at+16_000+k*3_000, at+18_000+k*3_000, c+2)
			o.Graph, o.Node = 9, uint64(k+1)
		}
		call("cudaMemcpyAsync", timeline.CallCopy, at+30_000+i*10, at+31_000, c+3)
		op("copy", timeline.Copy, 1, at+32_000, at+36_000, c+3)
		op("copy", timeline.Copy, 1, at+35_000, at+37_000, c+3) // overlaps
		call("cudaStreamSynchronize", timeline.CallSync, at+31_000, at+40_000, 0)
		during("next batch", timeline.RangeFeed, at+40_000, at+50_000)
		during("model.py(3): forward", timeline.RangePython, at+50_000, at+95_000)
		during("forward", timeline.RangeUser, at+60_000, at+95_000)
		during("aten::op", timeline.RangeOperator, at+70_000, at+95_000)
		during("buffers", timeline.RangeOverhead, at+80_000, at+82_000)
		call("cudaFuncGetAttributes", timeline.CallOther, at+85_000, at+86_000, 0)
		call("cuLaunchKernel", timeline.CallLaunch, at+95_000, at+96_000, c+4)
		op("last", timeline.Kernel, 0, at+97_000, at+99_000, c+4)
	}
	call("cudaMemsetAsync", timeline.CallCopy, 2_400_000, 2_401_000, 998)
	op("early", timeline.Fill, 1, 2_399_000, 2_399_500, 998)
	op("early", timeline.Fill, 1, 2_399_000, 2_399_500, 998) // twice
	op("unlinked", timeline.Kernel, 0, 2_410_000, 2_410_000, 0)
	op("untimed", timeline.Kernel, 0, 0, 0, 0).Timed = false
	op("untimed", timeline.Kernel, 2, 0, 0, 0).Timed = false
	for i := range int64(4) {
		op("no launch", timeline.Kernel, 3, i*20_000, i*20_000+10_000, 0)
	}
	return t
}

// Files of one rank are no ranks of one job; a file's own devices are of its rank,
// and files that name none say nothing.
func TestRanksTwice(t *testing.T) {
	top := analysis.Options{Top: 1}
	named, unnamed := analysed(t, odd(), top), analysed(t, usual(t), top)
	const want = "\nSeveral files say that they are rank 3: these are not the ranks of one job, or some are of another run.\n"
	for name, c := range map[string]struct {
		files []report.Analysis
		said  bool
	}{
		"one":       {[]report.Analysis{named, unnamed}, false},
		"none":      {[]report.Analysis{unnamed, unnamed}, false},
		"the other": {[]report.Analysis{named, unnamed, named}, true},
	} {
		var b strings.Builder
		if err := report.AnalysisText(&b, c.files); err != nil {
			t.Fatal(err)
		}
		said := strings.Contains(b.String(), "\nSeveral files say")
		if said != c.said || said && !strings.Contains(b.String(), want) {
			t.Errorf("%s: said %v, want %v:\n%s", name, said, c.said, b.String()[max(0, b.Len()-600):])
		}
	}
}

// TestAnalysisGoldens: all that analyze prints, table by table.
func TestAnalysisGoldens(t *testing.T) {
	slower := usual(t)
	slower.Source = "slower.json"
	for i := range slower.Ops { // a kernel that takes longer, and moves nothing
		if o := &slower.Ops[i]; slower.Text(o.Name) == "conv2d_dgrad" {
			o.EndNs += 1_500
		}
	}
	empty := &timeline.Timeline{Source: "cpu.json", Format: timeline.FormatNsys, Read: timeline.ReadReport{LostAt: -1, Dropped: -1, NotRecorded: []string{"device work"}}}
	top := analysis.Options{Top: 5}
	one := []report.Analysis{analysed(t, usual(t), top)}
	strange := []report.Analysis{analysed(t, odd(), top)}
	step := []report.Analysis{analysed(t, usual(t), analysis.Options{Top: 2, Steps: "5..7"})}
	ranks := []report.Analysis{one[0], strange[0], {Timeline: empty}, {Timeline: &timeline.Timeline{Source: "folder/cut.json"}, Unread: "is empty"}}
	base, head := &one[0].Devices[0], &analysed(t, slower, top).Devices[0]
	few := analysed(t, odd(), analysis.Options{Top: 5, Steps: "2..3"}).Devices
	whole := analysed(t, odd(), analysis.Options{Range: "forward"}).Devices
	pairs, unlike := []report.DevicePair{{Base: base, Head: head}}, []report.DevicePair{{Base: base, Head: &few[0]}, {Base: base, Head: &whole[0]}}
	type write = func(io.Writer) error
	for name, write := range map[string]write{
		"analysis_usual.txt":   func(w io.Writer) error { return report.AnalysisText(w, one) },
		"analysis_usual.md":    func(w io.Writer) error { return report.AnalysisMarkdown(w, one) },
		"analysis_odd.txt":     func(w io.Writer) error { return report.AnalysisText(w, strange) },
		"analysis_odd.md":      func(w io.Writer) error { return report.AnalysisMarkdown(w, strange) },
		"analysis_step.txt":    func(w io.Writer) error { return report.AnalysisText(w, step) },
		"analysis_ranks.csv":   func(w io.Writer) error { return report.AnalysisCSV(w, ranks) },
		"analysis_ranks.json":  func(w io.Writer) error { return report.AnalysisJSON(w, ranks) },
		"analysis_ranks.txt":   func(w io.Writer) error { return report.AnalysisText(&afterTitle{w: w, title: "\nAll ranks\n"}, ranks) },
		"analysis_nothing.txt": func(w io.Writer) error { return report.AnalysisText(w, ranks[2:]) },
		"analysis_diff.txt":    func(w io.Writer) error { return report.DiffText(w, pairs) },
		"analysis_diff.md":     func(w io.Writer) error { return report.DiffMarkdown(w, unlike) },
		"analysis_diff.csv":    func(w io.Writer) error { return report.DiffCSV(w, append(pairs, unlike[0])) },
		"analysis_diff.json":   func(w io.Writer) error { return report.DiffJSON(w, pairs) },
		"analysis_unlike.txt":  func(w io.Writer) error { return report.DiffText(w, unlike) },
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := write(&got); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", name)
			if updating() {
				if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%s (-update writes it anew)\n%s\nwant\n%s", path, got.Bytes(), want)
			}
		})
	}
}

// afterTitle passes on what is written from a title on.
type afterTitle struct {
	w     io.Writer
	title string
	found bool
}

func (a *afterTitle) Write(b []byte) (int, error) {
	if i := bytes.Index(b, []byte(a.title)); i >= 0 && !a.found {
		a.found = true
		_, err := a.w.Write(b[i:])
		return len(b), err
	}
	if a.found {
		return a.w.Write(b)
	}
	return len(b), nil
}

// TestAnalysisPictures: a step and the gaps, for each device that worked.
func TestAnalysisPictures(t *testing.T) {
	pictures, absent := report.AnalysisPictures([]report.Analysis{analysed(t, usual(t), analysis.Options{}), analysed(t, odd(), analysis.Options{})})
	if len(pictures) != 2 || len(absent) != 0 {
		t.Fatalf("%d pictures, not drawn: %v", len(pictures), absent)
	}
	for _, p := range pictures {
		var b bytes.Buffer
		if err := p.Encode(&b, report.PNG); err != nil {
			t.Fatal(err)
		}
		if err := golden("analysis_"+p.Name, b.Bytes()); err != nil {
			t.Error(err)
		}
	}
	if pictures, absent = report.AnalysisPictures(nil); len(pictures) != 0 || len(absent) != 2 {
		t.Errorf("%d pictures of nothing, not drawn: %v", len(pictures), absent)
	}
}
