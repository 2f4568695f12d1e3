package cuda

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/cuda/fake"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/dl"
	"github.com/tech-renaissance/trbench/internal/worker"
	"github.com/tech-renaissance/trbench/workloads"
)

var update = flag.Bool("update", false, "write the golden files")

var (
	shape  = regexp.MustCompile(` grid=\[[^]]*\] block=\[[^]]*\]`)
	vector = regexp.MustCompile(`_(f16|f32)?x[0-9]+( |$)`)
	object = regexp.MustCompile(`\b(stream|event|exec|graph|memory|pinned)([0-9]+)(\+[0-9]+)?`)
)

// normalise makes a log independent of what may change without changing which
// calls are made: streams get their names, events and execs are numbered as
// they come, places in memory, grids and vector widths are left out.
func normalise(log []string) string {
	numbers := map[string]string{}
	count := map[string]int{}
	var out strings.Builder
	for _, line := range log {
		line = shape.ReplaceAllString(line, "")
		line = vector.ReplaceAllString(line, "_$1$2")
		line = object.ReplaceAllStringFunc(line, func(s string) string {
			m := object.FindStringSubmatch(s)
			switch m[1] {
			case "memory", "pinned":
				return m[1]
			case "stream":
				var n int
				fmt.Sscan(m[2], &n)
				return workloads.Stream(n - 1).String()
			}
			if numbers[m[0]] == "" {
				count[m[1]]++
				numbers[m[0]] = fmt.Sprintf("%s#%d", m[1], count[m[1]])
			}
			return numbers[m[0]]
		})
		out.WriteString(line + "\n")
	}
	return out.String()
}

// Which driver calls a step makes, in each mode. Nothing is created, allocated
// or waited for on the way, except where the configuration says so.
func TestCallsOfAStep(t *testing.T) {
	x := fakeRig(t, nil)
	spec := tinySpec()
	spec.Precision, spec.EMA = workloads.FP32, false
	dev := x.device(Options{})
	w, err := workloads.New(spec, dev.Target())
	must(t, err)
	s := session(t, dev, w, worker.Options{Variants: []workloads.Variant{workloads.FinalFull}})
	for _, c := range []struct {
		key     string
		waits   bool // on the host
		touches bool // copies scalars between host and device
		golden  bool
	}{
		{"eager/event/device", false, false, true},
		{"eager/host/device", true, false, false},
		{"eager/event/host", true, true, false},
		{"graph/event/device", false, false, true},
		{"graph/host/device", true, false, true},
		{"graph/host/host", true, true, false},
		{"step/inside/device", false, false, true},
	} {
		e, err := s.Executor(key(c.key))
		must(t, err, s.Restore(), e.Begin())
		// One by one: whether a half is consumed when it is asked for, which
		// decides on calls, then does not hang on the machine's speed.
		for range 4 {
			must(t, e.Submit(1), e.Wait())
		}
		e.Clocks()
		x.m.Record(true)
		must(t, e.Submit(1))
		log := x.m.Log()
		x.m.Record(false)
		must(t, e.Wait())
		e.Clocks()
		for _, line := range log {
			call, _, _ := strings.Cut(line, " ")
			switch call {
			case "cuLaunchKernel", "cuMemcpyHtoDAsync_v2", "cuEventRecord", "cuStreamWaitEvent", "cuGraphLaunch":
				continue
			case "cuEventQuery", "cuEventSynchronize": // of the half that is filled next
				continue
			case "cuStreamSynchronize":
				if c.waits {
					continue
				}
			case "cuMemcpyDtoH_v2", "cuMemcpyHtoD_v2":
				if c.touches {
					continue
				}
			}
			t.Errorf("%s: a step calls %s", c.key, line)
		}
		if got, want := submissions(log), e.Counts().Launches.Host; want == nil || got != *want {
			t.Errorf("%s: the driver saw %d submitting calls, launches.host is %v", c.key, got, want)
		}
		if strings.Contains(fmt.Sprint(log), " = ") {
			t.Errorf("%s: a call failed", c.key)
		}
		if !c.golden {
			continue
		}
		path := filepath.Join("testdata", strings.ReplaceAll(c.key, "/", "_")+".golden")
		got := normalise(log)
		if *update {
			must(t, os.MkdirAll("testdata", 0o755), os.WriteFile(path, []byte(got), 0o644))
			continue
		}
		want, err := os.ReadFile(path)
		must(t, err)
		if got != string(want) {
			t.Errorf("%s: the calls differ from %s (-update writes it):\n%s", c.key, path, got)
		}
	}
}

