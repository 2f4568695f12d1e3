package fake

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/tech-renaissance/trbench/internal/dl"
)

// Profiler is a CUPTI beside a machine: it records what the machine executes
// and hands records out by the activity interface's protocol. Fill it in, then
// [Profiler.Start].
//
// A buffer is asked for within the call that makes the first record, and the
// others, and all completions, come on a thread that C made. Times are those of
// the goroutines that do the work; they come to the reader through the end of
// their work alone, as the rest of this package has it: a flush that does not
// wait for that end reads no times, and says 0.
type Profiler struct {
	// Version is what cuptiGetVersion says; it decides the records' sizes.
	Version uint32
	// Absent lists symbols that this CUPTI lacks.
	Absent []string
	// Codes makes calls fail, by symbol; for cuptiActivityEnable also by
	// "cuptiActivityEnable 10". 39 is another subscriber, 35 privileges.
	Codes map[string]uint32
	// Untimed takes the times of each n-th kernel away; 0 of none.
	Untimed int
	// Lengthen is added to each kernel's time on record, as recording does.
	Lengthen time.Duration
	// Slow is added to each call that submits, while kernels are recorded.
	Slow time.Duration
	// Graphless hides the kernels of graphs.
	Graphless bool
	// Keep holds so many buffers back at each flush.
	Keep int

	machine *Machine
	mu      sync.Mutex
	on      map[uint32]bool
	request uintptr
	finish  uintptr
	pending []*activity
	correl  uint32
	kernels int
	dropped uint64
	buffer  unsafe.Pointer // lent and not filled
	size    uint64
	texts   map[string][]byte
	calls   []string // names, by cbid from 1
	markers uint32
	anyOn   atomic.Bool
}

// activity is a record to be. What ran writes start and end alone.
type activity struct {
	kind        uint32
	correlation uint32
	start, end  int64
	item        *item // nil: complete
	untimed     bool

	// By kind.
	dev, ctx, stream uint32
	l                *launch
	copyKind         uint8
	bytes            uint64
	value            uint32
	node             uint64
	graph            uint32
	cbid             uint32
	pid, tid         uint32
	code             uint32
	sub              uint32 // overhead's kind, synchronisation's type, marker's flags
	id               uint32
	name, domain     string
}

// CUPTI's numbers.
const (
	actMemcpy   = 1
	actMemset   = 2
	actDriver   = 4
	actRuntime  = 5
	actKernel   = 10
	actMarker   = 12
	actData     = 13
	actOverhead = 17
	actSync     = 38
	actGraph    = 51
)

// CUPTI is the profiler of a machine, of CUDA 13.0 if the machine's driver is
// for that, else of 12.4 or 11.8.
func (m *Machine) CUPTI() *Profiler {
	p := &Profiler{Version: 130001}
	switch {
	case m.Version < 12000:
		p.Version = 18
	case m.Version < 13000:
		p.Version = 22
	}
	return p
}

// profiling is the profiler that the table serves.
var profiling atomic.Pointer[Profiler]

// Start makes p the profiler of the machine that runs, and returns its library.
// The caller stops it, before the machine.
func (p *Profiler) Start(m *Machine) (dl.Resolver, error) {
	p.machine, p.on, p.texts = m, map[uint32]bool{}, map[string][]byte{}
	if !profiling.CompareAndSwap(nil, p) {
		return nil, errors.New("fake CUPTI: another runs")
	}
	return cuptiResolver{p}, nil
}

// Stop makes room for another.
func (p *Profiler) Stop() {
	p.anyOn.Store(false)
	profiling.CompareAndSwap(p, nil)
}

// Mark records a range of NVTX of the calling thread, as CUPTI does for a
// program whose NVTX it was loaded into.
func (p *Profiler) Mark(name, domain string, begin, end time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.on[actMarker] {
		return
	}
	p.markers++
	pid, tid := ids()
	p.add(&activity{kind: actMarker, sub: 2, id: p.markers, start: cuptiBase + int64(begin), name: name, domain: domain, pid: pid, tid: tid})
	p.add(&activity{kind: actMarker, sub: 4, id: p.markers, start: cuptiBase + int64(end), domain: domain, pid: pid, tid: tid})
}

// cuptiBase is where the axis of records begins: far from 0, as a clock of the
// host's is.
const cuptiBase = 1_700_000_000_000_000_000

