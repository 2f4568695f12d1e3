package read_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/tech-renaissance/trbench/timeline"
	"github.com/tech-renaissance/trbench/timeline/read"
)

func parse(t *testing.T, text string) *timeline.Timeline {
	t.Helper()
	tl, err := read.JSON(strings.NewReader(text), "test", read.Options{})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return tl
}

// describe writes what was read in a line an event.
func describe(tl *timeline.Timeline) string {
	var b strings.Builder
	for _, o := range tl.Ops {
		kind := [...]string{"kernel", "copy", "fill", "envelope"}[o.Kind]
		at := "untimed"
		if o.Timed {
			at = fmt.Sprintf("%d+%d", o.StartNs, o.EndNs-o.StartNs)
		}
		stream := "none"
		if o.Stream != timeline.None {
			stream = tl.Streams[o.Stream].ID
		}
		fmt.Fprintf(&b, "%s %q %s device %s stream %s c%d", kind, tl.Text(o.Name), at, tl.Devices[o.Device].ID, stream, o.Correlation)
		if o.Graph != 0 || o.Node != 0 {
			fmt.Fprintf(&b, " graph %d node %d", o.Graph, o.Node)
		}
		if o.Bytes != 0 {
			fmt.Fprintf(&b, " %d bytes", o.Bytes)
		}
		b.WriteString("\n")
	}
	thread := func(i int32) string {
		if i == timeline.None {
			return "nowhere"
		}
		th := tl.Threads[i]
		if th.Process == timeline.None {
			return "/" + th.ID
		}
		return tl.Processes[th.Process].ID + "/" + th.ID
	}
	for _, c := range tl.Calls {
		fmt.Fprintf(&b, "call %q %d+%d on %s c%d class %d\n", tl.Text(c.Name), c.StartNs, c.EndNs-c.StartNs, thread(c.Thread), c.Correlation, c.Class)
	}
	classes := [...]string{"user", "step", "operator", "feed", "overhead", "python"}
	for _, r := range tl.Ranges {
		fmt.Fprintf(&b, "range %q %d+%d on %s %s\n", tl.Text(r.Name), r.StartNs, r.EndNs-r.StartNs, thread(r.Thread), classes[r.Class])
	}
	for _, c := range tl.Counters {
		fmt.Fprintf(&b, "counter %q %d %v\n", tl.Text(c.Name), c.AtNs, c.Value)
	}
	return b.String()
}

const kernelEvent = `{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":10,"dur":2,"args":{"device":0,"stream":7,"correlation":5}}`
const kernelText = `kernel "k" 10000+2000 device 0 stream 7 c1` + "\n"

