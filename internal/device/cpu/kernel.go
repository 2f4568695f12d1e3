package cpu

import (
	"sync"

	"github.com/tech-renaissance/trbench/internal/device/cpu/kernels"
	"github.com/tech-renaissance/trbench/workloads"
)

// pools are the worker goroutines behind the kernels, started by the first
// operator that is prepared.
type pools struct {
	mu     sync.Mutex
	byLane map[*stream]*kernels.Pool
}

// of returns the pool for a stream: one for the group, so that the cores are
// not asked for twice. Under the race detector each stream has its own, because
// workers that serve two streams in turn would order them.
func (p *pools) of(st *stream, workers int) *kernels.Pool {
	if !raceEnabled {
		st = nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	pool := p.byLane[st]
	if pool == nil {
		if p.byLane == nil {
			p.byLane = map[*stream]*kernels.Pool{}
		}
		pool = kernels.NewPool(workers)
		p.byLane[st] = pool
	}
	return pool
}

// close stops the workers; no operator runs any more.
func (p *pools) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pool := range p.byLane {
		pool.Close()
	}
	p.byLane = nil
}

// compileKernel is the [compileFunc] of every device but those of tests.
func compileKernel(b *workloads.Bound, mem *memory, st *stream) (func(), error) {
	g := st.rank.g
	return kernels.Compile(b, mem, g.pools.of(st, g.dev.opts.Workers))
}

// kernelScratch is what the kernels ask for; a collective needs none.
func kernelScratch(b *workloads.Bound) int64 {
	if b.Op == workloads.OpAllReduce {
		return 0
	}
	return kernels.ScratchBytes(b)
}
