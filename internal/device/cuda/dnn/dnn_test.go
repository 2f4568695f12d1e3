package dnn

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ebitengine/purego"

	"github.com/tech-renaissance/trbench/internal/cuda/cublas"
	"github.com/tech-renaissance/trbench/internal/cuda/cudnn"
	"github.com/tech-renaissance/trbench/workloads"
)

var update = flag.Bool("update", false, "rewrite golden files")

// layer is a bound node of one of the six operators: the convolution of the
// golden lists, or a fully connected layer of 4 images, 32 channels, 10 classes.
func layer(op workloads.Op, d workloads.DType) *workloads.Bound {
	x, w, y := workloads.Shape{16, 56, 56, 64}, workloads.Shape{64, 3, 3, 64}, workloads.Shape{16, 56, 56, 64}
	attr := workloads.Attr{R: 3, S: 3, Stride: 1, Pad: 1}
	switch op {
	case workloads.OpFC, workloads.OpFCBwdData, workloads.OpFCBwdFilter:
		x, w, y, attr = workloads.Shape{4, 32}, workloads.Shape{10, 32}, workloads.Shape{4, 10}, workloads.Attr{}
	}
	return layerOf(op, d, attr, x, w, y)
}

func layerOf(op workloads.Op, d workloads.DType, attr workloads.Attr, x, w, y workloads.Shape) *workloads.Bound {
	b := &workloads.Bound{Node: &workloads.Node{Name: "test", Op: op, Attr: attr}}
	off := int64(0)
	operand := func(name string, d workloads.DType, s workloads.Shape) workloads.Operand {
		o := workloads.Operand{Name: name, DType: d, Shape: s}
		o.Region = workloads.Region{Off: off, Bytes: int64(s.Elems()) * d.Bytes()}
		off += (o.Region.Bytes + 255) &^ 255
		return o
	}
	xo, wo, yo := operand("x", d, x), operand("w", d, w), operand("y", d, y)
	vec := operand("b", workloads.F32, workloads.Shape{w[0]})
	switch op {
	case workloads.OpConv:
		b.In, b.Out = []workloads.Operand{xo, wo}, []workloads.Operand{yo}
	case workloads.OpConvBwdData, workloads.OpFCBwdData:
		b.In, b.Out = []workloads.Operand{yo, wo}, []workloads.Operand{xo}
	case workloads.OpConvBwdFilter:
		b.In, b.Out = []workloads.Operand{xo, yo}, []workloads.Operand{wo}
	case workloads.OpFC:
		b.In, b.Out = []workloads.Operand{xo, wo, vec}, []workloads.Operand{yo}
	case workloads.OpFCBwdFilter:
		b.In, b.Out = []workloads.Operand{xo, yo}, []workloads.Operand{wo, vec}
	}
	return b
}

// menu is what the fake's heuristics answer.
func menu() map[int32][]fakeConfig {
	return map[int32][]fakeConfig{
		int32(cudnn.HeurModeA): {
			{engine: 57, knobs: []Knob{{13, 64}, {2, 3}}, notes: []int32{0}, workspace: 4096},
			{engine: 11, knobs: []Knob{{2, 1}}, notes: []int32{0, 4}},                         // nondeterministic
			{engine: 12, notes: []int32{5}},                                                   // Winograd
			{engine: 58, knobs: []Knob{{2, 1}}, notes: []int32{0}},                            //
			{engine: 57, knobs: []Knob{{2, 3}, {13, 64}}, notes: []int32{0}, workspace: 4096}, // the first again
		},
		int32(cudnn.HeurModeFallback): {
			{engine: 58, knobs: []Knob{{2, 1}}, notes: []int32{0}}, // again
			{engine: 1, notes: nil, workspace: 1 << 20},
			{engine: 2, notes: []int32{1}}, // converts its inputs
			{engine: 3, notes: nil, workspace: 1 << 40},
		},
	}
}