func TestChromeEvents(t *testing.T) {
	for _, test := range []struct{ name, events, want string }{
		{"a kernel", kernelEvent, kernelText},
		{"copy and fill", `{"ph":"X","cat":"gpu_memcpy","name":"c","pid":1,"tid":2,"ts":1,"dur":1,"args":{"bytes":64,"device":1,"stream":2,"correlation":1}},
			{"ph":"X","cat":"gpu_memset","name":"f","pid":1,"tid":2,"ts":3,"dur":1,"args":{"device":1,"stream":2,"correlation":2}}`,
			"copy \"c\" 1000+1000 device 1 stream 2 c1 64 bytes\nfill \"f\" 3000+1000 device 1 stream 2 c2\n"},
		{"2021: capitals, the stream in the tid", `{"ph":"X","cat":"Kernel","name":"k","pid":0,"tid":"stream 7","ts":10,"dur":2,"args":{"device":0,"correlation":5}},
			{"ph":"X","cat":"Memcpy","name":"m","pid":3,"tid":"stream 9","ts":20,"dur":2,"args":{"external id":1}},
			{"ph":"X","cat":"Memset","name":"s","pid":3,"tid":"stream 9","ts":30,"dur":2},
			{"ph":"X","cat":"Runtime","name":"cudaLaunchKernel","pid":5,"tid":"5","ts":8,"dur":1,"args":{"correlation":5}},
			{"ph":"X","cat":"Operator","name":"aten::add","pid":5,"tid":"5","ts":7,"dur":3},
			{"ph":"X","cat":"Operator","name":"ProfilerStep#5","pid":5,"tid":5,"ts":7,"dur":3},
			{"ph":"X","cat":"Operator","name":"enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__","pid":5,"tid":"5","ts":7,"dur":3}`,
			kernelText + "copy \"m\" 20000+2000 device 3 stream 9 c0\nfill \"s\" 30000+2000 device 3 stream 9 c0\n" +
				"call \"cudaLaunchKernel\" 8000+1000 on 5/5 c1 class 1\nrange \"aten::add\" 7000+3000 on 5/5 operator\nrange \"ProfilerStep#5\" 7000+3000 on 5/5 step\n" +
				"range \"enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__\" 7000+3000 on 5/5 feed\n"},
		{"numbers as texts", strings.NewReplacer(`:10,`, `:"10",`, `:0,`, `:"0",`, `:7`, `:"7"`, `:5`, `:"5"`, `"dur":2`, `"dur":"2"`).Replace(kernelEvent), kernelText},
		{"not device work", `{"ph":"X","cat":"gpu_user_annotation","name":"a","pid":0,"tid":7,"ts":1,"dur":1},{"ph":"X","cat":"cuda_sync","name":"s","pid":0,"tid":7,"ts":1,"dur":1,"args":{"device":0}},
			{"ph":"X","cat":"cuda_event","name":"s","pid":0,"tid":7,"ts":1,"dur":1},{"ph":"X","cat":"cuda_profiler_range","name":"s","pid":0,"tid":7,"ts":1,"dur":1},
			{"ph":"X","cat":"Trace","name":"t","pid":"Spans","tid":"x","ts":1,"dur":1},{"ph":"f","cat":"ac2g","id":1,"pid":1,"tid":1,"ts":1,"name":"ac2g","bp":"e"},{"ph":"i","s":"t","name":"[memory]","ts":1}`, ""},
		{"null tid", `{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":null,"ts":10,"dur":2,"args":{"device":0,"correlation":5}}`, `kernel "k" 10000+2000 device 0 stream  c1` + "\n"},
		{"no args", `{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":10,"dur":2}`, `kernel "k" 10000+2000 device 0 stream 7 c0` + "\n"},
		{"ids beyond 2^63, and two that float64 cannot tell apart",
			`{"ph":"X","cat":"kernel","name":"a","pid":0,"tid":7,"ts":1,"dur":1,"args":{"device":0,"stream":7,"correlation":18446744073709551615}},
			{"ph":"X","cat":"kernel","name":"b","pid":0,"tid":7,"ts":2,"dur":1,"args":{"device":0,"stream":7,"correlation":18446744073709551614}},
			{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":18446744073709551615,"tid":-1,"ts":0.5,"dur":0.1,"args":{"correlation":"18446744073709551615"}},
			{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":4294967297,"tid":9223372036854775808,"ts":0.5,"dur":0.1,"args":{"correlation":-3}}`,
			"kernel \"a\" 1000+1000 device 0 stream 7 c1\nkernel \"b\" 2000+1000 device 0 stream 7 c2\n" +
				"call \"cudaLaunchKernel\" 500+100 on 18446744073709551615/-1 c1 class 1\ncall \"cudaLaunchKernel\" 500+100 on 4294967297/9223372036854775808 c3 class 1\n"},
		{"a number of 21 digits is not what is left of it", `{"ph":"X","cat":"kernel","name":"a","pid":0,"tid":7,"ts":1,"dur":1,"args":{"correlation":18446744073709551621}},
			{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":1,"dur":1,"args":{"correlation":5}}`,
			"kernel \"a\" 1000+1000 device 0 stream 7 c1\ncall \"cudaLaunchKernel\" 1000+1000 on 1/1 c2 class 1\n"},
		{"2026: graph and node", `{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":10,"dur":2,"args":{"device":0,"stream":7,"correlation":5,"graph id":3,"graph node id":21474836481}}`,
			`kernel "k" 10000+2000 device 0 stream 7 c1 graph 3 node 21474836481` + "\n"},
		{"HIP, drivers and others", `{"ph":"X","cat":"cuda_runtime","name":"hipGraphLaunch","pid":1,"tid":2,"ts":1,"dur":1,"args":{"correlation":1}},
			{"ph":"X","cat":"cuda_driver","name":"cuLaunchKernelEx","pid":1,"tid":2,"ts":2,"dur":1,"args":{"correlation":2}},
			{"ph":"X","cat":"xpu_runtime","name":"zeSync","pid":1,"tid":3,"ts":2,"dur":1}`,
			"call \"hipGraphLaunch\" 1000+1000 on 1/2 c1 class 2\ncall \"cuLaunchKernelEx\" 2000+1000 on 1/2 c2 class 1\ncall \"zeSync\" 2000+1000 on 1/3 c0 class 0\n"},
		{"times that are none", `{"ph":"X","cat":"kernel","name":"no start","pid":0,"tid":7,"dur":2},{"ph":"X","cat":"kernel","name":"no length","pid":0,"tid":7,"ts":2},
			{"ph":"X","cat":"kernel","name":"negative","pid":0,"tid":7,"ts":2,"dur":-1},{"ph":"X","cat":"kernel","name":"zero","pid":0,"tid":7,"ts":0,"dur":0},
			{"ph":"X","cat":"kernel","name":"null","pid":0,"tid":7,"ts":null,"dur":1},{"ph":"X","cat":"kernel","name":"huge","pid":0,"tid":7,"ts":1e300,"dur":1},
			{"ph":"X","cat":"kernel","name":"word","pid":0,"tid":7,"ts":"soon","dur":1},{"ph":"X","cat":"kernel","name":"empty","pid":0,"tid":7,"ts":5,"dur":0}`,
			strings.Join([]string{`kernel "no start" untimed`, `kernel "no length" untimed`, `kernel "negative" untimed`, `kernel "zero" untimed`, `kernel "null" untimed`, `kernel "huge" untimed`, `kernel "word" untimed`, `kernel "empty" 5000+0`, ""},
				" device 0 stream 7 c0\n")},
		{"names", `{"ph":"X","cat":"kernel","name":"a\"b\\c\u00e9\ud83d\ude00\n\ud800x","pid":0,"tid":7,"ts":1,"dur":1}`, "kernel \"a\\\"b\\\\cé😀 \ufffdx\" 1000+1000 device 0 stream 7 c0\n"},
		{"counters", `{"ph":"C","name":"GPU 0 Utilization","pid":0,"ts":5,"args":{"GPU Utilization":0.5}},{"ph":"C","name":"q","cat":"derived","pid":0,"ts":5,"args":{"v":1}}`, "counter \"GPU 0 Utilization\" 5000 0.5\n"},
		{"other ranges", `{"ph":"X","cat":"user_annotation","name":"Optimizer.step#SGD.step","pid":1,"tid":2,"ts":1,"dur":1},{"ph":"X","cat":"python_function","name":"torch/utils/data/dataloader.py(652): __next__","pid":1,"tid":2,"ts":1,"dur":1},
			{"ph":"X","cat":"python_function","name":"step 4","pid":1,"tid":2,"ts":1,"dur":1},{"ph":"X","cat":"user_annotation","name":"Iteration 12","pid":1,"tid":2,"ts":1,"dur":1},
			{"ph":"X","cat":"overhead","name":"Activity Buffer Request","pid":-1,"tid":0,"ts":1,"dur":1},{"ph":"X","cat":"overhead","name":"Command Buffer Full","pid":-1,"tid":0,"ts":1,"dur":1}`,
			"range \"Optimizer.step#SGD.step\" 1000+1000 on 1/2 user\nrange \"torch/utils/data/dataloader.py(652): __next__\" 1000+1000 on 1/2 feed\nrange \"step 4\" 1000+1000 on 1/2 python\n" +
				"range \"Iteration 12\" 1000+1000 on 1/2 step\nrange \"Activity Buffer Request\" 1000+1000 on -1/0 overhead\n"},
		{"things that are no events", `null, 5, "x", [], {}, ` + kernelEvent, kernelText},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, form := range []string{"[%s]", `{"traceEvents":[%s]}`, "\xef\xbb\xbf {\"a\":{\"traceEvents\":[1]},\"traceEvents\" : [ %s ] , \"traceName\":\"x\"} \n"} {
				tl := parse(t, fmt.Sprintf(form, test.events))
				if got := describe(tl); got != test.want {
					t.Errorf("%s gives\n%s\nwant\n%s", form, got, test.want)
				}
				if tl.Read.LostBytes != 0 || tl.Read.Truncated || tl.Read.Repaired != 0 {
					t.Errorf("damaged: %+v", tl.Read)
				}
			}
		})
	}
}

