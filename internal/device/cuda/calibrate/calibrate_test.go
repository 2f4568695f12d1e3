package calibrate

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/cuda/fake"
	"github.com/tech-renaissance/trbench/results"
)

// start makes a machine whose kernels do nothing.
func start(t *testing.T, m *fake.Machine) *driver.API {
	t.Helper()
	m.Register("empty", nil, func(fake.Args, [3]uint32, [3]uint32) {})
	m.Register("burn", fake.Params(fake.U64), func(fake.Args, [3]uint32, [3]uint32) {})
	r, err := m.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Stop(); err != nil {
			t.Error(err)
		}
	})
	api, err := driver.New(r)
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// names are the readings of a GPU, in order.
func names(dependent bool) []string {
	out := []string{"call.driver_ns", "launch.kernel_ns"}
	if dependent {
		out = append(out, "launch.kernel_dependent_ns")
	}
	for _, n := range chains {
		for _, f := range []string{"graph.capture_%d_ns", "graph.instantiate_%d_ns", "graph.first_launch_%d_ns",
			"launch.graph_%d_ns", "graph.e2e_%d_ns", "graph.gpu_%d_ns"} {
			out = append(out, fmt.Sprintf(f, n))
		}
	}
	for _, fit := range []string{"launch.graph_fit", "graph.e2e_fit", "graph.gpu_fit"} {
		out = append(out, fit+"_base_ns", fit+"_node_ns", fit+"_r2")
	}
	out = append(out, "sync.device_idle_ns", "sync.stream_idle_ns", "sync.event_idle_ns", "sync.event_queued_ns",
		"sync.burn_gpu_ns", "sync.device_busy_ns", "sync.stream_busy_ns", "sync.event_busy_ns")
	for _, w := range widths {
		out = append(out, fmt.Sprintf("graph.fork_join_%d_ns", w))
	}
	return out
}

func check(t *testing.T, got []results.Reading, want []string) {
	t.Helper()
	var have []string
	for _, r := range got {
		have = append(have, r.Name)
		if unit := r.Unit; unit != "ns" && !(strings.HasSuffix(r.Name, "_r2") && unit == "ratio") {
			t.Errorf("%s is in %q", r.Name, r.Unit)
		}
		if r.N < 1 || math.IsNaN(r.Value) || math.IsInf(r.Value, 0) {
			t.Errorf("%s = %v of %d", r.Name, r.Value, r.N)
		}
	}
	if !slices.Equal(have, want) {
		t.Errorf("readings\n%v, want\n%v", have, want)
	}
}

func TestReadings(t *testing.T) {
	for _, c := range []struct {
		m         *fake.Machine
		dependent bool
	}{{fake.H200(1), true}, {fake.A100(1), false}} {
		t.Run(c.m.Name, func(t *testing.T) {
			api := start(t, c.m)
			got, err := Run(api, 0)
			if err != nil {
				t.Fatal(err)
			}
			check(t, got, names(c.dependent))
			for _, r := range got {
				if Meaning(r.Name) == "" {
					t.Errorf("%s is not explained", r.Name)
				}
			}
			if lazy := c.m.LazyInCapture(); c.dependent && len(lazy) > 0 {
				t.Errorf("first used inside a capture: %v", lazy)
			}
			if n := c.m.AllocsInCapture(); n > 0 {
				t.Errorf("%d allocations inside captures", n)
			}
		})
	}
}

// What a chain and a fork are, call by call.
func TestCallSequence(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	m := fake.H200(1)
	api := start(t, m)
	s, err := newStand(api, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}()
	m.Record(true)
	g, err := s.capture(func() error { return s.level(2) })
	if err != nil {
		t.Fatal(err)
	}
	x, err := s.instantiate(g)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.drop(x); err != nil {
		t.Fatal(err)
	}
	var calls []string
	for _, line := range m.Log() {
		word, rest, _ := strings.Cut(line, " ")
		calls = append(calls, strings.TrimPrefix(word, "cu")+" "+stream(rest))
	}
	want := []string{
		"StreamBeginCapture_v2 1",
		"LaunchKernel 1", "EventRecord 1",
		"StreamWaitEvent 2", "LaunchKernel 2", "EventRecord 2", "StreamWaitEvent 1",
		"StreamWaitEvent 3", "LaunchKernel 3", "EventRecord 3", "StreamWaitEvent 1",
		"LaunchKernel 1",
		"StreamEndCapture 1", "GraphInstantiateWithFlags ", "GraphDestroy ", "GraphExecDestroy ",
	}
	if !slices.Equal(calls, want) {
		t.Errorf("calls\n%q, want\n%q\n%s", calls, want, strings.Join(m.Log(), "\n"))
	}
}

