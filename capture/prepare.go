package capture

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/walk"
	"github.com/tech-renaissance/trbench/nvtx"
	"github.com/tech-renaissance/trbench/workloads"
)

// Names of the phases, in the order they run.
const (
	PhaseDeduplicate       = "deduplicate"
	PhaseWarmUp            = "warm_up"
	PhaseFindCollectives   = "find_collectives"
	PhaseCapture           = "capture"
	PhaseCaptureCollective = "capture_collectives"
	PhaseInstantiate       = "instantiate"
	PhaseUpload            = "upload"
	PhaseFirstReplay       = "first_replay"
)

// Phase is what a phase took and did, over all ranks.
type Phase struct {
	Name string
	Time time.Duration // host, monotonic
	// Memory in use around it; nil where the device does not say.
	Memory *PhaseMemory
	// Count is the number of things handled: duplicates removed, operators
	// warmed, sub-graphs found, graphs captured, instantiated, uploaded,
	// launched.
	Count int
}

// PhaseMemory is how many bytes of rank 0's device were in use right before and
// right after a phase; see [device.InUse].
type PhaseMemory struct{ Before, After int64 }

// MemoryAround runs f and says what memory was in use around it; nil where the device
// does not say, or f failed, after which a device may say nothing any more. Asking
// takes no part in what f takes. It runs where [device.InUse] may.
func MemoryAround(g device.Group, f func() error) (*PhaseMemory, error) {
	before, known := device.InUse(g)
	if err := f(); err != nil || !known {
		return nil, err
	}
	after, known := device.InUse(g)
	if !known {
		return nil, nil
	}
	return &PhaseMemory{before, after}, nil
}

// Config says what to capture and how.
type Config struct {
	Mode    Mode
	Control workloads.Control
	// Feeders, one a rank, fill the pinned halves before operators run while
	// preparing.
	Feeders []walk.Feeder
}

// Set is everything captured for one configuration, on all ranks.
type Set struct {
	w      *workloads.Workload
	group  device.Group
	layout *layout
	cfg    Config
	tables []*walk.Table
	graphs [][]device.Graph // [rank][unit]
	execs  [][]device.Exec
	phases []Phase
	closed bool
}