func TestZeroStartFarFromAllElse(t *testing.T) {
	far := `{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1700000000000000,"dur":2},{"ph":"X","cat":"kernel","name":"z","pid":0,"tid":7,"ts":0,"dur":2}`
	if tl := parse(t, "["+far+"]"); tl.Ops[1].Timed || !tl.Ops[0].Timed || tl.Read.BadTimes != 1 {
		t.Errorf("ops are %+v", tl.Ops)
	}
	near := strings.Replace(far, "1700000000000000", "17", 1)
	if tl := parse(t, "["+near+"]"); !tl.Ops[1].Timed || !tl.Ops[0].Timed {
		t.Errorf("ops are %+v", tl.Ops)
	}
}

func TestChromeOuter(t *testing.T) {
	tl := parse(t, `{"traceEvents":[`+kernelEvent+`,{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":9,"tid":8,"ts":1,"dur":1,"args":{"correlation":5}},
		{"ph":"M","name":"process_name","pid":9,"tid":0,"args":{"name":"python"}},{"ph":"M","name":"thread_name","pid":"9","tid":8,"args":{"name":"main\u0007"}}],
		"deviceProperties":[{"id":0,"name":"NVIDIA H100","x":[{"y":1}]},{"id":1,"name":"other"}],"distributedInfo":{"rank":3,"world_size":8},"baseTimeNanoseconds":1727743122000000000}`)
	if tl.OriginNs != 1727743122000000000 || tl.Devices[0].Name != "NVIDIA H100" || len(tl.Devices) != 1 {
		t.Errorf("%d %+v", tl.OriginNs, tl.Devices)
	}
	if p := tl.Processes; len(p) != 1 || p[0].Name != "python" || p[0].Rank != 3 || tl.Threads[0].Name != "main " {
		t.Errorf("%+v %+v", p, tl.Threads)
	}
}

