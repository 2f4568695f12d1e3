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
	r.timer = t // release gives back what was made
	var err error
	for _, e := range []*driver.Event{&t.begin, &t.end} {
		if *e, err = r.api.EventCreate(driver.EventDefault); err != nil {
			return nil, err
		}
	}
	for s := range t.join {
		if t.join[s], err = r.api.EventCreate(driver.EventDisableTiming); err != nil {
			return nil, err
		}
	}
	if t.words, err = r.api.MemHostAlloc(8, driver.HostDeviceMap); err != nil {
		return nil, err
	}
	flag, err := r.api.MemHostGetDevicePointer(t.words)
	if err != nil {
		return nil, err
	}
	args := (&driver.Args{}).Ptr(flag).Ptr(flag + 4).U64(uint64(kernels.GateTimeout.Nanoseconds()))
	t.gate, err = r.api.PrepareKernel(r.mem, driver.KernelSpec{
		Func: r.kernel[kernels.GateKernel], Name: kernels.GateKernel, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1},
		Stream: r.streams[clockStream], Args: args,
	})
	return t, err
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

// fan makes every other stream wait for what the clock's stream holds.
func (r *rank) fan(t *timer) error {
	if err := r.api.EventRecord(t.join[clockStream], r.streams[clockStream]); err != nil {
		return err
	}
	for s, h := range r.streams {
		if workloads.Stream(s) == clockStream {
			continue
		}
		if err := r.api.StreamWaitEvent(h, t.join[clockStream], driver.EventWaitDefault); err != nil {
			return err
		}
	}
	return nil
}

// gather makes the clock's stream wait for what every other stream holds.
func (r *rank) gather(t *timer) error {
	for s, h := range r.streams {
		if workloads.Stream(s) == clockStream {
			continue
		}
		if err := r.api.EventRecord(t.join[s], h); err != nil {
			return err
		}
		if err := r.api.StreamWaitEvent(r.streams[clockStream], t.join[s], driver.EventWaitDefault); err != nil {
			return err
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
	if err := r.api.EventRecord(t.begin, r.streams[clockStream]); err != nil {
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
	return r.api.EventRecord(t.end, r.streams[clockStream])
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
	atomic.StoreUint32(t.word(0), 0)
	atomic.StoreUint32(t.word(1), 0)
	if err := r.gather(t); err != nil {
		return err
	}
	if code := r.api.Submit(t.gate); code != driver.Success {
		return r.failed("hold", clockStream, nil, r.api.LaunchError(t.gate, code))
	}
	return r.fan(t)
}

// Release opens the gate, waits until it is open and says whether it had
// opened by itself before.
func (r *rank) Release() (expired bool, err error) {
	t, err := r.clock()
	if err != nil {
		return false, err
	}
	expired = atomic.LoadUint32(t.word(1)) == kernels.GateTimedOut
	atomic.StoreUint32(t.word(0), 1)
	return expired, nil
}
