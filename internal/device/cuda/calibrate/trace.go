package calibrate

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/tech-renaissance/trbench/internal/cuda/cupti"
	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/timeline"
)

// The chains that recording is calibrated with, how often each is replayed, and
// how many launches the layers of one are taken from.
const (
	shortChain  = 100
	longChain   = 300
	chainRounds = 15
	launches    = 200
)

// kernelCall is the driver's call that the launches are made by.
const kernelCall = "cuLaunchKernel"

// Trace measures on a GPU by its ordinal what recording does to short kernels and
// to launches: a chain of empty kernels in a graph, which the host has no part
// in, with and without recording, and single launches on an idle GPU. open opens
// CUPTI and is called after all that is measured without it. One recording runs
// in a process, and this is one. What was measured before a failure is returned
// beside it.
func Trace(api *driver.API, gpu int, open func() (*cupti.API, error)) (*results.TraceCalibration, error) {
	t := device.NewThread(nil)
	defer t.Stop()
	var out *results.TraceCalibration
	err := t.Do(func() (err error) {
		s, err := newStand(api, gpu)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.close()) }()
		out, err = s.trace(open)
		return err
	})
	if err != nil {
		return out, fmt.Errorf("calibrate recording on GPU %d: %w", gpu, err)
	}
	return out, nil
}

func (s *stand) trace(open func() (*cupti.API, error)) (*results.TraceCalibration, error) {
	var chains [2]*driver.Launch
	for i, n := range []int{shortChain, longChain} {
		exec, err := s.chainOf(n)
		if err != nil {
			return nil, err
		}
		if chains[i], err = s.api.PrepareGraphLaunch(exec, s.streams[0]); err != nil {
			return nil, err
		}
	}
	slope := func() (float64, error) {
		short, err := s.span(func() error { return s.submit(chains[0]) })
		if err != nil {
			return 0, err
		}
		long, err := s.span(func() error { return s.submit(chains[1]) })
		return (long - short) / (longChain - shortChain), err
	}
	untraced, err := repeat(chainRounds, slope)
	if err != nil {
		return nil, err
	}
	out := &results.TraceCalibration{UntracedNs: results.Median(untraced)}
	empty, err := s.emptyCalls()
	if err != nil {
		return nil, err
	}
	out.Costs = append(out.Costs, cost(results.LayerLanguage, "", empty))
	alone, err := repeat(launches, s.oneLaunch)
	if err != nil {
		return nil, err
	}

	a, err := open()
	if err != nil {
		return out, err
	}
	begun, err := a.Start(cupti.Config{})
	if err != nil {
		return out, err
	}
	var replays, single cupti.Records
	record := func(into *cupti.Records, n int, f func() (float64, error)) error {
		if _, err := repeat(n, f); err != nil {
			return err
		}
		return begun.Drain(into)
	}
	replay := func() (float64, error) {
		if err := s.submit(chains[1]); err != nil {
			return 0, err
		}
		return 0, s.streamIdle()
	}
	err = record(&replays, chainRounds, replay)
	if err == nil {
		err = record(&single, launches, s.oneLaunch)
	}
	if err := errors.Join(err, begun.Stop()); err != nil {
		return out, err
	}
	if err := lengthening(out, &replays, untraced); err != nil {
		return out, err
	}
	out.Costs = append(out.Costs, layers(single.Timeline(cupti.Naming{Call: a.CallName}), alone)...)
	return out, nil
}

// repeat observes f n times, after a first time that does not count.
func repeat(n int, f func() (float64, error)) ([]float64, error) {
	var all []float64
	for i := range n + 1 {
		v, err := f()
		if err != nil {
			return nil, err
		}
		if i > 0 {
			all = append(all, v)
		}
	}
	return all, nil
}

// chainOf makes a graph of n empty kernels.
func (s *stand) chainOf(n int) (driver.GraphExec, error) {
	g, err := s.captureChain(n, s.empty[0])
	if err != nil {
		return 0, err
	}
	return s.instantiate(g)
}

