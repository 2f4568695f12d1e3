package driver_test

import (
	"bytes"
	"testing"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
)

func TestArgsBytes(t *testing.T) {
	g := (&driver.Args{}).U32(7).U64(9).Struct([]byte{1, 2, 3})
	for i, want := range [][]byte{{7, 0, 0, 0}, {9, 0, 0, 0, 0, 0, 0, 0}, {1, 2, 3}} {
		if got := g.Bytes(i); !bytes.Equal(got, want) {
			t.Errorf("argument %d: %v, want %v", i, got, want)
		}
	}
	var none *driver.Args
	if none.Len() != 0 {
		t.Error("no arguments have a length")
	}
}
