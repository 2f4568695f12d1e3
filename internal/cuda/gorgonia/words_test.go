package gorgonia

import (
	"slices"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/device/cuda/kernels"
)

func TestWords(t *testing.T) {
	for _, c := range []struct {
		name string
		args *driver.Args
		want []uint64
		fail string
	}{
		{"none", nil, nil, ""},
		{"numbers", (&driver.Args{}).U32(1).U64(2).F32(1).U32(3), []uint64{1, 2, 0x3f800000, 3}, ""},
		{"structure last", (&driver.Args{}).U64(5).Struct([]byte{1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0}), []uint64{5, 2<<32 | 1, 3}, ""},
		{"structure between", (&driver.Args{}).Struct(make([]byte, 16)).U64(5), nil, "parameter 0 of 2 has 16 bytes"},
	} {
		got, err := words(c.args)
		if c.fail != "" {
			if err == nil || !strings.Contains(err.Error(), c.fail) {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %#x, %v; want %#x", c.name, got, err, c.want)
		}
	}
}

// Every kernel of the project can be launched: structures stand last.
func TestKernels(t *testing.T) {
	for _, k := range kernels.Kernels() {
		types := strings.Fields(k.Params)
		for i, p := range types {
			if strings.HasPrefix(p, "b") && i < len(types)-1 {
				t.Errorf("kernel %s has a structure before its last parameter: %s", k.Name, k.Params)
			}
		}
	}
}