func TestGoldenCalls(t *testing.T) {
	for _, op := range []workloads.Op{workloads.OpConv, workloads.OpConvBwdData, workloads.OpConvBwdFilter} {
		t.Run(op.String(), func(t *testing.T) {
			f := (&fake{configs: map[int32][]fakeConfig{3: menu()[3][:1]}}).use(t)
			b := f.builder(t)
			n := layer(op, workloads.F16)
			f.calls = nil
			cands, err := b.Candidates(n)
			if err != nil {
				t.Fatal(err)
			}
			f.calls = append(f.calls, "-- build")
			p, err := b.Build(n, cands[0].Choice)
			if err != nil {
				t.Fatal(err)
			}
			f.calls = append(f.calls, "-- bind")
			e, err := p.Bind([]uintptr{0x10000, 0x20000, 0x30000}, 0x40000)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, op.String(), squeeze(f.calls))
			if err := errors.Join(e.Close(), p.Close(), b.Close()); err != nil {
				t.Fatal(err)
			}
			if l := f.leaks(); l != "" {
				t.Error(l)
			}
		})
	}
}

// squeeze writes runs of equal lines as one with a count.
func squeeze(lines []string) string {
	var b strings.Builder
	for i := 0; i < len(lines); {
		n := 1
		for i+n < len(lines) && lines[i+n] == lines[i] {
			n++
		}
		b.WriteString(lines[i])
		if n > 1 {
			b.WriteString(fmt.Sprintf(" x%d", n))
		}
		b.WriteByte('\n')
		i += n
	}
	return b.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("calls differ from %s (run with -update to rewrite it):\n%s", path, got)
	}
}

func choices(cs []Candidate) []string {
	var s []string
	for _, c := range cs {
		s = append(s, c.Source+" "+c.Choice.String())
	}
	return s
}

func TestCandidates(t *testing.T) {
	f16 := []string{"mode_a cudnn 57 k2=3 k13=64", "mode_a cudnn 58 k2=1", "fallback cudnn 1", "fallback cudnn 2"}
	f32 := []string{"fallback cudnn 1"}
	for _, c := range []struct {
		name string
		d    workloads.DType
		want []string
	}{{"f16", workloads.F16, f16}, {"f32 without tensor cores", workloads.F32, f32}} {
		t.Run(c.name, func(t *testing.T) {
			f := (&fake{configs: menu()}).use(t)
			b := f.builder(t)
			cands, err := b.Candidates(layer(workloads.OpConv, c.d))
			if err != nil {
				t.Fatal(err)
			}
			if got := choices(cands); !slices.Equal(got, c.want) {
				t.Errorf("candidates\n%q, want\n%q", got, c.want)
			}
			b.Close()
			if l := f.leaks(); l != "" {
				t.Error(l)
			}
		})
	}
}

