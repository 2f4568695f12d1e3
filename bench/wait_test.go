package bench

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/results"
)

// pacedSession takes known times: 0.3 ms to submit a step and 4 ms more to wait
// for it. Everything around it takes long.
type pacedSession struct {
	fakeSession
	clock   *fakeClock
	pending int
}

type pacedExecutor struct {
	fakeExecutor
	p *pacedSession
}

func (p *pacedSession) pass(d time.Duration) { p.clock.now += d }

func (p *pacedSession) Executor(k results.ConfigurationKey) (Executor, error) {
	return &pacedExecutor{fakeExecutor{s: &p.fakeSession, key: k}, p}, nil
}

func (p *pacedSession) Restore() error { p.pass(time.Hour); return p.fakeSession.Restore() }

func (x *pacedExecutor) Begin() error { x.p.pass(time.Minute); return nil }

func (x *pacedExecutor) Submit(n int) error {
	x.p.pass(time.Duration(n) * 300 * time.Microsecond)
	x.p.clock.cpu += time.Duration(n) * 200 * time.Microsecond
	x.p.pending += n
	return nil
}

func (x *pacedExecutor) Wait() error {
	x.p.pass(time.Duration(x.p.pending) * 4 * time.Millisecond)
	x.p.clock.cpu += time.Duration(x.p.pending) * 700 * time.Microsecond
	x.p.pending = 0
	return nil
}

func (x *pacedExecutor) Clocks() []Clocks {
	return []Clocks{
		{Submit: 210 * time.Microsecond, SyncWait: 70 * time.Microsecond, Host: 20 * time.Microsecond, Outer: 300 * time.Microsecond},
		{Submit: 110 * time.Microsecond, SyncWait: 60 * time.Microsecond, Host: 10 * time.Microsecond, Outer: 180 * time.Microsecond},
	}
}

func (x *pacedExecutor) Counts() results.Counts {
	return results.Counts{Launches: results.Launches{Host: results.Count(10), Graph: results.Count(2), Copy: results.Count(1), Sync: results.Count(5)}}
}

// The numbers of a record are those of the clock: with the wait, without what
// lies around a block, over the steps of it.
func TestNumbersAreTheClocks(t *testing.T) {
	clock := &fakeClock{}
	p := Schedule{Steps: 10, Blocks: 2, Single: 3, Warmup: new(4), Order: 1, Images: 64, Clock: clock}
	got, err := Measure(context.Background(), &pacedSession{clock: clock}, modes("eager", "graph"), p, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range got.Configurations {
		for name, want := range map[string][]float64{ // by rank
			results.StepTimeNs:   {4.3e6},
			results.CPUTimeNs:    {0.9e6},
			results.LatencyNs:    {4.3e6},
			results.ImagesPerS:   {64 / 4.3e-3},
			results.SubmitTimeNs: {210e3, 110e3},
			results.SyncWaitNs:   {70e3, 60e3},
			results.HostTimeNs:   {20e3, 10e3},
			results.LaunchCostNs: {21e3, 11e3},
		} {
			m := c.Metric(name)
			if m == nil {
				t.Errorf("%s: no %s", c.Key, name)
				continue
			}
			n := p.Blocks * len(want)
			if name != results.StepTimeNs && name != results.CPUTimeNs && name != results.ImagesPerS {
				n *= p.Single
			}
			if m.N != n {
				t.Errorf("%s: %d samples of %s, want %d", c.Key, m.N, name, n)
			}
			for _, s := range m.Samples {
				if math.Abs(s.Value/want[s.Rank]-1) > 1e-12 {
					t.Errorf("%s: %s of rank %d in block %d is %v, want %v", c.Key, name, s.Rank, s.Block, s.Value, want[s.Rank])
				}
			}
		}
		if *c.Counts.Launches.Sync != 5 || *c.Counts.Launches.Graph != 2 {
			t.Errorf("%s: counts %+v", c.Key, c.Counts.Launches)
		}
	}
}
