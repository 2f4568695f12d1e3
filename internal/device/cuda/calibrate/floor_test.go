package calibrate

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/cuda/fake"
	"github.com/tech-renaissance/trbench/internal/device/cuda/kernels"
	"github.com/tech-renaissance/trbench/internal/dl"
	"github.com/tech-renaissance/trbench/results"
)

// onGPU opens the driver, or skips the test.
func onGPU(t *testing.T) *driver.API {
	t.Helper()
	if os.Getenv("TRBENCH_GPU") == "" {
		t.Skip("needs a GPU: TRBENCH_GPU=1")
	}
	api, err := driver.Open(driver.Options{Path: os.Getenv("TRBENCH_DRIVER")})
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// TestGPUReadings calibrates a real GPU twice: the first time with its context
// to be made, the second with one that is held.
func TestGPUReadings(t *testing.T) {
	api := onGPU(t)
	major, err := api.DeviceGetAttribute(0, driver.DeviceComputeCapabilityMajor)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := api.DeviceGet(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, held := range []bool{false, true} {
		if held {
			if _, err := api.DevicePrimaryCtxRetain(dev); err != nil {
				t.Fatal(err)
			}
		}
		begin := time.Now()
		got, err := Run(api, 0)
		took := time.Since(begin)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("calibration, context held: %v, %v in all\n", held, took.Round(time.Millisecond))
		for _, r := range got {
			b, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Printf("calibrate %s\n", b)
		}
		check(t, got, names(major >= 9))
		if held && took > 1500*time.Millisecond {
			t.Errorf("it took %v with the context held", took)
		}
	}
	if err := api.DevicePrimaryCtxRelease(dev); err != nil {
		t.Error(err)
	}
}

// side makes n submissions in bursts, and returns the nanoseconds spent in
// them.
type side func(bursts, burst int) (float64, error)

// contest is two sides that do the same.
type contest struct {
	name          string
	bursts, burst int
	pairs         int
	ours, floor   side
}

// outcome is what alternating blocks gave.
type outcome struct {
	Name             string
	Block, Pairs     int
	Burst            int
	OursNs, FloorNs  float64 // medians over blocks, of one submission
	Ratio, Low, High float64 // geometric mean over pairs, and its 95 % t interval
}

// run alternates blocks: ours first in even pairs, the floor first in odd
// ones. The first pair warms up.
func (c contest) run() (outcome, error) {
	n := float64(c.bursts * c.burst)
	var ours, floor, logs []float64
	for p := range c.pairs + 1 {
		var ns [2]float64
		order := []int{0, 1}
		if p%2 == 1 {
			order = []int{1, 0}
		}
		for _, who := range order {
			var err error
			if ns[who], err = []side{c.ours, c.floor}[who](c.bursts, c.burst); err != nil {
				return outcome{}, fmt.Errorf("%s: %w", c.name, err)
			}
		}
		if p > 0 {
			ours, floor = append(ours, ns[0]/n), append(floor, ns[1]/n)
			logs = append(logs, math.Log(ns[0]/ns[1]))
		}
	}
	mean, half := interval(logs)
	return outcome{Name: c.name, Block: c.bursts * c.burst, Pairs: c.pairs, Burst: c.burst,
		OursNs: results.Median(ours), FloorNs: results.Median(floor),
		Ratio: math.Exp(mean), Low: math.Exp(mean - half), High: math.Exp(mean + half)}, nil
}

// interval is the mean and half the width of its 95 % t interval.
func interval(x []float64) (mean, half float64) {
	mean, sd := stat.MeanStdDev(x, nil)
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(len(x) - 1)}
	return mean, t.Quantile(0.975) * sd / math.Sqrt(float64(len(x)))
}

func TestInterval(t *testing.T) {
	// t(0.975, 3) = 3.182446, sd = 1.290994
	mean, half := interval([]float64{1, 2, 3, 4})
	if mean != 2.5 || math.Abs(half-3.182446*1.290994/2) > 1e-5 {
		t.Errorf("%v ± %v", mean, half)
	}
}

// TestContest: a side that takes 1.05 times as long is found to.
func TestContest(t *testing.T) {
	calls := ""
	fixed := func(name string, ns float64) side {
		return func(bursts, burst int) (float64, error) {
			calls += name
			return ns * float64(bursts*burst) * (1 + 0.001*float64(len(calls)%3)), nil
		}
	}
	got, err := contest{"x", 10, 100, 4, fixed("g", 105), fixed("c", 100)}.run()
	if err != nil {
		t.Fatal(err)
	}
	if calls != "gccggccggc" || got.Block != 1000 || got.Low > 1.05 || got.High < 1.05 || got.High > 1.06 || got.OursNs < 105 || got.FloorNs > 101 {
		t.Errorf("%s: %+v", calls, got)
	}
}

// drained makes bursts of n of a launch, waiting between them with the clock
// stopped, as the loops of scripts/launch_floor.cu do.
func (s *stand) drained(l *driver.Launch, stream driver.Stream) side {
	return func(bursts, burst int) (float64, error) {
		spent := int64(0)
		for range bursts {
			begin := s.nowNs()
			for range burst {
				if code := s.api.Submit(l); code != driver.Success {
					return 0, s.api.LaunchError(l, code)
				}
			}
			spent += s.nowNs() - begin
			if err := s.api.StreamSynchronize(stream); err != nil {
				return 0, err
			}
		}
		return float64(spent), nil
	}
}

// fed launches once behind each filling of memory, which is not timed, as
// floor_graph_fed does.
func (s *stand) fed(l *driver.Launch, stream driver.Stream, fill side) side {
	return func(bursts, _ int) (float64, error) {
		spent := int64(0)
		for range bursts {
			if _, err := fill(0, 0); err != nil {
				return 0, err
			}
			begin := s.nowNs()
			code := s.api.Submit(l)
			spent += s.nowNs() - begin
			if code != driver.Success {
				return 0, s.api.LaunchError(l, code)
			}
			if err := s.api.StreamSynchronize(stream); err != nil {
				return 0, err
			}
		}
		return float64(spent), nil
	}
}

// c is a loop of the library, with its first arguments.
func c(lib *dl.Library, name string, args ...uintptr) side {
	f, err := lib.Lookup(name)
	if err != nil {
		return func(int, int) (float64, error) { return 0, err }
	}
	return func(bursts, burst int) (float64, error) {
		all := append(append([]uintptr{}, args...), uintptr(bursts), uintptr(burst))
		r, _, _ := purego.SyscallN(f, all...)
		if ns := int64(r); ns > 0 {
			return float64(ns), nil
		}
		return 0, fmt.Errorf("%s: %w", name, driver.Result(-int64(r)))
	}
}

// TestGPUFloor compares submissions from Go with the same from C, in
// alternating blocks of one process: the same function, stream, parameters and
// exec. TRBENCH_FLOOR names the library made of scripts/launch_floor.cu.
func TestGPUFloor(t *testing.T) {
	api := onGPU(t)
	path := os.Getenv("TRBENCH_FLOOR")
	if path == "" {
		t.Skip("needs the C loops: TRBENCH_FLOOR=build/gpu/liblaunch_floor.so")
	}
	lib, err := dl.Open(dl.Query{Name: "the C loops", Files: []string{"liblaunch_floor.so"}, Path: path})
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s, err := newStand(api, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}()
	fill := func(to, bytes uintptr) side { return c(lib, "floor_fill", to, bytes) }
	contests, err := s.contests(lib, fill)
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	fmt.Fprintf(&table, "%-34s %6s %6s %6s %9s %9s %7s  %s\n", "what", "block", "burst", "pairs", "Go ns", "C ns", "ratio", "95 % interval")
	for _, c := range contests {
		o, err := c.run()
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("floor %s\n", b)
		fmt.Fprintf(&table, "%-34s %6d %6d %6d %9.0f %9.0f %7.4f  %.4f to %.4f\n", o.Name, o.Block, o.Burst, o.Pairs, o.OursNs, o.FloorNs, o.Ratio, o.Low, o.High)
	}
	fmt.Print(table.String())
}

// contests are a kernel without parameters, one with, and graphs of three
// sizes, in bursts that are drained. To show what a full queue hides, one size is
// launched in blocks without a drain; to show what a wait leaves cold, each launch
// is drained, of short kernels (a wait of some 0.4 ms) and of long ones (9 ms), and
// behind the writing of a batch, which fill does for both.
func (s *stand) contests(lib *dl.Library, fill func(to, bytes uintptr) side) ([]contest, error) {
	stream := s.streams[0]
	empty, err := s.api.ModuleGetFunction(s.mod, kernels.Empty)
	if err != nil {
		return nil, err
	}
	burn, err := s.api.ModuleGetFunction(s.mod, kernels.BurnKernel)
	if err != nil {
		return nil, err
	}
	one, err := s.api.PrepareKernel(s.mem, driver.KernelSpec{Func: burn, Name: kernels.BurnKernel, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1},
		Stream: stream, Args: (&driver.Args{}).U64(0)})
	if err != nil {
		return nil, err
	}
	// The same parameter for C: an array of one address, and the value.
	block, err := s.mem.Alloc(16)
	if err != nil {
		return nil, err
	}
	params := uintptr(unsafe.Pointer(&block[0]))
	binary.NativeEndian.PutUint64(block, uint64(params)+8)
	list := []contest{
		{"kernel, no parameter", 10, 100, 60, s.drained(s.empty[0], stream), c(lib, "floor_kernel", uintptr(empty), uintptr(stream), 0)},
		{"kernel, one parameter", 10, 100, 60, s.drained(one, stream), c(lib, "floor_kernel", uintptr(burn), uintptr(stream), params)},
		{"kernel, no parameter, not drained", 1, 1000, 30, s.drained(s.empty[0], stream), c(lib, "floor_kernel", uintptr(empty), uintptr(stream), 0)},
	}
	// A kernel that keeps a multiprocessor busy as long as one of a large step.
	long, err := s.api.PrepareKernel(s.mem, driver.KernelSpec{Func: burn, Name: kernels.BurnKernel, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1},
		Stream: stream, Args: (&driver.Args{}).U64(60_000)})
	if err != nil {
		return nil, err
	}
	var slow driver.GraphExec // of long nodes
	for _, g := range []struct {
		of                          string
		kernel                      *driver.Launch
		nodes, bursts, burst, pairs int
	}{
		{"graph of %d nodes", s.empty[0], 1, 50, 20, 40},
		{"graph of %d nodes", s.empty[0], 10, 50, 20, 40},
		{"graph of %d nodes", s.empty[0], 300, 100, 10, 48},
		{"graph of %d nodes, bursts of 20", s.empty[0], 300, 50, 20, 48},
		{"graph of %d nodes, each drained", s.empty[0], 300, 100, 1, 24},
		{"graph of %d long nodes, each drained", long, 300, 10, 1, 24},
		{"graph of %d nodes, not drained", s.empty[0], 10, 1, 1000, 12},
	} {
		captured, err := s.captureChain(g.nodes, g.kernel)
		if err != nil {
			return nil, err
		}
		exec, err := s.instantiate(captured)
		if err != nil {
			return nil, err
		}
		if g.kernel == long {
			slow = exec
		}
		launch, err := s.api.PrepareGraphLaunch(exec, stream)
		if err != nil {
			return nil, err
		}
		list = append(list, contest{fmt.Sprintf(g.of, g.nodes), g.bursts, g.burst, g.pairs, s.drained(launch, stream), c(lib, "floor_graph", uintptr(exec), uintptr(stream))})
	}
	fed, err := s.fedContests(lib, slow, fill)
	return append(list, fed...), err
}

