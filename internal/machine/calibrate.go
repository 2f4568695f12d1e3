package machine

import (
	"runtime"
	"slices"
	"time"

	"github.com/tech-renaissance/trbench/results"
)

// Clock is the clock that a run is timed with.
type Clock interface {
	// NowNs is a monotonic time in nanoseconds from any beginning.
	NowNs() int64
	// Sleep waits on a timer.
	Sleep(time.Duration)
}

// Monotonic is the host's monotonic clock, as Go reads it. It starts now.
func Monotonic() Clock { return monotonic{time.Now()} }

type monotonic struct{ start time.Time }

func (m monotonic) NowNs() int64          { return int64(time.Since(m.start)) }
func (m monotonic) Sleep(d time.Duration) { time.Sleep(d) }

// Call is something small whose cost others want beside their figures: an
// empty library call, a kernel launch. Its readings are call.NAME_ns and
// call.NAME_p99_ns.
type Call struct {
	Name string
	// F makes the call n times and returns when they are made. It is called
	// on the goroutine and thread that called [Calibrate], without a pause
	// between its calls; F(1) takes well under a millisecond.
	F func(n int)
}

// Shares of the time that a calibration takes. Together with what the last
// batch of each part overruns they stay below 100 ms.
const (
	readShare  = 6 * time.Millisecond
	stepShare  = 4 * time.Millisecond
	pauseShare = 10 * time.Millisecond
	sleepShare = 24 * time.Millisecond
	worldShare = 4 * time.Millisecond
	callsShare = 36 * time.Millisecond // of all calls, in equal parts
	callShare  = 4 * time.Millisecond  // of one call, at most
)

const (
	maxBatches = 200
	readBatch  = 256     // reads; about 10 us
	maxReads   = 1 << 20 // in one loop, should the clock stand still
	sleepTime  = time.Millisecond
	sleeps     = 15
	worldStops = 30
	maxCalls   = 1 << 16   // of a batch
	batchTime  = 20_000    // ns of a batch, so that reading the clock is a small part
	gapNs      = 5_000     // the least that counts as a gap: no cache miss takes that long
	gapReads   = 20        // and at least so many reads of this clock
	farFuture  = 1 << 62   // larger than any step
	emptyCall  = "empty"   // the call that every calibration makes
	nsSuffix   = "_ns"     //
	p99Suffix  = "_p99_ns" //
)

// Calibrate measures what small things take here: reading the clock and its
// resolution, a 1 ms sleep, stopping the world, gaps in a loop that does
// nothing else, an empty Go call through an interface, and then the given
// calls in order. It takes less than 100 ms on a machine that is not
// overloaded. A figure that could not be taken, since its share of the time was
// gone or the clock stood still, has no reading.
//
// It runs on the caller's thread: call it on the one that will submit. The
// clock is read on that thread alone, so that steps back between processors are
// not looked for.
func Calibrate(c Clock, calls ...Call) []results.Reading {
	k := calibration{clock: c}
	readNs := k.reads()
	k.steps()
	k.pauses(readNs)
	k.sleeps()
	k.stops()
	calls = append([]Call{{emptyCall, callNothing}}, calls...)
	share := min(callShare, callsShare/time.Duration(len(calls)))
	for _, call := range calls {
		if call.F != nil {
			k.call(call, share)
		}
	}
	return k.readings
}

type calibration struct {
	clock    Clock
	readings []results.Reading
}

func (k *calibration) add(name, unit string, value float64, n int) {
	k.readings = append(k.readings, results.Reading{Name: name, Unit: unit, Value: value, N: n})
}

// within returns a function that says whether there is time left.
func (k *calibration) within(share time.Duration) func() bool {
	end := k.clock.NowNs() + int64(share)
	return func() bool { return k.clock.NowNs() < end }
}

// spread adds the median and the 99th percentile of costs.
func (k *calibration) spread(median, p99 string, costs []float64) {
	if len(costs) == 0 {
		return
	}
	slices.Sort(costs)
	k.add(median, unitNs, results.Median(costs), len(costs))
	k.add(p99, unitNs, quantile(costs, .99), len(costs))
}

