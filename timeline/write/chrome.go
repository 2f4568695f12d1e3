package write

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tech-renaissance/trbench/timeline"
)

// Version of what the object trbench holds.
const Version = 1

// Chrome writes a timeline as Chrome JSON. It streams: beyond the index it keeps
// 4 bytes an event. The error is the writer's.
func Chrome(w io.Writer, x *timeline.Index) error {
	c := &chrome{layout: newLayout(x), w: bufio.NewWriterSize(w, 256<<10), names: make([]string, len(x.T.Names))}
	c.head()
	c.metadata()
	for i := range c.threads {
		c.thread(i)
	}
	for i := range c.streams {
		c.stream(i)
	}
	c.counted()
	c.w.WriteString("\n]}\n")
	if err := c.w.Flush(); err != nil {
		return fmt.Errorf("write Chrome trace: %w", err)
	}
	return nil
}

type chrome struct {
	*layout
	w     *bufio.Writer // keeps its first error
	b     []byte        // one event
	names []string      // quoted, as they are needed
	some  bool          // an event was written
}

// begin starts an event and flush ends it.
func (c *chrome) begin(ph byte) {
	c.b = append(c.b[:0], `{"ph":"`...)
	c.b = append(c.b, ph, '"')
}

func (c *chrome) flush() {
	c.b = append(c.b, '}')
	if c.some {
		c.w.WriteByte(',')
	}
	c.some = true
	c.w.WriteByte('\n')
	c.w.Write(c.b)
}

func (c *chrome) at(pid, tid uint32) {
	c.b = strconv.AppendUint(append(c.b, `,"pid":`...), uint64(pid), 10)
	if tid != 0 {
		c.b = strconv.AppendUint(append(c.b, `,"tid":`...), uint64(tid), 10)
	}
}

func (c *chrome) word(key, word string) {
	c.b = append(append(append(c.b, ',', '"'), key...), '"', ':', '"')
	c.b = append(append(c.b, word...), '"')
}

func (c *chrome) name(n timeline.Name) {
	c.b = append(append(c.b, `,"name":`...), c.quoted(n)...)
}

func (c *chrome) quoted(n timeline.Name) string {
	if n < 0 || int(n) >= len(c.names) {
		return `""`
	}
	if c.names[n] == "" {
		c.names[n] = string(appendQuoted(nil, c.x.T.Names[n]))
	}
	return c.names[n]
}

func (c *chrome) time(key string, ns int64) {
	c.b = append(append(append(c.b, ',', '"'), key...), '"', ':')
	c.b = appendMicros(c.b, ns)
}

// appendMicros prints nanoseconds as microseconds with three decimals.
func appendMicros(b []byte, ns int64) []byte {
	b = strconv.AppendInt(b, ns/1000, 10)
	r := ns % 1000
	return append(b, '.', byte('0'+r/100), byte('0'+r/10%10), byte('0'+r%10))
}

// args opens the arguments; arg adds one, in JSON; done closes them.
func (c *chrome) args() { c.b = append(c.b, `,"args":{`...) }

func (c *chrome) arg(key string) {
	if c.b[len(c.b)-1] != '{' {
		c.b = append(c.b, ',')
	}
	c.b = append(append(append(c.b, '"'), key...), '"', ':')
}

func (c *chrome) done() { c.b = append(c.b, '}') }

func (c *chrome) intArg(key string, v int64) {
	c.arg(key)
	c.b = strconv.AppendInt(c.b, v, 10)
}

func (c *chrome) uintArg(key string, v uint64) {
	c.arg(key)
	c.b = strconv.AppendUint(c.b, v, 10)
}

func (c *chrome) wordArg(key, word string) {
	c.arg(key)
	c.b = append(append(append(c.b, '"'), word...), '"')
}

// idArg is a device's or a stream's name: a number where it is one.
func (c *chrome) idArg(key, id string) {
	c.arg(key)
	if v, err := strconv.ParseUint(id, 10, 63); err == nil && strconv.FormatUint(v, 10) == id {
		c.b = append(c.b, id...)
		return
	}
	c.b = appendQuoted(c.b, id)
}

// appendQuoted is a JSON string that Perfetto takes: a control character becomes
// a space, as an old version refuses even its escape; what is not ASCII is
// escaped, as a newer one takes its bytes for control characters; and what takes
// two escapes, which that refuses as well, is U+FFFD.
func appendQuoted(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		switch ch := s[i]; {
		case ch == '"' || ch == '\\':
			b = append(b, '\\', ch)
			i++
		case ch < 0x20 || ch == 0x7f:
			b = append(b, ' ')
			i++
		case ch < utf8.RuneSelf:
			b = append(b, ch)
			i++
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			b = appendEscaped(b, r) // U+FFFD for what is no UTF-8
			i += n
		}
	}
	return append(b, '"')
}

