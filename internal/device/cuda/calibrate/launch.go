package calibrate

import (
	"errors"
	"fmt"
	"math"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
)

// chains are the node counts measured, as scripts/launch_floor.cu has them.
var chains = []int{1, 10, 100, 300, 1000}

// Shares of the time and sizes of batches. A batch of launches is far below
// the thousand or so that a stream holds, after which a submission waits.
const (
	callShare    = 5 * time.Millisecond
	kernelShare  = 40 * time.Millisecond
	prepareShare = 40 * time.Millisecond // of each chain: capture, instantiate, first launch
	graphShare   = 50 * time.Millisecond // of each chain: submissions
	waitShare    = 30 * time.Millisecond // of each chain: end to end, and between events
	callBatch    = 1000
	kernelBatch  = 100
	most         = 30 // observations
	mostPrepare  = 5
)

// calls measures the binding alone.
func (s *stand) calls() error {
	nop, err := s.api.PrepareNop(s.mem)
	if err != nil {
		return err
	}
	all, err := s.sample(callShare, most, s.submitting(callBatch, nop))
	if err != nil {
		return err
	}
	s.median("call.driver_ns", all)
	return nil
}

func (s *stand) kernels() error {
	for _, k := range []struct {
		name string
		l    *driver.Launch
	}{{"launch.kernel_ns", s.empty[0]}, {"launch.kernel_dependent_ns", s.dependent}} {
		if k.l == nil {
			continue
		}
		all, err := s.sample(kernelShare, most, s.submitting(kernelBatch, k.l))
		if err != nil {
			return err
		}
		s.median(k.name, all)
	}
	return nil
}

// graphs measures chains by their length, and draws lines through what they
// take.
func (s *stand) graphs() error {
	var x, host, e2e, gpu []float64
	for _, n := range chains {
		exec, err := s.prepareChain(n)
		if err != nil {
			return fmt.Errorf("a graph of %d nodes: %w", n, err)
		}
		h, e, g, err := s.chain(n, exec)
		if err != nil {
			return fmt.Errorf("a graph of %d nodes: %w", n, err)
		}
		x, host, e2e, gpu = append(x, float64(n)), append(host, h), append(e2e, e), append(gpu, g)
		if err := s.drop(exec); err != nil {
			return err
		}
	}
	s.fit("launch.graph_fit", x, host)
	s.fit("graph.e2e_fit", x, e2e)
	s.fit("graph.gpu_fit", x, gpu)
	return nil
}

// fit adds the straight line through points.
func (s *stand) fit(name string, x, y []float64) {
	base, node := stat.LinearRegression(x, y, nil, false)
	s.add(name+"_base_ns", unitNs, base, len(x))
	s.add(name+"_node_ns", unitNs, node, len(x))
	if r2 := stat.RSquared(x, y, nil, base, node); !math.IsNaN(r2) && !math.IsInf(r2, 0) {
		s.add(name+"_r2", "ratio", r2, len(x))
	}
}

// captureChain captures n launches of a kernel, one after another.
func (s *stand) captureChain(n int, kernel *driver.Launch) (driver.Graph, error) {
	return s.capture(func() error {
		for range n {
			if err := s.submit(kernel); err != nil {
				return err
			}
		}
		return nil
	})
}

