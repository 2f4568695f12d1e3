package cupti

import (
	"encoding/binary"
	"reflect"
	"testing"
)

// put writes little-endian words at offsets into a record of a kind.
func put(l Layout, k Kind, words map[int]any) []byte {
	b := make([]byte, l.Size[k])
	binary.LittleEndian.PutUint32(b, uint32(k))
	for at, v := range words {
		switch v := v.(type) {
		case uint8:
			b[at] = v
		case uint32:
			binary.LittleEndian.PutUint32(b[at:], v)
		case uint64:
			binary.LittleEndian.PutUint64(b[at:], v)
		}
	}
	return b
}

// everything is a buffer with one record of each kind, and what it says.
func everything(l Layout) ([]byte, Records) {
	var b []byte
	add := func(k Kind, words map[int]any) { b = append(b, put(l, k, words)...) }
	add(KindKernel, map[int]any{16: uint64(100), 24: uint64(250), 40: uint32(1), 44: uint32(2), 48: uint32(13), 52: uint32(3), 56: uint32(4), 60: uint32(5),
		64: uint32(6), 68: uint32(7), 72: uint32(8), 76: uint32(9), 80: uint32(10), 92: uint32(11), 104: uint64(0xaaaa), 120: uint64(12), 128: uint64(14),
		144: uint64(15), 156: uint32(16)})
	add(KindDriver, map[int]any{4: uint32(307), 8: uint64(50), 16: uint64(60), 24: uint32(1), 28: uint32(2), 32: uint32(11), 36: uint32(700)})
	add(KindRuntime, map[int]any{4: uint32(211), 8: uint64(49), 16: uint64(61), 24: uint32(1), 28: uint32(2), 32: uint32(12)})
	add(KindMemcpy, map[int]any{4: uint8(2), 8: uint64(1 << 33), 16: uint64(300), 24: uint64(310), 32: uint32(1), 36: uint32(2), 40: uint32(14), 44: uint32(21), 64: uint64(22), 72: uint32(23)})
	add(KindMemset, map[int]any{4: uint32(0xff), 8: uint64(64), 16: uint64(320), 24: uint64(330), 32: uint32(1), 36: uint32(2), 40: uint32(14), 44: uint32(31), 64: uint64(32), 72: uint32(33)})
	add(KindSynchronization, map[int]any{4: uint32(3), 8: uint64(400), 16: uint64(500), 24: uint32(41), 28: uint32(2), 32: uint32(14)})
	add(KindOverhead, map[int]any{4: uint32(1 << 16), 24: uint64(600), 32: uint64(700)})
	add(KindGraphTrace, map[int]any{4: uint32(51), 8: uint64(800), 16: uint64(900), 24: uint32(1), 28: uint32(7), 32: uint32(2), 36: uint32(14)})
	add(KindMarker, map[int]any{4: uint32(2), 8: uint64(1000), 16: uint32(5), 20: uint32(2), 24: uint32(77), 28: uint32(78), 40: uint64(0xbbbb), 48: uint64(0xcccc)})
	add(KindMarkerData, map[int]any{8: uint32(5), 12: uint32(1), 16: uint64(99), 24: uint32(0xff00ff00), 28: uint32(3)})
	add(KindKernel, map[int]any{92: uint32(12)})
	return b, Records{
		Kernels: []Kernel{{StartNs: 100, EndNs: 250, Device: 1, Context: 2, Stream: 13, Grid: [3]uint32{3, 4, 5}, Block: [3]uint32{6, 7, 8}, Static: 9, Dynamic: 10,
			Correlation: 11, Name: "conv", QueuedNs: 12, SubmittedNs: 14, Node: 15, Graph: 16}, {Correlation: 12}},
		Calls: []Call{{CBID: 307, StartNs: 50, EndNs: 60, Process: 1, Thread: 2, Correlation: 11, Return: 700},
			{Runtime: true, CBID: 211, StartNs: 49, EndNs: 61, Process: 1, Thread: 2, Correlation: 12}},
		Copies:      []Copy{{Kind: 2, Bytes: 1 << 33, StartNs: 300, EndNs: 310, Device: 1, Context: 2, Stream: 14, Correlation: 21, Node: 22, Graph: 23}},
		Fills:       []Fill{{Value: 0xff, Bytes: 64, StartNs: 320, EndNs: 330, Device: 1, Context: 2, Stream: 14, Correlation: 31, Node: 32, Graph: 33}},
		Syncs:       []Sync{{Type: SyncStream, StartNs: 400, EndNs: 500, Correlation: 41, Context: 2, Stream: 14}},
		Overheads:   []Overhead{{Kind: 1 << 16, StartNs: 600, EndNs: 700}},
		GraphTraces: []GraphTrace{{Correlation: 51, StartNs: 800, EndNs: 900, Device: 1, Graph: 7, Context: 2, Stream: 14}},
		Markers:     []Marker{{Flags: MarkerStart, AtNs: 1000, ID: 5, Process: 77, Thread: 78, Name: "step", Domain: "trbench"}},
		MarkerData:  []MarkerData{{ID: 5, PayloadKind: 1, Payload: 99, Colour: 0xff00ff00, Category: 3}},
		Report:      Report{Buffers: 1, Bytes: int64(len(b)), Records: 11, Untimed: 1},
	}
}