func cuptiNow() int64 { return cuptiBase + nowNs() }

// profiler is the machine's, if it records anything.
func (m *Machine) profiler() *Profiler {
	if p := profiling.Load(); p != nil && p.machine == m && p.anyOn.Load() {
		return p
	}
	return nil
}

// add keeps a record. The first one asks for a buffer, in the middle of what is
// recorded.
func (p *Profiler) add(a *activity) {
	p.pending = append(p.pending, a)
	if p.buffer == nil && p.request != 0 {
		p.buffer, p.size = p.ask()
	}
}

func (p *Profiler) ask() (b unsafe.Pointer, size uint64) {
	var most uint64
	purego.SyscallN(p.request, uintptr(unsafe.Pointer(&b)), uintptr(unsafe.Pointer(&size)), uintptr(unsafe.Pointer(&most)))
	return b, size
}

// calling begins the record of a driver call; the function it returns ends it.
func (m *Machine) calling(name string, t *thread, r *code) (end func()) {
	p := m.profiler()
	if p == nil {
		m.correlation = 0
		return nil
	}
	p.mu.Lock()
	p.correl++
	own := p.correl
	slow := p.Slow
	if !p.on[actKernel] || !submits(name) {
		slow = 0
	}
	p.mu.Unlock()
	m.correlation, t.waits = own, ^uint32(0)
	start := cuptiNow()
	return func() {
		time.Sleep(slow)
		p.mu.Lock()
		defer p.mu.Unlock()
		pid, _ := ids()
		a := activity{correlation: own, start: start, end: cuptiNow(), pid: pid, tid: uint32(t.id), code: *r}
		if p.on[actSync] {
			if typ := syncTypes[name]; typ != 0 {
				s := a
				s.kind, s.sub, s.stream = actSync, typ, t.waits
				p.add(&s)
			}
		}
		if p.on[actDriver] {
			a.kind, a.cbid = actDriver, p.cbid(name)
			p.add(&a)
		}
	}
}

func submits(name string) bool {
	switch name {
	case "cuLaunchKernel", "cuLaunchKernelEx", "cuGraphLaunch":
		return true
	}
	return false
}

var syncTypes = map[string]uint32{"cuEventSynchronize": 1, "cuStreamWaitEvent": 2, "cuStreamSynchronize": 3, "cuCtxSynchronize": 4}

// traced is submit, with a record of what runs.
func (m *Machine) traced(s *stream, a activity, run func()) *item {
	p := m.profiler()
	if p == nil {
		return m.submit(s, run)
	}
	p.mu.Lock()
	x := p.place(a, s, m.correlation)
	p.mu.Unlock()
	if x == nil {
		return m.submit(s, run)
	}
	x.item = m.submit(s, func() {
		begin := cuptiNow()
		run()
		x.start, x.end = begin, cuptiNow()
	})
	return x.item
}

// place adds a record of work on a stream, whose item the caller sets before it
// lets go of the machine; nil if none is kept. The caller holds p.mu.
func (p *Profiler) place(a activity, s *stream, correlation uint32) *activity {
	if !p.on[a.kind] {
		return nil
	}
	if a.kind == actKernel {
		p.kernels++
		a.untimed = p.Untimed > 0 && p.kernels%p.Untimed == 0
	}
	a.dev, a.ctx, a.stream, a.correlation = uint32(s.ctx.dev), uint32(s.ctx.dev+1), s.number(), correlation
	p.add(&a)
	return &a
}

// number is how CUPTI calls a stream: 7 is the legacy one.
func (s *stream) number() uint32 {
	n := uint32(0)
	if s.isLegacy {
		return 7
	}
	fmt.Sscanf(s.name, "stream%d", &n)
	return 12 + n
}

// activities makes the records of a graph's launch, by node; nil without any.
func (m *Machine) activities(e *exec, s *stream) []*activity {
	p := m.profiler()
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.on[actGraph] || p.Graphless {
		return nil
	}
	out := make([]*activity, len(e.nodes))
	for i := range e.nodes {
		n := &e.nodes[i]
		a := activity{node: uint64(n.of.h), graph: uint32(e.h >> 6)}
		switch n.typ {
		case typeKernel:
			a.kind, a.l = actKernel, n.l
		case typeMemcpy:
			a.kind, a.copyKind, a.bytes = actMemcpy, n.cp.kind(), uint64(n.cp.n)
		case typeMemset:
			a.kind, a.value, a.bytes = actMemset, n.set.v, uint64(n.set.n*n.set.size)
		default:
			continue
		}
		if !n.disabled {
			out[i] = p.place(a, s, m.correlation)
		}
	}
	return out
}

