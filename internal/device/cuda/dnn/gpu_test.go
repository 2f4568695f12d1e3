package dnn

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/tech-renaissance/trbench/internal/device/cpu/kernels"
	"github.com/tech-renaissance/trbench/workloads"
)

// report writes a line to the log, and to the file that TRBENCH_GPU_LOG names.
func report(t *testing.T, format string, args ...any) {
	t.Helper()
	s := fmt.Sprintf(format, args...)
	t.Log(s)
	if path := os.Getenv("TRBENCH_GPU_LOG"); path != "" {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(f, s)
		f.Close()
	}
}

// counted is a node of a training step and how often its key occurs in one,
// without the stem's second half.
type counted struct {
	*workloads.Bound
	key   string
	count int
}

func layersOf(t *testing.T, model string, batch int, p workloads.Precision) []counted {
	t.Helper()
	w, err := workloads.New(workloads.Spec{Model: model, Batch: batch, Ranks: 1, Precision: p}, workloads.Target{Lowering: workloads.Fused})
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]int{}
	var out []counted
	for _, s := range []workloads.SubGraph{workloads.FirstLayerFwdA, workloads.DeepFwdBwd, workloads.FirstLayerBwdA} {
		for _, b := range w.Bounds(s, workloads.FinalFull, workloads.ControlDevice) {
			k, err := Key(b)
			if errors.Is(err, ErrUnsupported) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if i, ok := at[k]; ok {
				out[i].count++
				continue
			}
			at[k] = len(out)
			out = append(out, counted{b, k, 1})
		}
	}
	return out
}

// place gives a node memory of its own: operands one after another.
func place(b *workloads.Bound) (*workloads.Bound, int64) {
	c := *b
	c.In, c.Out = slices.Clone(b.In), slices.Clone(b.Out)
	off := int64(0)
	for _, list := range [][]workloads.Operand{c.In, c.Out} {
		for i := range list {
			list[i].Region = workloads.Region{Off: off, Bytes: int64(list[i].Shape.Elems()) * list[i].DType.Bytes()}
			off += (list[i].Region.Bytes + 255) &^ 255
		}
	}
	c.Scratch = workloads.Region{}
	if n := kernels.ScratchBytes(&c); n > 0 {
		c.Scratch = workloads.Region{Off: off, Bytes: n}
	}
	return &c, off
}

// numbers are normal values rounded to 1/512 within (-4, 4): exact in F16, also
// after a scaling by 2^-5.
var numbers = sync.OnceValue(func() []float32 {
	r := rand.New(rand.NewPCG(1, 2))
	v := make([]float32, 1_000_003)
	for i := range v {
		v[i] = float32(math.Round(max(-3.99, min(3.99, r.NormFloat64()))*512) / 512)
	}
	return v
})

// half encodes a value that F16 holds exactly.
func half(v float32) uint16 {
	if v == 0 {
		return 0
	}
	b := math.Float32bits(v)
	return uint16(b>>16&0x8000) | uint16((b>>23&0xff)-112)<<10 | uint16(b>>13&0x3ff)
}

func fromHalf(h uint16) float32 {
	sign, e, m := float32(1), int(h>>10&31), float32(h&1023)
	if h>>15 != 0 {
		sign = -1
	}
	switch e {
	case 0:
		return sign * m * 0x1p-24
	case 31:
		if m != 0 {
			return float32(math.NaN())
		}
		return sign * float32(math.Inf(1))
	}
	return sign * float32(math.Ldexp(float64(1+m/1024), e-15))
}

// tile is a stretch of input for an operand: the numbers from a place of its
// own, scaled so that products stay in range.
func tile(o workloads.Operand, which int) []byte {
	scale := float32(1)
	if which == 1 && len(o.Shape) == 4 || which == 1 && len(o.Shape) == 2 {
		for n := o.Shape.Elems() / o.Shape[0]; n >= 4 && scale > 0x1p-5; n /= 4 {
			scale /= 2
		}
	}
	all := numbers()
	n := min(o.Shape.Elems(), len(all))
	b := make([]byte, n*int(o.DType.Bytes()))
	for i := range n {
		v := all[(i+which*334_567)%len(all)] * scale
		if o.DType == workloads.F16 {
			*(*uint16)(unsafe.Pointer(&b[2*i])) = half(v)
		} else {
			*(*float32)(unsafe.Pointer(&b[4*i])) = v
		}
	}
	return b
}

// fill repeats a tile over an operand by copy.
func fill(n int64, b []byte, put func(off int64, b []byte)) {
	for off := int64(0); off < n; off += int64(len(b)) {
		put(off, b[:min(int64(len(b)), n-off)])
	}
}

