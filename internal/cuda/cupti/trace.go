package cupti

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Config says what is recorded.
type Config struct {
	// Kinds are recorded; nil means [DefaultKinds].
	Kinds []Kind
	// BufferBytes and Buffers are what CUPTI may fill between two drains;
	// 0 means 1 MiB and 256.
	BufferBytes, Buffers int
}

// DefaultKinds are device work, the calls of driver and runtime, waits, overhead
// and NVTX markers. This program makes no calls of the runtime, libraries do:
// without them the kernels of cuDNN had no call on record on an H200 (cuDNN
// 9.19, driver 580). GRAPH_TRACE would be recorded instead of a graph's kernels.
func DefaultKinds() []Kind {
	return []Kind{KindMemcpy, KindMemset, KindDriver, KindRuntime, KindKernel, KindMarker, KindMarkerData, KindOverhead, KindSynchronization}
}

const (
	defaultBufferBytes = 1 << 20
	defaultBuffers     = 256
)

// Tracer is a recording under way. Drain and Stop are called from one goroutine
// at a time, on any thread; one Tracer runs in a process.
type Tracer struct {
	a       *API
	pool    *pool
	on      []Kind
	texts   map[uint64]string
	stopped bool
}

// Start begins to record. The driver has been initialised. What was captured
// or instantiated before is recorded too, as far as CUPTI knows it. Errors are
// of type [*Error], and say which other user of CUPTI is in the way. Source:
// cuptiActivityRegisterCallbacks, cuptiActivityEnable.
func (a *API) Start(c Config) (_ *Tracer, err error) {
	if c.Kinds == nil {
		c.Kinds = DefaultKinds()
	}
	for _, k := range c.Kinds {
		if _, ok := least[k]; !ok {
			return nil, fmt.Errorf("CUPTI: records of %s are not read here", k)
		}
	}
	if c.BufferBytes <= 0 {
		c.BufferBytes = defaultBufferBytes
	}
	if c.Buffers <= 0 {
		c.Buffers = defaultBuffers
	}
	p, err := newPool(c.Buffers, c.BufferBytes)
	if err != nil {
		return nil, err
	}
	if !lending.CompareAndSwap(nil, p) {
		return nil, errors.Join(errBusy, p.close())
	}
	t := &Tracer{a: a, pool: p, texts: map[uint64]string{}}
	f := callbacks()
	if err := a.call("cuptiActivityRegisterCallbacks", "", a.f.register, f.request, f.complete); err != nil {
		return nil, errors.Join(err, t.Stop())
	}
	if a.f.setThreadIDType != 0 {
		// The system's numbers, not pthread's; a library that does not take it
		// leaves threads with other names.
		_ = a.call("cuptiSetThreadIdType", "", a.f.setThreadIDType, threadIDSystem)
	}
	for _, k := range c.Kinds {
		if err := a.call("cuptiActivityEnable", k.String(), a.f.enable, uintptr(k)); err != nil {
			return nil, errors.Join(err, t.Stop())
		}
		t.on = append(t.on, k)
	}
	return t, nil
}

const flushForced = 1

// threadIDSystem is CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM: gettid's.
const threadIDSystem = 1

// Drain reads what was recorded so far into r. All recorded work has ended: the
// caller has waited for the device, or records are without times. Texts are
// copied, so r outlives the kernels it names. Source: cuptiActivityFlushAll.
func (t *Tracer) Drain(r *Records) error {
	err := t.a.call("cuptiActivityFlushAll", "", t.a.f.flushAll, flushForced)
	// An address may be another text's by the next time.
	clear(t.texts)
	t.read(r)
	return err
}

func (t *Tracer) read(r *Records) {
	t.pool.take(func(b []byte) {
		if len(b) > 0 {
			r.Parse(b, t.a.layout, t.next(b), t.text)
		}
	})
	r.Report.Dropped += t.newlyDropped()
	r.Report.Refused = t.pool.refused.Load()
	r.Report.Unreturned = t.pool.lent()
}

// next asks the library where records end. It gives a record by its address,
// and after the last one says that there is no more, so the end of the record
// at an offset is the begin of the next, or the buffer's.
func (t *Tracer) next(b []byte) func(int) (int, bool) {
	base := unsafe.Pointer(&b[0])
	at := -1
	step := func() (int, bool) {
		var record unsafe.Pointer
		if at >= 0 {
			record = unsafe.Add(base, at)
		}
		r, _, _ := purego.SyscallN(t.a.f.getNextRecord, uintptr(base), uintptr(len(b)), uintptr(unsafe.Pointer(&record)))
		switch Result(uint32(r)) {
		case Success:
			return int(uintptr(record) - uintptr(base)), true
		case MaxLimitReached:
			return len(b), true
		}
		return 0, false
	}
	return func(from int) (int, bool) {
		if at < 0 {
			first, ok := step()
			if !ok || first != 0 || from != 0 {
				return 0, false
			}
		}
		at = from
		return step()
	}
}

// text copies a C text of CUPTI's, once for each address.
func (t *Tracer) text(addr uint64) string {
	if addr == 0 {
		return ""
	}
	if s, ok := t.texts[addr]; ok {
		return s
	}
	// The address is a C pointer that travelled through a record.
	s := cText(*(*unsafe.Pointer)(unsafe.Pointer(&addr)))
	t.texts[addr] = s
	return s
}

// newlyDropped is how many records CUPTI dropped since it was asked last.
// Source: cuptiActivityGetNumDroppedRecords.
func (t *Tracer) newlyDropped() int64 {
	var n uint64
	if t.a.call("cuptiActivityGetNumDroppedRecords", "", t.a.f.getDropped, 0, 0, uintptr(unsafe.Pointer(&n))) != nil {
		return 0
	}
	return int64(n)
}

// Stop ends the recording and gives the memory back. What was not drained is
// lost. More calls do nothing.
func (t *Tracer) Stop() error {
	if t.stopped {
		return nil
	}
	t.stopped = true
	var errs []error
	for _, k := range t.on {
		errs = append(errs, t.a.call("cuptiActivityDisable", k.String(), t.a.f.disable, uintptr(k)))
	}
	if len(t.on) > 0 {
		errs = append(errs, t.a.call("cuptiActivityFlushAll", "", t.a.f.flushAll, flushForced))
	}
	// From here on CUPTI gets no buffer; one that it holds still is kept alive.
	lending.CompareAndSwap(t.pool, nil)
	return errors.Join(append(errs, t.pool.close())...)
}
