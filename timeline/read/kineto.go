package read

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tech-renaissance/trbench/timeline"
)

// category is what Kineto's categories come down to here.
type category uint8

const (
	other category = iota
	kernel
	memcpy
	memset
	call
	operator
	annotation
	python
	overhead
	derived
)

// categories of all ages: files of 2021 write some with capitals and without
// "gpu_". Not device work, though drawn in its lanes: gpu_user_annotation,
// cuda_sync, cuda_event, cuda_profiler_range.
func categories() map[string]category {
	return map[string]category{
		"kernel": kernel, "gpu_memcpy": memcpy, "memcpy": memcpy, "gpu_memset": memset, "memset": memset,
		"cuda_runtime": call, "cuda_driver": call, "runtime": call, "hip_runtime": call, "hip_driver": call,
		"cpu_op": operator, "operator": operator, "user_annotation": annotation, "python_function": python,
		"overhead": overhead, "derived": derived,
	}
}

// pair is a key of two texts.
type pair struct{ a, b string }

// kineto fills a timeline with events of PyTorch's profiler, or of
// timeline/write, which has a header of its own (see own).
type kineto struct {
	b          timeline.Builder
	kept       int
	categories map[string]category
	own        *own

	processes map[string]int32
	threads   map[pair]int32
	devices   map[string]int32
	streams   map[stream]int32
	lastPID   []byte // of lastThread
	lastTID   []byte
	last      int32

	correlations map[uint64]int64
	odd          map[string]int64 // correlations that are no uint64
	classes      []timeline.RangeClass
	known        []bool // of classes
	calls        []timeline.CallClass
	knownCalls   []bool

	processNames map[string]string
	threadNames  map[pair]string
	deviceNames  map[string]string
	rank         int

	scratch   []byte
	nameBytes int
	unread    int64 // begin and end events
	untimed   int64 // host events without times
}

// stream is a key of a stream: its device and its id.
type stream struct {
	device int32
	id     string
}

func newKineto() *kineto {
	k := &kineto{
		categories: categories(), processes: map[string]int32{}, threads: map[pair]int32{}, devices: map[string]int32{}, streams: map[stream]int32{},
		correlations: map[uint64]int64{}, odd: map[string]int64{}, processNames: map[string]string{}, threadNames: map[pair]string{},
		deviceNames: map[string]string{}, rank: timeline.None,
	}
	k.b.Name("")
	k.b.T.Read.LostAt, k.b.T.Read.Dropped = -1, -1
	return k
}

// category tells an event's; an unknown one is looked for in small letters once.
func (k *kineto) category(v value) category {
	c, ok := k.categories[string(v.raw)]
	if !ok {
		small := strings.ToLower(string(v.raw))
		c = k.categories[small]
		if c == other && (strings.HasSuffix(small, "_runtime") || strings.HasSuffix(small, "_driver")) {
			c = call // of another vendor
		}
		if len(k.categories) < 1000 {
			k.categories[string(v.raw)] = c
		}
	}
	return c
}

// accept takes an event into the timeline.
func (k *kineto) accept(e *event) {
	if len(e.ph.raw) != 1 || e.ph.kind != text {
		return
	}
	switch e.ph.raw[0] {
	case 'X':
		switch c := k.category(e.cat); c {
		case kernel, memcpy, memset:
			k.op(e, c)
		case call:
			k.call(e)
		case operator, annotation, python, overhead:
			k.rng(e, c)
		}
	case 'M':
		k.meta(e)
	case 'C':
		if k.category(e.cat) != derived {
			k.counter(e)
		}
	case 'B', 'E':
		k.unread++
	}
}

// times are the start and the end; known is false without usable ones.
func times(e *event) (start, end int64, known bool) {
	start, ok := ns(e.ts)
	if !ok {
		return 0, 0, false
	}
	length, ok := ns(e.dur)
	if !ok || length < 0 || start > limitNs-length {
		return start, start, false
	}
	return start, start + length, true
}

// ns is a time in nanoseconds; as a text, too, it is a number.
func ns(v value) (int64, bool) {
	if v.kind != number && v.kind != text {
		return 0, false
	}
	return microsToNs(bytes.TrimSpace(v.raw))
}

