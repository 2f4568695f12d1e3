//go:build race

package cpu

import (
	"os"
	osexec "os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

// raceCases are programs with or without a race. They run in a process of
// their own, as the detector's reports end up in the output and the exit code.
// The operators do nothing but announce what they declare.
var raceCases = []struct {
	name string
	race bool
	run  func(x *bench)
}{
	{"joined", false, func(x *bench) { twoStreams(x, true, 0) }},
	{"join missing", true, func(x *bench) { twoStreams(x, false, 0) }},
	// The host sees the first stream idle only by the clock: no edge.
	{"join missing, long after", true, func(x *bench) { twoStreams(x, false, 20*time.Millisecond) }},
	{"host joins", false, func(x *bench) {
		x.do(func(r device.Rank) {
			must(x.t, x.writer(r, workloads.COMP1).Submit(0), r.Sync(workloads.COMP1), x.writer(r, workloads.UPDATE).Submit(0), r.SyncAll())
		})
	}},
	{"host joins another stream", true, func(x *bench) {
		x.do(func(r device.Rank) {
			must(x.t, x.writer(r, workloads.COMP1).Submit(0), r.Sync(workloads.COMP2), x.writer(r, workloads.UPDATE).Submit(0), r.SyncAll())
		})
	}},
	{"host joins by event", false, func(x *bench) { hostEvent(x, true) }},
	{"host reads too early", true, func(x *bench) { hostEvent(x, false) }},
	{"event reused", false, func(x *bench) { reused(x, workloads.UPDATE) }},
	// One who waits on an event must not thereby be waited for.
	{"edge from waiter to recorder", true, func(x *bench) { waiterFirst(x, workloads.COMP1) }},
	{"edge from waiter to waiter", true, func(x *bench) { waiterFirst(x, workloads.COMP3) }},
	{"graph joined", false, func(x *bench) { forked(x, true) }},
	{"graph edge missing", true, func(x *bench) { forked(x, false) }},
	{"launches on two streams", false, func(x *bench) {
		x.do(func(r device.Rank) {
			e, err := x.chain(r, x.writer(r, workloads.COMP1)).Instantiate()
			must(x.t, err, e.Launch(workloads.COMP2, 0), e.Launch(workloads.COMP3, 0), r.SyncAll())
		})
	}},
	{"launch beside eager", true, func(x *bench) {
		x.do(func(r device.Rank) {
			w := x.writer(r, workloads.COMP1)
			e, err := x.chain(r, w).Instantiate()
			must(x.t, err, e.Launch(workloads.COMP2, 0), w.Submit(0), r.SyncAll())
		})
	}},
	{"collective joined", false, func(x *bench) { collective(x, true) }},
	{"kernels joined", false, func(x *bench) { realKernels(x, true) }},
	{"kernels not joined", true, func(x *bench) { realKernels(x, false) }},
	{"collective not joined", true, func(x *bench) { collective(x, false) }},
}

const raceEnv = "TRBENCH_CPU_RACE_CASE"

func TestRaces(t *testing.T) {
	for _, c := range raceCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cmd := osexec.Command(os.Args[0], "-test.run=^TestRaceCase$", "-test.count=1")
			cmd.Env = append(os.Environ(), raceEnv+"="+c.name, "GORACE=halt_on_error=0")
			out, err := cmd.CombinedOutput()
			if got := strings.Contains(string(out), "DATA RACE"); got != c.race {
				t.Errorf("race reported: %v, want %v\n%s", got, c.race, out)
			}
			if (err != nil) != c.race {
				t.Errorf("ended with %v\n%s", err, out)
			}
		})
	}
}

// TestRaceCase is what TestRaces runs in the other process.
func TestRaceCase(t *testing.T) {
	name, ok := os.LookupEnv(raceEnv)
	if !ok {
		t.Skip("run by TestRaces")
	}
	for _, c := range raceCases {
		if c.name == name {
			c.run(open(t, 2, Options{}))
			return
		}
	}
	t.Fatalf("no case %q", name)
}

// writer is an operator that declares a write to the first kilobyte.
func (x *bench) writer(r device.Rank, s workloads.Stream) device.Op {
	b := x.bound(lanes[s], "write", nothing)
	b.Writes = []workloads.Region{{Bytes: 1024}}
	o, err := r.Prepare(b)
	must(x.t, err)
	return o
}

