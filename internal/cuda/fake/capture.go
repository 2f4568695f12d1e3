package fake

import "slices"

// capture is a capture under way.
type capture struct {
	id      uint64
	g       *graph
	ctx     *context
	mode    int
	thread  int
	origin  *stream
	invalid bool
	ended   bool
	streams []*stream // origin and those brought in
	depBuf  []uintptr // what cuStreamGetCaptureInfo points to
}

// prohibit is the answer to a call that may conflict with captures (an
// allocation, a query, a load): 900 if the thread's mode forbids it, and the
// captures that forbid it become invalid. Source: the documentation of
// cuThreadExchangeStreamCaptureMode.
func (m *Machine) prohibit(t *thread) code {
	r := success
	for _, c := range m.captures {
		local := c.thread == t.id && c.mode != modeRelaxed && t.mode != modeRelaxed
		global := c.thread != t.id && c.mode == modeGlobal && t.mode == modeGlobal
		if local || global {
			c.invalid = true
			r = captureUnsupported
		}
	}
	return r
}

// conflict is the answer to a call that waits for a stream or a context under
// capture: 900 whatever the mode, and the captures become invalid.
func (m *Machine) conflict(is func(*capture) bool) code {
	r := success
	for _, c := range m.captures {
		if is(c) {
			c.invalid = true
			r = captureUnsupported
		}
	}
	return r
}

// capturing returns the capture that takes work submitted to s, nil if the
// work is to run.
func (s *stream) capturing() (*capture, code) {
	if s.cap == nil {
		return nil, success
	}
	if s.cap.invalid {
		return s.cap, captureInvalidated
	}
	return s.cap, success
}

// add makes n the next node of the stream.
func (c *capture) add(m *Machine, s *stream, n *node) {
	n.deps = slices.Clone(s.deps)
	c.g.add(m, n)
	s.deps = []*node{n}
}

func (m *Machine) beginCapture(t *thread, h uintptr, mode int) code {
	c, r := m.current(t)
	if r != 0 {
		return r
	}
	if h <= 1 {
		return captureUnsupported
	}
	s, r := get[*stream](m, h)
	if r != 0 {
		return r
	}
	m.say("%s mode=%d", s.name, mode)
	if mode < modeGlobal || mode > modeRelaxed {
		return invalidValue
	}
	if s.cap != nil {
		return illegalState
	}
	m.captureID++
	k := &capture{id: m.captureID, ctx: c, mode: mode, thread: t.id, origin: s, streams: []*stream{s}}
	k.g = m.newGraph()
	k.g.capturing = true
	s.cap, s.deps = k, nil
	m.captures = append(m.captures, k)
	return success
}

func (m *Machine) endCapture(t *thread, h uintptr, out *uintptr) code {
	*out = 0
	if h <= 1 {
		return illegalState
	}
	s, r := get[*stream](m, h)
	if r != 0 {
		return r
	}
	m.say("%s", s.name)
	k := s.cap
	switch {
	case k == nil:
		return illegalState
	case k.origin != s:
		k.invalid = true
		return captureUnmatched
	case k.mode != modeRelaxed && k.thread != t.id:
		// The capture is lost with it: the right thread's end finds none (401).
		m.endOf(k)
		m.dropGraph(k.g)
		return captureWrongThread
	}
	r = success
	if k.invalid {
		r = captureInvalidated
	} else if !k.joined() {
		r = captureUnjoined
	}
	m.endOf(k)
	if r != 0 {
		m.dropGraph(k.g)
		return r
	}
	k.g.capturing = false
	*out = k.g.h
	m.say("%s", k.g.name)
	return success
}

// endOf takes the streams out of a capture.
func (m *Machine) endOf(k *capture) {
	for _, s := range k.streams {
		s.cap, s.deps = nil, nil
	}
	k.ended = true
	m.captures = slices.DeleteFunc(m.captures, func(c *capture) bool { return c == k })
}

// joined says whether all work of streams brought in precedes what the origin
// holds.
func (k *capture) joined() bool {
	seen := map[*node]bool{}
	var visit func(ns []*node)
	visit = func(ns []*node) {
		for _, n := range ns {
			if !seen[n] {
				seen[n] = true
				visit(n.deps)
			}
		}
	}
	visit(k.origin.deps)
	for _, s := range k.streams {
		for _, n := range s.deps {
			if !seen[n] {
				return false
			}
		}
	}
	return true
}

// record is cuEventRecord.
func (m *Machine) record(t *thread, eh, sh uintptr, flags uint32) code {
	e, r := get[*event](m, eh)
	if r != 0 {
		return r
	}
	s, r := m.stream(t, sh)
	if r != 0 {
		return r
	}
	m.say("%s %s", e.name, s.name)
	if e.ctx != s.ctx {
		return invalidHandle
	}
	k, r := s.capturing()
	if r != 0 {
		return r
	}
	if k == nil {
		e.cap, e.nodes = nil, nil
		when := new(int64)
		e.item = m.submit(s, func() { *when = nowNs() })
		e.whenNs = when
		return success
	}
	if flags&external != 0 {
		k.add(m, s, &node{typ: typeEventRecord, ev: e})
		return success
	}
	e.cap, e.nodes = k, slices.Clone(s.deps)
	return success
}

// waitEvent is cuStreamWaitEvent.
func (m *Machine) waitEvent(t *thread, sh, eh uintptr, flags uint32) code {
	e, r := get[*event](m, eh)
	if r != 0 {
		return r
	}
	s, r := m.stream(t, sh)
	if r != 0 {
		return r
	}
	m.say("%s %s", s.name, e.name)
	k, r := s.capturing()
	if r != 0 {
		return r
	}
	switch {
	case k != nil && flags&external != 0:
		if e.cap != nil && e.cap == k {
			return invalidValue
		}
		k.add(m, s, &node{typ: typeWaitEvent, ev: e})
		return success
	case e.cap == nil && k == nil:
		if it := e.item; it != nil {
			m.submit(s, func() { it.wait() })
		}
		return success
	case e.cap == nil && e.item == nil:
		return success // never recorded: there is nothing to wait for
	case e.cap == nil:
		// The capture would depend on work outside it.
		k.invalid = true
		return captureIsolation
	case e.cap.ended:
		if k != nil {
			k.invalid = true
		}
		return captureIsolation
	case e.cap.invalid:
		return captureInvalidated
	case k == nil:
		if s.isLegacy {
			e.cap.invalid = true
			return captureImplicit
		}
		s.cap, s.deps = e.cap, slices.Clone(e.nodes)
		e.cap.streams = append(e.cap.streams, s)
		return success
	case k != e.cap:
		k.invalid, e.cap.invalid = true, true
		return captureMerge
	}
	for _, n := range e.nodes {
		if !slices.Contains(s.deps, n) {
			s.deps = append(s.deps, n)
		}
	}
	return success
}

// captured is the answer to the host's question about an event that was last
// recorded in a capture: 907 while it runs, which makes it invalid, and 1 after
// its end. The latter was seen of cuEventQuery; the other questions are taken to
// be answered alike.
func (m *Machine) captured(e *event) code {
	switch {
	case e.cap == nil:
		return success
	case e.cap.ended:
		return invalidValue
	}
	e.cap.invalid = true
	return capturedEvent
}

// Plant adds a node of a type (CUgraphNodeType) with no work to the capture that
// the stream with a handle is in: what a library might do that no call here
// does. A replay passes it over.
func (m *Machine) Plant(stream uintptr, typ uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.byHandle(stream)
	if s.cap == nil {
		panic("fake driver: the stream is not being captured")
	}
	s.cap.add(m, s, &node{typ: typ})
}
