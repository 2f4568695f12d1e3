package read_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/timeline/read"
)

// kindOfEvent is how events of a category look in tl_b200_eager.json.gz, an
// eager step of a language model on a B200: how many of 24,656 there are, the
// deciles of their names' lengths and how many names there are. The file is
// indented by four, and so is what is generated.
type kindOfEvent struct {
	ph, cat string
	count   int
	names   int
	lengths [11]int
}

func kindsOfEvents() []kindOfEvent {
	return []kindOfEvent{
		{"X", "python_function", 15230, 918, [11]int{17, 27, 30, 42, 45, 51, 57, 60, 66, 76, 186}},
		{"X", "cpu_op", 4809, 62, [11]int{7, 10, 11, 11, 11, 11, 13, 16, 16, 17, 71}},
		{"f", "ac2g", 1370, 1, [11]int{4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}},
		{"X", "cuda_runtime", 1151, 10, [11]int{15, 15, 16, 16, 16, 19, 19, 22, 22, 22, 27}},
		{"s", "ac2g", 931, 1, [11]int{4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}},
		{"X", "kernel", 768, 29, [11]int{25, 44, 150, 151, 160, 183, 209, 242, 266, 294, 1010}},
		{"X", "cuda_driver", 221, 2, [11]int{14, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16}},
		{"X", "gpu_memcpy", 161, 3, [11]int{30, 30, 30, 30, 30, 30, 30, 30, 30, 30, 32}},
		{"X", "overhead", 9, 2, [11]int{21, 21, 21, 21, 21, 21, 21, 21, 21, 21, 23}},
		{"X", "user_annotation", 3, 3, [11]int{21, 21, 21, 21, 21, 45, 45, 45, 45, 45, 79}},
		{"X", "gpu_user_annotation", 3, 3, [11]int{21, 21, 21, 21, 21, 45, 45, 45, 45, 45, 79}},
	}
}

// generate writes a trace of about so many bytes.
func generate(out io.Writer, size int64, seed uint64) error {
	w := bufio.NewWriterSize(out, 1<<20)
	r := rand.New(rand.NewPCG(seed, 7))
	kinds := kindsOfEvents()
	total := 0
	names := make([][]string, len(kinds))
	for i, k := range kinds {
		total += k.count
		for n := range k.names {
			// The n-th name has the length of its place among the deciles.
			at := float64(n) / float64(max(1, k.names-1)) * 10
			lo := min(int(at), 9)
			length := float64(k.lengths[lo]) + (at-float64(lo))*float64(k.lengths[lo+1]-k.lengths[lo])
			if k.names == 1 {
				length = float64(k.lengths[0])
			}
			name := fmt.Sprintf("%s_%d", k.cat[:2], n)
			if k.cat == "cuda_runtime" || k.cat == "cuda_driver" {
				name = "cudaLaunchKernel" // some of them launch
			}
			if len(name) > int(length) {
				name = name[:int(length)]
			}
			names[i] = append(names[i], name+strings.Repeat("x", max(0, int(length)-len(name))))
		}
	}
	written := int64(0)
	var b []byte
	fmt.Fprint(w, "{\n    \"schemaVersion\": 1,\n    \"traceEvents\": [")
	at := int64(1365627862757064) // ns
	for c := int64(1); written < size; c++ {
		n := r.IntN(total)
		i := 0
		for n >= kinds[i].count {
			n -= kinds[i].count
			i++
		}
		k := &kinds[i]
		// A name of a decile at random, so that lengths are as spread as theirs.
		d := r.IntN(10)
		name := names[i][min(len(names[i])-1, (d*len(names[i])+r.IntN(max(1, len(names[i]))))/10)]
		at += r.Int64N(8000)
		b = event(b[:0], r, k, name, at, c)
		if c > 1 {
			w.WriteByte(',')
		}
		w.Write(b)
		written += int64(len(b)) + 1
	}
	fmt.Fprint(w, "\n    ],\n    \"traceName\": \"generated\"\n}\n")
	return w.Flush()
}

