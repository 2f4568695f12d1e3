package read_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/tech-renaissance/trbench/timeline"
	"github.com/tech-renaissance/trbench/timeline/read"
	"github.com/tech-renaissance/trbench/timeline/write"
)

// all are the figures of all devices.
func all(x *timeline.Index) string {
	out := ""
	for d := range x.T.Devices {
		id := int32(d)
		f, ok := x.SpanFigures(id)
		out += fmt.Sprintf("%s %v %+v\n%+v\n", x.T.Devices[d].ID, ok, f, x.Integrity(id))
		if ok {
			out += fmt.Sprintf("%+v\n%+v\n%+v\n%+v\n", x.Steps(id), x.LaunchStats(timeline.Window{FromNs: -1 << 62, ToNs: 1 << 62}), x.GraphStats(id, f.Window), x.TopKernels(id, f.Window, 20))
		}
	}
	return places.ReplaceAllString(out, "{}")
}

// places are windows: a written trace begins at 0.
var places = regexp.MustCompile(`\{FromNs:\d+ ToNs:\d+\}`)

func rewritten(t *testing.T, tl *timeline.Timeline) *timeline.Timeline {
	t.Helper()
	var b bytes.Buffer
	if err := write.Chrome(&b, timeline.NewIndex(tl)); err != nil {
		t.Fatal(err)
	}
	again, err := read.JSON(&b, "rewritten", read.Options{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// TestOwn reads what timeline/write writes: the same figures, and the same
// threads, streams and devices.
func TestOwn(t *testing.T) {
	tl := parse(t, `{"traceEvents":[`+kernelEvent+`,
		{"ph":"X","cat":"kernel","name":"bad","pid":0,"tid":7,"ts":-1,"dur":-1,"args":{"device":0,"stream":7,"correlation":6,"graph id":9}},
		{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":9,"tid":8,"ts":1,"dur":1,"args":{"correlation":5}},
		{"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":9,"tid":8,"ts":1,"dur":100},
		{"ph":"X","cat":"user_annotation","name":"enumerate(DataLoader)#x","pid":9,"tid":8,"ts":2,"dur":1},
		{"ph":"X","cat":"cpu_op","name":"aten::add","pid":9,"tid":9,"ts":2,"dur":1},
		{"ph":"X","cat":"python_function","name":"f","pid":9,"tid":9,"ts":2,"dur":1},
		{"ph":"X","cat":"overhead","name":"o","pid":-1,"tid":0,"ts":2,"dur":1}],"distributedInfo":{"rank":2}}`)
	tl.Calls[0].Class = timeline.CallOther // its name says something else
	tl.Read.Dropped = 4
	again := rewritten(t, tl)
	if again.Format != timeline.FormatOwn || len(again.Processes) != len(tl.Processes) || again.Processes[0].Rank != 2 || again.Calls[0].Class != timeline.CallOther {
		t.Errorf("%s %+v %+v", again.Format, again.Processes, again.Calls)
	}
	if again.Read.Dropped != 4 || again.Read.BadTimes != 1 || len(again.Ops) != 2 {
		t.Errorf("%+v, %d ops", again.Read, len(again.Ops))
	}
	if got, want := all(timeline.NewIndex(again)), all(timeline.NewIndex(tl)); got != want {
		t.Errorf("figures are\n%s\nwant\n%s", got, want)
	}
	classes := map[timeline.RangeClass]int{}
	for i := range tl.Ranges {
		classes[tl.Ranges[i].Class]++
		classes[again.Ranges[i].Class]--
	}
	for c, n := range classes {
		if n != 0 {
			t.Errorf("class %d: %d more", c, n)
		}
	}
}

func TestOwnOfPublicTraces(t *testing.T) {
	for _, name := range []string{"tl_h100_falconsai.json.gz", "tl_vllm_decode_graph.json.gz", "nsysai_mock.sqlite", "nsysai_mfu_2gpu_before.sqlite", "hta_negative_queue_length.json.gz"} {
		tl, err := read.File(filepath.Join(corpus(t), name), read.Options{})
		if err != nil {
			t.Fatal(err)
		}
		again := rewritten(t, tl)
		if got, want := all(timeline.NewIndex(again)), all(timeline.NewIndex(tl)); got != want {
			t.Errorf("%s: figures are\n%.3000s\nwant\n%.3000s", name, got, want)
		}
	}
}
