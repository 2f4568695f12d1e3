package walk

import (
	"fmt"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/nvtx"
	"github.com/tech-renaissance/trbench/workloads"
)

// Launcher submits one sub-graph on its stream, without waiting and without
// allocation. It is called on the rank's thread and adds what it submitted to
// c. Package eager submits node by node, package capture a graph.
type Launcher interface {
	Launch(id workloads.SubGraph, v workloads.Variant, c *Counts) error
}

// Runner runs one configuration on one rank. All methods but Progress are
// called on the rank's thread.
type Runner interface {
	// Run submits a segment. It blocks only where the configuration joins on
	// the host or a half is not consumed yet.
	Run(seg workloads.Segment) error
	// Ready is called before a clock around Run begins. It fetches what is
	// between that clock and Run's own, which a step may have put out of the
	// caches, and submits and counts nothing.
	Ready()
	// Drain blocks until everything submitted is done. It is outside the
	// clocks.
	Drain() error
	// Stats are the clocks and counts since the last ResetStats.
	Stats() Stats
	ResetStats()
	Position() Position
	SetPosition(Position)
	// Progress counts segments submitted and drains done, ever. Any thread
	// may read it, to tell a slow rank from a stuck one.
	Progress() int64
}

type opcode uint8

const (
	opRun opcode = iota
	opRecord
	opWait
	opSync
	opFeed
	opConsumed
	opControl
)

// instr is an action compiled for one configuration: its events exist and its
// joins are decided.
type instr struct {
	code   opcode
	id     workloads.SubGraph
	half   workloads.Half
	stream workloads.Stream
	event  device.Event
	join   string
	shown  *nvtx.Range // of a sub-graph
}

// Config is a configuration as a walker sees it.
type Config struct {
	Sync    Sync
	Control workloads.Control
}

// Walker walks the schedule on one rank. It belongs to the rank's thread.
type Walker struct {
	*Pacer
	cfg      Config
	launcher Launcher
	programs SegmentTable[[]instr]
	known    SegmentTable[bool]
	control  *hostControl
}

// NewWalker compiles the segments of the table's variants and makes the
// events they need. It runs on the rank's thread.
func NewWalker(r device.Rank, t *Table, cfg Config, l Launcher, feeder Feeder) (*Walker, error) {
	w := &Walker{cfg: cfg, launcher: l}
	var err error
	if w.Pacer, err = NewPacer(r, t, feeder, w.walk); err != nil {
		return nil, err
	}
	if cfg.Control == workloads.ControlHost {
		w.control = newHostControl(r, t.w)
	}
	for _, seg := range Segments(t.variants) {
		p, err := compile(t.w.Schedule(seg), cfg, t.events)
		if err != nil {
			return nil, fmt.Errorf("schedule of %s: %w", SegmentName(seg), err)
		}
		for i := range p {
			if p[i].code == opRun {
				p[i].shown = t.Shown(p[i].id)
			}
		}
		*w.programs.At(seg), *w.known.At(seg) = p, true
	}
	return w, nil
}

// Events hands out the join events of a rank. The k-th join on a stream uses
// the same event in every segment: a wait binds to the record before it, so an
// event may be recorded again while an earlier wait on it is still pending.
type Events struct {
	rank device.Rank
	made [workloads.NumStreams][]device.Event
	used [workloads.NumStreams]int
}

// NewEvents returns an empty pool.
func NewEvents(r device.Rank) *Events { return &Events{rank: r} }

// Restart begins a new segment.
func (e *Events) Restart() { e.used = [workloads.NumStreams]int{} }

// Next is the next event for a join on the stream.
func (e *Events) Next(s workloads.Stream) (device.Event, error) {
	k := e.used[s]
	if err := e.Reserve(s, k+1); err != nil {
		return nil, err
	}
	e.used[s]++
	return e.made[s][k], nil
}

// Reserve makes the first n events of a stream. What is captured reserves
// before it begins, as nothing may be created inside a capture.
func (e *Events) Reserve(s workloads.Stream, n int) error {
	for k := len(e.made[s]); k < n; k++ {
		ev, err := e.rank.NewEvent(fmt.Sprintf("join %s %d", s, k))
		if err != nil {
			return fmt.Errorf("event %d for joins on %s: %w", k, s, err)
		}
		e.made[s] = append(e.made[s], ev)
	}
	return nil
}

