package cuda

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/internal/cuda/cudnn"
	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/cuda/fake"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/device/cuda/kernels"
	"github.com/tech-renaissance/trbench/internal/worker"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
)

// second is a launcher that submits through the same driver and keeps a list.
type second struct {
	api    *driver.API
	mem    *driver.Memory
	made   []string
	refuse string // a kernel it cannot lay out
	fail   error  // of every call
}

func (*second) Name() string { return "second" }

func (s *second) Kernel(spec driver.KernelSpec) (func() error, error) {
	if spec.Name == s.refuse {
		return nil, errors.New("not this one")
	}
	l, err := s.api.PrepareKernel(s.mem, spec)
	return s.call(spec.Name, l), err
}

func (s *second) CopyIn(dst driver.DevicePtr, src uintptr, n int, stream driver.Stream) (func() error, error) {
	l, err := s.api.PrepareMemcpyHtoD(dst, src, n, stream)
	return s.call("copy in", l), err
}

func (s *second) call(name string, l *driver.Launch) func() error {
	return func() error {
		s.made = append(s.made, name)
		if s.fail != nil {
			return s.fail
		}
		return s.api.LaunchError(l, s.api.Submit(l))
	}
}

// twoLaunchers opens a small net on a machine whose kernels do nothing.
func twoLaunchers(t *testing.T) (*Group, *second, *workloads.Workload) {
	t.Helper()
	m := fake.H200(1)
	for _, k := range kernels.Kernels() {
		ps, err := fake.ParseParams(k.Params)
		if err != nil {
			t.Fatal(err)
		}
		m.Register(k.Name, ps, func(fake.Args, [3]uint32, [3]uint32) {})
	}
	lib, err := m.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := &second{mem: driver.NewMemory()}
	if s.api, err = driver.New(lib); err != nil {
		t.Fatal(err)
	}
	d, err := New(Options{Driver: s.api, Submitter: s})
	if err != nil {
		t.Fatal(err)
	}
	spec := workloads.Spec{Model: "golden-tiny", Batch: 2, FinalResolution: 8}
	w, err := device.NewWorkload(d, spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	g, err := d.Open(w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(g.Close(), s.mem.Close()); err != nil {
			t.Error(err)
		}
	})
	return g.(*Group), s, w
}

// transfer is a sub-graph with a copy and a kernel.
func transfer(w *workloads.Workload) []*workloads.Bound {
	return w.Bounds(workloads.TransferA, workloads.FinalFull, workloads.ControlDevice)
}

// Operators go where UseLauncher says; into a capture they go through the
// binding.
func TestUseLauncher(t *testing.T) {
	g, s, w := twoLaunchers(t)
	if got := g.Launchers(); !slices.Equal(got, []string{"purego", "second"}) {
		t.Errorf("launchers %v", got)
	}
	run := func(name string, capture bool) []string {
		t.Helper()
		s.made = nil
		if err := g.UseLauncher(name); err != nil {
			t.Fatal(err)
		}
		err := g.Each(func(r device.Rank) error {
			bounds := transfer(w)
			stream := bounds[0].SubGraph.Info().Stream
			var ops []device.Op
			for _, b := range bounds {
				o, err := r.Prepare(b)
				if err != nil {
					return err
				}
				ops = append(ops, o)
			}
			if capture {
				if err := r.BeginCapture(stream, device.CaptureThreadLocal); err != nil {
					return err
				}
			}
			for _, o := range ops {
				if err := o.Submit(workloads.FinalFull); err != nil {
					return err
				}
			}
			if capture {
				graph, err := r.EndCapture(stream)
				if err != nil {
					return err
				}
				return graph.Close()
			}
			return r.Sync(stream)
		})
		if err != nil {
			t.Fatal(err)
		}
		return s.made
	}
	if made := run("purego", false); len(made) != 0 {
		t.Errorf("the binding's submissions went to the other launcher: %v", made)
	}
	var want []string
	for _, b := range transfer(w) {
		plan, err := kernels.Plan(b)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range plan {
			name := l.Kernel
			if l.Kind == kernels.KindCopyIn {
				name = "copy in"
			}
			want = append(want, name)
		}
	}
	if made := run("second", false); !reflect.DeepEqual(made, want) || !slices.Contains(want, "copy in") || len(want) < 2 {
		t.Errorf("submitted %v, want %v", made, want)
	}
	if made := run("second", true); len(made) != 0 {
		t.Errorf("submissions into a capture went to the other launcher: %v", made)
	}
	if err := g.UseLauncher("third"); err == nil || !strings.Contains(err.Error(), "second") {
		t.Errorf("an unknown launcher: %v", err)
	}
}

