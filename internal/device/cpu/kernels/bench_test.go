//go:build unix

package kernels

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"gonum.org/v1/gonum/blas"

	"github.com/tech-renaissance/trbench/workloads"
)

// benchGeoms are layers of the models, with batches that keep one operator
// within some milliseconds.
var benchGeoms = []struct {
	name string
	g    geom
}{
	{"resnet20/stem", geom{n: 4, h: 32, w: 32, c: 3, k: 16, r: 3, s: 3, stride: 1, pad: 1}},
	{"resnet20/layer1", geom{n: 4, h: 32, w: 32, c: 16, k: 16, r: 3, s: 3, stride: 1, pad: 1}},
	{"resnet20/layer2.0", geom{n: 4, h: 32, w: 32, c: 16, k: 32, r: 3, s: 3, stride: 2, pad: 1}},
	{"resnet20/layer2", geom{n: 4, h: 16, w: 16, c: 32, k: 32, r: 3, s: 3, stride: 1, pad: 1}},
	{"resnet20/layer3.0", geom{n: 4, h: 16, w: 16, c: 32, k: 64, r: 3, s: 3, stride: 2, pad: 1}},
	{"resnet20/layer3", geom{n: 4, h: 8, w: 8, c: 64, k: 64, r: 3, s: 3, stride: 1, pad: 1}},
	{"resnet18/layer1", geom{n: 4, h: 32, w: 32, c: 64, k: 64, r: 3, s: 3, stride: 1, pad: 1}},
	{"resnet18/layer4", geom{n: 4, h: 4, w: 4, c: 512, k: 512, r: 3, s: 3, stride: 1, pad: 1}},
	{"resnet50/stem", geom{n: 1, h: 112, w: 112, c: 3, k: 64, r: 7, s: 7, stride: 2, pad: 3}},
	{"resnet50/layer1.conv1", geom{n: 1, h: 56, w: 56, c: 256, k: 64, r: 1, s: 1, stride: 1, pad: 0}},
	{"resnet50/layer2.down", geom{n: 1, h: 56, w: 56, c: 256, k: 512, r: 1, s: 1, stride: 2, pad: 0}},
	{"resnet50/layer3.conv2", geom{n: 1, h: 14, w: 14, c: 256, k: 256, r: 3, s: 3, stride: 1, pad: 1}},
	{"resnet50/layer4.conv2", geom{n: 2, h: 7, w: 7, c: 512, k: 512, r: 3, s: 3, stride: 1, pad: 1}},
	{"resnet50/layer4.conv3", geom{n: 2, h: 7, w: 7, c: 512, k: 2048, r: 1, s: 1, stride: 1, pad: 0}},
}

// product is a matrix product m×k by k×n in one of gonum's four variants.
type product struct {
	ta, tb  blas.Transpose
	m, n, k int
	a, b, c []float32
}

func (p *product) run() {
	lda, ldb := p.k, p.n
	if p.ta == blas.Trans {
		lda = p.m
	}
	if p.tb == blas.Trans {
		ldb = p.k
	}
	blasImpl.Sgemm(p.ta, p.tb, p.m, p.n, p.k, 1, p.a, lda, p.b, ldb, 0, p.c, p.n)
}

func dense(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = rand.Float32() - 0.5
	}
	return v
}

// fastest returns the fastest variant of the given sizes, on matrices that lie
// ready.
func fastest(sizes ...[3]int) *product {
	var best *product
	var least time.Duration
	for _, d := range sizes {
		m, n, k := d[0], d[1], d[2]
		a, b, c := dense(m*k), dense(k*n), make([]float32, m*n)
		for _, ta := range []blas.Transpose{blas.NoTrans, blas.Trans} {
			for _, tb := range []blas.Transpose{blas.NoTrans, blas.Trans} {
				p := &product{ta, tb, m, n, k, a, b, c}
				p.run()
				took := time.Duration(1<<63 - 1)
				for range 5 {
					start := time.Now()
					p.run()
					took = min(took, time.Since(start))
				}
				if best == nil || took < least {
					best, least = p, took
				}
			}
		}
	}
	return best
}

// BenchmarkConv runs each pass of a convolution, gathering included, and next
// to it the bare product by the fastest of gonum's variants, in turn, with as
// many threads. ratio is the throughput of the pass over that of the product.
// The data gradient may be had as either of two products; the faster one
// counts. cpu_ratio is the same in processor time, which means something on a
// busy machine, too.
func BenchmarkConv(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, l := range benchGeoms {
		g := l.g
		g.oh, g.ow = (g.h+2*g.pad-g.r)/g.stride+1, (g.w+2*g.pad-g.s)/g.stride+1
		p := g.outPixels()
		for i, sizes := range [][][3]int{
			{{p, g.k, g.taps()}},
			{{p, g.taps(), g.k}, {g.inPixels(), g.c, g.k * g.r * g.s}},
			{{g.k, g.taps(), p}},
		} {
			if g.stride > 1 {
				sizes = sizes[:1]
			}
			for _, threads := range []int{1, 2} {
				pass := [...]string{"fwd", "bwd_data", "bwd_filter"}[i]
				b.Run(fmt.Sprintf("%s/%s/threads=%d", l.name, pass, threads), func(b *testing.B) {
					benchPass(b, convCase3(rng, g)[i], threads, sizes)
				})
			}
		}
	}
}

func benchPass(b *testing.B, c opCase, threads int, sizes [][3]int) {
	if threads > runtime.NumCPU() {
		b.Skip("too few cores")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads))
	r := newRig(c, workloads.F32)
	pool := NewPool(threads)
	defer pool.Close()
	f := r.compile(b, pool)
	f()
	other := fastest(sizes...)
	var ours, theirs, ourCPU, theirCPU []time.Duration
	for b.Loop() {
		t0, c0 := time.Now(), cpuTime()
		f()
		t1, c1 := time.Now(), cpuTime()
		other.run()
		t2, c2 := time.Now(), cpuTime()
		ours, theirs = append(ours, t1.Sub(t0)), append(theirs, t2.Sub(t1))
		ourCPU, theirCPU = append(ourCPU, c1-c0), append(theirCPU, c2-c1)
	}
	macs := float64(sizes[0][0]) * float64(sizes[0][1]) * float64(sizes[0][2])
	us, them := median(ours), median(theirs)
	b.ReportMetric(median(theirCPU)/median(ourCPU), "cpu_ratio")
	b.ReportMetric(them/us, "ratio")
	b.ReportMetric(macs/us/1e9, "GMAC/s")
	b.ReportMetric(macs/them/1e9, "gonum_GMAC/s")
	b.ReportMetric(0, "ns/op")
}

// median is in seconds. A machine at work on something else doubles single
// times, so means would say little.
func median(d []time.Duration) float64 {
	slices.Sort(d)
	return d[len(d)/2].Seconds()
}

// cpuTime is the processor time of all threads so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
