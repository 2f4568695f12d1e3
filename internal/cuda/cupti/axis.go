package cupti

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/tech-renaissance/trbench/timeline"
)

// Naming gives what records have as numbers only. Every function may be nil;
// an empty text leaves the number.
type Naming struct {
	// Call is the name of an API function; [API.CallName] is one.
	Call func(Call) string
	// Device, Stream and Thread name a GPU, a stream of it and a host thread.
	Device func(device uint32) string
	Stream func(device, context, stream uint32) string
	Thread func(thread uint32) string
}

// Timeline puts the records on one axis, CUPTI's own: nanoseconds of the host,
// to which it has brought the GPU's times. The result holds no reference to r.
func (r *Records) Timeline(n Naming) *timeline.Timeline {
	p := placer{r: r, n: n, devices: map[uint32]int32{}, streams: map[streamKey]int32{}, threads: map[threadKey]int32{}, processes: map[uint32]int32{}}
	p.b.Name("")
	p.b.T.Source, p.b.T.Format = "cupti", timeline.FormatCUPTI
	p.calls()
	p.ops()
	p.ranges()
	t := &p.b.T
	slices.SortStableFunc(t.Ops, func(a, b timeline.Op) int {
		return cmp.Or(cmp.Compare(a.StartNs, b.StartNs), cmp.Compare(a.EndNs, b.EndNs))
	})
	slices.SortStableFunc(t.Calls, func(a, b timeline.Call) int { return cmp.Compare(a.StartNs, b.StartNs) })
	slices.SortStableFunc(t.Ranges, func(a, b timeline.Range) int {
		return cmp.Or(cmp.Compare(a.StartNs, b.StartNs), cmp.Compare(b.EndNs, a.EndNs))
	})
	t.Read.Bytes, t.Read.LostBytes, t.Read.LostAt = r.Report.Bytes, r.Report.LostBytes, -1
	t.Read.LostEvents, t.Read.Dropped = r.Report.LostRecords, r.Report.Dropped
	return t
}

type (
	streamKey struct{ device, context, stream uint32 }
	threadKey struct{ process, thread uint32 }
)

// placer builds a timeline.
type placer struct {
	r         *Records
	n         Naming
	b         timeline.Builder
	devices   map[uint32]int32
	streams   map[streamKey]int32
	threads   map[threadKey]int32
	processes map[uint32]int32
}

func id(v uint32) string { return strconv.FormatUint(uint64(v), 10) }

func (p *placer) device(d uint32) int32 {
	i, ok := p.devices[d]
	if !ok {
		i = int32(len(p.b.T.Devices))
		name := "GPU " + id(d)
		if p.n.Device != nil {
			name = cmp.Or(p.n.Device(d), name)
		}
		p.devices[d] = i
		p.b.T.Devices = append(p.b.T.Devices, timeline.Device{ID: id(d), Name: name})
	}
	return i
}

func (p *placer) stream(d, c, s uint32) int32 {
	key := streamKey{d, c, s}
	i, ok := p.streams[key]
	if !ok {
		i = int32(len(p.b.T.Streams))
		name := "stream " + id(s)
		if p.n.Stream != nil {
			name = cmp.Or(p.n.Stream(d, c, s), name)
		}
		p.streams[key] = i
		p.b.T.Streams = append(p.b.T.Streams, timeline.Stream{Device: p.device(d), Process: timeline.None, ID: id(s), Name: name})
	}
	return i
}

func (p *placer) thread(process, thread uint32) int32 {
	key := threadKey{process, thread}
	i, ok := p.threads[key]
	if !ok {
		owner, ok := p.processes[process]
		if !ok {
			owner = int32(len(p.b.T.Processes))
			p.processes[process] = owner
			p.b.T.Processes = append(p.b.T.Processes, timeline.Process{ID: id(process), Rank: timeline.None})
		}
		i = int32(len(p.b.T.Threads))
		name := "thread " + id(thread)
		if p.n.Thread != nil {
			name = cmp.Or(p.n.Thread(thread), name)
		}
		p.threads[key] = i
		p.b.T.Threads = append(p.b.T.Threads, timeline.Thread{Process: owner, ID: id(thread), Name: name})
	}
	return i
}

func (p *placer) calls() {
	type named struct {
		name  timeline.Name
		class timeline.CallClass
	}
	known := map[uint64]named{}
	inside := nested(p.r.Calls)
	for i, c := range p.r.Calls {
		if inside[i] {
			continue
		}
		key := uint64(c.CBID) << 1
		if c.Runtime {
			key |= 1
		}
		k, ok := known[key]
		if !ok {
			text := "call " + id(c.CBID)
			if p.n.Call != nil {
				text = cmp.Or(p.n.Call(c), text)
			}
			k = named{p.b.Name(text), Class(text)}
			known[key] = k
		}
		p.b.T.Calls = append(p.b.T.Calls, timeline.Call{StartNs: c.StartNs, EndNs: c.EndNs, Thread: p.thread(c.Process, c.Thread),
			Name: k.name, Class: k.class, Correlation: int64(c.Correlation)})
	}
}

