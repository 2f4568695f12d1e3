package dnn

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/internal/cuda/cudnn"
	"github.com/tech-renaissance/trbench/internal/device/cpu/kernels"
	"github.com/tech-renaissance/trbench/workloads"
)

// operandsOf lays out a pattern's operands, inputs first.
func operandsOf(f Fused) (b *workloads.Bound, bytes int64) {
	g := f.Geometry
	x := workloads.Shape{g.N, g.H, g.W, g.C}
	y := workloads.Shape{g.N, g.OH, g.OW, g.K}
	w := workloads.Shape{g.K, g.R, g.S, g.C}
	c, k := workloads.Shape{g.C}, workloads.Shape{g.K}
	b = &workloads.Bound{Node: &workloads.Node{Name: string(f.Pattern)}}
	add := func(list *[]workloads.Operand, d workloads.DType, shapes ...workloads.Shape) {
		for _, s := range shapes {
			*list = append(*list, workloads.Operand{DType: d, Shape: s})
		}
	}
	h, s := workloads.F16, workloads.F32
	switch f.Pattern {
	case ConvStats:
		add(&b.In, h, x, c, c, w)
		add(&b.Out, h, y)
		add(&b.Out, s, k, k)
	case BwdFilterNorm:
		add(&b.In, h, x, c, c, y)
		add(&b.Out, h, w)
	case BwdDataNorm:
		add(&b.In, h, y, w, x)
		add(&b.In, s, c, c, c, c)
		add(&b.Out, h, x)
		add(&b.Out, s, c, c, c, c, c)
	}
	b, bytes = place(b)
	return b, bytes
}

// run1 computes one operator on the CPU from bytes.
func run1(t *testing.T, pool *kernels.Pool, op workloads.Op, a workloads.Attr, outs []workloads.Operand, in []workloads.Operand, data ...[]byte) [][]byte {
	t.Helper()
	b, size := place(&workloads.Bound{Node: &workloads.Node{Name: "reference", Op: op, Attr: a}, In: in, Out: outs})
	host := make(hostMemory, size+b.Scratch.Bytes)
	for i, d := range data {
		copy(host.Bytes(b.In[i].Region), d)
	}
	f, err := kernels.Compile(b, host, pool)
	if err != nil {
		t.Fatal(err)
	}
	f()
	var r [][]byte
	for _, o := range b.Out {
		r = append(r, host.Bytes(o.Region))
	}
	return r
}