func (k *kineto) op(e *event, c category) {
	t := &k.b.T
	o := timeline.Op{Name: k.name(e.name), Kind: timeline.Kernel}
	switch c {
	case memcpy:
		o.Kind = timeline.Copy
	case memset:
		o.Kind = timeline.Fill
	}
	o.StartNs, o.EndNs, o.Timed = times(e)
	// A start and an end of 0 are CUPTI's word for no times.
	if o.Timed && o.StartNs == 0 && o.EndNs == 0 {
		o.Timed = false
	}
	if !o.Timed {
		o.StartNs, o.EndNs = 0, 0
		t.Read.BadTimes++
	}
	o.Correlation = k.correlation(e.args.correlation)
	o.Bytes = amount(e.args.bytes)
	o.Graph, o.Node = id(e.args.graph), id(e.args.node)
	if k.own != nil {
		if string(e.args.kind.raw) == "envelope" {
			o.Kind = timeline.Envelope
		}
		if s, ok := k.own.streams[string(e.tid.raw)]; ok {
			o.Stream, o.Device = s, t.Streams[s].Device
		} else {
			o.Stream, o.Device = timeline.None, k.device(plain(e.args.device))
		}
		t.Ops = append(t.Ops, o)
		k.kept++
		return
	}
	device, on := e.args.device, e.args.stream
	if !named(device) {
		device = e.pid
	}
	if !named(on) {
		on = e.tid // "stream 7" in files of 2021
	}
	o.Device = k.device(plain(device))
	o.Stream = k.stream(o.Device, bytes.TrimPrefix(plain(on), []byte("stream ")))
	t.Ops = append(t.Ops, o)
	k.kept++
}

func named(v value) bool { return v.kind == number || v.kind == text }

// plain is the text of an id, a number or a text; none for null.
func plain(v value) []byte {
	if !named(v) {
		return nil
	}
	return bytes.TrimSpace(v.raw)
}

func (k *kineto) device(id []byte) int32 {
	d, ok := k.devices[string(id)]
	if !ok {
		d = int32(len(k.b.T.Devices))
		k.devices[string(id)] = d
		k.b.T.Devices = append(k.b.T.Devices, timeline.Device{ID: clean(id)})
	}
	return d
}

func (k *kineto) stream(device int32, id []byte) int32 {
	s, ok := k.streams[stream{device, string(id)}]
	if !ok {
		s = int32(len(k.b.T.Streams))
		k.streams[stream{device, string(id)}] = s
		k.b.T.Streams = append(k.b.T.Streams, timeline.Stream{Device: device, Process: timeline.None, ID: clean(id)})
	}
	return s
}

// correlation numbers correlations from 1 on, as they come. Any value joins:
// ids beyond 2^63, negative ones, and 0, which Kineto does not use.
func (k *kineto) correlation(v value) int64 {
	if !named(v) {
		return 0
	}
	id := bytes.TrimSpace(v.raw)
	if n, ok := unsigned(id); ok {
		c, ok := k.correlations[n]
		if !ok {
			c = int64(len(k.correlations)+len(k.odd)) + 1
			k.correlations[n] = c
		}
		return c
	}
	if len(id) == 0 {
		return 0
	}
	c, ok := k.odd[string(id)]
	if !ok {
		c = int64(len(k.correlations)+len(k.odd)) + 1
		k.odd[string(id)] = c
	}
	return c
}