func twoStreams(x *bench, join bool, pause time.Duration) {
	x.do(func(r device.Rank) {
		e := x.event(r, "e")
		a, b := x.writer(r, workloads.COMP1), x.writer(r, workloads.UPDATE)
		for range 3 {
			must(x.t, a.Submit(0), r.Record(workloads.COMP1, e))
			if join {
				must(x.t, r.Wait(workloads.UPDATE, e))
			}
			time.Sleep(pause)
			must(x.t, b.Submit(0), r.SyncAll())
		}
	})
}

func hostEvent(x *bench, sync bool) {
	x.do(func(r device.Rank) {
		e := x.event(r, "e")
		must(x.t, x.writer(r, workloads.COMP1).Submit(0), r.Record(workloads.COMP1, e))
		time.Sleep(5 * time.Millisecond)
		if sync {
			must(x.t, e.Sync())
		}
		must(x.t, r.Read(workloads.Region{Off: 100, Bytes: 4}, make([]byte, 4)), r.SyncAll())
	})
}

// reused passes the write on from stream to stream by one event.
func reused(x *bench, last workloads.Stream) {
	x.do(func(r device.Rank) {
		e := x.event(r, "e")
		for s := range last + 1 {
			must(x.t, r.Wait(s, e), x.writer(r, s).Submit(0), r.Record(s, e))
		}
		must(x.t, r.SyncAll())
	})
}

// waiterFirst: UPDATE writes and then waits for COMP_1's event; after that
// COMP_1 records it again, and COMP_3 waits for that. Neither has any reason
// to come after UPDATE's write.
func waiterFirst(x *bench, second workloads.Stream) {
	x.do(func(r device.Rank) {
		e := x.event(r, "e")
		must(x.t, r.Record(workloads.COMP1, e), x.writer(r, workloads.UPDATE).Submit(0), r.Wait(workloads.UPDATE, e))
		time.Sleep(10 * time.Millisecond)
		must(x.t, r.Record(workloads.COMP1, e), r.Wait(workloads.COMP3, e), x.writer(r, second).Submit(0), r.SyncAll())
	})
}

func forked(x *bench, join bool) {
	x.do(func(r device.Rank) {
		head := x.op(r, workloads.DeepFwdBwd, "head", nothing)
		side, main := x.writer(r, workloads.UPDATE), x.writer(r, workloads.COMP1)
		out, back := x.event(r, "out"), x.event(r, "back")
		must(x.t, r.BeginCapture(workloads.COMP1, device.CaptureThreadLocal), head.Submit(0), r.Record(workloads.COMP1, out),
			r.Wait(workloads.UPDATE, out), side.Submit(0), r.Record(workloads.UPDATE, back))
		if join {
			must(x.t, r.Wait(workloads.COMP1, back), main.Submit(0))
		} else {
			must(x.t, main.Submit(0), r.Wait(workloads.COMP1, back))
		}
		g, err := r.EndCapture(workloads.COMP1)
		must(x.t, err)
		e, err := g.Instantiate()
		must(x.t, err)
		for range 3 {
			must(x.t, e.Launch(workloads.COMP2, 0))
		}
		must(x.t, r.SyncAll())
	})
}

func collective(x *bench, join bool) {
	must(x.t, x.g.Each(func(r device.Rank) error {
		sum, other := sumOp(x.t, r, workloads.DeepComm, 0, 100, true), x.writer(r, workloads.COMP1)
		e := x.event(r, "e")
		for range 3 {
			must(x.t, sum.Submit(0), r.Record(workloads.UPDATE, e))
			if join {
				must(x.t, r.Wait(workloads.COMP1, e))
			}
			must(x.t, other.Submit(0), r.SyncAll())
		}
		return nil
	}))
}

// realKernels has the last two writes to the same bytes race, after each
// stream has run an unrelated kernel on its workers.
func realKernels(x *bench, join bool) {
	g := kernelGroup(x.t, Options{Workers: 4})
	defer g.Close()
	must(x.t, g.Rank(0).Do(func() error {
		r := g.Rank(0)
		e := x.event(r, "e")
		must(x.t, zeroOp(x.t, r, workloads.COMP1, 0).Submit(0), r.Record(workloads.COMP1, e))
		time.Sleep(10 * time.Millisecond)
		if join {
			must(x.t, r.Wait(workloads.UPDATE, e))
		}
		must(x.t, zeroOp(x.t, r, workloads.UPDATE, bigRegion).Submit(0), zeroOp(x.t, r, workloads.UPDATE, 0).Submit(0))
		return r.SyncAll()
	}))
}