func event(b []byte, r *rand.Rand, k *kindOfEvent, name string, at, c int64) []byte {
	field := func(indent int, key, value string, last bool) {
		b = append(b, '\n')
		b = append(b, strings.Repeat(" ", indent)...)
		b = append(append(append(b, '"'), key...), `": `...)
		b = append(b, value...)
		if !last {
			b = append(b, ',')
		}
	}
	quote := strconv.Quote
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	micros := func(ns int64) string { return fmt.Sprintf("%d.%03d", ns/1000, ns%1000) }
	b = append(b, "\n        {"...)
	field(12, "ph", quote(k.ph), false)
	device := k.cat == "kernel" || k.cat == "gpu_memcpy" || k.cat == "gpu_user_annotation"
	if k.cat == "ac2g" {
		field(12, "id", number(c), false)
	} else {
		field(12, "cat", quote(k.cat), false)
		field(12, "name", quote(name), false)
	}
	if device {
		field(12, "pid", "0", false)
		field(12, "tid", "7", false)
	} else {
		field(12, "pid", "6583", false)
		field(12, "tid", "6583", false)
	}
	if k.cat == "ac2g" {
		field(12, "ts", micros(at), false)
		field(12, "cat", quote("ac2g"), false)
		field(12, "name", quote("ac2g"), k.ph == "s")
		if k.ph == "f" {
			field(12, "bp", quote("e"), true)
		}
		return append(b, "\n        }"...)
	}
	field(12, "ts", micros(at), false)
	field(12, "dur", micros(500+r.Int64N(60_000)), k.cat == "overhead")
	if k.cat == "overhead" {
		return append(b, "\n        }"...)
	}
	b = append(b, "\n            \"args\": {"...)
	list := func(key string, values []string, last bool) {
		field(16, key, "[", true)
		for i, v := range values {
			b = append(append(b, "\n                    "...), v...)
			if i < len(values)-1 {
				b = append(b, ',')
			}
		}
		b = append(b, "\n                ]"...)
		if !last {
			b = append(b, ',')
		}
	}
	correlation := number(c - c%4) // some join
	switch k.cat {
	case "python_function":
		field(16, "Python parent id", number(29_937_646+c), false)
		field(16, "Python id", number(29_937_668+c), false)
		field(16, "Ev Idx", number(30_037_380+c), true)
	case "cpu_op":
		field(16, "External id", number(c), false)
		field(16, "Record function id", "0", false)
		n := 3 + r.IntN(3)
		fill := func(s string) []string { return slices.Repeat([]string{s}, n) }
		list("Concrete Inputs", fill(`"[1]"`), false)
		list("Input type", fill(`"ScalarList"`), false)
		dims := fill("[]")
		dims[0] = "[\n                        4096,\n                        512\n                    ]"
		list("Input Strides", dims, false)
		list("Input Dims", dims, false)
		field(16, "Ev Idx", number(c), true)
	case "cuda_runtime", "cuda_driver":
		field(16, "External id", number(c), false)
		field(16, "cbid", "211", false)
		field(16, "correlation", correlation, true)
	case "kernel", "gpu_memcpy":
		field(16, "External id", number(c), false)
		if k.cat == "kernel" {
			field(16, "queued", "0", false)
		}
		field(16, "device", "0", false)
		field(16, "context", "1", false)
		field(16, "stream", "7", false)
		field(16, "correlation", correlation, k.cat == "x")
		if k.cat == "gpu_memcpy" {
			field(16, "bytes", "2048", false)
			field(16, "memory bandwidth (GB/s)", "1.28", true)
			break
		}
		field(16, "registers per thread", "32", false)
		field(16, "shared memory", "0", false)
		field(16, "blocks per SM", "0.006757", false)
		field(16, "warps per SM", "0.027027", false)
		list("grid", []string{"1", "1", "1"}, false)
		list("block", []string{"128", "1", "1"}, false)
		field(16, "est. achieved occupancy %", "0", true)
	default:
		field(16, "External id", number(c), false)
		field(16, "Record function id", "0", false)
		field(16, "Ev Idx", number(c), true)
	}
	return append(b, "\n            }\n        }"...)
}