// What the launcher refuses or fails at names it and the node.
func TestLauncherFailures(t *testing.T) {
	g, s, w := twoLaunchers(t)
	bounds := transfer(w)
	last := bounds[len(bounds)-1]
	plan, err := kernels.Plan(last)
	if err != nil {
		t.Fatal(err)
	}
	s.refuse = plan[len(plan)-1].Kernel
	prepare := func() (o device.Op, err error) {
		err = g.Each(func(r device.Rank) (err error) { o, err = r.Prepare(last); return err })
		return o, err
	}
	if _, err := prepare(); err == nil || !strings.Contains(err.Error(), "launcher second: not this one") {
		t.Errorf("refused: %v", err)
	}
	s.refuse = ""
	o, err := prepare()
	if err != nil {
		t.Fatal(err)
	}
	s.fail = errors.New("broken")
	if err := g.UseLauncher("second"); err != nil {
		t.Fatal(err)
	}
	var oe *device.OpError
	if err := g.Each(func(device.Rank) error { return o.Submit(workloads.FinalFull) }); !errors.As(err, &oe) || !errors.Is(err, s.fail) || oe.Node != nodeName(last) {
		t.Errorf("failed: %v", err)
	}
}

func TestLauncherCombinations(t *testing.T) {
	api := &driver.API{}
	for name, o := range map[string]Options{
		"cuDNN":     {Driver: api, Submitter: &second{}, CuDNN: &cudnn.Library{}},
		"dependent": {Driver: api, Submitter: &second{}, Tuning: Tuning{Dependent: true}},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), "launcher second") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A session runs the same step by either launcher, to the same bits; what is
// captured and replayed is the binding's in any case.
func TestLaunchersAgree(t *testing.T) {
	x := fakeRig(t, nil)
	other := &second{api: x.api, mem: driver.NewMemory()}
	dev := x.device(Options{Submitter: other})
	t.Cleanup(func() { must(t, other.mem.Close()) }) // after the session, which is closed before
	w, err := device.NewWorkload(dev, tinySpec(), nil)
	must(t, err)
	s := session(t, dev, w, worker.Options{Variants: []workloads.Variant{workloads.FinalFull}})
	second := func(k string) results.ConfigurationKey {
		out := key(k)
		out.Launcher = "second"
		return out
	}
	keys := []results.ConfigurationKey{second("eager/event/device"), second("eager/host/host"), key("eager/event/device"), key("graph/event/device"), key("step/inside/device")}
	if ref := worker.Reference(keys); ref != key("eager/event/device") {
		t.Errorf("compared with %s by %s", ref, ref.Launcher)
	}
	v, err := s.Check(t.Context(), keys, 3)
	must(t, err)
	want := []string{"eager/event/device", "eager/event/device/second", "eager/host/host/second", "graph/event/device", "step/inside/device"}
	if !v.Equal || !slices.Equal(v.Modes, want) {
		t.Errorf("checked %v", v.Modes)
	}
	for _, k := range keys {
		e, err := s.Executor(k)
		must(t, err, s.Restore(), e.Begin())
		other.made = nil
		must(t, e.Submit(4), e.Wait())
		e.Clocks()
		n := int64(0)
		if k.Launcher == "second" {
			n = 4 * *e.Counts().Launches.Host
		}
		if int64(len(other.made)) != n || k.Launcher == "second" && n == 0 {
			t.Errorf("%s: the second launcher submitted %d launches of 4 steps, want %d", k, len(other.made), n)
		}
	}
	for k, want := range map[results.ConfigurationKey]string{
		second("graph/event/device"): "submits eagerly only",
		{Mode: "eager", Sync: "event", Control: "device", Launcher: "third", Ranks: "threads"}: "has no launcher third",
	} {
		if _, err := s.Executor(k); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", k, err)
		}
	}
}