// widen decodes F16 to F32 bytes.
func widen(b []byte) []byte {
	out := make([]byte, 2*len(b))
	for i := range len(b) / 2 {
		v := math.Float32bits(float32(value(b, workloads.F16, i)))
		out[4*i], out[4*i+1], out[4*i+2], out[4*i+3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
	}
	return out
}

// whole is the operand's bytes for a pattern: the tile repeated; invstd (operand
// 4 of BwdDataNorm) made positive.
func whole(o workloads.Operand, which int) []byte {
	b := make([]byte, o.Region.Bytes)
	fill(int64(len(b)), tile(o, which), func(off int64, p []byte) { copy(b[off:], p) })
	return b
}

// TestGPUFused checks each pattern on a small layer against the CPU, and prints
// what the layers of resnet50 take.
func TestGPUFused(t *testing.T) {
	g := onGPU(t)
	pool := kernels.NewPool(runtime.NumCPU())
	defer pool.Close()
	m := newBench(t, g, 1<<30)
	small := Geometry{N: 4, H: 14, W: 14, C: 64, K: 128, R: 3, S: 3, Stride: 1, Pad: 1, OH: 14, OW: 14, DType: workloads.F16}
	for _, pattern := range []Pattern{ConvStats, BwdFilterNorm, BwdDataNorm} {
		f := Fused{Pattern: pattern, Geometry: small}
		b, _ := operandsOf(f)
		data := [][]byte{}
		for i, o := range b.In {
			d := whole(o, i)
			if pattern == BwdDataNorm && i == 4 {
				for j := 3; j < len(d); j += 4 {
					d[j] &= 0x7f
				}
			}
			data = append(data, d)
			g.up(t, m.base+uintptr(o.Region.Off), d)
		}
		cands, err := g.b.FusedCandidates(f)
		if err != nil {
			report(t, "%s: %s", pattern, strings.ReplaceAll(err.Error(), "\n", " | "))
			continue
		}
		built := 0
		for _, c := range cands {
			p, err := g.b.BuildFused(f, c.Choice)
			if err != nil {
				report(t, "%s: %s: %v", pattern, c.Choice, err)
				continue
			}
			built++
			m.sameBits(t, b, p)
			var got [][]byte
			for _, o := range b.Out {
				got = append(got, g.down(t, m.base+uintptr(o.Region.Off), o.Region.Bytes))
			}
			want := reference(t, pool, f, b, data)
			var ds []string
			for i, o := range b.Out {
				d := distance(got[i], want[i], o.DType, 1)
				ds = append(ds, fmt.Sprintf("%.2g", d))
				if !(d < 2e-3) {
					t.Errorf("%s: %s: output %d is off by %.2g", pattern, p.Choice(), i, d)
				}
			}
			report(t, "%s: %s %s, workspace %d: off by %s", pattern, p.Choice(), strings.Join(p.Choice().Notes, "+"), p.Workspace(), strings.Join(ds, " "))
			p.Close()
		}
		report(t, "%s: %d candidates, %d built", pattern, len(cands), built)
	}
	for _, batch := range []int{64, 16, 256} {
		total := map[Pattern]float64{}
		for _, pattern := range []Pattern{ConvStats, BwdFilterNorm, BwdDataNorm} {
			for _, n := range layersOf(t, "resnet50", batch, workloads.AMP) {
				nd, err := look(n.Bound)
				if err != nil || n.Op != workloads.OpConv || nd.geom.C == 3 {
					continue
				}
				f := Fused{Pattern: pattern, Geometry: nd.geom}
				b, size := operandsOf(f)
				if size > m.size {
					t.Fatalf("%d bytes", size)
				}
				m.load(t, b)
				cands, err := g.b.FusedCandidates(f)
				if err != nil {
					report(t, "%s %s: %v", pattern, nd.geom, err)
					continue
				}
				_, ts, err := g.b.PickFused(f, cands[:min(len(cands), 6)], func(p *Plan, shortest float64) (float64, error) { return m.time(b, p, 5, shortest) })
				if err != nil {
					report(t, "%s %s: %v", pattern, nd.geom, err)
					continue
				}
				x := ts[best(ts)]
				total[pattern] += x.TimeNs * float64(n.count)
				report(t, "%-16s %-40s x%d %8.1f us, %d candidates, workspace %d, %s", pattern, nd.geom, n.count, x.TimeNs/1e3, len(cands), x.Choice.Workspace, x.Choice)
			}
			report(t, "TOTAL resnet50 %d %s: %.3f ms", batch, pattern, total[pattern]/1e6)
		}
	}
}

// reference computes a pattern with the CPU's kernels.
func reference(t *testing.T, pool *kernels.Pool, f Fused, b *workloads.Bound, data [][]byte) [][]byte {
	t.Helper()
	g, h := f.Geometry, workloads.F16
	conv := workloads.Attr{R: g.R, S: g.S, Stride: g.Stride, Pad: g.Pad}
	op := func(d workloads.DType, s workloads.Shape) workloads.Operand {
		return workloads.Operand{DType: d, Shape: s}
	}
	x, y, w := workloads.Shape{g.N, g.H, g.W, g.C}, workloads.Shape{g.N, g.OH, g.OW, g.K}, workloads.Shape{g.K, g.R, g.S, g.C}
	c := workloads.Shape{g.C}
	f32s := func(v []float64) []byte {
		out := make([]byte, 4*len(v))
		for i, a := range v {
			u := math.Float32bits(float32(a))
			out[4*i], out[4*i+1], out[4*i+2], out[4*i+3] = byte(u), byte(u>>8), byte(u>>16), byte(u>>24)
		}
		return out
	}
	normalised := func() []byte {
		return run1(t, pool, workloads.OpAffine, workloads.Attr{ReLU: true}, []workloads.Operand{op(h, x)},
			[]workloads.Operand{op(h, x), op(workloads.F32, c), op(workloads.F32, c)}, data[0], widen(data[1]), widen(data[2]))[0]
	}
	switch f.Pattern {
	case ConvStats:
		r := run1(t, pool, workloads.OpConv, conv, []workloads.Operand{op(h, y)}, []workloads.Operand{op(h, x), op(h, w)}, normalised(), data[3])[0]
		sum, square := make([]float64, g.K), make([]float64, g.K)
		for i := range len(r) / 2 {
			v := value(r, h, i)
			sum[i%g.K] += v
			square[i%g.K] += v * v
		}
		return [][]byte{r, f32s(sum), f32s(square)}
	case BwdFilterNorm:
		return run1(t, pool, workloads.OpConvBwdFilter, conv, []workloads.Operand{op(h, w)}, []workloads.Operand{op(h, x), op(h, y)}, normalised(), data[3])
	}
	dz := run1(t, pool, workloads.OpConvBwdData, conv, []workloads.Operand{op(h, x)}, []workloads.Operand{op(h, y), op(h, w)}, data[0], data[1])[0]
	count := float64(g.N * g.H * g.W)
	vec := func(i, ch int) float64 { return value(data[i], workloads.F32, ch) }
	dgamma, dbeta := make([]float64, g.C), make([]float64, g.C)
	for i := range len(dz) / 2 {
		ch := i % g.C
		hat := (value(data[2], h, i) - vec(3, ch)) * vec(4, ch)
		if !(hat*vec(5, ch)+vec(6, ch) > 0) {
			dz[2*i], dz[2*i+1] = 0, 0
		}
		dgamma[ch] += value(dz, h, i) * hat
		dbeta[ch] += value(dz, h, i)
	}
	eqDY, eqX, eqB := make([]float64, g.C), make([]float64, g.C), make([]float64, g.C)
	for ch := range g.C {
		mean, inv, gamma := vec(3, ch), vec(4, ch), vec(5, ch)
		eqDY[ch] = gamma * inv
		eqX[ch] = -gamma * inv * inv * dgamma[ch] / count
		eqB[ch] = -gamma*inv*dbeta[ch]/count - eqX[ch]*mean
	}
	return [][]byte{dz, f32s(dgamma), f32s(dbeta), f32s(eqDY), f32s(eqX), f32s(eqB)}
}

// convSums is a convolution that counts on the way out and does nothing on the
// way in: x, w; y, sum, square sum.
func convSums(_ *Builder, g *graph, n *node) {
	c := n.geom
	w, x, y := g.w(n, 1), g.x(n, 0), g.y(n, 2)
	sum, square := g.vector(n, cudnn.Float, c.K, 3), g.vector(n, cudnn.Float, c.K, 4)
	g.operation(convForward, g.convolution(c), x, w, y)
	d := g.create(cudnn.OperationGenStats)
	set(g, d, cudnn.GenStatsXDesc, cudnn.TypeDescriptor, y)
	set(g, d, cudnn.GenStatsMode, cudnn.TypeGenStatsMode, cudnn.GenStatsSumSqSum)
	set(g, d, cudnn.GenStatsMathPrec, cudnn.TypeDataType, cudnn.Float)
	set(g, d, cudnn.GenStatsSumDesc, cudnn.TypeDescriptor, sum)
	set(g, d, cudnn.GenStatsSqSumDesc, cudnn.TypeDescriptor, square)
	g.ops = append(g.ops, g.finalize(d))
}

// TestGPUConvSums asks whether the channel sums alone can be had with a
// convolution, and for what: a batch norm would then read its input once.
func TestGPUConvSums(t *testing.T) {
	g := onGPU(t)
	m := newBench(t, g, 2<<30)
	for _, batch := range []int{4, 64, 256} {
		fused, plain := 0.0, 0.0
		for _, n := range layersOf(t, "resnet50", batch, workloads.AMP) {
			nd, err := look(n.Bound)
			if err != nil || n.Op != workloads.OpConv || nd.geom.C == 3 {
				continue
			}
			x := *n.Bound
			k := workloads.Operand{Name: "sum", DType: workloads.F32, Shape: workloads.Shape{nd.geom.K}}
			x.Out = append(slices.Clone(x.Out), k, k)
			b, size := place(&x)
			if size > m.size {
				t.Fatalf("%d bytes", size)
			}
			m.load(t, b)
			f := &node{what: "conv_sums", geom: nd.geom, align: maxAlign, args: 5, make: convSums}
			pick := func(n *node, b *workloads.Bound) (Choice, float64, int, error) {
				cands, err := g.b.candidates(n)
				if err != nil {
					return Choice{}, 0, 0, err
				}
				c, ts, err := g.b.pick(n, cands[:min(len(cands), 6)], func(p *Plan, shortest float64) (float64, error) { return m.time(b, p, 5, shortest) })
				if err != nil {
					return Choice{}, 0, 0, err
				}
				return c, ts[best(ts)].TimeNs, len(cands), nil
			}
			p := *b
			p.Out = b.Out[:1]
			pn, err := look(&p)
			if err != nil {
				t.Fatal(err)
			}
			_, alone, _, err := pick(pn, &p)
			if err != nil {
				t.Fatal(err)
			}
			choice, ns, offered, err := pick(f, b)
			if err != nil {
				report(t, "conv_sums %s: %s", nd.geom, strings.ReplaceAll(err.Error(), "\n", " | "))
				continue
			}
			fused += ns * float64(n.count)
			plain += alone * float64(n.count)
			report(t, "conv_sums %-40s x%d %8.1f us, without sums %8.1f, %d candidates, %s", nd.geom, n.count, ns/1e3, alone/1e3, offered, choice)
			if batch > 4 {
				continue
			}
			plan, err := g.b.build(f, choice)
			if err != nil {
				t.Fatal(err)
			}
			y := m.sameBits(t, b, plan)
			sums := [2][]float64{make([]float64, nd.geom.K), make([]float64, nd.geom.K)}
			for i := range len(y) / 2 {
				v := value(y, workloads.F16, i)
				sums[0][i%nd.geom.K] += v
				sums[1][i%nd.geom.K] += v * v
			}
			for i, o := range b.Out[1:] {
				got := g.down(t, m.base+uintptr(o.Region.Off), o.Region.Bytes)
				var off, norm float64
				for c := range sums[i] {
					d := value(got, workloads.F32, c) - sums[i][c]
					off, norm = off+d*d, norm+sums[i][c]*sums[i][c]
				}
				if d := math.Sqrt(off / norm); !(d < 2e-3) {
					t.Errorf("conv_sums %s: sum %d is off by %.2g", nd.geom, i, d)
				}
			}
			plan.Close()
		}
		report(t, "TOTAL resnet50 %d conv_sums: %.3f ms, convolutions alone %.3f ms", batch, fused/1e6, plain/1e6)
	}
}

// TestGPUPaddedStem times the stem with three channels, by every candidate, and
// with the channels that padding to 4 or 8 would give.
func TestGPUPaddedStem(t *testing.T) {
	g := onGPU(t)
	m := newBench(t, g, 1<<30)
	for _, op := range []workloads.Op{workloads.OpConv, workloads.OpConvBwdFilter} {
		for _, c := range []int{3, 4, 8} {
			b := layerOf(op, workloads.F16, workloads.Attr{R: 7, S: 7, Stride: 2, Pad: 3},
				workloads.Shape{64, 224, 224, c}, workloads.Shape{64, 7, 7, c}, workloads.Shape{64, 112, 112, 64})
			m.load(t, b)
			cands, err := g.b.Candidates(b)
			if err != nil {
				report(t, "%s C=%d: %v", op, c, err)
				continue
			}
			choice, ts, err := g.b.Pick(b, cands, func(p *Plan, shortest float64) (float64, error) { return m.time(b, p, 5, shortest) })
			if err != nil {
				t.Error(err)
				continue
			}
			var all []string
			for _, x := range ts {
				if x.Err == nil {
					all = append(all, fmt.Sprintf("%d:%.0f", x.Choice.Engine, x.TimeNs/1e3))
				} else if !errors.Is(x.Err, ErrUnsupported) {
					t.Error(x.Err)
				}
			}
			report(t, "stem %s 64 images C=%d: %.1f us %s workspace %d (engine:us %s)", op, c, ts[best(ts)].TimeNs/1e3, choice, choice.Workspace, strings.Join(all, " "))
		}
	}
}
