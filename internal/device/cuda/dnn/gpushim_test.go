package dnn

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/tech-renaissance/trbench/internal/cuda/cublas"
	"github.com/tech-renaissance/trbench/internal/cuda/cudnn"
	"github.com/tech-renaissance/trbench/internal/dl"
)

// gpu is the little of the CUDA driver that these tests need, so that they
// stand on nothing but the package under test. A failing call ends the test.
type gpu struct {
	fn     map[string]uintptr
	ctx    uintptr
	stream uintptr
	events [2]uintptr

	dnn  *cudnn.Library
	blas *cublas.Library
	b    *Builder
	s    *Stream
}

var openGPU = sync.OnceValues(func() (*gpu, error) {
	lib, err := dl.Open(dl.Query{Name: "the CUDA driver", Files: []string{"libcuda.so.1"}})
	if err != nil {
		return nil, err
	}
	g := &gpu{fn: map[string]uintptr{}}
	for _, n := range []string{
		"cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuMemAlloc_v2", "cuMemFree_v2",
		"cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "cuMemsetD8_v2", "cuStreamCreate", "cuStreamSynchronize", "cuCtxSynchronize",
		"cuEventCreate", "cuEventRecord", "cuEventSynchronize", "cuEventElapsedTime", "cuStreamBeginCapture_v2",
		"cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphLaunch", "cuGraphExecDestroy", "cuGraphDestroy",
		"cuGraphGetNodes",
	} {
		if g.fn[n], err = lib.Lookup(n); err != nil {
			return nil, err
		}
	}
	var dev int32
	for _, err := range []error{
		g.try("cuInit", 0),
		g.try("cuDeviceGet", uintptr(unsafe.Pointer(&dev)), 0),
		g.try("cuDevicePrimaryCtxRetain", uintptr(unsafe.Pointer(&g.ctx)), 0),
		g.try("cuCtxSetCurrent", g.ctx),
		g.try("cuStreamCreate", uintptr(unsafe.Pointer(&g.stream)), 1),
		g.try("cuEventCreate", uintptr(unsafe.Pointer(&g.events[0])), 0),
		g.try("cuEventCreate", uintptr(unsafe.Pointer(&g.events[1])), 0),
	} {
		if err != nil {
			return nil, err
		}
	}
	if g.dnn, err = cudnn.Open(cudnn.Options{Path: os.Getenv("TRBENCH_CUDNN")}); err != nil {
		return nil, err
	}
	if g.blas, err = cublas.Open(cublas.Options{Major: g.dnn.CudartVersion() / 1000}); err != nil {
		return nil, err
	}
	if g.b, err = New(g.dnn, g.blas); err != nil {
		return nil, err
	}
	g.s, err = g.b.NewStream(g.stream)
	return g, err
})

// onGPU locks the test to a thread with the context; without TRBENCH_GPU=1 it
// skips.
func onGPU(t *testing.T) *gpu {
	t.Helper()
	if os.Getenv("TRBENCH_GPU") != "1" {
		t.Skip("needs a GPU; set TRBENCH_GPU=1")
	}
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	g, err := openGPU()
	if err != nil {
		t.Fatal(err)
	}
	g.must(t, "cuCtxSetCurrent", g.ctx)
	return g
}

func (g *gpu) try(call string, args ...uintptr) error {
	if r, _, _ := purego.SyscallN(g.fn[call], args...); int32(r) != 0 {
		return fmt.Errorf("%s: CUDA error %d", call, int32(r))
	}
	return nil
}

func (g *gpu) must(t testing.TB, call string, args ...uintptr) {
	t.Helper()
	if err := g.try(call, args...); err != nil {
		t.Fatal(err)
	}
}

func (g *gpu) alloc(t *testing.T, n int64) uintptr {
	t.Helper()
	var p uintptr
	g.must(t, "cuMemAlloc_v2", uintptr(unsafe.Pointer(&p)), uintptr(n))
	t.Cleanup(func() { g.try("cuMemFree_v2", p) })
	return p
}

func (g *gpu) up(t *testing.T, dst uintptr, src []byte) {
	t.Helper()
	g.must(t, "cuMemcpyHtoD_v2", dst, uintptr(unsafe.Pointer(unsafe.SliceData(src))), uintptr(len(src)))
}

func (g *gpu) down(t *testing.T, src uintptr, n int64) []byte {
	t.Helper()
	b := make([]byte, n)
	g.must(t, "cuMemcpyDtoH_v2", uintptr(unsafe.Pointer(unsafe.SliceData(b))), src, uintptr(n))
	return b
}

func (g *gpu) sync(t *testing.T) {
	t.Helper()
	g.must(t, "cuStreamSynchronize", g.stream)
}

// capture records f n times and instantiates the graph. done releases it.
func (g *gpu) capture(n int, f func() error) (exec uintptr, nodes int, done func(), err error) {
	if err = g.try("cuStreamBeginCapture_v2", g.stream, 1); err != nil {
		return
	}
	var failed error
	for i := 0; i < n && failed == nil; i++ {
		failed = f()
	}
	var graph uintptr
	if err = g.try("cuStreamEndCapture", g.stream, uintptr(unsafe.Pointer(&graph))); failed != nil || err != nil {
		return 0, 0, nil, fmt.Errorf("capture: %w, end: %w", failed, err)
	}
	var count uint64
	if err = g.try("cuGraphGetNodes", graph, 0, uintptr(unsafe.Pointer(&count))); err != nil {
		return
	}
	if err = g.try("cuGraphInstantiateWithFlags", uintptr(unsafe.Pointer(&exec)), graph, 0); err != nil {
		return
	}
	return exec, int(count), func() {
		g.try("cuGraphExecDestroy", exec)
		g.try("cuGraphDestroy", graph)
	}, nil
}

// timed is the GPU time of f between two events, in nanoseconds.
func (g *gpu) timed(f func() error) (float64, error) {
	if err := g.try("cuEventRecord", g.events[0], g.stream); err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	if err := g.try("cuEventRecord", g.events[1], g.stream); err != nil {
		return 0, err
	}
	if err := g.try("cuEventSynchronize", g.events[1]); err != nil {
		return 0, err
	}
	var ms float32
	err := g.try("cuEventElapsedTime", uintptr(unsafe.Pointer(&ms)), g.events[0], g.events[1])
	return float64(ms) * 1e6, err
}
