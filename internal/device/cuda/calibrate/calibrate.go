package calibrate

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/device/cuda/kernels"
	"github.com/tech-renaissance/trbench/results"
)

// Budget is how long the measurements take at most, with what the last
// observation of each overruns. Creating the GPU's context, where nobody else holds
// it, comes before and takes some tenths of a second.
const Budget = 1400 * time.Millisecond

// Run measures on a GPU by its ordinal, on a locked thread of its own. What
// was measured before a failure is returned beside it.
func Run(api *driver.API, gpu int) ([]results.Reading, error) {
	t := device.NewThread(nil)
	defer t.Stop()
	var out []results.Reading
	err := t.Do(func() (err error) {
		s, err := newStand(api, gpu)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.close()) }()
		err = s.all()
		out = s.out
		return err
	})
	if err != nil {
		return out, fmt.Errorf("calibrate GPU %d: %w", gpu, err)
	}
	return out, nil
}

// maxWidth is the widest fork.
const maxWidth = 4

// stand is what is measured on. It belongs to one thread.
type stand struct {
	api     *driver.API
	mem     *driver.Memory
	dev     driver.Device
	ctx     driver.Context
	mod     driver.Module
	streams []driver.Stream // the first is the chain's, the others fork from it
	begin   driver.Event    // both allow timing
	end     driver.Event
	fork    driver.Event
	joins   []driver.Event
	execs   []driver.GraphExec

	empty     []*driver.Launch // a stream
	dependent *driver.Launch   // nil below 9.0
	burn      *driver.Launch   // on the first stream: about 50 us of one thread
	burnTwice *driver.Launch   // twice as many cycles
	burnLong  *driver.Launch   // twenty times

	start time.Time
	out   []results.Reading
}

// burnTime is about how long a burn lasts.
const burnTime = 50 * time.Microsecond

func newStand(api *driver.API, gpu int) (_ *stand, err error) {
	s := &stand{api: api, mem: driver.NewMemory()}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.dev, err = api.DeviceGet(gpu); err != nil {
		return nil, err
	}
	if s.ctx, err = api.DevicePrimaryCtxRetain(s.dev); err != nil {
		return nil, err
	}
	if err := api.CtxSetCurrent(s.ctx); err != nil {
		return nil, err
	}
	for range 1 + maxWidth {
		h, err := api.StreamCreate(driver.StreamNonBlocking)
		if err != nil {
			return nil, err
		}
		s.streams = append(s.streams, h)
	}
	for _, e := range []*driver.Event{&s.begin, &s.end} {
		if *e, err = api.EventCreate(driver.EventDefault); err != nil {
			return nil, err
		}
	}
	if s.fork, err = api.EventCreate(driver.EventDisableTiming); err != nil {
		return nil, err
	}
	for range maxWidth {
		e, err := api.EventCreate(driver.EventDisableTiming)
		if err != nil {
			return nil, err
		}
		s.joins = append(s.joins, e)
	}
	if err := s.load(); err != nil {
		return nil, err
	}
	s.start = time.Now()
	return s, nil
}

// load makes the launches.
func (s *stand) load() error {
	cc := [2]int{}
	for i, attr := range []driver.DeviceAttribute{driver.DeviceComputeCapabilityMajor, driver.DeviceComputeCapabilityMinor} {
		v, err := s.api.DeviceGetAttribute(s.dev, attr)
		if err != nil {
			return err
		}
		cc[i] = v
	}
	modules, err := kernels.Modules(cc[0], cc[1])
	if err != nil {
		return err
	}
	declared, _ := kernels.Lookup(kernels.Empty)
	i := slices.IndexFunc(modules, func(m kernels.Module) bool { return m.Name == declared.Module })
	if i < 0 {
		return fmt.Errorf("there is no module with the kernel %s", kernels.Empty)
	}
	if s.mod, err = s.api.ModuleLoadData(append(slices.Clone(modules[i].PTX), 0)); err != nil {
		return fmt.Errorf("load module %s: %w", modules[i].Name, err)
	}
	functions := map[string]driver.Function{}
	for _, name := range []string{kernels.Empty, kernels.BurnKernel} {
		f, err := s.api.ModuleGetFunction(s.mod, name)
		if err != nil {
			return err
		}
		if err := s.api.FuncLoad(f); err != nil && !errors.Is(err, driver.NotSupported) {
			return fmt.Errorf("load kernel %s: %w", name, err)
		}
		functions[name] = f
	}
	spec := func(name string, stream driver.Stream, args *driver.Args, attrs ...driver.LaunchAttr) driver.KernelSpec {
		return driver.KernelSpec{Func: functions[name], Name: name, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1},
			Stream: stream, Args: args, Attrs: attrs}
	}
	for _, h := range s.streams {
		l, err := s.api.PrepareKernel(s.mem, spec(kernels.Empty, h, nil))
		if err != nil {
			return err
		}
		s.empty = append(s.empty, l)
	}
	if cc[0] >= 9 {
		if s.dependent, err = s.api.PrepareKernel(s.mem, spec(kernels.Empty, s.streams[0], nil, driver.ProgrammaticSerialization())); err != nil {
			return err
		}
	}
	khz, err := s.api.DeviceGetAttribute(s.dev, driver.DeviceClockRateKHz)
	if err != nil || khz <= 0 {
		khz = 1_500_000 // newer drivers may stop telling; the burn is measured anyway
	}
	cycles := uint64(burnTime.Microseconds()) * uint64(khz) / 1000
	for _, b := range []struct {
		to    **driver.Launch
		times uint64
	}{{&s.burn, 1}, {&s.burnTwice, 2}, {&s.burnLong, 20}} {
		if *b.to, err = s.api.PrepareKernel(s.mem, spec(kernels.BurnKernel, s.streams[0], (&driver.Args{}).U64(b.times*cycles))); err != nil {
			return err
		}
	}
	return nil
}