// replayed submits a graph's launch, with a record of it as a whole if those are
// asked for.
func (m *Machine) replayed(e *exec, s *stream, acts []*activity, run func()) *item {
	p := m.profiler()
	if p == nil {
		return m.submit(s, run)
	}
	var it *item
	p.mu.Lock()
	on := p.on[actGraph]
	p.mu.Unlock()
	if on {
		return m.traced(s, activity{kind: actGraph, graph: uint32(e.h >> 6)}, run)
	}
	it = m.submit(s, run)
	for _, a := range acts {
		if a != nil {
			a.item = it
		}
	}
	return it
}

// kind is CUPTI's word for a copy's direction.
func (o *copyOp) kind() uint8 {
	switch {
	case o.srcHost:
		return 1
	case o.dstHost:
		return 2
	}
	return 8
}

func ids() (pid, tid uint32) { return uint32(getpid()), uint32(gettid()) }

// flush hands records out: those of finished work, or all.
func (p *Profiler) flush(forced bool) {
	p.machine.mu.Lock() // items are set under it
	defer p.machine.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	var out [][]byte
	var later []*activity
	for _, a := range p.pending {
		done := a.item.finished()
		if !done && !forced {
			later = append(later, a)
			continue
		}
		out = append(out, p.encode(a, done))
	}
	p.pending = later
	onThread(func() { p.hand(out) })
}

// hand fills buffers and completes them.
func (p *Profiler) hand(records [][]byte) {
	kept := 0
	for len(records) > 0 || p.buffer != nil {
		if p.buffer == nil {
			p.buffer, p.size = p.ask()
		}
		if p.buffer == nil {
			p.dropped += uint64(len(records))
			return
		}
		b := unsafe.Slice((*byte)(p.buffer), p.size)
		used := 0
		for len(records) > 0 && used+len(records[0]) <= len(b) {
			used += copy(b[used:], records[0])
			records = records[1:]
		}
		if kept < p.Keep {
			kept++ // lost for good
		} else {
			purego.SyscallN(p.finish, 0, 0, uintptr(p.buffer), uintptr(p.size), uintptr(used))
		}
		p.buffer = nil
	}
}

// The records as CUDA 11.8's header has them; later versions add at the end.

type recKernel struct {
	kind             uint32
	_                [3]uint32 // caches, registers
	start, end, _    uint64    // completed
	dev, ctx, stream uint32
	grid, block      [3]uint32
	_                int32 // static shared memory
	dynamic          int32
	_                [2]uint32 // local memory
	correlation      uint32
	_                int64 // grid id
	name             unsafe.Pointer
	_                uintptr
	_                [2]uint64 // queued, submitted
	_                [4]uint8
	_                uint32
	node             uint64
	_                uint32
	graph            uint32
	_                uintptr
	_                [6]uint32 // channel, cluster
	_                uint64
}

type recCall struct {
	kind, cbid             uint32
	start, end             uint64
	pid, tid, correl, code uint32
}

type recGraph struct {
	kind, correl            uint32
	start, end              uint64
	dev, graph, ctx, stream uint32
	_                       uintptr
}

type recCopy struct {
	kind                     uint32
	copyKind, _, _, _        uint8
	bytes, start, end        uint64
	dev, ctx, stream, correl uint32
	_, _                     uint32
	_                        uintptr
	node                     uint64
	graph                    uint32
	_                        [3]uint32
}

type recSet struct {
	kind, value              uint32
	bytes, start, end        uint64
	dev, ctx, stream, correl uint32
	_, _                     uint32
	_                        uintptr
	node                     uint64
	graph                    uint32
	_                        [3]uint32
}

type recOverhead struct {
	kind, sub, object uint32
	_                 [3]uint32
	start, end        uint64
}

type recSync struct {
	kind, typ              uint32
	start, end             uint64
	correl, ctx, stream, _ uint32
}

type recMarker struct {
	kind, flags  uint32
	at           uint64
	id, object   uint32
	pid, tid, _  uint32
	_            uint32
	name, domain unsafe.Pointer
}