// emptyCalls are calls that do nothing, one by one, less the clock's own reading.
func (s *stand) emptyCalls() ([]int64, error) {
	nop, err := s.api.PrepareNop(s.mem)
	if err != nil {
		return nil, err
	}
	var clock, out []int64
	for range callBatch {
		begin := time.Now()
		clock = append(clock, int64(time.Since(begin)))
	}
	slices.Sort(clock)
	for i := range callBatch + callBatch/10 {
		begin := time.Now()
		code := s.api.Submit(nop)
		took := int64(time.Since(begin))
		if code != driver.Success {
			return nil, s.api.LaunchError(nop, code)
		}
		if i >= callBatch/10 { // the first ones warm up
			out = append(out, max(0, took-clock[len(clock)/2]))
		}
	}
	return out, nil
}

// oneLaunch is the host's time of a launch on an idle GPU, which then is waited
// for.
func (s *stand) oneLaunch() (float64, error) {
	begin := s.nowNs()
	if err := s.submit(s.empty[0]); err != nil {
		return 0, err
	}
	took := s.nowNs() - begin
	return float64(took), s.streamIdle()
}

// lengthening compares the chain on record with the chain that was not.
func lengthening(out *results.TraceCalibration, r *cupti.Records, untraced []float64) error {
	slices.SortFunc(r.Kernels, func(a, b cupti.Kernel) int { return int(a.StartNs - b.StartNs) })
	byReplay := map[uint32][]cupti.Kernel{}
	var order []uint32
	for _, k := range r.Kernels {
		if k.StartNs <= 0 || k.EndNs < k.StartNs {
			continue
		}
		if byReplay[k.Correlation] == nil {
			order = append(order, k.Correlation)
		}
		byReplay[k.Correlation] = append(byReplay[k.Correlation], k)
	}
	var lengths, periods []float64 // means, by replay
	for i, c := range order {
		all := byReplay[c]
		if i == 0 || len(all) != longChain { // the first warms up
			continue
		}
		sum := 0.0
		for _, k := range all {
			sum += float64(k.EndNs - k.StartNs)
		}
		out.Kernels += len(all)
		lengths = append(lengths, sum/longChain)
		periods = append(periods, float64(all[longChain-1].StartNs-all[0].StartNs)/(longChain-1))
	}
	if len(lengths) < 3 {
		return fmt.Errorf("of %d replays of a graph of %d kernels, CUPTI recorded %d node by node (%d kernels in all)", chainRounds+1, longChain, len(lengths), len(r.Kernels))
	}
	out.TracedNs, out.PeriodNs = results.Median(lengths), results.Median(periods)
	out.ByNs = out.TracedNs - out.UntracedNs
	out.UncertaintyNs = 2 * math.Hypot(spread(lengths), spread(untraced))
	return nil
}

// spread is the standard error of a mean; a median's is a quarter larger.
func spread(all []float64) float64 {
	return 1.25 * stat.StdErr(stat.StdDev(all, nil), float64(len(all)))
}

// layers are the driver's and the hardware's share of single launches on an idle
// GPU, which alone took the host some time without recording.
func layers(t *timeline.Timeline, alone []float64) []results.LaunchCost {
	x := timeline.NewIndex(t)
	var calls, starts []int64
	first := true
	for i := range t.Calls {
		c := &t.Calls[i]
		if x.OpsOf[i] != 1 || c.Class != timeline.CallLaunch {
			continue
		}
		if first { // it warms up
			first = false
			continue
		}
		calls = append(calls, c.EndNs-c.StartNs)
		for op, by := range x.Launch {
			if by == int32(i) && t.Ops[op].Timed {
				starts = append(starts, t.Ops[op].StartNs-c.EndNs)
			}
		}
	}
	if len(calls) == 0 {
		return nil
	}
	call := cost(results.LayerDriver, kernelCall, calls)
	if v := results.Median(alone); v > 0 {
		call.Inflation = new(float64)
		*call.Inflation = float64(call.MedianNs) / v
	}
	return []results.LaunchCost{call, cost(results.LayerHardware, kernelCall, starts)}
}

func cost(layer, call string, all []int64) results.LaunchCost {
	d := timeline.Distribute(all)
	return results.LaunchCost{Layer: layer, Call: call, Count: int64(d.Count), MedianNs: d.P50Ns, P99Ns: d.P99Ns}
}
