package dnn

import (
	"unsafe"
)

// heurResult is a cublasLtMatmulHeuristicResult_t.
type heurResult struct {
	algo      [8]uint64
	workspace uint64
	_         int32 // state: 0 for success
	_         [5]int32
}

// fakeLt defines cuBLASLt's functions. An algorithm's words are its number in
// the fake's table.
func fakeLt(def func(string, any), name []byte) {
	object := func(out *uintptr) int32 {
		current.others++
		current.next += 0x10
		*out = current.next
		return 0
	}
	gone := func(uintptr) int32 { current.others--; return 0 }
	def("cublasLtGetVersion", func() uintptr { return 130100 })
	def("cublasLtGetStatusName", func(int32) uintptr { return uintptr(unsafe.Pointer(&name[0])) })
	def("cublasLtCreate", object)
	def("cublasLtDestroy", gone)
	def("cublasLtMatmulDescCreate", func(out *uintptr, compute, scale int32) int32 {
		if r := current.log("lt desc %d %d", compute, scale); r != 0 {
			return r
		}
		return object(out)
	})
	def("cublasLtMatmulDescDestroy", gone)
	def("cublasLtMatmulDescSetAttribute", func(d uintptr, attr int32, p unsafe.Pointer, n uintptr) int32 {
		if n == 8 {
			return current.log("lt set %d = %#x", attr, *at[uint64](p, 0))
		}
		return current.log("lt set %d = %d", attr, *at[int32](p, 0))
	})
	def("cublasLtMatrixLayoutCreate", func(out *uintptr, typ int32, rows, cols uint64, ld int64) int32 {
		if r := current.log("lt layout %d %dx%d ld %d", typ, rows, cols, ld); r != 0 {
			return r
		}
		return object(out)
	})
	def("cublasLtMatrixLayoutDestroy", gone)
	def("cublasLtMatmulPreferenceCreate", object)
	def("cublasLtMatmulPreferenceDestroy", gone)
	def("cublasLtMatmulPreferenceSetAttribute", func(d uintptr, attr int32, p unsafe.Pointer, n uintptr) int32 {
		if n == 8 {
			return current.log("lt pref %d = %d", attr, *at[uint64](p, 0))
		}
		return current.log("lt pref %d = %d", attr, *at[int32](p, 0))
	})
	def("cublasLtMatmulAlgoGetHeuristic", func(h, op, a, b, c, d, pref uintptr, want int32, out unsafe.Pointer, got *int32) int32 {
		if r := current.log("lt heuristic"); r != 0 {
			return r
		}
		n := min(int(want), len(current.algos))
		*got = int32(n)
		for i := range n {
			*at[heurResult](out, i) = heurResult{algo: [8]uint64{uint64(i), 1 << 63}, workspace: current.algos[i].workspace}
		}
		return 0
	})
	def("cublasLtMatmulAlgoCheck", func(h, op, a, b, c, d uintptr, algo *[8]uint64, res *heurResult) int32 {
		if r := current.log("lt check"); r != 0 {
			return r
		}
		res.workspace = current.algos[algo[0]].workspace
		return 0
	})
	def("cublasLtMatmulAlgoConfigGetAttribute", func(algo *[8]uint64, attr int32, p unsafe.Pointer, n uintptr, got *uintptr) int32 {
		x := current.algos[algo[0]]
		v := map[int32]int32{0: x.id, 2: 1, 3: x.reduction}[attr]
		*at[int32](p, 0), *got = v, 4
		return 0
	})
	def("cublasLtMatmulAlgoCapGetAttribute", func(algo *[8]uint64, attr int32, p unsafe.Pointer, n uintptr, got *uintptr) int32 {
		*at[uint64](p, 0), *got = current.algos[algo[0]].flags, 8
		return 0
	})
	def("cublasLtMatmul", func(h, op uintptr, alpha *float32, a, ad, b, bd uintptr, beta *float32, c, cd, d, dd uintptr, algo *[8]uint64, ws, wsBytes, stream uintptr) int32 {
		return current.log("lt matmul alpha %g beta %g a %#x b %#x c %#x d %#x algo %d workspace %#x of %d stream %#x",
			*alpha, *beta, a, b, c, d, algo[0], ws, wsBytes, stream)
	})
}
