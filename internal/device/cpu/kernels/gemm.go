package kernels

import (
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

var blasImpl gonum.Implementation

// Every convolution is written as C = A*Bᵀ with both operands row-major along
// the summed dimension. Of gonum's four variants that one is a dot product per
// element of C. It has two merits here. It runs from registers, so it is the
// fastest by far once the summed dimension has a hundred elements or more (about
// 12 against 7 to 9 billion multiply-adds a second and core, and 4 where the
// others work on rows of 16). And it is the one that does not skip zeros of A,
// so that 0*Inf and 0*NaN come out as NaN without a special path.
//
// Rejected: a product with the untransposed weights followed by a scatter
// (col2im) for the data gradient, and a sum of outer products for the filter
// gradient; both skip zeros, and neither is faster.

const (
	gemmRows = 192 // rows of A in a call
	gemmCols = 64  // rows of B in a call
)

// gemmNT computes c = a*bᵀ (+ c if accumulate), a of m×k, b of n×k. It runs on
// the calling goroutine alone: gonum starts goroutines of its own once C has
// four blocks of 64×64, so C is cut into tiles that have three. The cut of C
// does not touch the order of any sum.
func gemmNT(m, n, k int, a []float32, lda int, b []float32, ldb int, accumulate bool, c []float32, ldc int) {
	beta := float32(0)
	if accumulate {
		beta = 1
	}
	for j := 0; j < n; j += gemmCols {
		nj := min(gemmCols, n-j)
		for i := 0; i < m; i += gemmRows {
			mi := min(gemmRows, m-i)
			blasImpl.Sgemm(blas.NoTrans, blas.Trans, mi, nj, k, 1, a[i*lda:], lda, b[j*ldb:], ldb, beta, c[i*ldc+j:], ldc)
		}
	}
}

// gemmTile is gemmNT for a C that is small enough for one call: at most
// gemmCols rows and gemmRows columns.
func gemmTile(m, n, k int, a []float32, lda int, b []float32, ldb int, accumulate bool, c []float32, ldc int) {
	beta := float32(0)
	if accumulate {
		beta = 1
	}
	blasImpl.Sgemm(blas.NoTrans, blas.Trans, m, n, k, 1, a, lda, b, ldb, beta, c, ldc)
}
