package cublas

import (
	"errors"
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
)

type functions struct{ missing string }

var callback uintptr

func (f functions) Lookup(name string) (uintptr, error) {
	if name == f.missing {
		return 0, errors.New("undefined symbol: " + name)
	}
	if callback == 0 {
		callback = purego.NewCallback(func() uintptr { return 130100 })
	}
	return callback, nil
}

func TestUnavailable(t *testing.T) {
	_, err := New(functions{"cublasLtMatmul"})
	if _, ok := errors.AsType[*Unavailable](err); !ok || !strings.Contains(err.Error(), "lacks cublasLtMatmul") {
		t.Errorf("a missing function: %v", err)
	}
	l, err := New(functions{})
	if err != nil || l.Version() != 130100 || l.Path() != "" {
		t.Errorf("library %+v, %v", l, err)
	}
	_, err = Open(Options{Path: t.TempDir(), Major: 12})
	if _, ok := errors.AsType[*Unavailable](err); !ok || !errors.Is(err, os.ErrNotExist) || strings.Contains(err.Error(), "\n") {
		t.Errorf("an empty folder: %v", err)
	}
}

// TestLayout holds the heuristic result to the C structure: 8 words, size_t,
// int, float, int[4].
func TestLayout(t *testing.T) {
	var r heuristicResult
	if s, o := unsafe.Sizeof(r), unsafe.Offsetof(r.state); s != 96 || o != 72 {
		t.Errorf("size %d, state at %d; want 96, 72", s, o)
	}
}

// TestRule says which algorithms are admitted.
func TestRule(t *testing.T) {
	f16, f32 := Problem{In: F16, Out: F16}, Problem{In: F32, Out: F32}
	for _, c := range []struct {
		name string
		p    Problem
		a    Algorithm
		ok   bool
	}{
		{"plain", f32, Algorithm{Compute: compute32FPedantic, Flags: 1 | flagAccumulator32}, true},
		{"split k, FP32 partial sums", f16, Algorithm{Compute: compute32F, Reduction: reductionComputeType, Flags: 2 | flagAccumulator32}, true},
		{"split k in place", f16, Algorithm{Compute: compute32F, Reduction: 1}, false},
		{"split k, FP16 partial sums", f16, Algorithm{Compute: compute32F, Reduction: 4}, false},
		{"FP32 on tensor cores", f32, Algorithm{Compute: compute32F, Flags: 2 | flagAccumulator32}, false},
		{"FP16 sums", f16, Algorithm{Compute: compute32F, Flags: 2 | 1<<8}, false},
		{"FP16 compute type", f16, Algorithm{Compute: 64}, false},
	} {
		if err := c.a.admitted(c.p); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