func value(b []byte, d workloads.DType, i int) float64 {
	if d == workloads.F16 {
		return float64(fromHalf(*(*uint16)(unsafe.Pointer(&b[2*i]))))
	}
	return float64(*(*float32)(unsafe.Pointer(&b[4*i])))
}

// distance is |got - want| / |want|; NaN if got has one, in step of every
// stride-th element.
func distance(got, want []byte, d workloads.DType, stride int) float64 {
	var diff, norm float64
	for i := 0; i < len(want)/int(d.Bytes()); i += stride {
		g, w := value(got, d, i), value(want, d, i)
		diff += (g - w) * (g - w)
		norm += w * w
	}
	return math.Sqrt(diff / norm)
}

// tolerance is what a result may be off: F16 half a unit in the last place in
// the root mean square with some room, F32 a sum's error, far from TF32's 3e-4.
func tolerance(d workloads.DType) float64 {
	if d == workloads.F16 {
		return 6e-4
	}
	return 2e-5
}

type hostMemory []byte

func (m hostMemory) Bytes(r workloads.Region) []byte { return m[r.Off:r.End():r.End()] }

// bench is device memory with a node's operands in it.
type bench struct {
	g     *gpu
	base  uintptr
	size  int64
	ws    uintptr
	wsLen int64
}

func newBench(t *testing.T, g *gpu, size int64) *bench {
	return &bench{g: g, base: g.alloc(t, size), size: size, ws: g.alloc(t, DefaultWorkspace), wsLen: DefaultWorkspace}
}

func (m *bench) load(t *testing.T, b *workloads.Bound) {
	t.Helper()
	for i, o := range b.In {
		fill(o.Region.Bytes, tile(o, i), func(off int64, p []byte) { m.g.up(t, m.base+uintptr(o.Region.Off+off), p) })
	}
}

func (m *bench) ptrs(b *workloads.Bound) []uintptr {
	var p []uintptr
	for _, list := range [][]workloads.Operand{b.In, b.Out} {
		for _, o := range list {
			p = append(p, m.base+uintptr(o.Region.Off))
		}
	}
	return p
}

// poison fills the result with NaN.
func (m *bench) poison(t *testing.T, b *workloads.Bound) {
	t.Helper()
	o := b.Out[0]
	m.g.must(t, "cuMemsetD8_v2", m.base+uintptr(o.Region.Off), 0xff, uintptr(o.Region.Bytes))
	m.g.must(t, "cuCtxSynchronize")
}

func (m *bench) result(t *testing.T, b *workloads.Bound) []byte {
	t.Helper()
	m.g.sync(t)
	o := b.Out[0]
	return m.g.down(t, m.base+uintptr(o.Region.Off), o.Region.Bytes)
}

// sameBits runs a plan twice eagerly and once as a graph, on poisoned results
// and another workspace content each time, and returns the result.
func (m *bench) sameBits(t *testing.T, b *workloads.Bound, p *Plan) []byte {
	t.Helper()
	e, err := p.Bind(m.ptrs(b), m.ws)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var first []byte
	for i := range 2 {
		m.poison(t, b)
		m.g.must(t, "cuMemsetD8_v2", m.ws, uintptr(0x11*i), uintptr(max(1, p.Workspace())))
		m.g.must(t, "cuCtxSynchronize")
		if err := e.Submit(m.g.s); err != nil {
			t.Fatal(err)
		}
		r := m.result(t, b)
		if first == nil {
			first = r
		} else if !bytes.Equal(first, r) {
			t.Errorf("%s %s: two runs of %s differ", b.Op, b.Name, p.Choice())
		}
	}
	exec, _, done, err := m.g.capture(1, func() error { return e.Submit(m.g.s) })
	if err != nil {
		t.Errorf("%s %s: %s: %v", b.Op, b.Name, p.Choice(), err)
		return first
	}
	defer done()
	m.poison(t, b)
	m.g.must(t, "cuGraphLaunch", exec, m.g.stream)
	if !bytes.Equal(first, m.result(t, b)) {
		t.Errorf("%s %s: a replay of %s differs from the eager run", b.Op, b.Name, p.Choice())
	}
	return first
}