// fedContests launch a graph of long nodes behind the writing of a batch, which
// leaves caches cold: one of ResNet-50 at 64 and one at 256 images.
func (s *stand) fedContests(lib *dl.Library, exec driver.GraphExec, fill func(to, bytes uintptr) side) (list []contest, err error) {
	stream := s.streams[0]
	launch, err := s.api.PrepareGraphLaunch(exec, stream)
	if err != nil {
		return nil, err
	}
	buffer, err := s.mem.Alloc(largestBatch)
	if err != nil {
		return nil, err
	}
	to := uintptr(unsafe.Pointer(&buffer[0]))
	for _, bytes := range []uintptr{largestBatch / 4, largestBatch} {
		list = append(list, contest{fmt.Sprintf("graph of 300 long nodes, %d MiB fed", bytes>>20), 10, 1, 24,
			s.fed(launch, stream, fill(to, bytes)),
			c(lib, "floor_graph_fed", uintptr(exec), uintptr(stream), to, bytes)})
	}
	return list, nil
}

// largestBatch is the bytes of 256 images as ResNet-50 takes them.
const largestBatch = 256 * 3 * 224 * 224

// TestContests runs every contest on the fake driver, Go against Go.
func TestContests(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	api := start(t, fake.H200(1))
	s, err := newStand(api, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}()
	lib, err := dl.Open(dl.Query{Name: "libc", Files: []string{"libc.so.6"}})
	if err != nil {
		t.Skip(err)
	}
	fill := func(uintptr, uintptr) side { return func(int, int) (float64, error) { return 1, nil } }
	list, err := s.contests(lib, fill)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		c.pairs, c.bursts, c.burst = 2, 1, 5
		if _, err := c.run(); err == nil || !strings.Contains(err.Error(), "floor_") {
			t.Errorf("%s: libc has the loops: %v", c.name, err)
		}
		c.floor = c.ours
		if o, err := c.run(); err != nil || o.Ratio <= 0 || o.OursNs <= 0 {
			t.Errorf("%s: %+v, %v", c.name, o, err)
		}
	}
}