// sizes are those of records by kind, in three versions.
func (p *Profiler) sizes() map[uint32]int {
	switch {
	case p.Version >= 130000:
		return map[uint32]int{actMemcpy: 96, actMemset: 88, actDriver: 40, actRuntime: 40, actKernel: 216, actMarker: 56, actData: 40, actOverhead: 56, actSync: 56, actGraph: 56}
	case p.Version >= 22:
		return map[uint32]int{actMemcpy: 88, actMemset: 88, actDriver: 40, actRuntime: 40, actKernel: 208, actMarker: 56, actData: 32, actOverhead: 56, actSync: 40, actGraph: 56}
	}
	return map[uint32]int{actMemcpy: 88, actMemset: 88, actDriver: 40, actRuntime: 40, actKernel: 200, actMarker: 56, actData: 32, actOverhead: 40, actSync: 40, actGraph: 48}
}

func raw[T any](v T) []byte {
	return slices.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&v)), unsafe.Sizeof(v)))
}

// encode writes a record; done says that its times may be read.
func (p *Profiler) encode(a *activity, done bool) []byte {
	var start, end uint64
	if done && !a.untimed {
		start, end = uint64(a.start), uint64(a.end)
		if a.kind == actKernel {
			end += uint64(p.Lengthen)
		}
	}
	var b []byte
	switch a.kind {
	case actKernel:
		b = raw(recKernel{kind: a.kind, start: start, end: end, dev: a.dev, ctx: a.ctx, stream: a.stream, grid: a.l.grid, block: a.l.block,
			dynamic: int32(a.l.shared), correlation: a.correlation, name: p.text(a.l.fn.k.name), node: a.node, graph: a.graph})
	case actDriver:
		b = raw(recCall{kind: a.kind, cbid: a.cbid, start: start, end: end, pid: a.pid, tid: a.tid, correl: a.correlation, code: a.code})
	case actMemcpy:
		b = raw(recCopy{kind: a.kind, copyKind: a.copyKind, bytes: a.bytes, start: start, end: end, dev: a.dev, ctx: a.ctx, stream: a.stream,
			correl: a.correlation, node: a.node, graph: a.graph})
	case actMemset:
		b = raw(recSet{kind: a.kind, value: a.value, bytes: a.bytes, start: start, end: end, dev: a.dev, ctx: a.ctx, stream: a.stream,
			correl: a.correlation, node: a.node, graph: a.graph})
	case actGraph:
		b = raw(recGraph{kind: a.kind, correl: a.correlation, start: start, end: end, dev: a.dev, graph: a.graph, ctx: a.ctx, stream: a.stream})
	case actOverhead:
		b = raw(recOverhead{kind: a.kind, sub: a.sub, object: 2, start: start, end: end})
	case actSync:
		b = raw(recSync{kind: a.kind, typ: a.sub, start: start, end: end, correl: a.correlation, ctx: a.ctx, stream: a.stream})
	case actMarker:
		m := recMarker{kind: a.kind, flags: a.sub, at: start, id: a.id, object: 2, pid: a.pid, tid: a.tid, domain: p.text(a.domain)}
		if a.name != "" {
			m.name = p.text(a.name)
		}
		b = raw(m)
	}
	out := make([]byte, p.sizes()[a.kind])
	copy(out, b)
	return out
}

// text is a C text that lives as long as the profiler.
func (p *Profiler) text(s string) unsafe.Pointer {
	b := p.texts[s]
	if b == nil {
		b = append([]byte(s), 0)
		p.texts[s] = b
	}
	return unsafe.Pointer(&b[0])
}

type cuptiResolver struct{ p *Profiler }

func (r cuptiResolver) Lookup(name string) (uintptr, error) {
	f, ok := cuptiFunctions()[name]
	if !ok || slices.Contains(r.p.Absent, name) {
		return 0, fmt.Errorf("fake CUPTI: %s: %w", name, dl.ErrNoSymbol)
	}
	return f, nil
}

// cbid numbers a driver call, in order of first use; CUPTI's own numbers are
// others. The caller holds p.mu.
func (p *Profiler) cbid(name string) uint32 {
	i := slices.Index(p.calls, name)
	if i < 0 {
		i = len(p.calls)
		p.calls = append(p.calls, name)
	}
	return uint32(i + 1)
}

var cuptiTexts sync.Map // text -> *[]byte, never freed, as CUPTI's