// submissions counts the calls that make the device run something.
func submissions(log []string) (n int64) {
	for _, line := range log {
		switch call, _, _ := strings.Cut(line, " "); call {
		case "cuLaunchKernel", "cuMemcpyHtoDAsync_v2", "cuGraphLaunch":
			n++
		}
	}
	return n
}

// instead serves some symbols with another function.
type instead struct {
	dl.Resolver
	names []string
	addr  uintptr
}

func (r instead) Lookup(name string) (uintptr, error) {
	for _, n := range r.names {
		if n == name {
			return r.addr, nil
		}
	}
	return r.Resolver.Lookup(name)
}

// What is on the path of a step allocates nothing. The fake driver is Go and
// does, so the calls go to a C function that does nothing.
func TestSubmittingAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	libc, err := dl.Open(dl.Query{Files: []string{"libc.so.6"}, Dirs: []string{}})
	if err != nil {
		t.Skip(err)
	}
	defer libc.Close()
	nop, err := libc.Lookup("sched_yield")
	must(t, err)
	m := fake.H200(1)
	lib, err := m.Start()
	must(t, err)
	defer m.Stop()
	api, err := driver.New(instead{lib, []string{"cuLaunchKernel", "cuGraphLaunch", "cuEventRecord", "cuStreamWaitEvent", "cuStreamSynchronize",
		"cuMemcpyHtoDAsync_v2", "cuEventQuery", "cuEventSynchronize"}, nop})
	must(t, err)
	mem := driver.NewMemory()
	defer mem.Close()
	r := &rank{g: &Group{}, api: api, mem: mem}
	o := &op{r: r, stream: workloads.COMP1, b: &workloads.Bound{Node: &workloads.Node{Name: "a"}, SubGraph: workloads.DeepFwdBwd}}
	l, err := api.PrepareKernel(mem, driver.KernelSpec{Func: 1, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Args: new(driver.Args).U64(1)})
	must(t, err)
	c, err := api.PrepareMemcpyHtoD(1, 1, 1, 1)
	must(t, err)
	o.launches = []*driver.Launch{l, l, c}
	e := &event{r: r, name: "e", recorded: true}
	for _, h := range []*half{&e.outside, &e.inside} {
		for s := range h.record {
			h.record[s], err = api.PrepareEventRecord(1, 1)
			must(t, err)
			h.wait[s], err = api.PrepareStreamWaitEvent(1, 1)
			must(t, err)
		}
	}
	replay := &exec{r: r, last: o.b, counts: []opCount{{workloads.DeepFwdBwd, 3}, {workloads.ZeroGrad, 1}}}
	for s := range r.syncs {
		replay.launch[s], err = api.PrepareGraphLaunch(1, 1)
		must(t, err)
		r.syncs[s], err = api.PrepareStreamSynchronize(1)
		must(t, err)
	}
	var ev device.Event = e
	var failed error
	for name, f := range map[string]func() error{
		"submit": func() error { return o.Submit(workloads.FinalFull) },
		"record": func() error { return r.Record(workloads.COMP1, ev) },
		"wait":   func() error { return r.Wait(workloads.UPDATE, ev) },
		"launch": func() error { return replay.Launch(workloads.COMP1, workloads.FinalFull) },
		"sync":   func() error { return r.Sync(workloads.COMP1) },
		"sync all": func() error {
			return r.SyncAll()
		},
	} {
		n := testing.AllocsPerRun(500, func() { failed = errors.Join(failed, f()) })
		if n != 0 || failed != nil {
			t.Errorf("%s: %v allocations, %v", name, n, failed)
		}
	}
	if o.Calls() != 3 {
		t.Errorf("%d calls a submission", o.Calls())
	}
}