// compile turns actions into instructions. A stream that gained nothing since
// it was last recorded (or, on the host, last found idle) is not recorded (or
// waited for) again: several waiters share one record.
func compile(actions []workloads.Action, cfg Config, ev *Events) ([]instr, error) {
	ev.Restart()
	var out []instr
	var fresh [workloads.NumStreams]bool        // recorded or idle since its last work
	var last [workloads.NumStreams]device.Event // the record that holds
	for _, a := range actions {
		switch a.Kind {
		case workloads.ActRun:
			s := a.SubGraph.Info().Stream
			out = append(out, instr{code: opRun, id: a.SubGraph, stream: s})
			fresh[s] = false
			if h, ok := TransferHalf(a.SubGraph); ok {
				out = append(out, instr{code: opConsumed, half: h, stream: s})
			}
		case workloads.ActJoin:
			if a.Waited >= workloads.NumStreams {
				return nil, fmt.Errorf("join %q waits for %s, which is no stream", a.Join, a.Waited)
			}
			if a.DeviceControl && cfg.Control == workloads.ControlHost {
				continue
			}
			if cfg.Sync == SyncHost || a.Waiter == workloads.HOST {
				if cfg.Sync == SyncHost && fresh[a.Waited] {
					continue
				}
				out = append(out, instr{code: opSync, stream: a.Waited, join: a.Join})
				if cfg.Sync == SyncHost {
					fresh[a.Waited] = true
				}
				continue
			}
			if !fresh[a.Waited] {
				e, err := ev.Next(a.Waited)
				if err != nil {
					return nil, err
				}
				out = append(out, instr{code: opRecord, stream: a.Waited, event: e, join: a.Join})
				fresh[a.Waited], last[a.Waited] = true, e
			}
			out = append(out, instr{code: opWait, stream: a.Waiter, event: last[a.Waited], join: a.Join})
			fresh[a.Waiter] = false
		case workloads.ActFeed:
			out = append(out, instr{code: opFeed, half: a.Half})
		case workloads.ActControl:
			if cfg.Control == workloads.ControlHost {
				out = append(out, instr{code: opControl})
				if cfg.Sync == SyncHost {
					fresh[workloads.UPDATE] = true
				}
			}
		default:
			return nil, fmt.Errorf("unknown action kind %d", a.Kind)
		}
	}
	return out, nil
}

// TransferHalf says which half a sub-graph transfers, if any.
func TransferHalf(id workloads.SubGraph) (workloads.Half, bool) {
	switch id {
	case workloads.TransferA:
		return workloads.A, true
	case workloads.TransferB:
		return workloads.B, true
	}
	return 0, false
}

func (w *Walker) walk(seg workloads.Segment) error {
	if !*w.known.At(seg) {
		return fmt.Errorf("the variant was not prepared")
	}
	program := *w.programs.At(seg)
	for i := range program {
		in := &program[i]
		var err error
		switch in.code {
		case opRun:
			in.shown.Push()
			w.Clock.Mark()
			err = w.launcher.Launch(in.id, seg.Variant, &w.Clock.stats.Counts)
			w.Clock.Submitted()
			in.shown.Pop()
		case opRecord:
			err = w.Rank.Record(in.stream, in.event)
		case opWait:
			err = w.Rank.Wait(in.stream, in.event)
		case opSync:
			err = w.sync(in.stream)
		case opFeed:
			err = w.Feed.Fill(seg.Variant, in.half, &w.Clock)
		case opConsumed:
			err = w.Feed.Consumed(in.stream, in.half)
		case opControl:
			if err = w.sync(workloads.UPDATE); err == nil {
				err = w.control.advance()
			}
		}
		if err != nil {
			return w.explain(in, err)
		}
	}
	return nil
}

func (w *Walker) sync(s workloads.Stream) error {
	w.Clock.Mark()
	err := w.Rank.Sync(s)
	w.Clock.Waited()
	w.Clock.stats.Counts.Sync++
	return err
}

func (w *Walker) explain(in *instr, err error) error {
	switch in.code {
	case opRun:
		return fmt.Errorf("launch %s: %w", in.id, err)
	case opRecord, opWait, opSync:
		return fmt.Errorf("join %q on %s: %w", in.join, in.stream, err)
	}
	return err
}