func TestNothingLeft(t *testing.T) {
	f := (&fake{configs: map[int32][]fakeConfig{3: {{engine: 11, notes: []int32{4}}, {engine: 12, notes: []int32{4}}, {engine: 13, notes: []int32{2}}}}}).use(t)
	b := f.builder(t)
	_, err := b.Candidates(layer(workloads.OpConv, workloads.F16))
	if !errors.Is(err, ErrUnsupported) {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{"nondeterministic 2", "reduced_precision_reduction 1", "3 engine configurations", "16x56x56x64"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than a line: %q", err)
	}
	b.Close()
	if l := f.leaks(); l != "" {
		t.Error(l)
	}
}

func TestFusedGolden(t *testing.T) {
	g := Geometry{N: 16, H: 56, W: 56, C: 64, K: 64, R: 3, S: 3, Stride: 1, Pad: 1, OH: 56, OW: 56, DType: workloads.F16}
	for _, c := range []struct {
		pattern  Pattern
		operands int
		uids     []int64
	}{
		{ConvStats, 7, []int64{1, 2, 4, 7, 8, 9, 10}},
		{BwdFilterNorm, 5, []int64{1, 2, 4, 7, 8}},
		{BwdDataNorm, 13, []int64{1, 2, 3, 4, 5, 6, 7, 13, 14, 15, 16, 17, 18}},
	} {
		t.Run(string(c.pattern), func(t *testing.T) {
			f := (&fake{configs: map[int32][]fakeConfig{3: menu()[3][:1]}}).use(t)
			b := f.builder(t)
			s, err := b.NewStream(0x77)
			if err != nil {
				t.Fatal(err)
			}
			pattern := Fused{Pattern: c.pattern, Geometry: g}
			f.calls = nil
			cands, err := b.FusedCandidates(pattern)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, string(c.pattern), squeeze(f.calls))
			p, err := b.BuildFused(pattern, cands[0].Choice)
			if err != nil {
				t.Fatal(err)
			}
			var ptrs []uintptr
			for i := range c.operands {
				ptrs = append(ptrs, uintptr(i+1)<<16)
			}
			e, err := p.Bind(ptrs, 0x1000)
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Submit(s); err != nil {
				t.Fatal(err)
			}
			r := f.executed[0]
			slices.Sort(r.ptrs)
			for i, a := range r.ptrs {
				if a != uint64(i+1)<<16 {
					t.Errorf("addresses %#x", r.ptrs)
				}
			}
			if !slices.Equal(r.uids, c.uids) {
				t.Errorf("unique ids %v, want %v", r.uids, c.uids)
			}
			if err := errors.Join(e.Close(), p.Close(), s.Close(), b.Close()); err != nil {
				t.Error(err)
			}
			if l := f.leaks(); l != "" {
				t.Error(l)
			}
		})
	}
	f := (&fake{configs: menu()}).use(t)
	b := f.builder(t)
	g.DType = workloads.F32
	for _, p := range []Fused{{Pattern: ConvStats, Geometry: g}, {Pattern: "other"}} {
		if _, err := b.FusedCandidates(p); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s in %s: %v", p.Pattern, p.Geometry.DType, err)
		}
	}
	b.Close()
}

