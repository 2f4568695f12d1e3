package driver_test

import (
	"fmt"
	"testing"

	"github.com/ebitengine/purego"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/cuda/fake"
)

// A submission hands over each argument in its place, in registers and on the
// stack, and returns the function's code with its sign.
func TestSubmitPassesArguments(t *testing.T) {
	m := fake.H200(1)
	r, err := m.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Stop() })
	var got [11]uintptr
	code := int32(0)
	f := purego.NewCallback(func(a, b, c, d, e, f, g, h, i, j, k uintptr) uintptr {
		got = [11]uintptr{a, b, c, d, e, f, g, h, i, j, k}
		return uintptr(code)
	})
	a, err := driver.New(instead{r, []string{"cuLaunchKernel", "cuLaunchKernelEx", "cuStreamWaitEvent"}, f})
	if err != nil {
		t.Fatal(err)
	}
	mem := driver.NewMemory()
	t.Cleanup(func() { mem.Close() })
	l, err := a.PrepareKernel(mem, driver.KernelSpec{Func: 1 << 40, Grid: [3]uint32{2, 3, 4}, Block: [3]uint32{5, 6, 7}, Shared: 8, Stream: 1 << 41,
		Args: new(driver.Args).U64(77)})
	if err != nil {
		t.Fatal(err)
	}
	for _, code = range []int32{0, 700, -1} {
		if r := a.Submit(l); int32(r) != code {
			t.Errorf("code %d came back as %d", code, int32(r))
		}
	}
	if got[9] == 0 {
		t.Error("the kernel's parameters have no address")
	}
	got[9] = 0
	if want := [11]uintptr{1 << 40, 2, 3, 4, 5, 6, 7, 8, 1 << 41, 0, 0}; got != want {
		t.Errorf("arguments %v, want %v", got, want)
	}
	l, err = a.PrepareStreamWaitEvent(12, 13)
	if err != nil {
		t.Fatal(err)
	}
	if a.Submit(l); fmt.Sprint(got[:3]) != "[12 13 0]" {
		t.Errorf("three arguments arrive as %v", got[:3])
	}
}