// events are n kernels, each on a line of its own.
func events(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf(`{"ph":"X","cat":"kernel","name":"k%d","pid":0,"tid":7,"ts":%d,"dur":2,"args":{"device":0,"stream":7,"correlation":%d,"grid":[1,2,3]}}`, i, 10*i+1, i))
	}
	return out
}

func TestSalvage(t *testing.T) {
	clean := events(6)
	for _, test := range []struct {
		name string
		// replace is made in the third event.
		old, new       string
		ops            int
		lost, repaired int64
		names          string // the third op's name, if it is there
	}{
		{"unescaped quotes in a name", `"k2"`, `"k "two" 2"`, 6, 0, 1, `k "two" 2`},
		{"an unescaped quote in a name", `"k2"`, `"k"2"`, 6, 0, 1, `k"2`},
		{"a quote before a comma", `"k2"`, `"a", b"`, 6, 0, 1, `a", b`},
		{"an unescaped quote in args", `"grid":[1,2,3]`, `"s":["a"b","c"]`, 6, 0, 1, "k2"},
		{"a control byte", `"k2"`, "\"k\x01\n2\"", 6, 0, 1, "k  2"},
		{"backslashes", `"k2"`, `"C:\path\x\u12"`, 6, 0, 1, `C:\path\x\u12`},
		{"a backslash at the end", `"k2"`, `"C:\dir\"`, 6, 0, 1, `C:\dir\`},
		{"NaN in args", `"grid":[1,2,3]`, `"occupancy":NaN,"x":-Infinity`, 6, 0, 1, "k2"},
		{"NaN for a length", `"dur":2`, `"dur":NaN`, 6, 0, 1, "k2"},
		{"Python's words", `"grid":[1,2,3]`, `"a":None,"b":True`, 6, 0, 1, "k2"},
		{"a comma too many", `[1,2,3]`, `[1,2,3,],`, 6, 0, 1, "k2"},
		{"no value", `"dur":2,`, `"dur":,`, 5, 1, 0, ""},
		{"no colon", `"dur":2`, `"dur"2`, 5, 1, 0, ""},
		{"no closing quote", `"k2"`, `"k2`, 5, 1, 0, ""},
		{"no closing brace", `}}`, `}`, 5, 1, 0, ""},
		{"cut", `"ts":21,"dur":2,"args":{"device":0,"stream":7,"correlation":2,"grid":[1,2,3]}}`, `"ts":2`, 5, 1, 0, ""},
		{"a number that is none", `"ts":21`, `"ts":2x1`, 5, 1, 0, ""},
		{"another text's quote", `"pid":0`, `"pid":"0`, 5, 1, 0, ""},
		{"nested too deeply", `[1,2,3]`, strings.Repeat("[", 5000) + strings.Repeat("]", 5000), 5, 1, 0, ""},
		{"garbage between", `{"ph":"X","cat":"kernel","name":"k2"`, `&%$ {"ph":"X","cat":"kernel","name":"k2"`, 6, 1, 0, "k2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			broken := append([]string(nil), clean...)
			if broken[2] = strings.Replace(clean[2], test.old, test.new, 1); broken[2] == clean[2] {
				t.Fatalf("nothing replaced")
			}
			for _, form := range []string{"[\n%s\n]", "{\"traceEvents\": [\n%s\n],\n\"traceName\": \"x\"\n}\n", "{\"a\":1,\"traceEvents\":[%s]}"} {
				text := fmt.Sprintf(form, strings.Join(broken, ",\n"))
				whole, err := read.JSON(strings.NewReader(text), "x", read.Options{})
				if err != nil {
					t.Fatal(err)
				}
				slow, err := read.JSON(iotest.OneByteReader(strings.NewReader(text)), "x", read.Options{})
				if err != nil || describe(slow) != describe(whole) || !reflect.DeepEqual(slow.Read, whole.Read) {
					t.Errorf("byte by byte: %v\n%+v\n%+v", err, slow.Read, whole.Read)
				}
				d := whole.Read
				if len(whole.Ops) != test.ops || d.LostEvents != test.lost || d.Repaired < test.repaired || test.repaired == 0 && d.Repaired != 0 || d.Truncated {
					t.Errorf("%s: %d ops, want %d; %+v\n%s", form, len(whole.Ops), test.ops, d, describe(whole))
				}
				// What is lost goes from the event's brace to the next one that can be read.
				at := int64(strings.Index(text, broken[2]))
				next := int64(strings.Index(text, clean[3]))
				if test.ops == 6 {
					next = at + int64(strings.IndexByte(broken[2], '{'))
				}
				if test.lost > 0 && (d.LostAt != at || d.LostBytes != next-at) {
					t.Errorf("%s: lost %d bytes at %d, want %d at %d", form, d.LostBytes, d.LostAt, next-at, at)
				}
				if test.repaired > 0 && d.RepairedAt != at {
					t.Errorf("%s: repaired at %d, want %d", form, d.RepairedAt, at)
				}
				if test.names != "" && whole.Text(whole.Ops[2].Name) != test.names {
					t.Errorf("%s: the name is %q", form, whole.Text(whole.Ops[2].Name))
				}
				if !read.Damaged(d) {
					t.Error("not damaged")
				}
				var e *read.Error
				if _, err := read.JSON(strings.NewReader(text), "x", read.Options{Strict: true}); !errors.As(err, &e) || !strings.Contains(e.Reason, "byte") {
					t.Errorf("strict: %v", err)
				}
			}
		})
	}
}

