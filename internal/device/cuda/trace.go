package cuda

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/tech-renaissance/trbench/internal/cuda/cupti"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/device/cuda/calibrate"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/timeline"
	"github.com/tech-renaissance/trbench/workloads"
)

var (
	_ device.Tracer          = (*Group)(nil)
	_ device.TraceCalibrator = (*Group)(nil)
)

// libraryTrace is when a rank called libraries, by the recording's axis. It
// belongs to the rank's thread.
type libraryTrace struct {
	now   func() int64
	calls []libraryCall
}

type libraryCall struct {
	start, end int64
	op         *op
}

// submit makes the library's call of an operator, and notes it.
func (t *libraryTrace) submit(o *op) error {
	start := t.now()
	err := o.library.Submit(o.state)
	t.calls = append(t.calls, libraryCall{start, t.now(), o})
	return err
}

// recording is what a group records with. It belongs to the group's caller.
type recording struct {
	api     *cupti.API // nil until it was asked for
	tracer  *cupti.Tracer
	records *cupti.Records
	naming  cupti.Naming
	calls   [][]libraryCall // by rank
	threads []uint32        // the system's numbers, by rank
}

// openCUPTI opens CUPTI at the first use: a process that records nothing does not
// have it loaded.
func (g *Group) openCUPTI() (*cupti.API, error) {
	if g.rec.api != nil {
		return g.rec.api, nil
	}
	if g.dev.opts.CUPTI == nil {
		return nil, errors.New("cuda: this device was opened without CUPTI")
	}
	a, err := g.dev.opts.CUPTI()
	if err != nil {
		return nil, err
	}
	g.rec.api = a
	return a, nil
}

// Trace implements [device.Tracer]. Graphs that were instantiated before are
// recorded node by node.
func (g *Group) Trace(on bool) error {
	if !on {
		return g.stopTrace()
	}
	if g.rec.tracer != nil {
		return errors.New("cuda: something is being recorded already")
	}
	a, err := g.openCUPTI()
	if err != nil {
		return err
	}
	n := len(g.ranks)
	g.rec.records, g.rec.calls, g.rec.threads = &cupti.Records{}, make([][]libraryCall, n), make([]uint32, n)
	type named struct{ device, stream uint32 }
	streams := map[named]string{}
	err = g.Each(func(d device.Rank) error {
		r := d.(*rank)
		g.rec.threads[r.id] = uint32(syscall.Gettid())
		return nil
	})
	if err != nil {
		return err
	}
	if g.rec.tracer, err = a.Start(cupti.Config{}); err != nil {
		return err
	}
	for _, r := range g.ranks {
		for s := range workloads.NumStreams {
			id, err := a.StreamID(uintptr(r.ctx), uintptr(r.streams[s]))
			if err != nil {
				continue // the stream keeps its number
			}
			streams[named{uint32(r.id), id}] = s.String()
		}
	}
	g.rec.naming = cupti.Naming{
		Call:   a.CallName,
		Device: func(d uint32) string { return fmt.Sprintf("GPU %d (rank %d)", d, d) },
		Stream: func(d, _, s uint32) string {
			return streams[named{d, s}]
		},
		Thread: func(id uint32) string {
			for i, t := range g.rec.threads {
				if t == id {
					return device.TraceThread(i)
				}
			}
			return ""
		},
	}
	return g.Each(func(d device.Rank) error {
		r := d.(*rank)
		r.libraries = &libraryTrace{now: g.TraceNow}
		return nil
	})
}

// stopTrace reads what was recorded and ends the recording.
func (g *Group) stopTrace() error {
	t := g.rec.tracer
	if t == nil {
		return nil
	}
	g.rec.tracer = nil
	err := g.Each(func(d device.Rank) error {
		r := d.(*rank)
		g.rec.calls[r.id] = r.libraries.calls
		r.libraries = nil
		return nil
	})
	return errors.Join(err, t.Drain(g.rec.records), t.Stop())
}

// TraceNow implements [device.Tracer]; 0 if CUPTI does not tell.
func (g *Group) TraceNow() int64 {
	ns, err := g.rec.api.TimestampNs()
	if err != nil {
		return 0
	}
	return ns
}

// Recorded implements [device.Tracer].
func (g *Group) Recorded() (*timeline.Timeline, error) {
	switch {
	case g.rec.records == nil:
		return nil, errors.New("cuda: nothing was recorded")
	case g.rec.tracer != nil:
		return nil, errors.New("cuda: the recording goes on")
	}
	t := g.rec.records.Timeline(g.rec.naming)
	names := map[string]timeline.Name{}
	for i, calls := range g.rec.calls {
		thread := int32(timeline.None)
		for k := range t.Threads {
			if t.Threads[k].Name == device.TraceThread(i) {
				thread = int32(k)
			}
		}
		for _, c := range calls {
			text := c.op.libraryName() + " " + nodeName(c.op.b)
			name, ok := names[text]
			if !ok {
				name = timeline.Name(len(t.Names))
				t.Names, names[text] = append(t.Names, text), name
			}
			t.Ranges = append(t.Ranges, timeline.Range{StartNs: c.start, EndNs: c.end, Thread: thread, Name: name, Class: timeline.RangeOperator})
		}
	}
	return t, nil
}

// libraryName is the library that an operator's call goes to.
func (o *op) libraryName() string {
	if o.library.CuBLAS() {
		return "cublasLtMatmul"
	}
	return "cudnnBackendExecute"
}

// CalibrateTrace implements [device.TraceCalibrator], on the first rank's GPU.
func (g *Group) CalibrateTrace() (*results.TraceCalibration, error) {
	if g.rec.tracer != nil {
		return nil, errors.New("cuda: something is being recorded already")
	}
	return calibrate.Trace(g.dev.api, g.ranks[0].id, g.openCUPTI)
}
