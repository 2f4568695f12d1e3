package driver

import (
	"bytes"
	"encoding/binary"
	"testing"
	"unsafe"
)

// TestLayouts holds the sizes and offsets of cuda.h's structures on 64-bit
// machines.
func TestLayouts(t *testing.T) {
	var (
		kernel kernelNodeParams
		cp     MemcpyNodeParams
		set    MemsetNodeParams
		inst   instantiateParams
		update updateInfo
		edge   EdgeData
	)
	for _, c := range []struct {
		name      string
		got, want uintptr
	}{
		{"CUDA_KERNEL_NODE_PARAMS_v2", unsafe.Sizeof(kernel), 72},
		{".gridDimX", unsafe.Offsetof(kernel.grid), 8},
		{".blockDimX", unsafe.Offsetof(kernel.block), 20},
		{".sharedMemBytes", unsafe.Offsetof(kernel.shared), 32},
		{".kernelParams", unsafe.Offsetof(kernel.kernelParams), 40},
		{".extra", unsafe.Offsetof(kernel.extra), 48},
		{".kern", unsafe.Offsetof(kernel.kern), 56},
		{".ctx", unsafe.Offsetof(kernel.ctx), 64},
		{"CUDA_MEMCPY3D", unsafe.Sizeof(cp), 200},
		{".srcMemoryType", unsafe.Offsetof(cp.Src) + unsafe.Offsetof(cp.Src.Type), 32},
		{".srcHost", unsafe.Offsetof(cp.Src) + unsafe.Offsetof(cp.Src.Host), 40},
		{".srcDevice", unsafe.Offsetof(cp.Src) + unsafe.Offsetof(cp.Src.Device), 48},
		{".srcPitch", unsafe.Offsetof(cp.Src) + unsafe.Offsetof(cp.Src.Pitch), 72},
		{".dstXInBytes", unsafe.Offsetof(cp.Dst), 88},
		{".dstHost", unsafe.Offsetof(cp.Dst) + unsafe.Offsetof(cp.Dst.Host), 128},
		{".WidthInBytes", unsafe.Offsetof(cp.WidthInBytes), 176},
		{"CUDA_MEMSET_NODE_PARAMS", unsafe.Sizeof(set), 40},
		{".elementSize", unsafe.Offsetof(set.ElementSize), 20},
		{".width", unsafe.Offsetof(set.Width), 24},
		{"CUDA_GRAPH_INSTANTIATE_PARAMS", unsafe.Sizeof(inst), 32},
		{".hErrNode_out", unsafe.Offsetof(inst.errNode), 16},
		{".result_out", unsafe.Offsetof(inst.result), 24},
		{"CUgraphExecUpdateResultInfo", unsafe.Sizeof(update), 24},
		{".errorNode", unsafe.Offsetof(update.node), 8},
		{"CUgraphEdgeData", unsafe.Sizeof(edge), 8},
		{".type", unsafe.Offsetof(edge.Type), 2},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", c.name, c.got, c.want)
		}
	}
}

// TestNames knows a name for every code it declares, and the classes of codes.
func TestNames(t *testing.T) {
	for r, name := range resultNames {
		if r.String() != name {
			t.Errorf("%d: %s", uint32(r), r)
		}
		if r.Capture() != (r >= 900 && r <= 908) {
			t.Errorf("%v: Capture", r)
		}
	}
	if Result(12345).String() != "CUresult(12345)" {
		t.Error(Result(12345))
	}
	if !IllegalAddress.Sticky() || StreamCaptureInvalidated.Sticky() || OutOfMemory.Sticky() {
		t.Error("sticky codes")
	}
	if Version(12080).String() != "12.8" || Version(13000).String() != "13.0" {
		t.Error(Version(12080))
	}
}

// A driver may read an argument as what it is, so each lies at an address that
// its C type asks for, a structure at 16, in whatever order they come.
func TestArgumentsAreAligned(t *testing.T) {
	structure := bytes.Repeat([]byte{0xab}, 20)
	lists := map[string]func(*Args) *Args{
		"structure first":           func(g *Args) *Args { return g.Struct(structure).U64(1) },
		"structure after a word":    func(g *Args) *Args { return g.U32(1).Struct(structure) },
		"structure after a pointer": func(g *Args) *Args { return g.Ptr(1).Struct(structure) },
		"after a structure":         func(g *Args) *Args { return g.Struct(structure).U32(1).Struct(structure).U64(2) },
		"structure after two":       func(g *Args) *Args { return g.U32(1).Ptr(2).Struct(structure) },
		"words and pointers":        func(g *Args) *Args { return g.U32(1).Ptr(2).F32(3).I64(4).I32(5) },
	}
	for name, list := range lists {
		g := list(&Args{})
		mem := NewMemory()
		defer mem.Close()
		array, err := g.lay(mem)
		if err != nil {
			t.Fatal(err)
		}
		laid := mem.chunks[0]
		for i := range g.Len() {
			at := binary.NativeEndian.Uint64(laid[array-addr(laid)+uintptr(8*i):])
			want := g.Bytes(i)
			align := uint64(len(want))
			if len(want) == len(structure) {
				align = 16
			}
			if at%align != 0 {
				t.Errorf("%s: argument %d of %d bytes lies at %#x, which %d does not divide", name, i, len(want), at, align)
			}
			if got := laid[uintptr(at)-addr(laid):][:len(want)]; !bytes.Equal(got, want) {
				t.Errorf("%s: argument %d is %x, want %x", name, i, got, want)
			}
		}
	}
}
