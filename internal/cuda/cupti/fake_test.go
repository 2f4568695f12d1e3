package cupti_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/internal/cuda/cupti"
	"github.com/tech-renaissance/trbench/internal/cuda/fake"
	"github.com/tech-renaissance/trbench/internal/dl"
	"github.com/tech-renaissance/trbench/timeline"
)

// TestVersions reads what three versions of CUPTI write.
func TestVersions(t *testing.T) {
	for _, c := range []struct {
		name    string
		version uint32
		cuda    int
	}{{"11.8", 18, 11080}, {"12.4", 22, 12040}, {"13.0", 130001, 13000}} {
		t.Run(c.name, func(t *testing.T) {
			g := newGPU(t, func(p *fake.Profiler) { p.Version = c.version })
			if c.version == 18 {
				// The driver is newer than the library, which the table cannot
				// tell from CUDA 12.0's: the library's own walk can.
				if got := g.cupti.Layout().CUDA; got != 12000 {
					t.Errorf("layout of %d", got)
				}
			} else if got := g.cupti.Layout().CUDA; got != c.cuda {
				t.Errorf("layout of %d", got)
			}
			tr := g.start(cupti.Config{})
			l := g.capture(func() { g.launch(g.one(g.nothing, 0, 0), g.one(g.nothing, 0, 0)) })
			g.launch(g.one(g.nothing, 0, 0), l)
			g.ok(g.CtxSynchronize())
			r := &cupti.Records{}
			g.ok(tr.Drain(r))
			if len(r.Kernels) != 3 || r.Report.LostBytes != 0 || r.Report.Untimed != 0 {
				t.Errorf("%d kernels, %+v", len(r.Kernels), r.Report)
			}
			if want := map[bool]int{true: 1, false: 0}[c.version == 18]; len(r.Report.Sizes) != want {
				t.Errorf("sizes %v", r.Report.Sizes)
			}
		})
	}
}

// TestUnfinished drains while a kernel stands still: its record has no times,
// and is no kernel of zero length.
func TestUnfinished(t *testing.T) {
	g := newGPU(t, func(*fake.Profiler) {})
	tr := g.start(cupti.Config{})
	release := g.m.Hold(uintptr(g.stream))
	g.launch(g.one(g.nothing, 0, 0))
	r := &cupti.Records{}
	g.ok(tr.Drain(r))
	release()
	if len(r.Kernels) != 1 || r.Report.Untimed != 1 {
		t.Fatalf("%+v", r.Report)
	}
	x := r.Timeline(cupti.Naming{Call: g.cupti.CallName})
	if len(x.Ops) != 1 || x.Ops[0].Timed || x.Read.BadTimes != 1 {
		t.Errorf("%+v", x.Ops)
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		code uint32
		call string
		is   cupti.Result
		want string
	}{
		{"another subscriber", 39, "cuptiActivityEnable", cupti.MultipleSubscribers, "another profiler holds CUPTI in this process"},
		{"privileges", 35, "cuptiActivityEnable 10", cupti.InsufficientPrivileges, "NVreg_RestrictProfilingToAdminUsers=0"},
		{"hardware", 26, "cuptiActivityEnable", cupti.HardwareBusy, "another tool holds the GPU's profiling hardware"},
		{"MIG", 43, "cuptiActivityEnable", cupti.MIGDevice, "MIG"},
		{"not started", 15, "cuptiActivityRegisterCallbacks", cupti.NotInitialized, "could not initialise"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGPU(t, func(p *fake.Profiler) { p.Codes = map[string]uint32{c.call: c.code} })
			_, err := g.cupti.Start(cupti.Config{})
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v", err)
			}
			// It left nothing behind.
			g.p.Codes = nil
			g.launch(g.one(g.nothing, 0, 0))
			tr := g.start(cupti.Config{})
			if r := g.drain(tr); len(r.Kernels) != 0 {
				t.Errorf("%d kernels", len(r.Kernels))
			}
		})
	}
	t.Run("kernels one by one", func(t *testing.T) {
		g := newGPU(t, func(*fake.Profiler) {})
		if _, err := g.cupti.Start(cupti.Config{Kinds: []cupti.Kind{3}}); err == nil {
			t.Error("KERNEL would serialise")
		}
	})
}

func TestMissing(t *testing.T) {
	_, err := cupti.Open(cupti.Options{Path: t.TempDir()})
	var nf *dl.NotFoundError
	if !errors.As(err, &nf) || !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "CUPTI could not be opened") || !strings.Contains(err.Error(), "extras/CUPTI/lib64") {
		t.Error(err)
	}
	m := fake.H200(1)
	must(m.Start())(t)
	defer m.Stop()
	for _, c := range []struct {
		change func(*fake.Profiler)
		want   string
	}{
		{func(p *fake.Profiler) { p.Absent = []string{"cuptiActivityFlushAll"} }, "cuptiActivityFlushAll"},
		{func(p *fake.Profiler) { p.Version = 17 }, "known from 18 (CUDA 11.8)"},
	} {
		p := m.CUPTI()
		c.change(p)
		lib := must(p.Start(m))(t)
		if _, err := cupti.New(lib, 13000); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
		p.Stop()
	}
}