// unsigned reads a number of at most 19 digits.
func unsigned(b []byte) (n uint64, ok bool) {
	if len(b) == 0 || len(b) > 19 || len(b) > 1 && b[0] == '0' {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, true
}

func amount(v value) int64 {
	n, ok := unsigned(plain(v))
	if !ok || n > math.MaxInt64 {
		return 0
	}
	return int64(n)
}

// id is a number for a graph or a node; 0 is unknown, so that a 0 of the file
// becomes the largest.
func id(v value) uint64 {
	b := plain(v)
	if len(b) == 0 {
		return 0
	}
	n, err := strconv.ParseUint(string(b), 10, 64)
	if err != nil || n == 0 {
		return math.MaxUint64
	}
	return n
}

func (k *kineto) process(id []byte) int32 {
	p, ok := k.processes[string(id)]
	if !ok {
		p = int32(len(k.b.T.Processes))
		k.processes[string(id)] = p
		k.b.T.Processes = append(k.b.T.Processes, timeline.Process{ID: clean(id), Rank: timeline.None})
	}
	return p
}

// thread finds an event's thread; most events are of the one before.
func (k *kineto) thread(e *event) int32 {
	pid, tid := plain(e.pid), plain(e.tid)
	if k.own != nil {
		if th, ok := k.own.threads[string(tid)]; ok {
			return th
		}
		return timeline.None
	}
	if k.last > 0 && bytes.Equal(pid, k.lastPID) && bytes.Equal(tid, k.lastTID) {
		return k.last - 1
	}
	key := pair{string(pid), string(tid)}
	th, ok := k.threads[key]
	if !ok {
		th = int32(len(k.b.T.Threads))
		k.threads[key] = th
		k.b.T.Threads = append(k.b.T.Threads, timeline.Thread{Process: k.process(pid), ID: clean(tid)})
	}
	k.lastPID, k.lastTID, k.last = append(k.lastPID[:0], pid...), append(k.lastTID[:0], tid...), th+1
	return th
}

func (k *kineto) call(e *event) {
	start, end, ok := times(e)
	if !ok {
		if _, began := ns(e.ts); !began || e.dur.kind != absent {
			k.untimed++
			return
		}
		end = start // a call that never returned
	}
	c := timeline.Call{StartNs: start, EndNs: end, Name: k.name(e.name), Correlation: k.correlation(e.args.correlation), Thread: k.thread(e)}
	c.Class = k.callClass(c.Name)
	if k.own != nil {
		if class := slices.Index(callWords[:], string(e.args.class.raw)); class >= 0 {
			c.Class = timeline.CallClass(class)
		}
	}
	k.b.T.Calls = append(k.b.T.Calls, c)
	k.kept++
}

func (k *kineto) callClass(n timeline.Name) timeline.CallClass {
	for int(n) >= len(k.calls) {
		k.calls, k.knownCalls = append(k.calls, 0), append(k.knownCalls, false)
	}
	if !k.knownCalls[n] {
		k.calls[n], k.knownCalls[n] = timeline.Classify(k.b.T.Names[n]), true
	}
	return k.calls[n]
}

func (k *kineto) rng(e *event, c category) {
	start, end, ok := times(e)
	if !ok {
		k.untimed++
		return
	}
	t := &k.b.T
	r := timeline.Range{StartNs: start, EndNs: end, Name: k.name(e.name), Thread: k.thread(e)}
	switch c {
	case overhead:
		// A full command buffer is the device being behind, not the profiler.
		if t.Names[r.Name] == "Command Buffer Full" {
			return
		}
		r.Class = timeline.RangeOverhead
		t.Read.OverheadNs += end - start
	default:
		r.Class = k.class(r.Name, c)
	}
	if k.own != nil {
		if e.args.domain.kind == text {
			r.Domain = k.name(e.args.domain)
		}
		switch string(e.args.class.raw) {
		case "user":
			r.Class = timeline.RangeUser
		case "step":
			r.Class = timeline.RangeStep
		case "feed":
			r.Class = timeline.RangeFeed
		}
	}
	t.Ranges = append(t.Ranges, r)
	k.kept++
}

// class tells a range's from its name and category, once a name. Files of 2021
// have steps and the data loader among the operators. A name that stands in two
// categories is what it was first, except for what the name alone decides.
func (k *kineto) class(n timeline.Name, c category) timeline.RangeClass {
	for int(n) >= len(k.classes) {
		k.classes, k.known = append(k.classes, 0), append(k.known, false)
	}
	if !k.known[n] {
		k.known[n], k.classes[n] = true, timeline.RangeUser
		name := k.b.T.Names[n]
		switch {
		case c != python && isStep(name):
			k.classes[n] = timeline.RangeStep
		case isFeed(name):
			k.classes[n] = timeline.RangeFeed
		}
	}
	if got := k.classes[n]; got != timeline.RangeUser {
		return got
	}
	switch c {
	case operator:
		return timeline.RangeOperator
	case python:
		return timeline.RangePython
	}
	return timeline.RangeUser
}

// isStep tells a step of a training loop by its name: PyTorch's own, and what
// people call theirs with a number behind.
func isStep(name string) bool {
	if strings.HasPrefix(name, "ProfilerStep") {
		return true
	}
	word := strings.ToLower(strings.TrimRight(name, "0123456789"))
	if len(word) == len(name) {
		return false // no number
	}
	switch strings.TrimRight(word, " _#:-=") {
	case "step", "iteration", "iter", "train_step", "train step", "training step", "training_step", "global_step", "trbench step":
		return true
	}
	return false
}

// isFeed tells the wait for input by its name: PyTorch's data loader, as an
// operator and as a Python frame.
func isFeed(name string) bool {
	if strings.Contains(name, "DataLoader") {
		return strings.HasPrefix(name, "enumerate(DataLoader)") || strings.Contains(name, "__next__") || strings.Contains(name, "DataLoader.next")
	}
	return strings.Contains(name, "data/dataloader.py(") && strings.HasSuffix(name, "__next__")
}

func (k *kineto) counter(e *event) {
	at, ok := ns(e.ts)
	v, err := strconv.ParseFloat(string(e.args.first.raw), 64)
	if !ok || err != nil {
		return
	}
	c := timeline.Counter{AtNs: at, Name: k.name(e.name), Value: v, Process: timeline.None}
	if p, ok := k.processes[string(plain(e.pid))]; ok {
		c.Process = p
	}
	k.b.T.Counters = append(k.b.T.Counters, c)
	k.kept++
}

// maxNamed is how many processes and threads may have names.
const maxNamed = 100_000

func (k *kineto) meta(e *event) {
	pid, tid := string(plain(e.pid)), string(plain(e.tid))
	if len(k.processNames)+len(k.threadNames) >= maxNamed {
		return
	}
	switch string(e.name.raw) {
	case "process_name":
		k.processNames[pid] = k.text(e.args.name)
	case "thread_name":
		k.threadNames[pair{pid, tid}] = k.text(e.args.name)
	}
}

// maxNameBytes is how long a name may be, and maxNames how long all together.
const (
	maxNameBytes = 4096
	maxNames     = 128 << 20
)

// name keeps an event's name. What is neither escaped nor new costs no memory.
func (k *kineto) name(v value) timeline.Name {
	raw := v.raw
	if len(raw) > maxNameBytes {
		raw = raw[:maxNameBytes]
	}
	if v.escaped || !printable(raw) {
		k.scratch = appendText(k.scratch[:0], raw)
		raw = k.scratch
	}
	had := len(k.b.T.Names)
	if k.nameBytes > maxNames {
		return k.b.Name("(a name beyond those that are kept)")
	}
	n := k.b.NameOf(raw)
	if len(k.b.T.Names) > had {
		k.nameBytes += len(raw) + 40
	}
	return n
}

func (k *kineto) text(v value) string {
	k.scratch = appendText(k.scratch[:0], v.raw[:min(len(v.raw), maxNameBytes)])
	return string(k.scratch)
}

// printable tells whether a text can be shown as it is.
func printable(b []byte) bool {
	for _, c := range b {
		if c < 0x20 || c >= 0x7f {
			return false
		}
	}
	return true
}

func clean(b []byte) string {
	if len(b) > maxNameBytes {
		b = b[:maxNameBytes]
	}
	return string(appendText(nil, b))
}

// appendText resolves a JSON text's escapes. Control characters become blanks,
// as whoever prints names must not be steered by them, and what is no UTF-8
// becomes U+FFFD.
func appendText(to, raw []byte) []byte {
	for i := 0; i < len(raw); {
		c := raw[i]
		switch {
		case c == '\\' && i+1 < len(raw):
			switch e := raw[i+1]; e {
			case '"', '\\', '/':
				to = append(to, e)
				i += 2
			case 'b', 'f', 'n', 'r', 't':
				to = append(to, ' ')
				i += 2
			case 'u':
				r := rune(-1)
				if i+6 <= len(raw) {
					r = hex4(raw[i+2 : i+6])
				}
				if r < 0 {
					to = append(to, c)
					i++
					break
				}
				i += 6
				if r >= 0xd800 && r < 0xdc00 && i+6 <= len(raw) && raw[i] == '\\' && raw[i+1] == 'u' {
					if low := hex4(raw[i+2 : i+6]); low >= 0xdc00 && low < 0xe000 {
						r = 0x10000 + (r-0xd800)<<10 + low - 0xdc00
						i += 6
					}
				}
				to = appendRune(to, r)
			default: // no escape: a path as it is
				to = append(to, c)
				i++
			}
		case c < utf8.RuneSelf:
			if c < 0x20 || c == 0x7f {
				c = ' '
			}
			to = append(to, c)
			i++
		default:
			r, n := utf8.DecodeRune(raw[i:])
			to = appendRune(to, r)
			i += n
		}
	}
	return to
}

func appendRune(to []byte, r rune) []byte {
	if r < 0x20 || r >= 0x7f && r < 0xa0 {
		r = ' '
	}
	return utf8.AppendRune(to, r)
}

// outer takes a member of the outermost object.
func (k *kineto) outer(key string, v value) {
	t := &k.b.T
	switch key {
	case "baseTimeNanoseconds":
		if n, err := strconv.ParseInt(string(plain(v)), 10, 64); err == nil {
			t.OriginNs = n
		}
	case "deviceProperties", "computeProperties":
		var list []struct {
			ID   any    `json:"id"`
			Name string `json:"name"`
		}
		if v.kind == array && decode(v, &list) == nil {
			for _, d := range list[:min(len(list), 1000)] {
				k.deviceNames[fmt.Sprint(d.ID)] = clean([]byte(d.Name))
			}
		}
	case "distributedInfo":
		var info struct {
			Rank any `json:"rank"`
		}
		if v.kind == object && decode(v, &info) == nil {
			if n, ok := asInt(info.Rank); ok {
				k.rank = int(n)
			}
		}
	case "trbench":
		if v.kind == object {
			k.header(v)
		}
	}
}

// finish names what has names and looks over the whole.
func (k *kineto) finish() {
	t := &k.b.T
	for id, p := range k.processes {
		if t.Processes[p].Name == "" {
			t.Processes[p].Name = k.processNames[id]
		}
	}
	for key, th := range k.threads {
		if t.Threads[th].Name == "" {
			t.Threads[th].Name = k.threadNames[key]
		}
	}
	for i := range t.Devices {
		if d := &t.Devices[i]; d.Name == "" {
			d.Name = k.deviceNames[d.ID]
		}
	}
	if k.rank != timeline.None {
		if len(t.Processes) == 0 {
			t.Processes = append(t.Processes, timeline.Process{Rank: k.rank})
		}
		for i := range t.Processes {
			if t.Processes[i].Rank == timeline.None {
				t.Processes[i].Rank = k.rank
			}
		}
	}
	k.zeroStarts()
	if k.untimed > 0 {
		t.Read.LostEvents += k.untimed
		t.Read.Notes = append(t.Read.Notes, fmt.Sprintf("%d events of the host have no usable times and are left out.", k.untimed))
	}
	if k.unread > 0 {
		t.Read.Notes = append(t.Read.Notes, fmt.Sprintf("%d events that only begin or end something are left out: PyTorch's profiler writes none.", k.unread))
	}
	if k.own == nil && len(t.Ops) > 0 && len(t.Calls) == 0 {
		t.Read.NotRecorded = append(t.Read.NotRecorded, "launch calls")
	}
	if k.own == nil && len(t.Ops) > 0 && len(t.Ranges) == 0 {
		t.Read.NotRecorded = append(t.Read.NotRecorded, "what the host did")
	}
}

// farNs is how far from everything else an op that starts at 0 must lie to have
// no time rather than that one.
const farNs = 3600e9

// zeroStarts takes the times of ops that start at 0 while all else lies far
// away: 0 is what is written where no time is known.
func (k *kineto) zeroStarts() {
	t := &k.b.T
	first := int64(math.MaxInt64)
	zero := false
	for i := range t.Ops {
		if o := &t.Ops[i]; o.Timed && o.StartNs != 0 {
			first = min(first, o.StartNs)
		} else if o.Timed {
			zero = true
		}
	}
	for i := range t.Calls {
		if s := t.Calls[i].StartNs; s != 0 {
			first = min(first, s)
		}
	}
	if !zero || first == math.MaxInt64 || first < farNs {
		return
	}
	for i := range t.Ops {
		if o := &t.Ops[i]; o.Timed && o.StartNs == 0 {
			o.Timed, o.EndNs = false, 0
			t.Read.BadTimes++
		}
	}
}