func appendEscaped(b []byte, r rune) []byte {
	switch {
	case r < 0xa0: // more control characters
		return append(b, ' ')
	case r > 0xffff:
		r = utf8.RuneError
	}
	const hex = "0123456789abcdef"
	return append(b, '\\', 'u', hex[r>>12], hex[r>>8&15], hex[r>>4&15], hex[r&15])
}

// header is what stands before the events.
type header struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Source  string `json:"source,omitempty"`
	From    string `json:"from,omitempty"` // the recording's own format
	// OriginNs is the recording's; ShiftNs was added to its times.
	OriginNs int64 `json:"origin_ns,omitempty"`
	ShiftNs  int64 `json:"shift_ns,omitempty"`

	Processes []processHead `json:"processes"`
	Threads   []trackHead   `json:"threads"`
	Devices   []deviceHead  `json:"devices"`
	Streams   []streamHead  `json:"streams"`
	Untimed   []untimedHead `json:"untimed,omitempty"`
	Read      readHead      `json:"read"`
}

type processHead struct {
	PID  uint32 `json:"pid"`
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	Rank *int   `json:"rank,omitempty"`
}

type trackHead struct {
	TIDs    []uint32 `json:"tids"`
	Process int32    `json:"process"` // index, or -1
	ID      string   `json:"id"`
	Name    string   `json:"name,omitempty"`
}

type deviceHead struct {
	PID  uint32 `json:"pid"`
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	Host bool   `json:"host,omitempty"`
}

type streamHead struct {
	trackHead
	Device int32 `json:"device"` // index
}

// untimedHead is an op without usable times. Device and stream are indices.
type untimedHead struct {
	Name        string `json:"name"`
	Kind        string `json:"kind"`
	Device      int32  `json:"device"`
	Stream      int32  `json:"stream"`
	Correlation int64  `json:"correlation,omitempty"`
	Bytes       int64  `json:"bytes,omitempty"`
	Graph       uint64 `json:"graph,omitempty"`
	Node        uint64 `json:"node,omitempty"`
}

type readHead struct {
	Bytes       int64    `json:"bytes,omitempty"`
	LostBytes   int64    `json:"lost_bytes,omitempty"`
	LostAt      *int64   `json:"lost_at,omitempty"`
	LostEvents  int64    `json:"lost_events,omitempty"`
	Dropped     *int64   `json:"dropped,omitempty"`
	BadTimes    int64    `json:"bad_times,omitempty"`
	Duplicates  int64    `json:"duplicates,omitempty"`
	Truncated   bool     `json:"truncated,omitempty"`
	NotRecorded []string `json:"not_recorded,omitempty"`
	Notes       []string `json:"notes,omitempty"`
	OverheadNs  int64    `json:"overhead_ns,omitempty"`
}

func (c *chrome) head() {
	t := c.x.T
	h := header{Format: timeline.FormatOwn, Version: Version, Source: clean(t.Source), From: t.Format, OriginNs: t.OriginNs, ShiftNs: c.shift,
		Processes: []processHead{}, Threads: []trackHead{}, Devices: []deviceHead{}, Streams: []streamHead{},
		Read: readHead{Bytes: t.Read.Bytes, LostBytes: t.Read.LostBytes, LostEvents: t.Read.LostEvents, BadTimes: t.Read.BadTimes,
			Duplicates: t.Read.Duplicates, Truncated: t.Read.Truncated, OverheadNs: t.Read.OverheadNs}}
	if t.Read.LostBytes > 0 && t.Read.LostAt >= 0 {
		h.Read.LostAt = &t.Read.LostAt
	}
	if t.Read.Dropped >= 0 {
		h.Read.Dropped = &t.Read.Dropped
	}
	for _, s := range t.Read.NotRecorded {
		h.Read.NotRecorded = append(h.Read.NotRecorded, clean(s))
	}
	for _, s := range t.Read.Notes {
		h.Read.Notes = append(h.Read.Notes, clean(s))
	}
	for i := range t.Processes {
		p := &t.Processes[i]
		q := processHead{PID: c.processes[i], ID: clean(p.ID), Name: clean(p.Name)}
		if p.Rank >= 0 {
			q.Rank = &p.Rank
		}
		h.Processes = append(h.Processes, q)
	}
	for i := range t.Threads {
		th := &t.Threads[i]
		h.Threads = append(h.Threads, trackHead{c.threads[i].tids, th.Process, clean(th.ID), clean(th.Name)})
	}
	for i := range t.Devices {
		d := &t.Devices[i]
		h.Devices = append(h.Devices, deviceHead{c.devices[i], clean(d.ID), clean(d.Name), d.Host})
	}
	for i := range t.Streams {
		s := &t.Streams[i]
		h.Streams = append(h.Streams, streamHead{trackHead{c.streams[i].tids, s.Process, clean(s.ID), clean(s.Name)}, s.Device})
	}
	for i := range t.Ops {
		if o := &t.Ops[i]; !c.timed(o) {
			h.Untimed = append(h.Untimed, untimedHead{clean(t.Text(o.Name)), kindWords[o.Kind&3], o.Device, o.Stream, o.Correlation, o.Bytes, o.Graph, o.Node})
		}
	}
	c.w.WriteString(`{"schemaVersion":1,"displayTimeUnit":"ns"`)
	if t.OriginNs != 0 {
		fmt.Fprintf(c.w, `,"baseTimeNanoseconds":%d`, t.OriginNs-c.shift)
	}
	c.w.WriteString(`,"deviceProperties":[`)
	for i := range t.Devices {
		c.b = c.b[:0]
		if i > 0 {
			c.b = append(c.b, ',')
		}
		c.b = append(c.b, '{')
		c.idArg("id", t.Devices[i].ID)
		c.b = appendQuoted(append(c.b, `,"name":`...), t.Devices[i].Name)
		c.w.Write(append(c.b, '}'))
	}
	c.w.WriteString("]")
	if len(t.Processes) == 1 && t.Processes[0].Rank >= 0 {
		fmt.Fprintf(c.w, `,"distributedInfo":{"rank":%d}`, t.Processes[0].Rank)
	}
	c.w.WriteString(`,"trbench":`)
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(h) // no value of these types fails
	for _, r := range b.String() {
		if r < utf8.RuneSelf {
			c.w.WriteByte(byte(r))
		} else {
			c.w.Write(appendEscaped(c.b[:0], r))
		}
	}
	c.w.WriteString(`,"traceEvents":[`)
}

