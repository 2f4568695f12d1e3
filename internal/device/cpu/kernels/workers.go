package kernels

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Pool runs the chunks of one operator in parallel. Several streams and ranks
// share one pool. The goroutine that calls [Pool.Run] always works on its own
// chunks, so a call makes progress even if every worker is busy elsewhere.
type Pool struct {
	helpers int
	tokens  chan *job
	wg      sync.WaitGroup
	once    sync.Once

	mu   sync.Mutex
	free *job
}

// job is one call of Run. It goes back to the free list only when the caller
// and every token are done with it, so that a token which a worker picks up
// late never meets a job in its next life.
type job struct {
	f        func(int)
	n        int64
	next     atomic.Int64 // next chunk to hand out
	done     atomic.Int64 // chunks finished
	refs     atomic.Int64
	finished chan struct{} // one signal, by whoever finishes the last chunk
	failed   atomic.Bool
	cause    any
	link     *job
}

// NewPool starts a pool in which at most workers goroutines compute for one
// call, the caller among them. Fewer than 1 counts as 1.
func NewPool(workers int) *Pool {
	p := &Pool{helpers: max(workers, 1) - 1}
	queue := 16 * p.helpers
	p.tokens = make(chan *job, queue)
	// A job stays out for as long as a token of it is queued. With as many jobs
	// as there can be tokens, one for each helper and some for callers, Run does
	// not allocate.
	for range queue + p.helpers + 16 {
		p.free = &job{finished: make(chan struct{}, 1), link: p.free}
	}
	for range p.helpers {
		p.wg.Add(1)
		go p.help()
	}
	return p
}

// Close stops the workers. The caller has seen every Run return.
func (p *Pool) Close() {
	p.once.Do(func() {
		for range p.helpers {
			p.tokens <- nil
		}
		p.wg.Wait()
	})
}

func (p *Pool) help() {
	defer p.wg.Done()
	for j := range p.tokens {
		if j == nil {
			return
		}
		j.work()
		p.release(j)
	}
}

// Run calls f(0) .. f(n-1), each once, and returns when all have returned. It
// may be called from many goroutines at once and from within f. If a chunk
// panics, chunks not yet begun are dropped and the first panic is raised again
// in the caller.
func (p *Pool) Run(n int, f func(i int)) {
	if n <= 1 || p.helpers == 0 {
		for i := range n {
			f(i)
		}
		return
	}
	j := p.take()
	j.f, j.n = f, int64(n)
	p.invite(j, min(p.helpers, n-1))
	j.work()
	// The last chunks of the others are about as long as ours were: yielding a
	// little is cheaper than sleeping.
	for i := 0; i < 64 && j.done.Load() < j.n; i++ {
		runtime.Gosched()
	}
	<-j.finished
	failed, cause := j.failed.Load(), j.cause
	p.release(j)
	if failed {
		panic(cause)
	}
}

// invite asks up to k workers to join. A full queue means they are all busy.
func (p *Pool) invite(j *job, k int) {
	for range k {
		j.refs.Add(1)
		select {
		case p.tokens <- j:
		default:
			j.refs.Add(-1) // the caller's own reference keeps it above 0
			return
		}
	}
}

func (j *job) work() {
	for {
		i := j.next.Add(1) - 1
		if i >= j.n {
			return
		}
		j.chunk(int(i))
		if j.done.Add(1) == j.n {
			j.finished <- struct{}{}
		}
	}
}

func (j *job) chunk(i int) {
	if j.failed.Load() {
		return
	}
	ok := false
	defer func() {
		if ok {
			return
		}
		if r := recover(); j.failed.CompareAndSwap(false, true) {
			j.cause = r
		}
	}()
	j.f(i)
	ok = true
}

func (p *Pool) take() *job {
	p.mu.Lock()
	j := p.free
	if j != nil {
		p.free = j.link
	}
	p.mu.Unlock()
	if j == nil {
		j = &job{finished: make(chan struct{}, 1)}
	}
	j.next.Store(0)
	j.done.Store(0)
	j.failed.Store(false)
	j.cause, j.link = nil, nil
	j.refs.Store(1)
	return j
}

func (p *Pool) release(j *job) {
	if j.refs.Add(-1) > 0 {
		return
	}
	j.f = nil
	p.mu.Lock()
	j.link = p.free
	p.free = j
	p.mu.Unlock()
}