func TestExecute(t *testing.T) {
	f := (&fake{configs: menu()}).use(t)
	b := f.builder(t)
	s, err := b.NewStream(0x77)
	if err != nil {
		t.Fatal(err)
	}
	// Which operand each unique id stands for: filters or images first, as in
	// the golden lists.
	for _, c := range []struct {
		op   workloads.Op
		want []uint64
	}{
		{workloads.OpConv, []uint64{0x20000, 0x10000, 0x30000}},          // w, x, y
		{workloads.OpConvBwdData, []uint64{0x20000, 0x10000, 0x30000}},   // w, dy, dx
		{workloads.OpConvBwdFilter, []uint64{0x10000, 0x20000, 0x30000}}, // x, dy, dw
	} {
		p, err := b.First(layer(c.op, workloads.F16))
		if err != nil {
			t.Fatal(err)
		}
		if p.Workspace() != 4096 || p.Unwritten() != nil {
			t.Errorf("%s: workspace %d, unwritten %v", c.op, p.Workspace(), p.Unwritten())
		}
		e, err := p.Bind([]uintptr{0x10000, 0x20000, 0x30000}, 0x40000)
		if err != nil {
			t.Fatal(err)
		}
		f.executed = nil
		if err := e.Submit(s); err != nil {
			t.Fatal(err)
		}
		r := f.executed[0]
		if !slices.Equal(r.ptrs, c.want) || !slices.Equal(r.uids, []int64{1, 2, 3}) || r.scratch != 0x40000 || r.handle != uintptr(s.handle) {
			t.Errorf("%s: executed %+v, want addresses %#x", c.op, r, c.want)
		}
		if r.engine != 57 || !slices.Equal(r.knobs, []Knob{{2, 3}, {13, 64}}) {
			t.Errorf("%s: engine %d knobs %v", c.op, r.engine, r.knobs)
		}
		f.failAt, f.failWith = "Execute", 5000
		err = e.Submit(s)
		f.failAt = ""
		var ce *cudnn.Error
		if !errors.As(err, &ce) || ce.Code != cudnn.ExecutionFailed || ce.Detail != "what the library says" || !strings.Contains(err.Error(), c.op.String()) {
			t.Errorf("%s: error %v", c.op, err)
		}
		if err := errors.Join(e.Close(), e.Close(), p.Close(), p.Close()); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(s.Close(), s.Close(), b.Close(), b.Close()); err != nil {
		t.Error(err)
	}
	if l := f.leaks(); l != "" {
		t.Error(l)
	}
}

func TestSubmitAllocatesNothing(t *testing.T) {
	f := (&fake{configs: menu(), algos: []fakeAlgo{{id: 7}}}).use(t)
	b := f.builder(t)
	s, err := b.NewStream(0x77)
	if err != nil {
		t.Fatal(err)
	}
	p, err := b.First(layer(workloads.OpConv, workloads.F16))
	if err != nil {
		t.Fatal(err)
	}
	e, err := p.Bind([]uintptr{0x10000, 0x20000, 0x30000}, 0x40000)
	if err != nil {
		t.Fatal(err)
	}
	// The fake allocates when it is called back; what it allocates is the same
	// with and without Submit.
	h := uintptr(s.handle)
	direct := testing.AllocsPerRun(200, func() {
		purego.SyscallN(symbols["cudnnBackendExecute"], h, uintptr(p.plan), uintptr(e.pack.live[0]))
	})
	if got := testing.AllocsPerRun(200, func() {
		if err := e.Submit(s); err != nil {
			t.Fatal(err)
		}
	}); got > direct {
		t.Errorf("%v allocations a submission, the fake alone makes %v", got, direct)
	}
	e.Close()
	p.Close()
	s.Close()
	b.Close()
}

// TestErrorsRelease makes every call fail, where it is first and where it is
// last made, and looks for what is left alive.
func TestErrorsRelease(t *testing.T) {
	run := func(f *fake) error {
		d, l := (*cudnn.Library)(nil), (*cublas.Library)(nil)
		var err error
		if d, err = cudnn.New(f); err != nil {
			return err
		}
		if l, err = cublas.New(f); err != nil {
			return err
		}
		b, err := New(d, l)
		if err != nil {
			return err
		}
		defer b.Close()
		s, err := b.NewStream(1)
		if err != nil {
			return err
		}
		defer s.Close()
		for _, op := range []workloads.Op{workloads.OpConv, workloads.OpFC} {
			n := layer(op, workloads.F16)
			cands, err := b.Candidates(n)
			if err != nil {
				return err
			}
			p, err := b.Build(n, cands[0].Choice)
			if err != nil {
				return err
			}
			defer p.Close()
			e, err := p.Bind([]uintptr{0x10000, 0x20000, 0x30000, 0x50000}[:len(n.In)+1], 0x40000)
			if err != nil {
				return err
			}
			defer e.Close()
			if err := e.Submit(s); err != nil {
				return err
			}
		}
		return nil
	}
	f := (&fake{configs: menu(), algos: []fakeAlgo{{id: 7}}}).use(t)
	if err := run(f); err != nil {
		t.Fatal(err)
	}
	calls := f.calls
	if len(calls) < 300 {
		t.Fatalf("only %d calls", len(calls))
	}
	first, last := map[string]int{}, map[string]int{}
	for i, line := range calls {
		if _, ok := first[line]; !ok {
			first[line] = i
		}
		last[line] = i
	}
	for i, line := range calls {
		if line == "DestroyHandle" || i != first[line] && i != last[line] {
			continue
		}
		f.calls, f.failNth, f.failWith = nil, i+1, 4000
		err := run(f)
		if err == nil {
			t.Errorf("call %d, %q, failed and nobody said so", i+1, line)
		} else if errors.Is(err, ErrUnsupported) {
			t.Errorf("call %d, %q: an internal error became %v", i+1, line, err)
		}
		if l := f.leaks(); l != "" {
			t.Fatalf("after call %d, %q, failed: %s", i+1, line, l)
		}
	}
}

func TestUnsupportedPlansArePassedOver(t *testing.T) {
	m := menu()
	m[3][0].refuses, m[3][4].refuses = true, true
	f := (&fake{configs: m}).use(t)
	b := f.builder(t)
	n := layer(workloads.OpConv, workloads.F16)
	p, err := b.First(n)
	if err != nil {
		t.Fatal(err)
	}
	if p.Choice().Engine != 58 {
		t.Errorf("engine %d", p.Choice().Engine)
	}
	p.Close()
	cands, err := b.Candidates(n)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Build(n, cands[0].Choice); !errors.Is(err, ErrUnsupported) || !errors.Is(err, cudnn.NotSupported) {
		t.Errorf("error %v", err)
	}
	b.Close()
	if l := f.leaks(); l != "" {
		t.Error(l)
	}
}

func TestBuildRefuses(t *testing.T) {
	f := (&fake{configs: menu()}).use(t)
	b := f.builder(t)
	defer b.Close()
	n := layer(workloads.OpConv, workloads.F16)
	good := Choice{Library: CuDNN, Version: 91900, Engine: 57}
	for _, c := range []struct {
		name   string
		change func(*Choice)
		want   error
	}{
		{"another version", func(c *Choice) { c.Version = 91901 }, ErrStale},
		{"another library", func(c *Choice) { c.Library = "mkl" }, ErrUnsupported},
		{"cuBLASLt for a convolution", func(c *Choice) { c.Library = CuBLASLt }, ErrUnsupported},
		{"a nondeterministic engine", func(c *Choice) { c.Engine = 11 }, ErrUnsupported},
		{"an unknown engine", func(c *Choice) { c.Engine = 999 }, ErrUnsupported},
		{"a huge workspace", func(c *Choice) { c.Engine = 3 }, ErrUnsupported},
	} {
		t.Run(c.name, func(t *testing.T) {
			choice := good
			c.change(&choice)
			p, err := b.Build(n, choice)
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if p != nil {
				t.Error("a plan in spite of it")
			}
		})
	}
}

func TestBindRefuses(t *testing.T) {
	f := (&fake{configs: menu()}).use(t)
	b := f.builder(t)
	p, err := b.First(layer(workloads.OpConv, workloads.F16))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		ptrs []uintptr
		ws   uintptr
		want string
	}{
		{"too few", []uintptr{0x100, 0x200}, 0x100, "2 addresses for 3"},
		{"unaligned", []uintptr{0x100, 0x208, 0x300}, 0x100, "operand 1 at 0x208"},
		{"null", []uintptr{0x100, 0x200, 0}, 0x100, "operand 2"},
		{"no workspace", []uintptr{0x100, 0x200, 0x300}, 0, "workspace"},
	} {
		if _, err := p.Bind(c.ptrs, c.ws); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	p.Close()
	b.Close()
	if l := f.leaks(); l != "" {
		t.Error(l)
	}
}

func TestFullyConnected(t *testing.T) {
	f := (&fake{configs: menu(), algos: []fakeAlgo{
		{id: 3, reduction: 1},                                // in place
		{id: 4, reduction: 4},                                // in the output's type
		{id: 5, flags: 1 << 1},                               // FP16 accumulation, tensor cores
		{id: 6, flags: 1<<1 | 1<<9, workspace: 512},          // tensor cores
		{id: 7, flags: 1 | 1<<9, reduction: 2, workspace: 1}, // split k, FMA
	}}).use(t)
	b := f.builder(t)
	s, _ := b.NewStream(0x77)
	for _, c := range []struct {
		op      workloads.Op
		d       workloads.DType
		engines []int64
		ptrs    []uintptr
		layouts []string
		trans   []string
		matmul  string
		skip    []int
	}{
		{
			workloads.OpFC, workloads.F16, []int64{6, 7}, []uintptr{0x100, 0x200, 0x300, 0x400},
			[]string{"lt layout 2 32x10 ld 32", "lt layout 2 32x4 ld 32", "lt layout 2 10x4 ld 10"},
			[]string{"lt set 3 = 1", "lt set 4 = 0", "lt set 7 = 4", "lt set 26 = 0", "lt set 8 = 0x300"},
			"lt matmul alpha 1 beta 0 a 0x200 b 0x100 c 0x400 d 0x400 algo 3 workspace 0x1000 of 512 stream 0x77", nil,
		},
		{
			workloads.OpFCBwdData, workloads.F32, []int64{7}, []uintptr{0x100, 0x200, 0x300},
			[]string{"lt layout 0 32x10 ld 32", "lt layout 0 10x4 ld 10", "lt layout 0 32x4 ld 32"},
			[]string{"lt set 3 = 0", "lt set 4 = 0"},
			"lt matmul alpha 1 beta 0 a 0x200 b 0x100 c 0x300 d 0x300 algo 4 workspace 0x1000 of 1 stream 0x77", nil,
		},
		{
			workloads.OpFCBwdFilter, workloads.F16, []int64{6, 7}, []uintptr{0x100, 0x200, 0x300, 0x400},
			[]string{"lt layout 2 32x4 ld 32", "lt layout 2 10x4 ld 10", "lt layout 2 32x10 ld 32"},
			[]string{"lt set 3 = 0", "lt set 4 = 1"},
			"lt matmul alpha 1 beta 0 a 0x100 b 0x200 c 0x300 d 0x300 algo 3 workspace 0x1000 of 512 stream 0x77", []int{1},
		},
	} {
		n := layer(c.op, c.d)
		cands, err := b.Candidates(n)
		if err != nil {
			t.Fatal(err)
		}
		var engines []int64
		for _, x := range cands {
			engines = append(engines, x.Engine)
		}
		if !slices.Equal(engines, c.engines) {
			t.Errorf("%s: algorithms %v, want %v", c.op, engines, c.engines)
		}
		p, err := b.Build(n, cands[0].Choice)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(p.Unwritten(), c.skip) {
			t.Errorf("%s: unwritten %v", c.op, p.Unwritten())
		}
		f.calls = nil
		e, err := p.Bind(c.ptrs, 0x1000)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Submit(s); err != nil {
			t.Fatal(err)
		}
		var layouts, trans []string
		for _, l := range f.calls {
			switch {
			case strings.HasPrefix(l, "lt layout"):
				layouts = append(layouts, l)
			case strings.HasPrefix(l, "lt set"):
				trans = append(trans, l)
			}
		}
		if !slices.Equal(layouts, c.layouts) || !slices.Equal(trans, c.trans) {
			t.Errorf("%s: %q %q", c.op, layouts, trans)
		}
		if got := f.calls[len(f.calls)-1]; got != c.matmul {
			t.Errorf("%s: %s\nwant %s", c.op, got, c.matmul)
		}
		e.Close()
		p.Close()
	}
	s.Close()
	b.Close()
	if l := f.leaks(); l != "" {
		t.Error(l)
	}
}

func TestChoiceRoundTrip(t *testing.T) {
	for _, c := range []Choice{
		{Library: CuDNN, Version: 91900, Engine: 57, Knobs: []Knob{{2, 3}, {13, -1}}, Notes: []string{"tensor_core"}, Workspace: 1 << 40},
		{Library: CuBLASLt, Version: 130100, Engine: 66, Algorithm: &Algorithm{Words: [8]Word{1<<64 - 1, 1<<53 + 1, 7}, Compute: 68}},
	} {
		b, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseChoice(b)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, c) {
			t.Errorf("%s became %+v", b, got)
		}
		// Through a reader that keeps numbers as float64, too.
		var any any
		json.Unmarshal(b, &any)
		b2, _ := json.Marshal(any)
		if got, err := ParseChoice(b2); err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("through float64: %s became %+v, %v", b2, got, err)
		}
	}
}