func cuptiText(s string) unsafe.Pointer {
	b, _ := cuptiTexts.LoadOrStore(s, append([]byte(s), 0))
	return unsafe.Pointer(&b.([]byte)[0])
}

var cuptiFunctions = sync.OnceValue(func() map[string]uintptr {
	t := map[string]uintptr{}
	def := func(name string, fn any) { t[name] = purego.NewCallback(fn) }
	on := func(name string, body func(p *Profiler) uint32) uintptr {
		p := profiling.Load()
		if p == nil {
			return 15 // not initialised
		}
		if c := p.Codes[name]; c != 0 {
			return uintptr(c)
		}
		return uintptr(body(p))
	}
	def("cuptiGetVersion", func(v *uint32) uintptr {
		return on("cuptiGetVersion", func(p *Profiler) uint32 { *v = p.Version; return 0 })
	})
	def("cuptiGetResultString", func(code uint32, out *unsafe.Pointer) uintptr {
		*out = cuptiText(fmt.Sprintf("CUPTI_ERROR_FAKE_%d", code))
		return 0
	})
	def("cuptiGetTimestamp", func(v *uint64) uintptr {
		return on("cuptiGetTimestamp", func(p *Profiler) uint32 { *v = uint64(cuptiNow()); return 0 })
	})
	def("cuptiGetCallbackName", func(domain, cbid uint32, out *unsafe.Pointer) uintptr {
		return on("cuptiGetCallbackName", func(p *Profiler) uint32 {
			p.mu.Lock()
			defer p.mu.Unlock()
			if domain == 1 && cbid >= 1 && int(cbid) <= len(p.calls) {
				*out = cuptiText(p.calls[cbid-1])
				return 0
			}
			return 1
		})
	})
	def("cuptiSetThreadIdType", func(uint32) uintptr { return on("cuptiSetThreadIdType", func(*Profiler) uint32 { return 0 }) })
	def("cuptiActivityRegisterCallbacks", func(request, complete uintptr) uintptr {
		return on("cuptiActivityRegisterCallbacks", func(p *Profiler) uint32 {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.request, p.finish = request, complete
			return 0
		})
	})
	def("cuptiActivityEnable", func(kind uint32) uintptr {
		return on("cuptiActivityEnable", func(p *Profiler) uint32 {
			if c := p.Codes[fmt.Sprintf("cuptiActivityEnable %d", kind)]; c != 0 {
				return c
			}
			if p.sizes()[kind] == 0 {
				return 21
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.on[kind] = true
			p.anyOn.Store(true)
			return 0
		})
	})
	def("cuptiActivityDisable", func(kind uint32) uintptr {
		return on("cuptiActivityDisable", func(p *Profiler) uint32 {
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.on, kind)
			p.anyOn.Store(len(p.on) > 0)
			return 0
		})
	})
	def("cuptiActivityFlushAll", func(flag uint32) uintptr {
		return on("cuptiActivityFlushAll", func(p *Profiler) uint32 { p.flush(flag&1 != 0); return 0 })
	})
	def("cuptiActivityGetNumDroppedRecords", func(_ uintptr, _ uint32, n *uint64) uintptr {
		return on("cuptiActivityGetNumDroppedRecords", func(p *Profiler) uint32 {
			p.mu.Lock()
			defer p.mu.Unlock()
			*n, p.dropped = p.dropped, 0
			return 0
		})
	})
	def("cuptiActivityGetNextRecord", func(buffer unsafe.Pointer, valid uint64, record *unsafe.Pointer) uintptr {
		return on("cuptiActivityGetNextRecord", func(p *Profiler) uint32 {
			at := uint64(0)
			if *record != nil {
				at = uint64(uintptr(*record) - uintptr(buffer))
				at += uint64(p.sizes()[*(*uint32)(*record)])
			}
			if at >= valid {
				return 12
			}
			*record = unsafe.Add(buffer, at)
			return 0
		})
	})
	def("cuptiGetStreamIdEx", func(_, h uintptr, _ uint8, id *uint32) uintptr {
		return on("cuptiGetStreamIdEx", func(p *Profiler) uint32 {
			p.machine.mu.Lock()
			defer p.machine.mu.Unlock()
			s, r := get[*stream](p.machine, h)
			if r != 0 {
				return 20
			}
			*id = s.number()
			return 0
		})
	})
	return t
})