// Prepare captures every filled slot (mode graph) or segment (mode step) of
// the tables' variants. tables holds one prepared table a rank. Memory and
// pinned halves are as before when it returns, whatever it returns. It must
// not run on a rank's thread, and the ranks must be drained. On failure the
// error names the first failing call and node, in the order of phases and
// ranks, and nothing is left behind.
func Prepare(g device.Group, w *workloads.Workload, tables []*walk.Table, cfg Config) (_ *Set, err error) {
	if cfg.Mode == Step && cfg.Control == workloads.ControlHost {
		return nil, errors.New("capture: mode step has no host control: nothing runs on the host inside a graph")
	}
	n := g.Ranks()
	if len(tables) != n || len(cfg.Feeders) != n {
		return nil, fmt.Errorf("capture: %d tables and %d feeders for %d ranks", len(tables), len(cfg.Feeders), n)
	}
	s := &Set{w: w, group: g, cfg: cfg, tables: tables}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()

	s.phase(PhaseDeduplicate, func() (int, error) {
		s.layout = deduplicate(w, tables[0], cfg.Mode, cfg.Control)
		return s.layout.filled - len(s.layout.units), nil
	})
	units := len(s.layout.units)
	s.graphs, s.execs = make([][]device.Graph, n), make([][]device.Exec, n)
	recorders := make([]*recorder, n)
	snapshots := make([]*walk.Snapshot, n)
	err = g.Each(func(r device.Rank) (err error) {
		i := r.ID()
		s.graphs[i], s.execs[i] = make([]device.Graph, units), make([]device.Exec, units)
		recorders[i] = &recorder{rank: r, table: tables[i], control: cfg.Control}
		snapshots[i], err = walk.TakeSnapshot(r, w)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}

	var alone, together []int
	steps := []struct {
		name string
		run  func() (int, error)
	}{
		{PhaseWarmUp, func() (int, error) {
			return s.restoring(snapshots, s.warmUp)
		}},
		{PhaseFindCollectives, func() (int, error) {
			for i := range s.layout.units {
				if s.layout.units[i].collective {
					together = append(together, i)
				} else {
					alone = append(alone, i)
				}
			}
			return len(together), nil
		}},
		{PhaseCapture, func() (int, error) { return s.captureAlone(recorders, alone) }},
		{PhaseCaptureCollective, func() (int, error) { return s.captureTogether(recorders, together) }},
		{PhaseInstantiate, func() (int, error) {
			return s.eachUnit(func(r device.Rank, u *unit, i int) (err error) {
				s.execs[r.ID()][i], err = s.graphs[r.ID()][i].Instantiate()
				return err
			})
		}},
		{PhaseUpload, func() (int, error) {
			return s.eachUnit(func(r device.Rank, u *unit, i int) error {
				return s.execs[r.ID()][i].Upload(u.origin)
			})
		}},
		{PhaseFirstReplay, func() (int, error) {
			return s.restoring(snapshots, s.firstReplay)
		}},
	}
	for _, step := range steps {
		if err := s.phase(step.name, step.run); err != nil {
			return nil, fmt.Errorf("capture: phase %s: %w", step.name, err)
		}
	}
	return s, nil
}

func (s *Set) phase(name string, run func() (int, error)) error {
	p := Phase{Name: name}
	var err error
	p.Memory, err = MemoryAround(s.group, func() (err error) {
		shown := s.tables[0].Tool().Start(name, nvtx.Capture.Look())
		begin := time.Now()
		p.Count, err = run()
		shown.End()
		p.Time = time.Since(begin)
		return err
	})
	s.phases = append(s.phases, p)
	return err
}

// restoring runs f and puts every rank's memory back, also after a failure,
// whose error comes first.
func (s *Set) restoring(snapshots []*walk.Snapshot, f func() (int, error)) (int, error) {
	n, err := f()
	restoreErr := s.group.Each(func(r device.Rank) error {
		// A failure may have left work behind; its report is f's.
		_ = r.SyncAll()
		return snapshots[r.ID()].Restore(r)
	})
	return n, errors.Join(err, restoreErr)
}

// warmUp runs every operator once on the stream it will be captured on: those
// that stand alone rank by rank, as first calls of libraries are not safe from
// several threads; then the collective ones on all ranks at once, because
// they wait for each other.
func (s *Set) warmUp() (int, error) {
	n := 0
	for rank := range s.group.Ranks() {
		r := s.group.Rank(rank)
		err := r.Do(func() error {
			k, err := s.warmUpRank(r, false)
			n += k
			return err
		})
		if err != nil {
			return n, fmt.Errorf("rank %d: %w", rank, err)
		}
	}
	if s.group.Ranks() == 1 {
		return n, nil
	}
	counts := make([]int, s.group.Ranks())
	err := s.group.Each(func(r device.Rank) (err error) {
		counts[r.ID()], err = s.warmUpRank(r, true)
		return err
	})
	for _, k := range counts {
		n += k
	}
	return n, err
}

// warmUpRank runs the collective or the other operators of every distinct
// slot, in the order of sub-graphs, which is that of the data.
func (s *Set) warmUpRank(r device.Rank, collective bool) (int, error) {
	n := 0
	t := s.tables[r.ID()]
	seen := map[device.Op]bool{}
	for _, v := range t.Variants() {
		if !collective {
			if err := s.fillBoth(r, v); err != nil {
				return n, err
			}
		}
		for id := range workloads.NumSubGraphs {
			ran := 0
			for _, op := range t.Ops(id, v, s.cfg.Control) {
				if op.Bound().Collective != collective || seen[op] {
					continue
				}
				seen[op] = true
				if err := op.Submit(v); err != nil {
					return n, fmt.Errorf("warm up %s: %w", nodeName(op.Bound()), err)
				}
				ran++
			}
			n += ran
			if ran > 0 {
				if err := r.Sync(id.Info().Stream); err != nil {
					return n, fmt.Errorf("warm up %s (%s): %w", id, v, err)
				}
			}
		}
	}
	return n, nil
}

func (s *Set) fillBoth(r device.Rank, v workloads.Variant) error {
	for _, h := range []workloads.Half{workloads.A, workloads.B} {
		if err := s.cfg.Feeders[r.ID()](v, h, 0, walk.HalfBytes(s.w, r.Pinned(), h)); err != nil {
			return fmt.Errorf("feed half %s for %s: %w", h, v, err)
		}
	}
	return nil
}

// captureAlone captures the units that meet nobody: rank 0 first, whose
// failure then stands alone, then the other ranks at once.
func (s *Set) captureAlone(recorders []*recorder, units []int) (int, error) {
	record := func(r device.Rank) error {
		return r.Do(func() (err error) {
			for _, i := range units {
				if s.graphs[r.ID()][i], err = recorders[r.ID()].capture(&s.layout.units[i]); err != nil {
					return fmt.Errorf("rank %d: %w", r.ID(), err)
				}
			}
			return nil
		})
	}
	if err := record(s.group.Rank(0)); err != nil {
		return 0, err
	}
	errs := make([]error, s.group.Ranks())
	var others sync.WaitGroup
	for i := 1; i < s.group.Ranks(); i++ {
		others.Go(func() { errs[i] = record(s.group.Rank(i)) })
	}
	others.Wait()
	return len(units) * s.group.Ranks(), errors.Join(errs...)
}

// captureTogether captures the units that meet the other ranks, one after
// another, on all ranks at once. Each begins when all ranks are there and ends
// when all are done.
func (s *Set) captureTogether(recorders []*recorder, units []int) (int, error) {
	for _, i := range units {
		err := s.group.Each(func(r device.Rank) (err error) {
			s.graphs[r.ID()][i], err = recorders[r.ID()].capture(&s.layout.units[i])
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return len(units) * s.group.Ranks(), nil
}

// eachUnit runs f for every unit on every rank, ranks side by side.
func (s *Set) eachUnit(f func(r device.Rank, u *unit, i int) error) (int, error) {
	err := s.group.Each(func(r device.Rank) error {
		for i := range s.layout.units {
			u := &s.layout.units[i]
			if err := f(r, u, i); err != nil {
				return fmt.Errorf("%s: %w", u.name, err)
			}
		}
		return nil
	})
	return len(s.layout.units) * s.group.Ranks(), err
}

// firstReplay launches every unit once, on all ranks at once since some meet.
func (s *Set) firstReplay() (int, error) {
	last := make([]int, s.group.Ranks())
	return s.eachUnit(func(r device.Rank, u *unit, i int) error {
		if last[r.ID()] != int(u.variant)+1 {
			if err := s.fillBoth(r, u.variant); err != nil {
				return err
			}
			last[r.ID()] = int(u.variant) + 1
		}
		if err := s.execs[r.ID()][i].Launch(u.origin, u.variant); err != nil {
			return fmt.Errorf("launch: %w", err)
		}
		return r.SyncAll()
	})
}

// Close releases the executables, then the graphs, of every rank. The ranks
// must be drained. It may be called twice.
func (s *Set) Close() error {
	if s.closed || s.execs == nil {
		return nil
	}
	s.closed = true
	return s.group.Each(func(r device.Rank) error {
		var errs []error
		for _, e := range s.execs[r.ID()] {
			if e != nil {
				errs = append(errs, e.Close())
			}
		}
		for _, g := range s.graphs[r.ID()] {
			if g != nil {
				errs = append(errs, g.Close())
			}
		}
		return errors.Join(errs...)
	})
}

// Phases lists the phases in the order they ran.
func (s *Set) Phases() []Phase { return s.phases }

// Captured is the number of graphs of one rank; Filled the slots (mode graph)
// or segments (mode step) they serve.
func (s *Set) Captured() int { return len(s.layout.units) }

// Filled is the number of slots or segments served; see [Set.Captured].
func (s *Set) Filled() int { return s.layout.filled }

// Info describes the graph of a segment of mode step; empty if it has none.
func (s *Set) Info(seg workloads.Segment) device.GraphInfo {
	if unit := *s.layout.segments.At(seg); unit > 0 {
		return s.execs[0][unit-1].Info()
	}
	return device.GraphInfo{}
}

// Described is a captured graph and what messages call it.
type Described struct {
	Name string
	Info device.GraphInfo
}

// Graphs describes the graphs that one run of the segment launches on a rank, in
// that order.
func (s *Set) Graphs(seg workloads.Segment) []Described {
	var out []Described
	for _, unit := range s.launched(seg) {
		out = append(out, Described{s.layout.units[unit].name, s.execs[0][unit].Info()})
	}
	return out
}

// launched are the units that one run of the segment launches, in that order.
func (s *Set) launched(seg workloads.Segment) []int {
	var units []int
	add := func(unit int) {
		if unit > 0 {
			units = append(units, unit-1)
		}
	}
	if s.layout.mode == Step {
		add(*s.layout.segments.At(seg))
		return units
	}
	for _, a := range s.w.Schedule(seg) {
		if a.Kind == workloads.ActRun {
			add(s.layout.slots[walk.Cell(a.SubGraph, seg.Variant)])
		}
	}
	return units
}

// Nodes sums the graph nodes by kind that one run of the segment replays on a
// rank.
func (s *Set) Nodes(seg workloads.Segment) map[string]int {
	sum := map[string]int{}
	for _, g := range s.Graphs(seg) {
		for kind, n := range g.Info.Nodes {
			sum[kind] += n
		}
	}
	return sum
}