// clean drops control characters, as appendQuoted does.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
}

var kindWords = [4]string{"kernel", "copy", "fill", "envelope"}

// metadata names processes and threads and puts them in order: the host's first,
// then the devices.
func (c *chrome) metadata() {
	t := c.x.T
	place := 0
	process := func(pid uint32, name, labels string) {
		c.meta("process_name", pid, 0, "name", name)
		if labels != "" {
			c.meta("process_labels", pid, 0, "labels", labels)
		}
		c.sort("process_sort_index", pid, 0, place)
		place++
	}
	for i, pid := range c.processes {
		switch {
		case i < len(t.Processes):
			p := &t.Processes[i]
			name, labels := p.Name, ""
			if name == "" {
				name = "process " + p.ID
			}
			if p.Rank >= 0 {
				labels = fmt.Sprintf("rank %d", p.Rank)
			}
			process(pid, name, labels)
		case pid != 0:
			process(pid, "no process", "")
		}
	}
	for i, pid := range c.devices {
		d := &t.Devices[i]
		if d.Host {
			process(pid, "device "+d.ID, d.Name)
		} else {
			process(pid, "GPU "+d.ID, d.Name)
		}
	}
	place = 0
	for _, tracks := range [][]track{c.threads, c.streams} {
		for _, k := range tracks {
			for lane, tid := range k.tids {
				name := k.name
				if lane > 0 {
					name = fmt.Sprintf("%s (overlap %d)", name, lane+1)
				}
				c.meta("thread_name", k.pid, tid, "name", name)
				c.sort("thread_sort_index", k.pid, tid, place)
				place++
			}
		}
	}
}

func (c *chrome) meta(what string, pid, tid uint32, key, value string) {
	c.begin('M')
	c.word("name", what)
	c.at(pid, tid)
	c.args()
	c.arg(key)
	c.b = appendQuoted(c.b, value)
	c.done()
	c.flush()
}

func (c *chrome) sort(what string, pid, tid uint32, place int) {
	c.begin('M')
	c.word("name", what)
	c.at(pid, tid)
	c.args()
	c.intArg("sort_index", int64(place))
	c.done()
	c.flush()
}

var classWords = [5]string{"other", "launch", "graph_launch", "copy", "sync"}

// thread writes a host thread's calls and ranges, and the start of each launch's
// flow right behind its call: a flow hangs on what was opened last.
func (c *chrome) thread(i int) {
	t, k := c.x.T, c.threads[i]
	calls := int32(len(t.Calls))
	c.nested(c.events[i], func(event int32, lane int) {
		start, end := c.times(event)
		c.begin('X')
		if event >= calls {
			c.rng(&t.Ranges[event-calls], k.pid, k.tids[lane], start, end)
			return
		}
		call := &t.Calls[event]
		text := t.Text(call.Name)
		cat := "cuda_runtime"
		if len(text) > 2 && text[:2] == "cu" && text[2] >= 'A' && text[2] <= 'Z' {
			cat = "cuda_driver"
		}
		c.word("cat", cat)
		c.name(call.Name)
		c.at(k.pid, k.tids[lane])
		c.time("ts", start+c.shift)
		c.time("dur", end-start)
		c.args()
		if call.Correlation != 0 {
			c.intArg("correlation", call.Correlation)
		}
		if call.Class != timeline.Classify(text) {
			c.wordArg("class", classWords[min(int(call.Class), len(classWords)-1)])
		}
		c.done()
		c.flush()
		if c.x.OpsOf[event] > 0 {
			c.flow('s', event, k.pid, k.tids[lane], start)
		}
	})
}