// close gives everything back, last made first.
func (s *stand) close() error {
	var errs []error
	try := func(err error) { errs = append(errs, err) }
	if s.ctx != 0 {
		if len(s.streams) > 0 {
			try(s.api.CtxSynchronize())
		}
		for _, x := range s.execs {
			try(s.api.GraphExecDestroy(x))
		}
		if s.mod != 0 {
			try(s.api.ModuleUnload(s.mod))
		}
		for _, e := range append(slices.Clone(s.joins), s.fork, s.end, s.begin) {
			if e != 0 {
				try(s.api.EventDestroy(e))
			}
		}
		for _, h := range s.streams {
			try(s.api.StreamDestroy(h))
		}
		try(s.api.CtxSetCurrent(0))
		try(s.api.DevicePrimaryCtxRelease(s.dev))
		s.ctx = 0
	}
	try(s.mem.Close())
	return errors.Join(errs...)
}

// all makes every measurement.
func (s *stand) all() error {
	for _, part := range []func() error{s.calls, s.kernels, s.graphs, s.idle, s.busy, s.forks} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

func (s *stand) add(name, unit string, v float64, n int) {
	s.out = append(s.out, results.Reading{Name: name, Unit: unit, Value: v, N: n})
}

const unitNs = "ns"

// median adds the middle of what was observed, and returns it.
func (s *stand) median(name string, all []float64) float64 {
	v := results.Median(all)
	s.add(name, unitNs, v, len(all))
	return v
}

func (s *stand) nowNs() int64 { return int64(time.Since(s.start)) }

// sample observes f until there are enough observations or its share of the time
// is used up, at least once. The first call warms up and does not count.
func (s *stand) sample(share time.Duration, most int, f func() (float64, error)) ([]float64, error) {
	if _, err := f(); err != nil {
		return nil, err
	}
	left := Budget - time.Since(s.start)
	end := s.nowNs() + int64(min(share, max(left, 0)))
	var all []float64
	for len(all) == 0 || len(all) < most && s.nowNs() < end {
		v, err := f()
		if err != nil {
			return all, err
		}
		all = append(all, v)
	}
	return all, nil
}

// submit makes the call of a launch.
func (s *stand) submit(l *driver.Launch) error {
	if code := s.api.Submit(l); code != driver.Success {
		return s.api.LaunchError(l, code)
	}
	return nil
}

// submitting is the host time of one submission, over a batch that is drained
// behind the clock's back.
func (s *stand) submitting(n int, ls ...*driver.Launch) func() (float64, error) {
	return func() (float64, error) {
		begin := s.nowNs()
		for range n {
			for _, l := range ls {
				if code := s.api.Submit(l); code != driver.Success {
					return 0, s.api.LaunchError(l, code)
				}
			}
		}
		took := s.nowNs() - begin
		return float64(took) / float64(n), s.api.CtxSynchronize()
	}
}

// span is the GPU's time between events around what f submits. A burn in front
// holds the stream until all is submitted, so that the host's time is not in
// it.
func (s *stand) span(f func() error) (ns float64, err error) {
	stream := s.streams[0]
	for _, step := range []func() error{
		func() error { return s.submit(s.burn) },
		func() error { return s.api.EventRecord(s.begin, stream) },
		f,
		func() error { return s.api.EventRecord(s.end, stream) },
		func() error { return s.api.StreamSynchronize(stream) },
	} {
		if err := step(); err != nil {
			return 0, err
		}
	}
	ms, err := s.api.EventElapsedMs(s.begin, s.end)
	return float64(ms) * 1e6, err
}
