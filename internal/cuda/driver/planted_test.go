package driver_test

import (
	"os"
	"testing"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/cuda/fake"
)

// planted holds kernels that are wrong on purpose, each in the way that one of
// the sanitizer's tools exists for: one reads memory that nobody wrote, one
// reads behind its allocation, and one reads what other threads of its block
// write, with no barrier between.
const planted = `
.version 7.0
.target sm_60
.address_size 64
.visible .entry planted_initcheck(.param .u64 p, .param .u64 q)
{
	.reg .b32 %r<2>;
	.reg .b64 %rd<5>;
	ld.param.u64 %rd1, [p];
	ld.param.u64 %rd2, [q];
	cvta.to.global.u64 %rd3, %rd1;
	cvta.to.global.u64 %rd4, %rd2;
	ld.global.u32 %r1, [%rd4];
	st.global.u32 [%rd3], %r1;
	ret;
}
.visible .entry planted_memcheck(.param .u64 p, .param .u64 q)
{
	.reg .b32 %r<2>;
	.reg .b64 %rd<5>;
	ld.param.u64 %rd1, [p];
	ld.param.u64 %rd2, [q];
	cvta.to.global.u64 %rd3, %rd1;
	cvta.to.global.u64 %rd4, %rd2;
	ld.global.u32 %r1, [%rd4+65536];
	st.global.u32 [%rd3], %r1;
	ret;
}
.visible .entry planted_racecheck(.param .u64 p, .param .u64 q)
{
	.reg .b32 %r<6>;
	.reg .b64 %rd<5>;
	.shared .align 4 .b8 words[1024];
	ld.param.u64 %rd1, [p];
	cvta.to.global.u64 %rd2, %rd1;
	mov.u32 %r1, %tid.x;
	shl.b32 %r2, %r1, 2;
	mov.u32 %r3, words;
	add.u32 %r4, %r3, %r2;
	st.shared.u32 [%r4], %r1;
	sub.u32 %r5, 1020, %r2;
	add.u32 %r5, %r5, %r3;
	ld.shared.u32 %r5, [%r5];
	cvt.u64.u32 %rd3, %r2;
	add.u64 %rd4, %rd2, %rd3;
	st.global.u32 [%rd4], %r5;
	ret;
}
`

// TestPlanted runs the wrong kernel of the tool that TRBENCH_PLANTED names, so
// that scripts/gpu-test.sh can tell a tool that sees nothing from a program
// without errors. The test itself passes: what the tool does to the context is
// the tool's affair.
func TestPlanted(t *testing.T) {
	tool := os.Getenv("TRBENCH_PLANTED")
	if tool == "" || !onGPU() {
		t.Skip("runs under the sanitizer: scripts/gpu-test.sh sanitize")
	}
	h := newHost(t, fake.H200(1))
	mod := must(h.ModuleLoadData([]byte(planted)))(t)
	f := must(h.ModuleGetFunction(mod, "planted_"+tool))(t)
	p, q := must(h.MemAlloc(1024))(t), must(h.MemAlloc(1024))(t)
	h.ok(h.MemsetD8(p, 0, 1024))
	s := must(h.StreamCreate(driver.StreamNonBlocking))(t)
	l := must(h.PrepareKernel(h.mem, driver.KernelSpec{Func: f, Name: "planted_" + tool, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{256, 1, 1},
		Stream: s, Args: new(driver.Args).Ptr(p).Ptr(q)}))(t)
	h.submit(l)
	t.Log(h.StreamSynchronize(s))
}