func (c *chrome) rng(r *timeline.Range, pid, tid uint32, start, end int64) {
	cat, class := "user_annotation", ""
	switch r.Class {
	case timeline.RangeUser:
		class = "user"
	case timeline.RangeStep:
		class = "step"
	case timeline.RangeFeed:
		class = "feed"
	case timeline.RangeOperator:
		cat = "cpu_op"
	case timeline.RangeOverhead:
		cat = "overhead"
	case timeline.RangePython:
		cat = "python_function"
	}
	c.word("cat", cat)
	c.name(r.Name)
	c.at(pid, tid)
	c.time("ts", start+c.shift)
	c.time("dur", end-start)
	if class != "" || r.Domain > 0 {
		c.args()
		if class != "" {
			c.wordArg("class", class)
		}
		if r.Domain > 0 {
			c.arg("domain")
			c.b = append(c.b, c.quoted(r.Domain)...)
		}
		c.done()
	}
	c.flush()
}

// flow begins or ends the arrow from a launch to an op. One launch has one
// begin and may have many ends.
func (c *chrome) flow(ph byte, launch int32, pid, tid uint32, ns int64) {
	c.begin(ph)
	if ph == 'f' {
		c.word("bp", "e")
	}
	c.word("cat", "ac2g")
	c.word("name", "ac2g")
	c.b = strconv.AppendInt(append(c.b, `,"id":`...), int64(launch)+1, 10)
	c.at(pid, tid)
	c.time("ts", ns+c.shift)
	c.flush()
}

func (c *chrome) stream(i int) {
	t, k := c.x.T, c.streams[i]
	c.apart(c.ops[i], func(op int32, lane int) {
		o := &t.Ops[op]
		c.begin('X')
		switch o.Kind {
		case timeline.Copy:
			c.word("cat", "gpu_memcpy")
		case timeline.Fill:
			c.word("cat", "gpu_memset")
		default:
			c.word("cat", "kernel")
		}
		c.name(o.Name)
		c.at(k.pid, k.tids[lane])
		c.time("ts", o.StartNs+c.shift)
		c.time("dur", o.EndNs-o.StartNs)
		c.args()
		c.idArg("device", t.Devices[o.Device].ID)
		if i < len(t.Streams) {
			c.idArg("stream", k.id)
		}
		if o.Correlation != 0 {
			c.intArg("correlation", o.Correlation)
		}
		if o.Graph != 0 {
			c.uintArg("graph id", o.Graph)
		}
		if o.Node != 0 {
			c.uintArg("graph node id", o.Node)
		}
		if o.Bytes != 0 {
			c.intArg("bytes", o.Bytes)
		}
		if o.Kind == timeline.Envelope {
			c.wordArg("kind", "envelope")
		}
		c.done()
		c.flush()
		// An arrow cannot point back in time.
		if launch := c.x.Launch[op]; launch != timeline.None && t.Calls[launch].StartNs <= o.StartNs {
			c.flow('f', launch, k.pid, k.tids[lane], o.StartNs)
		}
	})
}

// counted writes the recording's counters and the queue of each device.
func (c *chrome) counted() {
	t := c.x.T
	for i := range t.Counters {
		v := &t.Counters[i]
		if math.IsNaN(v.Value) || math.IsInf(v.Value, 0) {
			continue
		}
		pid := c.processes[len(t.Processes)]
		if p := v.Process; p >= 0 && int(p) < len(t.Processes) {
			pid = c.processes[p]
		} else if len(t.Processes) == 1 {
			pid = c.processes[0]
		}
		c.begin('C')
		c.name(v.Name)
		c.at(pid, 0)
		c.time("ts", v.AtNs+c.shift)
		c.args()
		c.arg("value")
		c.b = strconv.AppendFloat(c.b, v.Value, 'g', -1, 64)
		c.done()
		c.flush()
	}
	for d := range t.Devices {
		for _, q := range c.x.QueueDepth(int32(d)) {
			c.begin('C')
			c.word("cat", "derived")
			c.word("name", "queue depth")
			c.at(c.devices[d], 0)
			c.time("ts", q.AtNs+c.shift)
			c.args()
			c.intArg("ops", int64(q.Ops))
			c.done()
			c.flush()
		}
	}
}
