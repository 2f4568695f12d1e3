package cpu

import (
	"errors"
	"os"
	"strconv"
	"time"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/timeline"
	"github.com/tech-renaissance/trbench/workloads"
)

var _ device.Tracer = (*Group)(nil)

// hostTrace is what a rank's thread did. It belongs to that thread.
type hostTrace struct {
	begun time.Time // the axis begins
	calls []hostCall
	last  uint32 // number of the last call that gave work to a stream
}

type hostCall struct {
	start, end int64
	launch     uint32 // 0: it launched nothing
	what       call
}

// call is what a rank's thread calls.
type call uint8

const (
	callSubmit call = iota
	callTransfer
	callReplay
	callSync
	callSyncAll
	callRecord
	callWait
	callEventSync
)

// calls are the names of calls on record, and what they are for.
var calls = [...]struct {
	name  string
	class timeline.CallClass
}{
	callSubmit:    {"submit operator", timeline.CallLaunch},
	callTransfer:  {"submit copy or fill", timeline.CallCopy},
	callReplay:    {"launch graph", timeline.CallGraphLaunch},
	callSync:      {"synchronize stream", timeline.CallSync},
	callSyncAll:   {"synchronize all streams", timeline.CallSync},
	callRecord:    {"record event", timeline.CallOther},
	callWait:      {"wait for event", timeline.CallOther},
	callEventSync: {"synchronize event", timeline.CallSync},
}

func (t *hostTrace) now() int64 { return int64(time.Since(t.begun)) }

// launching is the number of a launch that begins.
func (t *hostTrace) launching() uint32 {
	t.last++
	return t.last
}

// did records a call that ends now.
func (t *hostTrace) did(what call, launch uint32, start int64) {
	t.calls = append(t.calls, hostCall{start: start, end: t.now(), launch: launch, what: what})
}

// laneTrace is what a lane executed. It belongs to the lane's goroutine.
type laneTrace struct {
	begun time.Time
	ops   []laneOp
}

type laneOp struct {
	start, end    int64
	op            *op
	launch, graph uint32
}

// execute runs an operator, and records it if anything is recorded.
func (l *lane) execute(o *op) error {
	t := l.trace
	if t == nil {
		return o.execute()
	}
	start := int64(time.Since(t.begun))
	err := o.execute()
	t.ops = append(t.ops, laneOp{start: start, end: int64(time.Since(t.begun)), op: o, launch: l.launch, graph: l.graph})
	return err
}

// Trace implements [device.Tracer].
func (g *Group) Trace(on bool) error {
	begun := time.Now()
	g.traceMu.Lock()
	if on {
		g.begun = begun
	}
	g.traceMu.Unlock()
	return g.Each(func(d device.Rank) error {
		r := d.(*rank)
		if !on {
			r.trace.Store(nil)
			r.lanes(func(l *lane) { r.ended = append(r.ended, l.trace); l.trace = nil })
			return nil
		}
		r.kept, r.ended = &hostTrace{begun: begun}, nil
		r.trace.Store(r.kept)
		r.lanes(func(l *lane) { l.trace = &laneTrace{begun: begun} })
		return nil
	})
}

// TraceNow implements [device.Tracer].
func (g *Group) TraceNow() int64 {
	g.traceMu.Lock()
	defer g.traceMu.Unlock()
	return int64(time.Since(g.begun))
}

// lanes calls f with each lane of the rank's streams and graphs, on the rank's
// thread. The streams are idle, and were waited for.
func (r *rank) lanes(f func(*lane)) {
	for _, st := range r.streams {
		f(&st.lane)
	}
	for x := range r.execs {
		for _, c := range x.side {
			f(&c.lane)
		}
	}
}

// Recorded implements [device.Tracer].
func (g *Group) Recorded() (*timeline.Timeline, error) {
	g.traceMu.Lock()
	begun := g.begun
	g.traceMu.Unlock()
	if begun.IsZero() {
		return nil, errors.New("cpu: nothing was recorded")
	}
	var b timeline.Builder
	b.Name("")
	t := &b.T
	t.Source, t.Format, t.OriginNs, t.Read.LostAt = "the CPU device", timeline.FormatCPU, begun.UnixNano(), -1
	t.Processes = []timeline.Process{{ID: strconv.Itoa(os.Getpid()), Name: "trbench", Rank: timeline.None}}
	for i := range g.ranks {
		t.Threads = append(t.Threads, timeline.Thread{ID: strconv.Itoa(i + 1), Name: device.TraceThread(i)})
		t.Devices = append(t.Devices, timeline.Device{ID: strconv.Itoa(i), Name: "rank " + strconv.Itoa(i) + " on the CPU", Host: true})
		for s := range workloads.NumStreams {
			t.Streams = append(t.Streams, timeline.Stream{Device: int32(i), ID: strconv.Itoa(len(t.Streams) + 1), Name: s.String()})
		}
	}
	// One rank after another: they write to one builder.
	for i, r := range g.ranks {
		err := r.Do(func() error {
			r.place(&b, i, len(g.ranks))
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return t, nil
}

// place adds what a rank recorded, on its thread.
func (r *rank) place(b *timeline.Builder, rank, ranks int) {
	// Launches are numbered by each rank for itself.
	correlation := func(launch uint32) int64 {
		if launch == 0 {
			return 0
		}
		return int64(launch)*int64(ranks) + int64(rank)
	}
	if r.kept == nil {
		return
	}
	for _, c := range r.kept.calls {
		b.T.Calls = append(b.T.Calls, timeline.Call{StartNs: c.start, EndNs: c.end, Thread: int32(rank),
			Name: b.Name(calls[c.what].name), Class: calls[c.what].class, Correlation: correlation(c.launch)})
	}
	add := func(t *laneTrace) {
		if t == nil {
			return
		}
		for _, o := range t.ops {
			bound := o.op.b
			op := timeline.Op{StartNs: o.start, EndNs: o.end, Timed: true, Device: int32(rank),
				Stream: int32(rank*int(workloads.NumStreams) + int(o.op.stream.id)), Name: b.Name(nodeName(bound)),
				Correlation: correlation(o.launch), Graph: uint64(o.graph)}
			switch kind(bound.Op) {
			case "memcpy":
				op.Kind = timeline.Copy
			case "memset":
				op.Kind = timeline.Fill
			}
			if op.Kind != timeline.Kernel && len(bound.Out) > 0 {
				op.Bytes = bound.Out[0].Region.Bytes
			}
			b.T.Ops = append(b.T.Ops, op)
		}
	}
	for _, t := range r.ended {
		add(t)
	}
	r.lanes(func(l *lane) { add(l.trace) })
}