// time is the time of one execution in a captured graph of several, the median
// of rounds replays; of a plan far behind the shortest, one eager execution.
func (m *bench) time(b *workloads.Bound, p *Plan, rounds int, shortest float64) (float64, error) {
	e, err := p.Bind(m.ptrs(b), m.ws)
	if err != nil {
		return 0, err
	}
	defer e.Close()
	if err := e.Submit(m.g.s); err != nil {
		return 0, err
	}
	one, err := m.g.timed(func() error { return e.Submit(m.g.s) })
	if err != nil || one > 5*shortest+50e3 {
		return one, err
	}
	const n = 10
	exec, _, done, err := m.g.capture(n, func() error { return e.Submit(m.g.s) })
	if err != nil {
		return 0, err
	}
	defer done()
	var ns []float64
	for i := range rounds + 1 {
		t, err := m.g.timed(func() error { return m.g.try("cuGraphLaunch", exec, m.g.stream) })
		if err != nil {
			return 0, err
		}
		if i > 0 {
			ns = append(ns, t/n)
		}
	}
	slices.Sort(ns)
	return ns[len(ns)/2], nil
}

func TestGPULibraries(t *testing.T) {
	g := onGPU(t)
	report(t, "cuDNN %d for CUDA %d, cuBLASLt %d from %s", g.dnn.Version(), g.dnn.CudartVersion(), g.blas.Version(), g.blas.Path())
	for _, p := range g.dnn.Parts() {
		report(t, "  %s: %s %s", p.Name, p.Path, p.Err)
	}
	if g.blas.Version() < 10000 || len(g.dnn.Parts()) < 8 {
		t.Error("versions or parts are not what they should be")
	}
}

