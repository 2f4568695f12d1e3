package bench

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/tech-renaissance/trbench/results"
)

// fakeClock moves only when it is told to.
type fakeClock struct{ now, cpu time.Duration }

func (c *fakeClock) Now() time.Duration { return c.now }
func (c *fakeClock) CPU() time.Duration { return c.cpu }

// moment is where in a replicate a step is.
type moment struct {
	key     results.ConfigurationKey
	process int
	block   int // -1 while warming up
	step    int // of this configuration, since the replicate began
}

// synthetic is a world whose truth is known: how long every step takes. A
// step is submitted in a tenth of its time.
type synthetic struct {
	clock *fakeClock
	step  func(moment) time.Duration
	// events is what the device's clock makes of a time; nil has no events.
	events func(time.Duration) time.Duration
	// overhead is the launch overhead, or why there is none; unused with no events.
	overhead time.Duration
	why      string
	fixed    bool // the plan's warm-up has no steps
	// outer is what the clock around a submission adds to the others' sum in
	// processes from outerFrom on.
	outer     time.Duration
	outerFrom int
}

// replicate is a [Run]'s Replicate: it measures in this process.
func (w *synthetic) replicate(ctx context.Context, req CellRequest) (Replicate, error) {
	s := &syntheticSession{world: w, process: req.Process, made: map[results.ConfigurationKey]Executor{}}
	m, err := Measure(ctx, s, req.Configurations, Schedule{
		Steps: req.Steps, Blocks: req.Blocks, Single: req.Single, Warmup: req.Warmup, WarmupCap: req.WarmupCap,
		Order: req.Order, Images: req.Cell.Batch, Process: req.Process, Clock: w.clock, Deadline: deadline(w.clock, req.Time), Phases: req.Phases,
	}, req.Events)
	if err != nil {
		return Replicate{}, err
	}
	return Replicate{Cell: &results.Cell{Key: req.Cell, Steps: req.Steps, Blocks: req.Blocks,
		Status: results.Done, Configurations: m.Configurations}}, nil
}

func deadline(c *fakeClock, d time.Duration) time.Duration {
	if d == 0 {
		return 0
	}
	return c.now + d
}

type syntheticSession struct {
	world   *synthetic
	process int
	made    map[results.ConfigurationKey]Executor
}

func (s *syntheticSession) Executor(k results.ConfigurationKey) (Executor, error) {
	if s.made[k] == nil {
		x := &syntheticExecutor{s: s, at: moment{key: k, process: s.process, block: -2}}
		s.made[k] = x
		if s.world.events != nil {
			s.made[k] = &eventExecutor{syntheticExecutor: x}
		}
	}
	return s.made[k], nil
}
func (s *syntheticSession) Snapshot() error { return nil }
func (s *syntheticSession) Restore() error  { return nil }

type syntheticExecutor struct {
	s      *syntheticSession
	at     moment
	owed   time.Duration // until all is done
	clocks Clocks
}

func (x *syntheticExecutor) Begin() error {
	x.at.block++
	if x.at.block == -1 && x.s.world.fixed {
		x.at.block = 0
	}
	return nil
}

func (x *syntheticExecutor) Submit(n int) error {
	w := x.s.world
	for range n {
		d := w.step(x.at)
		x.at.step++
		submit := d / 10
		x.owed += d - submit
		w.clock.now += submit
		w.clock.cpu += 2 * submit
		x.clocks.Submit += submit - submit/4
		x.clocks.Host += submit / 4
		x.clocks.Outer += submit
		if x.s.process >= w.outerFrom {
			x.clocks.Outer += w.outer
		}
	}
	return nil
}

func (x *syntheticExecutor) Wait() error {
	x.s.world.clock.now += x.owed
	x.owed = 0
	return nil
}
func (x *syntheticExecutor) Rehearse(n int) error  { return x.Submit(n) }
func (x *syntheticExecutor) State() (State, error) { return fakeState(0), nil }
func (x *syntheticExecutor) Clocks() []Clocks {
	c := x.clocks
	x.clocks = Clocks{}
	return []Clocks{c}
}
func (x *syntheticExecutor) Counts() results.Counts {
	return results.Counts{Launches: results.Launches{Host: results.Count(10)}}
}
func (x *syntheticExecutor) Costs() []results.Phase {
	return []results.Phase{{Phase: "prepare_operators", Ns: 5}, {Phase: "capture", Ns: 20}, {Phase: "capture_collectives", Ns: 2},
		{Phase: "instantiate", Ns: 3}}
}
func (x *syntheticExecutor) Captures() results.Captures {
	return results.Captures{Captures: 1, Replays: 2}
}

// eventExecutor has events, and so a launch overhead.
type eventExecutor struct {
	*syntheticExecutor
	begun, ended time.Duration
}

func (x *eventExecutor) now() time.Duration { return x.s.world.clock.now + x.owed }
func (x *eventExecutor) MarkBegin() error   { x.begun = x.now(); return nil }
func (x *eventExecutor) MarkEnd() error     { x.ended = x.now(); return nil }
func (x *eventExecutor) EventTime() (time.Duration, error) {
	if x.ended <= x.begun {
		return 0, errors.New("the events are not in order")
	}
	return x.s.world.events(x.ended - x.begun), nil
}
func (x *eventExecutor) LaunchOverhead(steps int) (time.Duration, string, error) {
	x.at.block-- // it began once more
	return x.s.world.overhead, x.s.world.why, nil
}

// syntheticPlan has one cell on a GPU.
func syntheticPlan(processes, blocks int, keys ...results.ConfigurationKey) Plan {
	c := results.DefaultCellKey()
	c.Workload, c.Batch, c.Device = "resnet20-cifar", 4, "cuda"
	return Plan{Cells: []results.CellKey{c}, Configurations: keys, Processes: processes, Steps: 4, Single: 2, Blocks: blocks,
		WarmupCap: WarmupCap, Seed: 1, Data: "random"}
}

func configurationKey(mode, sync string) results.ConfigurationKey {
	k := results.DefaultConfigurationKey()
	k.Mode, k.Sync = mode, sync
	return k
}

// noise is a lognormal factor of the given spread, the same whenever it is
// asked for the same place.
func noise(spread float64, place ...uint64) float64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, p := range place {
		h = (h ^ p) * 0xff51afd7ed558ccd
		h ^= h >> 33
	}
	return 1 + spread*rand.New(rand.NewPCG(h, 7)).NormFloat64()
}