// TestTruncated cuts a trace at every byte: all events before the cut are kept,
// and no more than the one that was cut is lost.
func TestTruncated(t *testing.T) {
	clean := events(4)
	for _, form := range []string{"[%s]", `{"deviceProperties":[{"id":0}],"traceEvents":[%s],"traceName":"x"}`} {
		text := fmt.Sprintf(form, strings.Join(clean, ",\n"))
		first := strings.Index(text, clean[0])
		for cut := first; cut < len(text); cut++ {
			want := 0
			for _, e := range clean {
				if strings.Index(text, e)+len(e) <= cut {
					want++
				}
			}
			tl, err := read.JSON(strings.NewReader(text[:cut]), "x", read.Options{})
			if err != nil {
				t.Fatalf("cut at %d: %v", cut, err)
			}
			within, lostAt := int64(0), int64(-1)
			for _, e := range clean {
				if at := strings.Index(text, e); cut > at && cut < at+len(e) {
					within, lostAt = 1, int64(at)
				}
			}
			if len(tl.Ops) != want || !tl.Read.Truncated || tl.Read.LostEvents != within {
				t.Errorf("cut at %d of %s: %d ops, want %d; %+v", cut, form, len(tl.Ops), want, tl.Read)
			}
			if d := tl.Read; within > 0 && (d.LostAt != lostAt || d.LostBytes != int64(cut)-lostAt) {
				t.Errorf("cut at %d of %s: lost %d bytes at %d, want %d at %d", cut, form, d.LostBytes, d.LostAt, int64(cut)-lostAt, lostAt)
			}
			if _, err := read.JSON(strings.NewReader(text[:cut]), "x", read.Options{Strict: true}); err == nil {
				t.Errorf("cut at %d: strict takes it", cut)
			}
		}
	}
}