// TestGPUAgainstCPU compares every layer of the small batches with the CPU
// device's kernels. Up to six candidates of the tiny nets are tried, of the
// others the first that builds.
func TestGPUAgainstCPU(t *testing.T) {
	g := onGPU(t)
	pool := kernels.NewPool(runtime.NumCPU())
	defer pool.Close()
	m := newBench(t, g, 256<<20)
	for _, c := range []struct {
		model string
		every bool
	}{{"golden-tiny", true}, {"resnet20-cifar", true}, {"resnet18-cifar", false}, {"resnet50", false}} {
		for _, prec := range []workloads.Precision{workloads.AMP, workloads.FP32} {
			start := time.Now()
			worst, plans, unsupported := 0.0, 0, []string{}
			for _, n := range layersOf(t, c.model, 4, prec) {
				b, size := place(n.Bound)
				if size > m.size {
					t.Fatalf("%s needs %d bytes", n.key, size)
				}
				cands, err := g.b.Candidates(b)
				if errors.Is(err, ErrUnsupported) {
					unsupported = append(unsupported, n.key+": "+err.Error())
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				host := make(hostMemory, size+b.Scratch.Bytes)
				for i, o := range b.In {
					fill(o.Region.Bytes, tile(o, i), func(off int64, p []byte) { copy(host[o.Region.Off+off:], p) })
				}
				ref, err := kernels.Compile(b, host, pool)
				if err != nil {
					t.Fatal(err)
				}
				ref()
				m.load(t, b)
				want := host.Bytes(b.Out[0].Region)
				built := 0
				for _, cand := range cands[:min(len(cands), 6)] {
					p, err := g.b.Build(b, cand.Choice)
					if errors.Is(err, ErrUnsupported) {
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					built++
					got := m.sameBits(t, b, p)
					d := distance(got, want, b.Out[0].DType, 1)
					worst = max(worst, d)
					if !(d < tolerance(b.In[0].DType)) {
						t.Errorf("%s: %s is off by %.2g", n.key, p.Choice(), d)
					}
					if err := p.Close(); err != nil {
						t.Error(err)
					}
					if !c.every {
						break
					}
				}
				plans += built
				if built == 0 {
					unsupported = append(unsupported, n.key+": none builds")
				}
			}
			report(t, "%s batch 4 %s: %d plans, worst error %.2g, %d layers unsupported, %.1f s", c.model, prec, plans, worst, len(unsupported), time.Since(start).Seconds())
			for _, u := range unsupported {
				report(t, "  unsupported: %s", strings.ReplaceAll(u, "\n", " | "))
			}
		}
	}
}

// TestGPUStem lists what there is for the stem's three channels, by alignment.
func TestGPUStem(t *testing.T) {
	g := onGPU(t)
	for _, prec := range []workloads.Precision{workloads.AMP, workloads.FP32} {
		for _, n := range layersOf(t, "resnet50", 64, prec) {
			if n.Out[0].Shape.Elems() == 0 || !strings.Contains(n.Name, "stem") {
				continue
			}
			for _, shift := range []int64{0, 4, 2} {
				b, _ := place(n.Bound)
				b.In[0].Region.Off += shift
				cands, err := g.b.Candidates(b)
				builds := []string{}
				for _, c := range cands {
					if p, err := g.b.Build(b, c.Choice); err == nil {
						builds = append(builds, c.Source+":"+c.Choice.String()+" "+strings.Join(c.Notes, "+"))
						p.Close()
					}
				}
				report(t, "%s shifted by %d: %d candidates, %d build: %s %v", n.key, shift, len(cands), len(builds), strings.Join(builds, "; "), err)
			}
		}
	}
}

// TestGPUStemForms times the stem in the forms that space to depth can give it: as
// it is, over blocks of pixels with their channels padded to 16 or 32, and with
// four neighbours of a row as the channels of one.
func TestGPUStemForms(t *testing.T) {
	g := onGPU(t)
	m := newBench(t, g, 3<<30)
	for _, n := range []int{16, 64, 256} {
		for _, c := range []struct{ h, w, c, r, s, stride, pad int }{
			{224, 224, 3, 7, 7, 2, 3}, {115, 115, 16, 4, 4, 1, 0}, {115, 115, 32, 4, 4, 1, 0}, {115, 112, 48, 4, 1, 1, 0}, {115, 112, 64, 4, 1, 1, 0},
		} {
			x := workloads.Operand{Name: "x", DType: workloads.F16, Shape: workloads.Shape{n, c.h, c.w, c.c}}
			w := workloads.Operand{Name: "w", DType: workloads.F16, Shape: workloads.Shape{64, c.r, c.s, c.c}}
			y := workloads.Operand{Name: "y", DType: workloads.F16, Shape: workloads.Shape{n, 112, 112, 64}}
			a := workloads.Attr{R: c.r, S: c.s, Stride: c.stride, Pad: c.pad}
			for op, io := range map[workloads.Op][2][]workloads.Operand{
				workloads.OpConv: {{x, w}, {y}}, workloads.OpConvBwdFilter: {{x, y}, {w}},
			} {
				b, size := place(&workloads.Bound{Node: &workloads.Node{Name: "stem", Op: op, Attr: a}, In: io[0], Out: io[1]})
				key, err := Key(b)
				if err != nil || size > m.size {
					t.Fatalf("%d bytes, %v", size, err)
				}
				cands, err := g.b.Candidates(b)
				if err != nil {
					report(t, "%s: %v", key, err)
					continue
				}
				m.load(t, b)
				choice, timings, err := g.b.Pick(b, cands, func(p *Plan, shortest float64) (float64, error) { return m.time(b, p, 5, shortest) })
				if err != nil {
					report(t, "%s: %v", key, err)
					continue
				}
				for _, x := range timings {
					if x.Err == nil && x.Choice.String() == choice.String() {
						report(t, "%-60s %8.1f us of %d candidates, workspace %d, %s %s", key, x.TimeNs/1e3, len(cands), choice.Workspace, choice, strings.Join(choice.Notes, "+"))
					}
				}
			}
		}
	}
}

// TestGPUTimes picks one of up to eight plans for every layer by time and prints the table. The
// picked plan must agree with another engine where there is one, and give the
// same bits in a graph.
func TestGPUTimes(t *testing.T) {
	g := onGPU(t)
	m := newBench(t, g, 2<<30)
	most := 8
	if s := os.Getenv("TRBENCH_GPU_CANDIDATES"); s != "" {
		fmt.Sscan(s, &most)
	}
	for _, c := range []struct {
		model string
		batch int
		prec  workloads.Precision
		all   bool // compare results
	}{
		{"resnet50", 64, workloads.AMP, true},
		{"resnet50", 16, workloads.AMP, false},
		{"resnet50", 256, workloads.AMP, false},
		{"resnet18-cifar", 64, workloads.AMP, true},
		{"resnet18-cifar", 256, workloads.AMP, false},
		{"resnet18-cifar", 16, workloads.AMP, false},
		{"resnet50", 64, workloads.FP32, false},
	} {
		if only := os.Getenv("TRBENCH_GPU_TIMES"); only != "" && !strings.Contains(only, fmt.Sprintf("%s/%d/%s", c.model, c.batch, c.prec)) {
			continue
		}
		start := time.Now()
		total, first, stems, floor := map[string]float64{}, map[string]float64{}, map[string]float64{}, map[string]float64{}
		build := time.Duration(0)
		kept := map[string]Choice{}
		for _, n := range layersOf(t, c.model, c.batch, c.prec) {
			b, size := place(n.Bound)
			if size > m.size {
				t.Fatalf("%s needs %d bytes", n.key, size)
			}
			m.load(t, b)
			at := time.Now()
			cands, err := g.b.Candidates(b)
			if errors.Is(err, ErrUnsupported) {
				report(t, "%s: unsupported: %s", n.key, strings.ReplaceAll(err.Error(), "\n", " | "))
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			offered := len(cands)
			cands = cands[:min(len(cands), most)]
			inTime := time.Duration(0)
			choice, timings, err := g.b.Pick(b, cands, func(p *Plan, shortest float64) (float64, error) {
				s := time.Now()
				defer func() { inTime += time.Since(s) }()
				return m.time(b, p, 5, shortest)
			})
			build += time.Since(at) - inTime
			if err != nil {
				report(t, "%s: %v", n.key, err)
				continue
			}
			kept[n.key] = choice
			ns, guess, other, built := 0.0, 0.0, -1, 0
			for i, x := range timings {
				if x.Err != nil {
					if !errors.Is(x.Err, ErrUnsupported) {
						t.Errorf("%s: %v", n.key, x.Err)
					}
					continue
				}
				built++
				if guess == 0 {
					guess = x.TimeNs
				}
				if x.Choice.String() == choice.String() {
					ns = x.TimeNs
				} else if other < 0 && x.Choice.Engine != choice.Engine {
					other = i
				}
			}
			k := n.Op.String()
			if strings.Contains(n.Name, "stem") {
				stems[k] += ns
			} else {
				total[k] += ns * float64(n.count)
				first[k] += guess * float64(n.count)
				nd, _ := look(b)
				floor[k] += float64(n.count) * max(float64(nd.geom.Bytes())/4.3e12, nd.geom.Flops()/790e12) * 1e9
			}
			report(t, "%-70s x%d %8.1f us (guess %8.1f), %d of %d built (%d offered), workspace %d, %s %s", n.key, n.count, ns/1e3, guess/1e3, built, len(cands), offered, choice.Workspace, choice, strings.Join(choice.Notes, "+"))
			if !c.all {
				continue
			}
			p, err := g.b.Build(b, choice)
			if err != nil {
				t.Fatal(err)
			}
			got := m.sameBits(t, b, p)
			p.Close()
			if other >= 0 {
				q, err := g.b.Build(b, timings[other].Choice)
				if err != nil {
					t.Fatal(err)
				}
				m.poison(t, b)
				e, err := q.Bind(m.ptrs(b), m.ws)
				if err != nil {
					t.Fatal(err)
				}
				if err := e.Submit(g.s); err != nil {
					t.Fatal(err)
				}
				if d := distance(got, m.result(t, b), b.Out[0].DType, 7); !(d < 2*tolerance(b.In[0].DType)) {
					t.Errorf("%s: %s and %s differ by %.2g", n.key, choice, q.Choice(), d)
				}
				e.Close()
				q.Close()
			}
		}
		for k := range total {
			report(t, "TOTAL %s %d %s %s: %.3f ms picked, %.3f ms first guess, %.3f ms floor; stem %.3f ms", c.model, c.batch, c.prec, k, total[k]/1e6, first[k]/1e6, floor[k]/1e6, stems[k]/1e6)
		}
		report(t, "TOTAL %s %d %s: %d keys, %.1f s, of which building %.1f s", c.model, c.batch, c.prec, len(kept), time.Since(start).Seconds(), build.Seconds())
		if b, err := json.Marshal(kept); err != nil {
			t.Error(err)
		} else {
			report(t, "CHOICES %d bytes of JSON", len(b))
		}
	}
}

// TestGPUSubmit measures the host's part of a submission.
func TestGPUSubmit(t *testing.T) {
	g := onGPU(t)
	m := newBench(t, g, 64<<20)
	for _, n := range layersOf(t, "resnet50", 4, workloads.AMP) {
		if n.count < 2 && n.Op != workloads.OpFC || n.Op == workloads.OpConv && n.Out[0].Shape[1] != 14 {
			continue
		}
		b, _ := place(n.Bound)
		m.load(t, b)
		p, err := g.b.First(b)
		if err != nil {
			t.Fatal(err)
		}
		e, err := p.Bind(m.ptrs(b), m.ws)
		if err != nil {
			t.Fatal(err)
		}
		submit := func() {
			if err := e.Submit(g.s); err != nil {
				t.Fatal(err)
			}
		}
		submit()
		g.sync(t)
		allocs := testing.AllocsPerRun(100, submit)
		g.sync(t)
		var us []float64
		for range 20 {
			start := time.Now()
			for range 20 {
				submit()
			}
			us = append(us, float64(time.Since(start).Nanoseconds())/20e3)
			g.sync(t)
		}
		slices.Sort(us)
		report(t, "%s: %.2f us a submission, %v allocations", n.key, us[10], allocs)
		if allocs != 0 {
			t.Errorf("%s: %v allocations a submission", n.key, allocs)
		}
		e.Close()
		p.Close()
	}
}
