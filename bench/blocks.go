package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/tech-renaissance/trbench/results"
)

// Check runs the reference and every other configuration from the session's
// snapshot and compares what they leave behind, bit for bit. A difference is a
// [*DisagreementError] without its Cell. The evidence names every
// configuration that ran.
func Check(ctx context.Context, s Session, reference results.ConfigurationKey, others []results.ConfigurationKey, steps int) (results.Verify, error) {
	v := results.Verify{Steps: steps}
	run := func(k results.ConfigurationKey) (State, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		x, err := s.Executor(k)
		if err != nil {
			return nil, fmt.Errorf("prepare %s: %w", k, err)
		}
		if err := s.Restore(); err != nil {
			return nil, fmt.Errorf("check %s: %w", k, err)
		}
		if err := x.Rehearse(steps); err != nil {
			return nil, fmt.Errorf("check %s: %w", k, err)
		}
		st, err := x.State()
		if err != nil {
			return nil, fmt.Errorf("check %s: %w", k, err)
		}
		v.Modes = append(v.Modes, k.String())
		return st, nil
	}
	want, err := run(reference)
	if err != nil {
		return v, err
	}
	v.Tensors, v.Bytes = want.Tensors(), want.Bytes()
	for _, k := range others {
		if k == reference {
			continue
		}
		got, err := run(k)
		if err != nil {
			return v, err
		}
		if d := got.Diff(want); d != nil {
			return v, &DisagreementError{Reference: reference, Other: k,
				Rank: d.Rank, Tensor: d.Tensor, Index: d.Index, Detail: d.Detail}
		}
	}
	v.Equal = true
	return v, s.Restore()
}

// Schedule says how often things are timed.
type Schedule struct {
	// Steps are those of a block, Blocks the blocks of each configuration.
	Steps, Blocks int
	// Warmup are untimed steps of each configuration before all blocks.
	Warmup int
	// Single are the steps of a block that are timed one by one, each
	// submitted to a drained device.
	Single int
	Seed   uint64
	// Images is what one step of the whole job trains on.
	Images int
	// Process goes into the samples.
	Process int
}

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

// Measure warms every configuration up and times its blocks. The session is
// restored before each block. It returns one element a configuration, in the
// order of keys. Nothing else may run on the session meanwhile; the garbage
// collector is off inside timed windows. It ends early, between steps, if ctx
// does.
func Measure(ctx context.Context, s Session, keys []results.ConfigurationKey, p Schedule, progress func(string)) ([]results.Configuration, error) {
	if progress == nil {
		progress = func(string) {}
	}
	m := measurement{ctx: ctx, session: s, plan: p, samples: make([]map[string][]results.Sample, len(keys))}
	executors := make([]Executor, len(keys))
	for i, k := range keys {
		x, err := s.Executor(k)
		if err != nil {
			return nil, fmt.Errorf("prepare %s: %w", k, err)
		}
		executors[i], m.samples[i] = x, map[string][]results.Sample{}
	}
	for i, k := range keys {
		progress("warm up " + k.String())
		if err := m.warmUp(executors[i]); err != nil {
			return nil, fmt.Errorf("warm up %s: %w", k, err)
		}
	}
	for block, order := range Order(len(keys), p.Blocks, p.Seed) {
		for position, i := range order {
			progress(fmt.Sprintf("block %d of %d, %s", block+1, p.Blocks, keys[i]))
			if err := m.block(i, executors[i], results.Sample{Process: p.Process, Block: block, Position: position}); err != nil {
				return nil, fmt.Errorf("block %d, %s: %w", block, keys[i], err)
			}
		}
	}
	out := make([]results.Configuration, len(keys))
	for i, k := range keys {
		out[i] = results.Configuration{Key: k, Prepare: executors[i].Costs(),
			Captures: executors[i].Captures(), Counts: executors[i].Counts()}
		for _, d := range results.Definitions() {
			if samples := m.samples[i][d.Name]; len(samples) > 0 {
				out[i].Metrics = append(out[i].Metrics, results.NewMetric(d.Name, samples))
			}
		}
	}
	return out, s.Restore()
}

type measurement struct {
	ctx     context.Context
	session Session
	plan    Schedule
	samples []map[string][]results.Sample
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

func (m *measurement) warmUp(x Executor) error {
	if m.plan.Warmup == 0 {
		return nil
	}
	if err := m.start(x); err != nil {
		return err
	}
	if err := x.Submit(m.plan.Warmup); err != nil {
		return err
	}
	return x.Wait()
}

// block times one block: the steps back to back, then single ones.
func (m *measurement) block(i int, x Executor, at results.Sample) error {
	if err := m.start(x); err != nil {
		return err
	}
	defer quietGC()()
	add := func(name string, rank int, v float64) {
		s := at
		s.Rank, s.Value = rank, v
		m.samples[i][name] = append(m.samples[i][name], s)
	}
	begin := time.Now()
	if err := x.Submit(m.plan.Steps); err != nil {
		return err
	}
	if err := x.Wait(); err != nil {
		return err
	}
	step := float64(time.Since(begin).Nanoseconds()) / float64(m.plan.Steps)
	add(results.StepTimeNs, 0, step)
	add(results.ImagesPerS, 0, float64(m.plan.Images)/(max(step, 1)/1e9))

	for range m.plan.Single {
		if err := m.ctx.Err(); err != nil {
			return err
		}
		x.Clocks()
		begin := time.Now()
		if err := x.Submit(1); err != nil {
			return err
		}
		clocks := x.Clocks()
		if err := x.Wait(); err != nil {
			return err
		}
		add(results.LatencyNs, 0, float64(time.Since(begin).Nanoseconds()))
		for rank, c := range clocks {
			add(results.SubmitTimeNs, rank, float64(c.Submit.Nanoseconds()))
			add(results.SyncWaitNs, rank, float64(c.SyncWait.Nanoseconds()))
			add(results.HostTimeNs, rank, float64(c.Host.Nanoseconds()))
		}
	}
	return nil
}

// quietGC collects now and keeps the collector off until the returned
// function is called.
func quietGC() func() {
	runtime.GC()
	old := debug.SetGCPercent(-1)
	return func() { debug.SetGCPercent(old) }
}
