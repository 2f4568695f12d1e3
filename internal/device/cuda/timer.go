package cuda

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/device/cuda/kernels"
	"github.com/tech-renaissance/trbench/workloads"
)

// timer is what a rank keeps time with. It is made at the first use.
type timer struct {
	begin, end driver.Event
	join       [workloads.NumStreams]driver.Event
	gate       *driver.Launch
	words      driver.Host // the gate's flag, then its state
	held       bool        // the gate was submitted and may not have opened yet
}

var _ device.Timer = (*rank)(nil)

// clockStream is the stream that marks are recorded on.
const clockStream = workloads.COMP1

func (r *rank) clock() (*timer, error) {
	if err := r.refuse("timing"); err != nil {
		return nil, err
	}
	if r.timer != nil {
		return r.timer, nil
	}
	t := &timer{}
	if err := r.make(t); err != nil {
		return nil, errors.Join(fmt.Errorf("rank %d: make the timer: %w", r.id, err), t.close(r.api))
	}
	r.timer = t
	return t, nil
}

func (r *rank) make(t *timer) (err error) {
	for _, e := range []*driver.Event{&t.begin, &t.end} {
		if *e, err = r.api.EventCreate(driver.EventDefault); err != nil {
			return err
		}
	}
	for s := range t.join {
		if t.join[s], err = r.api.EventCreate(driver.EventDisableTiming); err != nil {
			return err
		}
	}
	if t.words, err = r.api.MemHostAlloc(8, driver.HostDeviceMap); err != nil {
		return err
	}
	flag, err := r.api.MemHostGetDevicePointer(t.words)
	if err != nil {
		return err
	}
	args := (&driver.Args{}).Ptr(flag).Ptr(flag + 4).U64(uint64(kernels.GateTimeout.Nanoseconds()))
	t.gate, err = r.api.PrepareKernel(r.mem, driver.KernelSpec{
		Func: r.kernel[kernels.GateKernel], Name: kernels.GateKernel, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1},
		Stream: r.streams[clockStream], Args: args,
	})
	return err
}

func (t *timer) close(api *driver.API) error {
	var errs []error
	for _, e := range append([]driver.Event{t.begin, t.end}, t.join[:]...) {
		if e != 0 {
			errs = append(errs, api.EventDestroy(e))
		}
	}
	if t.words.Addr() != 0 {
		errs = append(errs, api.MemFreeHost(t.words))
	}
	return errors.Join(errs...)
}

// word is the gate's flag (0) or state (1).
func (t *timer) word(i int) *uint32 { return (*uint32)(unsafe.Add(t.words.Ptr(), 4*i)) }

// open lets the gate go.
func (t *timer) open() {
	if t.words.Addr() != 0 {
		atomic.StoreUint32(t.word(0), 1)
	}
}

// settle waits until the gate of the hold before has ended: its words are to be
// used again, and it would miss that it was opened.
func (t *timer) settle() {
	if !t.held {
		return
	}
	t.open()
	for begin := time.Now(); atomic.LoadUint32(t.word(1)) == 0 && time.Since(begin) < 2*kernels.GateTimeout; {
		time.Sleep(10 * time.Microsecond)
	}
	t.held = false
}

// fan makes every other stream wait for what the clock's stream holds.
func (r *rank) fan(t *timer) error {
	if err := r.tick(t.join[clockStream], clockStream); err != nil {
		return err
	}
	for s, h := range r.streams {
		if workloads.Stream(s) == clockStream {
			continue
		}
		if err := r.api.StreamWaitEvent(h, t.join[clockStream], driver.EventWaitDefault); err != nil {
			return r.failed("time behind", workloads.Stream(s), r.last[s].Load(), err)
		}
	}
	return nil
}

// tick records an event of the timer's.
func (r *rank) tick(e driver.Event, s workloads.Stream) error {
	if err := r.api.EventRecord(e, r.streams[s]); err != nil {
		return r.failed("time behind", s, r.last[s].Load(), err)
	}
	return nil
}

// gather makes the clock's stream wait for what every other stream holds.
func (r *rank) gather(t *timer) error {
	for s := range r.streams {
		if workloads.Stream(s) == clockStream {
			continue
		}
		if err := r.tick(t.join[s], workloads.Stream(s)); err != nil {
			return err
		}
		if err := r.api.StreamWaitEvent(r.streams[clockStream], t.join[s], driver.EventWaitDefault); err != nil {
			return r.failed("time behind", clockStream, r.last[clockStream].Load(), err)
		}
	}
	return nil
}

// MarkBegin records the beginning, which no stream's later work precedes.
func (r *rank) MarkBegin() error {
	t, err := r.clock()
	if err != nil {
		return err
	}
	if err := r.gather(t); err != nil {
		return err
	}
	if err := r.tick(t.begin, clockStream); err != nil {
		return err
	}
	return r.fan(t)
}

// MarkEnd records the end, behind all streams' work so far.
func (r *rank) MarkEnd() error {
	t, err := r.clock()
	if err != nil {
		return err
	}
	if err := r.gather(t); err != nil {
		return err
	}
	return r.tick(t.end, clockStream)
}

// Between is the time between the marks. Source: cuEventElapsedTime.
func (r *rank) Between() (time.Duration, error) {
	t, err := r.clock()
	if err != nil {
		return 0, err
	}
	ms, err := r.api.EventElapsedMs(t.begin, t.end)
	if err != nil {
		return 0, fmt.Errorf("rank %d: time between marks: %w", r.id, err)
	}
	return time.Duration(float64(ms) * 1e6), nil
}

// Hold queues the gate kernel and makes every stream wait for it. The gate
// opens by itself after [kernels.GateTimeout].
func (r *rank) Hold() error {
	t, err := r.clock()
	if err != nil {
		return err
	}
	t.settle()
	atomic.StoreUint32(t.word(0), 0)
	atomic.StoreUint32(t.word(1), 0)
	if err := r.gather(t); err != nil {
		return err
	}
	if code := r.api.Submit(t.gate); code != driver.Success {
		return r.failed("hold", clockStream, r.last[clockStream].Load(), r.api.LaunchError(t.gate, code))
	}
	t.held = true
	return r.fan(t)
}

// Release opens the gate and says whether it had opened by itself before. It
// does not wait for what the gate stands behind.
func (r *rank) Release() (expired bool, err error) {
	t, err := r.clock()
	if err != nil {
		return false, err
	}
	expired = atomic.LoadUint32(t.word(1)) == kernels.GateTimedOut
	t.open()
	return expired, nil
}