func names(addr uint64) string {
	return map[uint64]string{0xaaaa: "conv", 0xbbbb: "step", 0xcccc: "trbench"}[addr]
}

var versions = []struct {
	name          string
	cupti, driver int
}{{"11.8", 18, 11080}, {"12.0", 18, 12000}, {"12.4", 22, 12040}, {"12.9", 28, 12090}, {"13.0", 130001, 13000}, {"13.1", 130100, 13010}}

func TestParse(t *testing.T) {
	for _, v := range versions {
		t.Run(v.name, func(t *testing.T) {
			l := LayoutFor(v.cupti, v.driver)
			b, want := everything(l)
			var got Records
			got.Parse(b, l, nil, names)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

// TestTruncated cuts a buffer everywhere: what is whole is read, and all else
// is counted.
func TestTruncated(t *testing.T) {
	l := LayoutFor(130001, 13000)
	whole, _ := everything(l)
	for n := range whole {
		var r Records
		r.Parse(whole[:n:n], l, nil, names)
		read := int64(len(r.Kernels)*216 + len(r.Calls)*40 + len(r.Copies)*96 + len(r.Fills)*88 + len(r.Syncs)*56 + len(r.Overheads)*56 + len(r.GraphTraces)*56 +
			len(r.Markers)*56 + len(r.MarkerData)*40)
		if read+r.Report.LostBytes != int64(n) || r.Report.LostBytes >= 216 {
			t.Fatalf("%d bytes: read %d, lost %d", n, read, r.Report.LostBytes)
		}
	}
}

// TestUnknown puts a record of a kind that is not read between others: without
// the library's word for its end the rest is lost and counted, with it nothing.
func TestUnknown(t *testing.T) {
	l := LayoutFor(130001, 13000)
	call := put(l, KindDriver, map[int]any{32: uint32(1)})
	odd := make([]byte, 24)
	binary.LittleEndian.PutUint32(odd, 36)
	b := append(append(append([]byte{}, call...), odd...), call...)
	var r Records
	r.Parse(b, l, nil, nil)
	if len(r.Calls) != 1 || r.Report.LostBytes != 64 || r.Report.LostRecords != 1 {
		t.Errorf("%+v", r)
	}
	ends := map[int]int{0: 40, 40: 64, 64: 104}
	r = Records{}
	r.Parse(b, l, func(at int) (int, bool) { end, ok := ends[at]; return end, ok }, nil)
	if len(r.Calls) != 2 || r.Report.LostBytes != 0 || r.Report.Unread[36] != 1 {
		t.Errorf("%+v", r)
	}
}

// TestTimes tells work without a timestamp from work whose times are wrong.
func TestTimes(t *testing.T) {
	l := LayoutFor(130001, 13000)
	var b []byte
	for _, at := range [][2]uint64{{0, 0}, {0, 5}, {5, 0}, {5, 4}, {5, 5}, {5, 6}} {
		b = append(b, put(l, KindMemset, map[int]any{16: at[0], 24: at[1]})...)
	}
	var r Records
	r.Parse(b, l, nil, nil)
	if r.Report.Untimed != 1 {
		t.Errorf("%d without a timestamp", r.Report.Untimed)
	}
	timed := 0
	x := r.Timeline(Naming{})
	for _, o := range x.Ops {
		if o.Timed {
			timed++
		}
	}
	if timed != 2 || x.Read.BadTimes != 4 {
		t.Errorf("%d of %d have times, %d bad", timed, len(x.Ops), x.Read.BadTimes)
	}
}

// Numbers of streams are a context's and numbers of threads a process's: equal
// ones of others are not the same.
func TestLanesAreNotMerged(t *testing.T) {
	r := Records{
		Kernels: []Kernel{{StartNs: 5, EndNs: 6, Context: 1, Stream: 7}, {StartNs: 5, EndNs: 6, Context: 2, Stream: 7}, {StartNs: 7, EndNs: 8, Device: 1, Context: 1, Stream: 7},
			{StartNs: 9, EndNs: 10, Context: 1, Stream: 7}},
		Calls: []Call{{StartNs: 1, EndNs: 2, Process: 3, Thread: 4}, {StartNs: 1, EndNs: 2, Process: 5, Thread: 4}, {StartNs: 3, EndNs: 4, Process: 3, Thread: 4}},
	}
	x := r.Timeline(Naming{})
	if len(x.Streams) != 3 || len(x.Devices) != 2 || x.Ops[0].Stream == x.Ops[1].Stream || x.Ops[2].Device == x.Ops[0].Device || x.Ops[3].Stream != x.Ops[0].Stream {
		t.Errorf("streams %+v, ops %+v", x.Streams, x.Ops)
	}
	if len(x.Threads) != 2 || len(x.Processes) != 2 || x.Calls[0].Thread == x.Calls[1].Thread || x.Calls[2].Thread != x.Calls[0].Thread {
		t.Errorf("threads %+v, calls %+v", x.Threads, x.Calls)
	}
}

// TestToldSizes believes the library where its records have grown, and says so;
// it does not where the ends are impossible.
func TestToldSizes(t *testing.T) {
	l := LayoutFor(130001, 13000)
	grown := LayoutFor(130001, 13000)
	grown.Size[KindKernel] = 240
	k := put(grown, KindKernel, map[int]any{16: uint64(5), 24: uint64(6), 92: uint32(9)})
	b := append(append([]byte{}, k...), k...)
	var r Records
	r.Parse(b, l, func(at int) (int, bool) { return at + 240, true }, nil)
	if len(r.Kernels) != 2 || r.Kernels[1].Correlation != 9 || !reflect.DeepEqual(r.Report.Sizes, map[Kind]int{KindKernel: 240}) || r.Report.LostBytes != 0 {
		t.Errorf("%+v", r)
	}
	for name, next := range map[string]func(int) (int, bool){
		"backwards": func(at int) (int, bool) { return at, true },
		"beyond":    func(at int) (int, bool) { return len(b) + 8, true },
		"silent":    func(at int) (int, bool) { return 0, false },
	} {
		var r Records
		r.Parse(b, l, next, nil)
		if len(r.Kernels) != 0 || r.Report.LostBytes != int64(len(b)) {
			t.Errorf("%s: %+v", name, r.Report)
		}
	}
	r = Records{}
	r.Parse(b, l, func(at int) (int, bool) { return at + 48, true }, nil)
	if len(r.Kernels) != 0 || r.Report.LostBytes == 0 {
		t.Errorf("records shorter than what is read of them: %+v", r.Report)
	}
}

// FuzzParse reads whatever it is given, by the layouts of all versions and with
// ends that the bytes themselves give.
func FuzzParse(f *testing.F) {
	for _, v := range versions {
		b, _ := everything(LayoutFor(v.cupti, v.driver))
		f.Add(b)
		f.Add(b[:len(b)-13])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, v := range versions {
			l := LayoutFor(v.cupti, v.driver)
			var r Records
			r.Parse(b, l, nil, names)
			account(t, &r, l, b)
			calls := 0
			for _, in := range nested(r.Calls) {
				if !in {
					calls++
				}
			}
			if tl := r.Timeline(Naming{}); len(tl.Ops) != len(r.Kernels)+len(r.Copies)+len(r.Fills)+len(r.GraphTraces) || len(tl.Calls) != calls {
				t.Errorf("%d ops, %d calls of %+v", len(tl.Ops), len(tl.Calls), r.Report)
			}
		}
		// Ends from the data: forwards or not.
		r := Records{}
		l := LayoutFor(130001, 13000)
		r.Parse(b, l, func(at int) (int, bool) {
			if len(b)-at < 8 {
				return 0, false
			}
			return at + int(int32(binary.LittleEndian.Uint32(b[at+4:]))), true
		}, names)
		if r.Report.LostBytes > int64(len(b)) {
			t.Errorf("%+v of %d bytes", r.Report, len(b))
		}
	})
}

// account checks that every byte was read or counted as lost.
func account(t *testing.T, r *Records, l Layout, b []byte) {
	t.Helper()
	read := int64(len(r.Kernels)*l.Size[KindKernel] + len(r.Calls)*40 + len(r.Copies)*l.Size[KindMemcpy] + len(r.Fills)*88 +
		len(r.Syncs)*l.Size[KindSynchronization] + len(r.Overheads)*l.Size[KindOverhead] + len(r.GraphTraces)*l.Size[KindGraphTrace] +
		len(r.Markers)*56 + len(r.MarkerData)*l.Size[KindMarkerData])
	if read+r.Report.LostBytes != int64(len(b)) {
		t.Errorf("CUDA %d: %d bytes: read %d, lost %d", l.CUDA, len(b), read, r.Report.LostBytes)
	}
}
