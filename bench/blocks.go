package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/tech-renaissance/trbench/nvtx"
	"github.com/tech-renaissance/trbench/results"
)

// Schedule says how often things are timed in one replicate.
type Schedule struct {
	// Steps are those of a block, Blocks the blocks of each configuration.
	Steps, Blocks int
	// Single are the steps of a block that are timed one by one, each
	// submitted to a drained device.
	Single int
	// Warmup is a fixed number of untimed steps of each configuration before
	// all blocks; nil is as many as it takes, up to WarmupCap or, where steps
	// are short, that many slices of several.
	Warmup    *int
	WarmupCap int
	// Order is the seed of the order of blocks.
	Order uint64
	// Images is what one step of the whole job trains on.
	Images int
	// Process goes into the samples.
	Process int
	// Tool, if there is one, is shown what is done.
	Tool *nvtx.Client
	// Clock is what is timed with; nil is [System].
	Clock Clock
	// Deadline is a reading of Clock after which no block begins; 0 is never.
	// Warm-up and [LeastBlocks] are what they are all the same.
	Deadline time.Duration
	// Machine, if set, reads the machine under load: once, after all that is
	// timed, while more steps of the last configuration run. It is called on a
	// goroutine of its own.
	Machine func() []results.Reading
	// AfterBlock, if set, reads the GPU right after each block, outside of what is
	// timed. Before one the GPU was at rest, and its clocks with it.
	AfterBlock func() []results.Reading
	// Tracing, if it has steps, records each configuration in the end.
	Tracing Tracing
	// Phases, if set, are told what the time goes to.
	Phases *Phases
}

// LeastBlocks are timed whatever the budget says: one order and its reverse.
const LeastBlocks = 2

// Order is the order of k configurations in each block: a permutation drawn
// from the seed, then the same backwards, so that a drift over two blocks
// cancels; then a fresh permutation.
func Order(k, blocks int, seed uint64) [][]int {
	rng := rand.New(rand.NewPCG(seed, 0x6f72646572))
	var out [][]int
	for b := range blocks {
		if b%2 == 0 {
			out = append(out, rng.Perm(k))
			continue
		}
		back := slices.Clone(out[b-1])
		slices.Reverse(back)
		out = append(out, back)
	}
	return out
}

// Measured is what [Measure] found.
type Measured struct {
	// Configurations are in the order of the keys.
	Configurations []results.Configuration
	// Blocks is how many blocks of each were timed.
	Blocks int
	// Readings are those of [Schedule.Machine].
	Readings []results.Reading
	// Skipped is, by configuration, how many of the steps of its blocks and of
	// the single ones behind them changed no weights; see [SkipCounter].
	Skipped []int64
}

// Measure warms every configuration up and times its blocks. The session is
// restored before each block. Nothing else may run on the session meanwhile;
// the garbage collector is off inside timed windows. It ends early, between
// steps, if ctx does. It leaves the session restored, unless a traced pass failed:
// that may have left nothing to restore, and takes away nothing that was timed.
func Measure(ctx context.Context, s Session, keys []results.ConfigurationKey, p Schedule, events func(Event)) (*Measured, error) {
	if events == nil {
		events = func(Event) {}
	}
	if p.Clock == nil {
		p.Clock = System()
	}
	m := measurement{ctx: ctx, session: s, plan: p, clock: p.Clock, events: events, keys: keys,
		samples: newSampleSet(len(keys), p.Process), executors: make([]Executor, len(keys)), readings: make([][]results.Reading, len(keys)),
		out: Measured{Configurations: make([]results.Configuration, len(keys)), Skipped: make([]int64, len(keys))}}
	for i, k := range keys {
		shown := m.show("prepare", i, 0)
		x, err := s.Executor(k)
		shown.end()
		if err != nil {
			return nil, fmt.Errorf("prepare %s: %w", k, err)
		}
		m.executors[i] = x
		m.out.Configurations[i] = results.Configuration{Key: k}
	}
	p.Phases.Begin(results.PhaseWarmUp)
	for i, k := range keys {
		m.phase("warm up " + k.String())
		shown := m.show("warm_up", i, 0)
		err := m.warmUp(i)
		shown.end()
		if err != nil {
			return nil, fmt.Errorf("warm up %s: %w", k, err)
		}
	}
	if err := m.blocks(); err != nil {
		return nil, err
	}
	for i := range keys {
		m.describe(i)
	}
	if err := m.underLoad(); err != nil {
		return nil, fmt.Errorf("read the machine under load: %w", err)
	}
	if err := m.trace(); err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	if err := s.Restore(); err != nil && !results.TraceFailed(m.out.Configurations) {
		return nil, err
	}
	return &m.out, nil
}