// reads measures the cost of reading the clock and returns its median.
func (k *calibration) reads() float64 {
	left := k.within(readShare)
	costs := make([]float64, 0, maxBatches)
	for len(costs) < maxBatches && left() {
		first := k.clock.NowNs()
		last := first
		for range readBatch {
			last = k.clock.NowNs()
		}
		costs = append(costs, float64(last-first)/readBatch)
	}
	k.spread(ClockReadNs, ClockReadP99Ns, costs)
	return results.Median(costs)
}

// steps looks for the smallest step of the clock, and for steps back.
func (k *calibration) steps() {
	start := k.clock.NowNs()
	last, least := start, int64(farFuture)
	n, back := 0, 0
	for ; n < maxReads && last-start < int64(stepShare); n++ {
		now := k.clock.NowNs()
		switch d := now - last; {
		case d < 0:
			back++
		case d > 0:
			least = min(least, d)
		}
		last = now
	}
	if least < farFuture {
		k.add(ClockStepNs, unitNs, float64(least), n)
	}
	k.add(ClockBackwards, unitCount, float64(back), n)
}

// pauses looks for the times when this thread does not run: other tasks, the
// collector, the hypervisor.
func (k *calibration) pauses(readNs float64) {
	least := max(gapNs, int64(gapReads*readNs))
	start := k.clock.NowNs()
	last, longest, sum := start, int64(0), int64(0)
	n := 0
	for ; n < maxReads && last-start < int64(pauseShare); n++ {
		now := k.clock.NowNs()
		if d := now - last; d > 0 {
			longest = max(longest, d)
			if d >= least {
				sum += d
			}
		}
		last = now
	}
	if last > start {
		k.add(PauseLongestNs, unitNs, float64(longest), n)
		k.add(PauseShare, unitRatio, float64(sum)/float64(last-start), n)
	}
}

// sleeps measures by how much a timer is late.
func (k *calibration) sleeps() {
	left := k.within(sleepShare)
	var late []float64
	for len(late) < sleeps && left() {
		start := k.clock.NowNs()
		k.clock.Sleep(sleepTime)
		late = append(late, float64(k.clock.NowNs()-start-int64(sleepTime)))
	}
	if len(late) > 0 {
		k.add(SleepOvershootNs, unitNs, results.Median(late), len(late))
	}
}

// stops measures how long it takes to stop all goroutines and go on, which a
// garbage collection does twice. A collection itself is not made: its time
// depends on the heap of the moment.
func (k *calibration) stops() {
	left := k.within(worldShare)
	var m runtime.MemStats
	var costs []float64
	for len(costs) < worldStops && left() {
		start := k.clock.NowNs()
		runtime.ReadMemStats(&m)
		costs = append(costs, float64(k.clock.NowNs()-start))
	}
	if len(costs) > 0 {
		k.add(StopWorldNs, unitNs, results.Median(costs), len(costs))
	}
}

// call measures one call. Batches grow until one is long against the clock's
// cost, which warms the call up; the grown size is then kept.
func (k *calibration) call(c Call, share time.Duration) {
	left := k.within(share)
	n := 1
	took := k.batch(c, n)
	for took < batchTime && n < maxCalls && left() {
		n *= 2
		took = k.batch(c, n)
	}
	costs := []float64{float64(took) / float64(n)}
	for len(costs) < maxBatches && left() {
		costs = append(costs, float64(k.batch(c, n))/float64(n))
	}
	k.spread(callPrefix+c.Name+nsSuffix, callPrefix+c.Name+p99Suffix, costs)
}

func (k *calibration) batch(c Call, n int) int64 {
	start := k.clock.NowNs()
	c.F(n)
	return k.clock.NowNs() - start
}

// nothing is called through a variable of interface type, so that the
// compiler can neither inline the call nor turn it into a direct one.
type caller interface{ call() }

type nothing struct{}

//go:noinline
func (nothing) call() {}

var target caller = nothing{}

func callNothing(n int) {
	t := target
	for range n {
		t.call()
	}
}