func TestMissingBracket(t *testing.T) {
	clean := strings.Join(events(3), ",\n")
	for name, text := range map[string]string{
		"before a member": `{"traceEvents":[` + clean + `,"traceName":"x","distributedInfo":{"rank":1}}`,
		"before the end":  `{"distributedInfo":{"rank":1},"traceEvents":[` + clean + `}`,
	} {
		tl := parse(t, text)
		if len(tl.Ops) != 3 || tl.Read.Repaired == 0 || tl.Read.LostBytes != 0 || tl.Processes[0].Rank != 1 {
			t.Errorf("%s: %d ops, %+v", name, len(tl.Ops), tl.Read)
		}
	}
}

func TestDamagedMembers(t *testing.T) {
	clean := strings.Join(events(3), ",")
	for name, text := range map[string]string{
		"before":     `{"INFO":["a "b" c"],"traceEvents":[` + clean + `]}`,
		"deep":       `{"x":` + strings.Repeat("[", 9999) + strings.Repeat("]", 9999) + `,"traceEvents":[` + clean + `]}`,
		"behind":     `{"traceEvents":[` + clean + `],"INFO":["a "b" c"]}`,
		"at the end": `{"traceEvents":[` + clean + `]}garbage`,
	} {
		tl := parse(t, text)
		if len(tl.Ops) != 3 || tl.Read.LostBytes == 0 || tl.Read.LostAt <= 0 {
			t.Errorf("%s: %d ops, %+v", name, len(tl.Ops), tl.Read)
		}
		if _, err := read.JSON(strings.NewReader(text), "x", read.Options{Strict: true}); err == nil {
			t.Errorf("%s: strict takes it", name)
		}
	}
}

