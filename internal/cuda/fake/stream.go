package fake

import (
	"slices"
	"sync/atomic"
	"time"
)

// context is a device's primary context.
type context struct {
	m    *Machine
	dev  int
	h    uintptr
	refs int

	legacy *stream

	// failed is the code of the first kernel that failed. It is stored by
	// failing work alone, so loading it orders nothing.
	failed atomic.Uint32
	// poisoned says that a call reported it: every later one does too.
	poisoned bool

	execBytes, execPool uint64 // held by execs; kept after their end until a trim
}

func (c *context) fail(r code, what string) {
	c.m.failMu.Lock()
	c.m.reports = append(c.m.reports, what)
	c.m.failMu.Unlock()
	c.failed.CompareAndSwap(0, r)
}

// report is a synchronising call's look at what failed before it.
func (c *context) report() code {
	r := c.failed.Load()
	if r != 0 {
		c.poisoned = true
	}
	return r
}

// current returns the thread's context; a poisoned one with its code.
func (m *Machine) current(t *thread) (*context, code) {
	if t.ctx == nil || t.ctx.refs == 0 {
		return nil, invalidContext
	}
	if t.ctx.poisoned {
		return t.ctx, t.ctx.failed.Load()
	}
	return t.ctx, success
}

// item is a piece of work on a stream. The queue is a list that only the host
// extends and only the stream's goroutine follows; ready leads from the host to
// the goroutine and done to whoever waits. Nothing leads from finished work
// to the host beside done.
type item struct {
	run   func()
	stop  bool
	ready chan struct{}
	done  chan struct{}
	next  *item
}

func newItem() *item { return &item{ready: make(chan struct{}), done: make(chan struct{})} }

func (it *item) wait() {
	if it != nil {
		<-it.done
	}
}

func (it *item) finished() bool {
	if it == nil {
		return true
	}
	select {
	case <-it.done:
		return true
	default:
		return false
	}
}

type stream struct {
	h        uintptr
	name     string
	ctx      *context
	blocking bool // synchronises with the legacy stream
	isLegacy bool
	priority int

	tail, last *item
	holds      []chan struct{}

	cap  *capture
	deps []*node // what the next captured node follows
}

func (m *Machine) newStream(c *context, blocking bool) *stream {
	s := &stream{ctx: c, blocking: blocking, tail: newItem()}
	go func(it *item) {
		for {
			<-it.ready
			if it.stop {
				return
			}
			it.run()
			close(it.done)
			it = it.next
		}
	}(s.tail)
	return s
}

func (s *stream) push(run func()) *item {
	it := s.tail
	it.run = run
	it.next = newItem()
	s.tail, s.last = it.next, it
	close(it.ready)
	return it
}

func (s *stream) stop() {
	s.tail.stop = true
	close(s.tail.ready)
}

func (s *stream) release() {
	for _, h := range s.holds {
		close(h)
	}
	s.holds = nil
}

// submit queues work behind what the stream holds and, as the legacy stream
// demands, behind other streams'.
func (m *Machine) submit(s *stream, run func()) *item {
	var before []*item
	switch {
	case s.isLegacy:
		for _, o := range m.objects {
			if b, ok := o.(*stream); ok && b.blocking && b.ctx == s.ctx && b.last != nil {
				before = append(before, b.last)
			}
		}
	case s.blocking && s.ctx.legacy != nil && s.ctx.legacy.last != nil:
		before = append(before, s.ctx.legacy.last)
	}
	if len(before) == 0 {
		return s.push(run)
	}
	return s.push(func() {
		for _, it := range before {
			it.wait()
		}
		run()
	})
}

// block waits for an item with the machine unlocked.
func (m *Machine) block(items ...*item) {
	m.mu.Unlock()
	for _, it := range items {
		it.wait()
	}
	m.mu.Lock()
}

// all lists the last items of a context's streams.
func (m *Machine) all(c *context) []*item {
	var items []*item
	for _, o := range m.objects {
		if s, ok := o.(*stream); ok && s.ctx == c && s.last != nil {
			items = append(items, s.last)
		}
	}
	if c.legacy != nil && c.legacy.last != nil {
		items = append(items, c.legacy.last)
	}
	return items
}

// stream finds a stream for a call that uses it. The handles 0 and 1 are the
// legacy stream of the thread's context; using it while a stream that
// synchronises with it is captured is 906.
func (m *Machine) stream(t *thread, h uintptr) (*stream, code) {
	c, r := m.current(t)
	if r != 0 {
		return nil, r
	}
	if h > 1 {
		s, r := get[*stream](m, h)
		if r == 0 && s.ctx.poisoned {
			r = s.ctx.failed.Load()
		}
		return s, r
	}
	for _, k := range m.captures {
		if k.ctx == c && slices.ContainsFunc(k.streams, func(s *stream) bool { return s.blocking }) {
			k.invalid = true
			r = captureImplicit
		}
	}
	return m.legacy(c), r
}

func (m *Machine) legacy(c *context) *stream {
	if c.legacy == nil {
		c.legacy = m.newStream(c, false)
		c.legacy.isLegacy, c.legacy.name = true, "legacy"
	}
	return c.legacy
}

type event struct {
	h      uintptr
	name   string
	ctx    *context
	timing bool
	item   *item  // the last record outside captures
	whenNs *int64 // when it ran; set before item is done
	cap    *capture
	nodes  []*node // what the last record inside a capture follows
}

// Hold makes the stream with a handle (0: the legacy stream of device 0) stand
// still until release is called. Work queued before it runs.
func (m *Machine) Hold(h uintptr) (release func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.byHandle(h)
	gate := make(chan struct{})
	s.holds = append(s.holds, gate)
	s.push(func() { <-gate })
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if i := slices.Index(s.holds, gate); i >= 0 {
			s.holds = slices.Delete(s.holds, i, i+1)
			close(gate)
		}
	}
}

// Delay makes a stream idle for a while behind what it holds.
func (m *Machine) Delay(h uintptr, d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.byHandle(h).push(func() { time.Sleep(d) })
}

// byHandle panics on a handle that is no stream: a test's mistake.
func (m *Machine) byHandle(h uintptr) *stream {
	if h <= 1 {
		return m.legacy(m.ctxs[0])
	}
	s, r := get[*stream](m, h)
	if r != 0 {
		panic("fake driver: no such stream")
	}
	return s
}

var epoch = time.Now()

func nowNs() int64 { return int64(time.Since(epoch)) }