// nested marks the driver's calls that lie inside a call of the runtime on the
// same thread and have its correlation: that one is the call its caller made,
// and its launch. A driver's call with a correlation of its own stays, as work
// may be joined with it.
func nested(calls []Call) []bool {
	type key struct{ process, thread, correlation uint32 }
	outer := map[key]Call{}
	for _, c := range calls {
		if c.Runtime {
			outer[key{c.Process, c.Thread, c.Correlation}] = c
		}
	}
	out := make([]bool, len(calls))
	for i, c := range calls {
		o, ok := outer[key{c.Process, c.Thread, c.Correlation}]
		out[i] = ok && !c.Runtime && o.StartNs <= c.StartNs && c.EndNs <= o.EndNs
	}
	return out
}

// Class is what a call of the driver or the runtime is for, by its name.
func Class(call string) timeline.CallClass {
	name := strings.TrimPrefix(strings.TrimPrefix(call, "cuda"), "cu")
	switch {
	case strings.HasPrefix(name, "GraphLaunch"):
		return timeline.CallGraphLaunch
	case strings.HasPrefix(name, "Launch"):
		return timeline.CallLaunch
	case strings.HasPrefix(name, "Memcpy"), strings.HasPrefix(name, "Memset"):
		return timeline.CallCopy
	case strings.Contains(name, "Synchronize"):
		return timeline.CallSync
	}
	return timeline.CallOther
}

// copyNames are CUpti_ActivityMemcpyKind's.
var copyNames = map[uint8]string{1: "copy host to device", 2: "copy device to host", 8: "copy on the device", 10: "copy between devices"}

func (p *placer) ops() {
	add := func(o timeline.Op, name string, d, c, s uint32, correlation uint32) {
		o.Device, o.Stream, o.Name, o.Correlation = p.device(d), p.stream(d, c, s), p.b.Name(name), int64(correlation)
		o.Timed = o.EndNs >= o.StartNs && o.StartNs > 0
		if !o.Timed {
			p.b.T.Read.BadTimes++
		}
		p.b.T.Ops = append(p.b.T.Ops, o)
	}
	for _, k := range p.r.Kernels {
		add(timeline.Op{StartNs: k.StartNs, EndNs: k.EndNs, Kind: timeline.Kernel, Graph: uint64(k.Graph), Node: k.Node},
			k.Name, k.Device, k.Context, k.Stream, k.Correlation)
	}
	for _, c := range p.r.Copies {
		add(timeline.Op{StartNs: c.StartNs, EndNs: c.EndNs, Kind: timeline.Copy, Graph: uint64(c.Graph), Node: c.Node, Bytes: int64(c.Bytes)},
			cmp.Or(copyNames[c.Kind], "copy"), c.Device, c.Context, c.Stream, c.Correlation)
	}
	for _, f := range p.r.Fills {
		add(timeline.Op{StartNs: f.StartNs, EndNs: f.EndNs, Kind: timeline.Fill, Graph: uint64(f.Graph), Node: f.Node, Bytes: int64(f.Bytes)},
			"fill", f.Device, f.Context, f.Stream, f.Correlation)
	}
	for _, g := range p.r.GraphTraces {
		add(timeline.Op{StartNs: g.StartNs, EndNs: g.EndNs, Kind: timeline.Envelope, Graph: uint64(g.Graph)},
			"graph "+id(g.Graph), g.Device, g.Context, g.Stream, g.Correlation)
	}
}

// ranges joins the ends of markers, which share an id; an end without a begin,
// or the other way round, lies partly outside and is left out.
func (p *placer) ranges() {
	begun := map[uint32]Marker{}
	for _, m := range p.r.Markers {
		if m.Flags&MarkerStart != 0 {
			begun[m.ID] = m
		}
	}
	add := func(m Marker, end int64) {
		thread := int32(timeline.None)
		if m.Thread != 0 || m.Process != 0 {
			thread = p.thread(m.Process, m.Thread)
		}
		p.b.T.Ranges = append(p.b.T.Ranges, timeline.Range{StartNs: m.AtNs, EndNs: end, Thread: thread,
			Name: p.b.Name(m.Name), Domain: p.b.Name(m.Domain), Class: timeline.RangeUser})
	}
	for _, m := range p.r.Markers {
		switch b, ok := begun[m.ID]; {
		case m.Flags&MarkerInstant != 0:
			add(m, m.AtNs)
		case m.Flags&MarkerEnd != 0 && ok && b.AtNs <= m.AtNs:
			add(b, m.AtNs)
		case m.Flags&MarkerEnd != 0:
			p.b.T.Read.LostEvents++
		}
	}
	for _, o := range p.r.Overheads {
		if o.EndNs < o.StartNs || o.StartNs <= 0 {
			continue
		}
		p.b.T.Read.OverheadNs += o.EndNs - o.StartNs
		p.b.T.Ranges = append(p.b.T.Ranges, timeline.Range{StartNs: o.StartNs, EndNs: o.EndNs, Thread: timeline.None,
			Name: p.b.Name(OverheadName(o.Kind)), Class: timeline.RangeOverhead})
	}
}