// underLoad reads the machine while steps run. Between steps it would find
// clocks that fall within milliseconds, and within a block it would be timed.
// What these steps launch is in no count.
func (m *measurement) underLoad() error {
	if m.plan.Machine == nil || len(m.keys) == 0 {
		return nil
	}
	m.phase("read the machine under load")
	m.plan.Phases.Begin(results.PhaseUnderLoad)
	x := m.executors[len(m.executors)-1]
	if err := m.start(x); err != nil {
		return err
	}
	n := 1 // steps between waits, in the end as many as keep the device at work
	load := func() error {
		begin := m.clock.Now()
		if err := x.Submit(n); err != nil {
			return err
		}
		if err := x.Wait(); err != nil {
			return err
		}
		if m.clock.Now()-begin < loadWait {
			n = min(2*n, m.plan.Steps)
		}
		return m.ctx.Err()
	}
	// First the clocks come back up after what was not steps.
	for begin := m.clock.Now(); m.clock.Now()-begin < loadBefore; {
		if err := load(); err != nil {
			return err
		}
	}
	read := make(chan []results.Reading, 1)
	go func() { read <- m.plan.Machine() }()
	for {
		select {
		case m.out.Readings = <-read:
			return m.ctx.Err()
		default:
		}
		if err := load(); err != nil {
			<-read // it uses the device
			return err
		}
	}
}

// Before the machine is read under load, steps run for loadBefore, with a wait
// every loadWait or so.
const (
	loadBefore = 50 * time.Millisecond
	loadWait   = 10 * time.Millisecond
)

type measurement struct {
	ctx       context.Context
	session   Session
	plan      Schedule
	clock     Clock
	events    func(Event)
	keys      []results.ConfigurationKey
	executors []Executor
	samples   *sampleSet
	readings  [][]results.Reading // after blocks, by configuration
	out       Measured
}

// shown is a configuration's part of a phase, as a tool sees it.
type shown struct{ phase, configuration nvtx.Span }

// show tells a tool that a phase begins on a configuration; n is its number.
func (m *measurement) show(phase string, i, n int) shown {
	if m.plan.Tool == nil {
		return shown{}
	}
	return shown{
		m.plan.Tool.StartInt(phase, nvtx.Phase.Look(), int64(n)),
		m.plan.Tool.Start(m.keys[i].String(), nvtx.Configuration.Look()),
	}
}

func (s shown) end() {
	s.configuration.End()
	s.phase.End()
}

func (m *measurement) phase(text string) { m.events(Event{Phase: text}) }

// take keeps samples and tells of them.
func (m *measurement) take(t Taken) {
	m.samples.add(t)
	m.events(Event{Taken: &t})
}

// blocks times all blocks, or as many as the deadline allows: always whole
// pairs of an order and its reverse, if the plan has whole pairs.
func (m *measurement) blocks() error {
	pair := m.clock.Now()
	for block, order := range Order(len(m.keys), m.plan.Blocks, m.plan.Order) {
		if block%LeastBlocks == 0 {
			now := m.clock.Now()
			if m.plan.Deadline > 0 && block > 0 && now+(now-pair) > m.plan.Deadline {
				break
			}
			pair = now
		}
		for position, i := range order {
			m.phase(fmt.Sprintf("block %d of %d, %s", block+1, m.plan.Blocks, m.keys[i]))
			shown := m.show("block", i, block)
			err := m.block(i, Taken{Configuration: i, Block: block, Position: position, Timed: true})
			shown.end()
			if err != nil {
				return fmt.Errorf("block %d, %s: %w", block, m.keys[i], err)
			}
		}
		m.out.Blocks++
	}
	return nil
}