// stream is the number of the first stream that a line of the log names.
func stream(line string) string {
	_, after, ok := strings.Cut(line, "stream")
	if !ok {
		return ""
	}
	n := 0
	for n < len(after) && after[n] >= '0' && after[n] <= '9' {
		n++
	}
	return after[:n]
}

// Whatever fails, the first failure is returned, by its name, and everything is
// given back (start's Stop says so).
func TestFailures(t *testing.T) {
	for _, f := range []fake.Fault{
		{Call: "cuDeviceGet", Nth: 1, Code: 101},
		{Call: "cuDevicePrimaryCtxRetain", Nth: 1, Code: 2},
		{Call: "cuStreamCreate", Nth: 3, Code: 2},
		{Call: "cuEventCreate", Nth: 2, Code: 2},
		{Call: "cuEventCreate", Nth: 5, Code: 2},
		{Call: "cuModuleLoadDataEx", Nth: 1, Code: 218},
		{Call: "cuModuleGetFunction", Nth: 2, Code: 500},
		{Call: "cuLaunchKernel", Nth: 150, Code: 701},
		{Call: "cuLaunchKernelEx", Nth: 2, Code: 701},
		{Call: "cuStreamBeginCapture_v2", Nth: 4, Code: 901},
		{Call: "cuStreamEndCapture", Nth: 2, Code: 901},
		{Call: "cuGraphInstantiateWithFlags", Nth: 3, Code: 2},
		{Call: "cuGraphLaunch", Nth: 1, Code: 999},
		{Call: "cuGraphLaunch", Nth: 100, Code: 999},
		{Call: "cuStreamSynchronize", Nth: 2, Code: 999},
		{Call: "cuEventRecord", Nth: 3, Code: 999},
		{Call: "cuEventElapsedTime_v2", Nth: 1, Code: 999},
		{Call: "cuEventSynchronize", Nth: 1, Code: 999},
		{Call: "cuStreamWaitEvent", Nth: 2, Code: 999},
		{Call: "cuCtxSynchronize", Nth: 1, Code: 999},
	} {
		t.Run(fmt.Sprintf("%s/%d", f.Call, f.Nth), func(t *testing.T) {
			m := fake.H200(1)
			api := start(t, m)
			m.Fail(f)
			_, err := Run(api, 0)
			var e *driver.Error
			if !errors.As(err, &e) || e.Call != f.Call || uint32(e.Code) != f.Code || !strings.HasPrefix(err.Error(), "calibrate GPU 0: ") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A failure inside a capture ends the capture and is the one returned.
func TestFailureInsideCapture(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	m := fake.H200(1)
	api := start(t, m)
	s, err := newStand(api, 0)
	if err != nil {
		t.Fatal(err)
	}
	m.Fail(fake.Fault{Call: "cuEventRecord", Nth: 1, Code: 999, Invalidate: true})
	_, err = s.capture(func() error { return s.level(2) })
	var e *driver.Error
	if !errors.As(err, &e) || e.Call != "cuEventRecord" {
		t.Errorf("got %v", err)
	}
	if st, err := api.StreamIsCapturing(s.streams[0]); err != nil || st != driver.CaptureNone {
		t.Errorf("capture status %v, %v", st, err)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
}

func TestTooOld(t *testing.T) {
	m := fake.H200(1)
	m.GPUs[0].Major = 7
	api := start(t, m)
	if _, err := Run(api, 0); err == nil || !strings.Contains(err.Error(), "8.0") {
		t.Errorf("got %v", err)
	}
}