func FuzzParseChoice(f *testing.F) {
	f.Add([]byte(`{"library":"cudnn","version":91900,"engine":57,"knobs":[{"type":2,"value":3}],"workspace_bytes":0}`))
	f.Add([]byte(`{"library":"cublaslt","version":1,"engine":1,"algorithm":{"words":["1","ff","0","0","0","0","0","0"],"compute":68},"workspace_bytes":0}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ParseChoice(b)
		if err != nil {
			return
		}
		again, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		c2, err := ParseChoice(again)
		if err != nil || c.String() != c2.String() {
			t.Errorf("%s, then %s: %v", c, c2, err)
		}
	})
}

func TestPick(t *testing.T) {
	for _, c := range []struct {
		name string
		ns   map[int64]float64 // by engine; absent ones cannot be timed
		want int64
	}{
		{"the fastest", map[int64]float64{57: 100, 58: 200, 1: 300, 2: 150}, 57},
		{"a tie goes to the smaller workspace", map[int64]float64{57: 100, 58: 101.9, 1: 300}, 58},
		{"a tie of workspaces to the lower engine", map[int64]float64{57: 900, 58: 100, 2: 101}, 2},
		{"just outside the tie", map[int64]float64{57: 100, 58: 102.1}, 57},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := (&fake{configs: menu()}).use(t)
			b := f.builder(t)
			n := layer(workloads.OpConv, workloads.F16)
			cands, err := b.Candidates(n)
			if err != nil {
				t.Fatal(err)
			}
			got, timings, err := b.Pick(n, cands, func(p *Plan, shortest float64) (float64, error) {
				if p.Choice().Engine == 57 != math.IsInf(shortest, 1) {
					t.Errorf("engine %d, shortest %g", p.Choice().Engine, shortest)
				}
				if ns, ok := c.ns[p.Choice().Engine]; ok {
					return ns, nil
				}
				return 0, errors.New("not timed")
			})
			if err != nil {
				t.Fatal(err)
			}
			if got.Engine != c.want || len(timings) != len(cands) {
				t.Errorf("engine %d, want %d; %d timings", got.Engine, c.want, len(timings))
			}
			_, _, err = b.Pick(n, cands, func(*Plan, float64) (float64, error) { return 0, errors.New("no clock") })
			if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "no clock") {
				t.Errorf("nothing timed: %v", err)
			}
			b.Close()
			if l := f.leaks(); l != "" {
				t.Error(l)
			}
		})
	}
}

func TestKey(t *testing.T) {
	a, err := Key(layer(workloads.OpConv, workloads.F16))
	if err != nil {
		t.Fatal(err)
	}
	b, _ := Key(layer(workloads.OpConv, workloads.F32))
	c, _ := Key(layer(workloads.OpConvBwdData, workloads.F16))
	d := layer(workloads.OpConv, workloads.F16)
	d.In[0].Region.Off = 8
	e, _ := Key(d)
	if a == b || a == c || a == e {
		t.Errorf("keys %q %q %q %q", a, b, c, e)
	}
	if _, err := Key(&workloads.Bound{Node: &workloads.Node{Op: workloads.OpAdd}}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("an operator that is not this package's: %v", err)
	}
	for name, spoil := range map[string]func(*workloads.Bound){
		"arity":  func(b *workloads.Bound) { b.In = b.In[:1] },
		"rank":   func(b *workloads.Bound) { b.In[0].Shape = b.In[0].Shape[:2] },
		"type":   func(b *workloads.Bound) { b.In[0].DType = workloads.F32 },
		"filter": func(b *workloads.Bound) { b.In[1].Shape = workloads.Shape{64, 1, 3, 64} },
		"result": func(b *workloads.Bound) { b.Out[0].Shape = workloads.Shape{16, 28, 28, 64} },
		"window": func(b *workloads.Bound) { b.Attr.R = 99 },
	} {
		n := layer(workloads.OpConv, workloads.F16)
		spoil(n)
		if _, err := Key(n); err == nil || errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWithoutLibraries(t *testing.T) {
	b, err := New(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range []workloads.Op{workloads.OpConv, workloads.OpFC} {
		if _, err := b.Candidates(layer(op, workloads.F16)); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v", op, err)
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