// start restores the session and begins; what follows is steps alone.
func (m *measurement) start(x Executor) error {
	if err := m.ctx.Err(); err != nil {
		return err
	}
	if err := m.session.Restore(); err != nil {
		return err
	}
	return x.Begin()
}

// block times one block, with the collector off: the steps back to back, then
// single ones, then what the device can tell of the overhead.
func (m *measurement) block(i int, t Taken) error {
	x := m.executors[i]
	m.plan.Phases.Begin(results.PhaseRestore)
	if err := m.start(x); err != nil {
		return err
	}
	if err := m.timed(i, x, &t); err != nil {
		return err
	}
	m.plan.Phases.Begin(results.PhaseRestore)
	if m.plan.AfterBlock != nil {
		m.readings[i] = append(m.readings[i], m.plan.AfterBlock()...)
	}
	m.take(t)
	return nil
}

// spreads sums up readings by name, in the order of the first of each.
func spreads(readings []results.Reading) []results.Spread {
	var out []results.Spread
	values := map[string][]float64{}
	for _, r := range readings {
		if values[r.Name] == nil {
			out = append(out, results.Spread{Name: r.Name, Unit: r.Unit})
		}
		values[r.Name] = append(values[r.Name], r.Value)
	}
	for i := range out {
		s, v := &out[i], values[out[i].Name]
		s.Min, s.Median, s.Max, s.N = slices.Min(v), results.Median(v), slices.Max(v), len(v)
		s.Processes = []float64{s.Median}
	}
	return out
}

func (m *measurement) timed(i int, x Executor, t *Taken) error {
	defer quietGC()()
	m.plan.Phases.Begin(results.PhaseBlocks)
	if err := m.backToBack(x, t); err != nil {
		return err
	}
	m.plan.Phases.Begin(results.PhaseSingleSteps)
	for range m.plan.Single {
		if err := m.ctx.Err(); err != nil {
			return err
		}
		if err := m.single(x, t); err != nil {
			return err
		}
	}
	if c, ok := x.(SkipCounter); ok {
		n, err := c.Skipped()
		if err != nil {
			return err
		}
		m.out.Skipped[i] += n
	}
	return m.overhead(i, x, t)
}

// backToBack times the block's steps with one wait after them, by the host's
// clock and, where the device can, by events.
func (m *measurement) backToBack(x Executor, t *Taken) error {
	timer, _ := x.(EventTimer)
	defer m.plan.Tool.StartInt("steps", nvtx.Phase.Look(), int64(m.plan.Steps)).End()
	begin, cpu := m.clock.Now(), m.clock.CPU()
	if timer != nil {
		if err := timer.MarkBegin(); err != nil {
			return err
		}
	}
	if err := x.Submit(m.plan.Steps); err != nil {
		return err
	}
	if timer != nil {
		if err := timer.MarkEnd(); err != nil {
			return err
		}
	}
	if err := x.Wait(); err != nil {
		return err
	}
	step := perStep(m.clock.Now()-begin, m.plan.Steps)
	t.add(results.StepTimeNs, 0, step)
	t.add(results.CPUTimeNs, 0, perStep(m.clock.CPU()-cpu, m.plan.Steps))
	t.add(results.ImagesPerS, 0, float64(m.plan.Images)/(max(step, 1)/1e9))
	if timer == nil {
		return nil
	}
	between, err := timer.EventTime()
	if err != nil {
		return err
	}
	t.add(results.StepTimeEventsNs, 0, perStep(between, m.plan.Steps))
	return nil
}

