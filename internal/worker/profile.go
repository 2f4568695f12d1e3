package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/nvtx"
	"github.com/tech-renaissance/trbench/results"
)

// Profile runs the one configuration of a request for a profiler: it is
// verified and warmed up (req.Warmup steps), then req.Steps steps are run
// between the driver's ProfilerStart and ProfilerStop on every rank, inside a
// span of the name [nvtx.ProfileName]. Nothing is timed.
func Profile(ctx context.Context, dev device.Device, req bench.CellRequest) (verify results.Verify, err error) {
	if len(req.Configurations) != 1 {
		return verify, fmt.Errorf("profile: %d configurations; a profiler is shown one", len(req.Configurations))
	}
	defer req.Tool.Start(nvtx.RunName, nvtx.Run.Look()).End()
	defer req.Tool.Start(req.Cell.Name(), nvtx.Cell.Look()).End()
	s, verify, err := openCell(ctx, dev, req)
	if err != nil {
		return verify, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	x, err := s.Executor(req.Configurations[0])
	if err != nil {
		return verify, err
	}
	defer req.Tool.Start(x.key.String(), nvtx.Configuration.Look()).End()
	if err := s.Restore(); err != nil {
		return verify, err
	}
	if err := x.Begin(); err != nil {
		return verify, err
	}
	if req.Warmup != nil && *req.Warmup > 0 {
		shown := req.Tool.StartInt("warm_up", nvtx.Phase.Look(), int64(*req.Warmup))
		err := errors.Join(x.Submit(*req.Warmup), x.Wait())
		shown.End()
		if err != nil {
			return verify, fmt.Errorf("warm up %s: %w", x.key, err)
		}
	}
	if err := ctx.Err(); err != nil {
		return verify, err
	}
	if err := s.profile(x, req); err != nil {
		return verify, err
	}
	return verify, s.Restore()
}

// profile runs the steps that a profiler is shown.
func (s *Session) profile(x *Executor, req bench.CellRequest) error {
	err := s.each(func(r device.Rank) error {
		if p, ok := r.(device.Profiler); ok {
			return p.ProfilerStart()
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("begin the profiler's capture: %w", err)
	}
	shown := req.Tool.StartInt(nvtx.ProfileName, nvtx.Phase.Look(), int64(req.Steps))
	err = errors.Join(x.Submit(req.Steps), x.Wait())
	shown.End()
	if s.stuck != nil {
		return err
	}
	stop := s.each(func(r device.Rank) error {
		if p, ok := r.(device.Profiler); ok {
			return p.ProfilerStop()
		}
		return nil
	})
	if stop != nil {
		stop = fmt.Errorf("end the profiler's capture: %w", stop)
	}
	return errors.Join(err, stop)
}