// shape is what a file consists of, by phase and category.
type shape struct {
	count   int
	bytes   int // of JSON without blanks
	lengths []int
	keys    map[string]bool
}

func shapes(t *testing.T, text []byte) (map[string]*shape, int) {
	t.Helper()
	var trace struct {
		Events []map[string]json.RawMessage `json:"traceEvents"`
	}
	if err := json.Unmarshal(text, &trace); err != nil {
		t.Fatal(err)
	}
	out := map[string]*shape{}
	for _, e := range trace.Events {
		k := string(e["ph"]) + string(e["cat"])
		s := out[k]
		if s == nil {
			s = &shape{keys: map[string]bool{}}
			out[k] = s
		}
		s.count++
		s.lengths = append(s.lengths, len(e["name"])-2)
		var args map[string]json.RawMessage
		if e["args"] != nil {
			if err := json.Unmarshal(e["args"], &args); err != nil {
				t.Fatal(err)
			}
		}
		for k := range args {
			s.keys[k] = true
		}
		var b bytes.Buffer
		j, _ := json.Marshal(e)
		_ = json.Compact(&b, j)
		s.bytes += b.Len()
	}
	return out, len(trace.Events)
}

// TestGeneratorIsLikeThePublicFile: the same categories in the same shares,
// names as long, events as large, and no argument that theirs have not.
func TestGeneratorIsLikeThePublicFile(t *testing.T) {
	dir := corpus(t)
	var b bytes.Buffer
	if err := generate(&b, 8<<20, 1); err != nil {
		t.Fatal(err)
	}
	got, n := shapes(t, b.Bytes())
	want, of := shapes(t, unpacked(t, filepath.Join(dir, "tl_b200_eager.json.gz")))
	t.Logf("%d bytes an event", b.Len()/n)
	if per := b.Len() / n; per < 520 || per > 635 { // 577 there
		t.Errorf("%d bytes an event", per)
	}
	for k, w := range want {
		if w.count < 100 {
			continue
		}
		g := got[k]
		if g == nil {
			t.Errorf("no %s", k)
			continue
		}
		if a, b := float64(g.count)/float64(n), float64(w.count)/float64(of); a < b*0.85 || a > b*1.15 {
			t.Errorf("%s: %.4f of the events, there %.4f", k, a, b)
		}
		if a, b := float64(g.bytes)/float64(g.count), float64(w.bytes)/float64(w.count); a < b*0.85 || a > b*1.15 {
			t.Errorf("%s: %.0f bytes an event, there %.0f", k, a, b)
		}
		slices.Sort(g.lengths)
		slices.Sort(w.lengths)
		for _, q := range []int{25, 50, 75} {
			a, b := float64(g.lengths[q*len(g.lengths)/100]), float64(w.lengths[q*len(w.lengths)/100])
			if a < b*0.75-2 || a > b*1.25+2 {
				t.Errorf("%s: names at %d %% have %.0f bytes, there %.0f", k, q, a, b)
			}
		}
		for key := range g.keys {
			if !w.keys[key] {
				t.Errorf("%s: an argument %q that is not there", k, key)
			}
		}
	}
	tl, err := read.JSON(&b, "generated", read.Options{Strict: true})
	if err != nil || len(tl.Ops) == 0 || len(tl.Calls) == 0 {
		t.Errorf("%v", err)
	}
}

// BenchmarkGenerated is MB/s and the process's peak memory, with a file as large
// as TRBENCH_MIB says (default 100), read from a file and analysed no further.
func BenchmarkGenerated(b *testing.B) {
	mib, err := strconv.ParseInt(os.Getenv("TRBENCH_MIB"), 10, 64)
	if err != nil {
		mib = 100
	}
	path := filepath.Join(b.TempDir(), "generated.json")
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	if err := generate(f, mib<<20, 1); err != nil {
		b.Fatal(err)
	}
	info, _ := f.Stat()
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(info.Size())
	for b.Loop() {
		if _, err := read.File(path, read.Options{Strict: true}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(peakMiB(b), "MiB-peak")
}

// peakMiB is the largest resident memory of this process so far.
func peakMiB(b *testing.B) float64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return n / 1024
		}
	}
	return 0
}