// single times one step submitted to a drained device, and where the host's
// time goes in it.
func (m *measurement) single(x Executor, t *Taken) error {
	x.Clocks()
	defer m.plan.Tool.Start("single_step", nvtx.Phase.Look()).End()
	begin := m.clock.Now()
	if err := x.Submit(1); err != nil {
		return err
	}
	clocks := x.Clocks()
	if err := x.Wait(); err != nil {
		return err
	}
	t.add(results.LatencyNs, 0, perStep(m.clock.Now()-begin, 1))
	launches := x.Counts().Launches.Host
	for rank, c := range clocks {
		t.add(results.SubmitTimeNs, rank, perStep(c.Submit, 1))
		t.add(results.SyncWaitNs, rank, perStep(c.SyncWait, 1))
		t.add(results.HostTimeNs, rank, perStep(c.Host, 1))
		if outer, ok := c.outer(); ok {
			t.add(results.OuterTimeNs, rank, perStep(outer, 1))
		}
		if launches != nil && *launches > 0 {
			t.add(results.LaunchCostNs, rank, perStep(c.Submit, int(*launches)))
		}
	}
	return nil
}

// overhead asks the executor for its launch overhead, or why there is none.
func (m *measurement) overhead(i int, x Executor, t *Taken) error {
	meter, ok := x.(OverheadMeter)
	if !ok {
		m.absent(i, results.LaunchOverheadNs, "the device has no events to measure it with")
		return nil
	}
	m.plan.Phases.Begin(results.PhaseLaunchOverhead)
	if err := m.start(x); err != nil {
		return err
	}
	shown := m.plan.Tool.Start("launch_overhead", nvtx.Phase.Look())
	d, why, err := meter.LaunchOverhead(m.plan.Steps)
	shown.End()
	switch {
	case err != nil:
		return err
	case why != "":
		m.absent(i, results.LaunchOverheadNs, why)
		return nil
	}
	t.add(results.LaunchOverheadNs, 0, perStep(d, 1))
	return nil
}

func (m *measurement) absent(i int, metric, why string) {
	c := &m.out.Configurations[i]
	if a := (results.Absence{Metric: metric, Why: why}); !slices.Contains(c.Absent, a) {
		c.Absent = append(c.Absent, a)
	}
}

func (t *Taken) add(metric string, rank int, v float64) {
	t.Values = append(t.Values, Value{metric, rank, v})
}

func perStep(d time.Duration, steps int) float64 {
	return float64(d.Nanoseconds()) / float64(steps)
}

// preparation names the metric of each phase of preparing; all phases count in
// prepare_ns.
var preparation = map[string]string{
	"capture": results.CaptureNs, "capture_collectives": results.CaptureNs, "instantiate": results.InstantiateNs,
	"upload": results.UploadNs, "first_replay": results.FirstReplayNs,
}

// describe adds what an executor knows of itself after its blocks.
func (m *measurement) describe(i int) {
	x, c := m.executors[i], &m.out.Configurations[i]
	c.Prepare, c.Captures, c.Counts = x.Costs(), x.Captures(), x.Counts()
	for _, p := range c.Prepare {
		for j := range p.Memory {
			p.Memory[j].Process = m.plan.Process
		}
	}
	c.Machine = spreads(m.readings[i])
	sums := map[string]float64{}
	for _, p := range c.Prepare {
		sums[results.PrepareNs] += float64(p.Ns)
		if name, ok := preparation[p.Phase]; ok {
			sums[name] += float64(p.Ns)
		}
	}
	t := Taken{Configuration: i}
	for _, d := range results.Definitions() {
		if v, ok := sums[d.Name]; ok {
			t.add(d.Name, 0, v)
		}
	}
	m.take(t)
	c.Metrics = m.samples.metrics(i)
}

// quietGC collects now and keeps the collector off until the returned
// function is called.
func quietGC() func() {
	runtime.GC()
	old := debug.SetGCPercent(-1)
	return func() { debug.SetGCPercent(old) }
}