// prepareChain makes a chain a few times over, with its costs, and returns the
// last.
func (s *stand) prepareChain(n int) (driver.GraphExec, error) {
	var capture, instantiate, first []float64
	var exec driver.GraphExec
	f := func() (float64, error) {
		if exec != 0 {
			// An exec's memory comes back late: the old one goes first.
			if err := s.drop(exec); err != nil {
				return 0, err
			}
			exec = 0
		}
		t0 := s.nowNs()
		g, err := s.captureChain(n, s.empty[0])
		if err != nil {
			return 0, err
		}
		t1 := s.nowNs()
		x, err := s.instantiate(g)
		if err != nil {
			return 0, err
		}
		t2 := s.nowNs()
		launch, err := s.api.PrepareGraphLaunch(x, s.streams[0])
		if err != nil {
			return 0, err
		}
		t3 := s.nowNs()
		if err := s.submit(launch); err != nil {
			return 0, err
		}
		t4 := s.nowNs()
		exec = x
		capture, instantiate, first = append(capture, float64(t1-t0)), append(instantiate, float64(t2-t1)), append(first, float64(t4-t3))
		return 0, s.api.StreamSynchronize(s.streams[0])
	}
	all, err := s.sample(prepareShare, mostPrepare, f)
	if err != nil {
		return exec, err
	}
	skip := len(capture) - len(all) // what warmed up
	s.median(fmt.Sprintf("graph.capture_%d_ns", n), capture[skip:])
	s.median(fmt.Sprintf("graph.instantiate_%d_ns", n), instantiate[skip:])
	s.median(fmt.Sprintf("graph.first_launch_%d_ns", n), first[skip:])
	return exec, nil
}

// chain measures replays of a chain: submission, end to end, between events.
func (s *stand) chain(n int, exec driver.GraphExec) (host, e2e, gpu float64, err error) {
	launch, err := s.api.PrepareGraphLaunch(exec, s.streams[0])
	if err != nil {
		return 0, 0, 0, err
	}
	batch := max(5, min(20, 3000/n))
	all, err := s.sample(graphShare, most, s.submitting(batch, launch))
	if err != nil {
		return 0, 0, 0, err
	}
	host = s.median(fmt.Sprintf("launch.graph_%d_ns", n), all)
	if all, err = s.sample(waitShare, most, func() (float64, error) { return s.roundTrip(launch, s.streamIdle) }); err != nil {
		return 0, 0, 0, err
	}
	e2e = s.median(fmt.Sprintf("graph.e2e_%d_ns", n), all)
	if all, err = s.sample(waitShare, most, func() (float64, error) { return s.span(func() error { return s.submit(launch) }) }); err != nil {
		return 0, 0, 0, err
	}
	gpu = s.median(fmt.Sprintf("graph.gpu_%d_ns", n), all)
	return host, e2e, gpu, nil
}

// roundTrip is the host time from before a submission to behind a wait.
func (s *stand) roundTrip(l *driver.Launch, wait func() error) (float64, error) {
	begin := s.nowNs()
	if err := s.submit(l); err != nil {
		return 0, err
	}
	if err := wait(); err != nil {
		return 0, err
	}
	return float64(s.nowNs() - begin), nil
}

func (s *stand) streamIdle() error { return s.api.StreamSynchronize(s.streams[0]) }

// capture records what f submits to the first stream, and to streams that join
// it. A failure ends the capture; the first one is returned.
func (s *stand) capture(f func() error) (driver.Graph, error) {
	if err := s.api.StreamBeginCapture(s.streams[0], driver.CaptureThreadLocal); err != nil {
		return 0, err
	}
	failed := f()
	g, err := s.api.StreamEndCapture(s.streams[0])
	if failed == nil && err == nil {
		return g, nil
	}
	if failed != nil && err != nil {
		err = nil // the end fails because of the first failure
	} else if err == nil {
		err = s.api.GraphDestroy(g)
	}
	return 0, errors.Join(failed, err)
}

// instantiate makes an exec that close gives back, and destroys the graph.
func (s *stand) instantiate(g driver.Graph) (driver.GraphExec, error) {
	x, err := s.api.GraphInstantiate(g, 0)
	if err == nil {
		s.execs = append(s.execs, x)
	}
	return x, errors.Join(err, s.api.GraphDestroy(g))
}

// drop destroys the exec that was made last.
func (s *stand) drop(x driver.GraphExec) error {
	s.execs = s.execs[:len(s.execs)-1]
	return s.api.GraphExecDestroy(x)
}