func TestRefused(t *testing.T) {
	dir := t.TempDir()
	pack := func(b []byte) []byte {
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		z.Write(b)
		z.Close()
		return out.Bytes()
	}
	random := make([]byte, 5000)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range random {
		random[i] = byte(r.Uint32())
	}
	for name, test := range map[string]struct {
		data []byte
		want string
	}{
		"empty":         {nil, "is empty"},
		"blank":         {[]byte(" \n\n "), "is no trace"},
		"random":        {random, "is no trace"},
		"text":          {[]byte("hello, world\n"), "is no trace"},
		"no events":     {[]byte(`{"a":1}`), "without traceEvents"},
		"a record":      {[]byte(`{"schema":{"name":"trbench.record"},"cells":[]}`), "is a record of trbench"},
		"deep":          {[]byte(`{"a":` + strings.Repeat("[", 100000)), "nested deeper than"},
		"events first":  {[]byte(`{"a":1, "b`), "before its events"},
		"gzip of text":  {pack([]byte("hello")), "without a trace"},
		"gzip of none":  {pack(nil), "nothing in its packed bytes"},
		"gzip header":   {[]byte{0x1f, 0x8b, 0x00}, "header is damaged"},
		"zip":           {[]byte("PK\x03\x04 and so on"), "unpack it"},
		"packed sqlite": {pack([]byte("SQLite format 3\x00")), "unpack it with gunzip"},
		"sqlite head":   {[]byte("SQLite format 3\x00"), "SQLite"},
		"x.nsys-rep":    {[]byte("binary"), "nsys export"},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, test.data, 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := read.File(path, read.Options{})
		var e *read.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error()+" "+e.Hint, test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	for path, want := range map[string]string{dir: "is a folder", filepath.Join(dir, "absent"): "cannot be opened"} {
		if _, err := read.File(path, read.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestPacked(t *testing.T) {
	clean := events(2000)
	text := "[" + strings.Join(clean, ",") + "]"
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write([]byte(text))
	z.Close()
	path := filepath.Join(t.TempDir(), "named.txt")
	for _, test := range []struct {
		name    string
		data    []byte
		damaged bool
	}{
		{"whole", packed.Bytes(), false},
		{"cut", packed.Bytes()[:packed.Len()/2], true},
		{"no checksum", packed.Bytes()[:packed.Len()-8], true},
		{"wrong checksum", append(append([]byte(nil), packed.Bytes()[:packed.Len()-8]...), 1, 2, 3, 4, 5, 6, 7, 8), true},
	} {
		if err := os.WriteFile(path, test.data, 0o644); err != nil {
			t.Fatal(err)
		}
		tl, err := read.File(path, read.Options{})
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if read.Damaged(tl.Read) != test.damaged || len(tl.Ops) < 100 || len(tl.Ops) > 2000 || !test.damaged && len(tl.Ops) != 2000 {
			t.Errorf("%s: %d ops, %+v", test.name, len(tl.Ops), tl.Read)
		}
		if _, err = read.File(path, read.Options{Strict: true}); (err != nil) != test.damaged {
			t.Errorf("%s: strict: %v", test.name, err)
		}
	}
}

// FuzzChrome: no input may crash, take long, or read otherwise in small pieces.
func FuzzChrome(f *testing.F) {
	clean := strings.Join(events(3), ",")
	for _, s := range []string{
		"[" + clean + "]", `{"traceEvents":[` + clean + `],"traceName":"x"}`, `{"traceEvents":[` + clean, `[{"ph":"X","name":"a"b","ts":NaN}]`,
		`{"a":[[[[`, `{"trbench":{"format":"trbench","devices":[{"id":"0"}],"streams":[{"device":0,"tids":[5]}]},"traceEvents":[{"ph":"X","cat":"kernel","tid":5,"ts":1,"dur":1}]}`,
		`[{"ph":"X","cat":"kernel","name":"\ud800\u12","ts":"1e-3","dur":1e5}`, `[,,{,},]`, `[{"ph":"X","cat":"cuda_runtime","args":{"correlation":18446744073709551615}}]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		tl, err := read.JSON(bytes.NewReader(b), "fuzz", read.Options{})
		slow, err2 := read.JSON(iotest.OneByteReader(bytes.NewReader(b)), "fuzz", read.Options{})
		if (err == nil) != (err2 == nil) {
			t.Fatalf("%v, in pieces %v", err, err2)
		}
		strict, strictErr := read.JSON(bytes.NewReader(b), "fuzz", read.Options{Strict: true})
		if strictErr == nil && !json.Valid(bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))) {
			t.Fatal("strict takes what is no JSON")
		}
		if err != nil {
			if strictErr == nil {
				t.Fatalf("strict takes what is refused: %v", err)
			}
			return
		}
		if describe(tl) != describe(slow) || !reflect.DeepEqual(tl.Read, slow.Read) {
			t.Fatalf("%+v\n%+v", tl.Read, slow.Read)
		}
		if d := tl.Read; d.LostBytes < 0 || d.LostBytes > int64(len(b)) || d.Bytes > int64(len(b)) || d.LostBytes > 0 && (d.LostAt < 0 || d.LostAt > int64(len(b))) {
			t.Fatalf("%d bytes: %+v", len(b), d)
		}
		if strictErr == nil && describe(strict) != describe(tl) {
			t.Fatal("strict reads something else")
		}
		x := timeline.NewIndex(tl)
		for d := range tl.Devices {
			if f, ok := x.SpanFigures(int32(d)); ok && f.BusyNs+f.Split.IdleNs() != f.SpanNs {
				t.Fatalf("%+v does not add up", f)
			}
			x.Integrity(int32(d))
		}
	})
}