// TestInstalled opens this machine's library, if it has one.
func TestInstalled(t *testing.T) {
	a, err := cupti.Open(cupti.Options{})
	if err != nil {
		t.Skip(err)
	}
	t.Logf("%s: version %d, layout of CUDA %d", a.Path(), a.Version(), a.Layout().CUDA)
	if onGPU() {
		return
	}
	tr, err := a.Start(cupti.Config{})
	if err != nil {
		t.Logf("without a GPU: %v", err)
		if strings.Contains(err.Error(), "\n") {
			t.Error("more than a sentence")
		}
		return
	}
	if err := tr.Stop(); err != nil {
		t.Log(err)
	}
}

// TestKept keeps memory that CUPTI did not hand back.
func TestKept(t *testing.T) {
	g := newGPU(t, func(p *fake.Profiler) { p.Keep = 1 })
	tr := must(g.cupti.Start(cupti.Config{}))(t)
	g.launch(g.one(g.nothing, 0, 0))
	g.ok(g.CtxSynchronize())
	r := &cupti.Records{}
	g.ok(tr.Drain(r))
	if r.Report.Unreturned != 1 || len(r.Kernels) != 0 {
		t.Errorf("%+v", r.Report)
	}
	if err := tr.Stop(); err == nil || !strings.Contains(err.Error(), "did not hand back") {
		t.Error(err)
	}
}

// TestTimeline joins a launch with its work, by correlation, stream and name.
func TestTimeline(t *testing.T) {
	g := newGPU(t, func(p *fake.Profiler) {})
	tr := g.start(cupti.Config{})
	graph := g.capture(func() {
		g.launch(g.one(g.nothing, 0, 0), g.one(g.nothing, 0, 0))
		g.ok(g.MemsetD32Async(g.words, 1, 4, g.stream))
	})
	g.drain(tr)
	g.launch(g.one(g.spin, 0, 1000), graph)
	g.ok(g.MemcpyDtoDAsync(g.words+64, g.words, 16, g.stream))
	g.p.Mark("step", "trbench", 10, 30)
	g.p.Mark("phase", "trbench", 5, 40)
	r := g.drain(tr)
	x := r.Timeline(cupti.Naming{Call: g.cupti.CallName, Device: func(uint32) string { return "H200" }})
	var ops []string
	calls := map[int64]timeline.Call{}
	for _, c := range x.Calls {
		calls[c.Correlation] = c
	}
	for i, o := range x.Ops {
		c := calls[o.Correlation]
		ops = append(ops, x.Text(o.Name)+" by "+x.Text(c.Name))
		if o.Device != 0 || o.Stream != 0 || !o.Timed || o.StartNs < c.StartNs || i > 0 && o.StartNs < x.Ops[i-1].EndNs {
			t.Errorf("%+v of %+v", o, c)
		}
		if inGraph := c.Class == timeline.CallGraphLaunch; inGraph != (o.Graph != 0) || inGraph != (o.Node != 0) {
			t.Errorf("%+v of %+v", o, c)
		}
	}
	want := "spin by cuLaunchKernel|nothing by cuGraphLaunch|nothing by cuGraphLaunch|fill by cuGraphLaunch|copy on the device by cuMemcpyDtoDAsync_v2"
	if got := strings.Join(ops, "|"); got != want {
		t.Errorf("ops %s\nwant %s", got, want)
	}
	if x.Ops[3].Bytes != 16 || x.Ops[3].Kind != timeline.Fill || x.Ops[4].Kind != timeline.Copy || x.Ops[4].Bytes != 16 {
		t.Errorf("%+v", x.Ops[3:])
	}
	if len(x.Devices) != 1 || x.Devices[0].Name != "H200" || len(x.Streams) != 1 || len(x.Threads) != 1 || len(x.Processes) != 1 {
		t.Errorf("%+v %+v %+v %+v", x.Devices, x.Streams, x.Threads, x.Processes)
	}
	var ranges []string
	for _, n := range x.Ranges {
		ranges = append(ranges, x.Text(n.Name)+"@"+x.Text(n.Domain))
		if n.EndNs-n.StartNs != map[string]int64{"step": 20, "phase": 35}[x.Text(n.Name)] {
			t.Errorf("%+v", n)
		}
	}
	if got := strings.Join(ranges, " "); got != "phase@trbench step@trbench" {
		t.Error(got)
	}
	if x.Read.LostAt != -1 || x.Read.BadTimes != 0 || x.Read.Dropped != 0 || x.Format != timeline.FormatCUPTI {
		t.Errorf("%+v", x.Read)
	}
}

func TestClass(t *testing.T) {
	for name, want := range map[string]timeline.CallClass{
		"cuLaunchKernel": timeline.CallLaunch, "cuLaunchKernelEx": timeline.CallLaunch, "cudaLaunchKernelExC_v11060": timeline.CallLaunch,
		"cuGraphLaunch": timeline.CallGraphLaunch, "cudaGraphLaunch_v10000": timeline.CallGraphLaunch,
		"cuMemcpyHtoDAsync_v2": timeline.CallCopy, "cuMemsetD32Async": timeline.CallCopy, "cudaMemcpyAsync_v3020": timeline.CallCopy,
		"cuStreamSynchronize": timeline.CallSync, "cuCtxSynchronize": timeline.CallSync, "cudaDeviceSynchronize_v3020": timeline.CallSync,
		"cuStreamSynchronize_ptsz": timeline.CallSync, "cuEventSynchronize": timeline.CallSync,
		"cuEventRecord": timeline.CallOther, "cuStreamWaitEvent": timeline.CallOther, "cuGraphInstantiateWithFlags": timeline.CallOther, "": timeline.CallOther,
	} {
		if got := cupti.Class(name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}
