//go:build !noasm

package cpu

// matVecStrip32x1NEON computes
//
//	for n := range rows {
//		for t := range 1 {
//			y[t*ldy+n] = row w[n*ldw:] times the records a[t*512:], runs of both
//		}
//	}
//
// for rows of unpacked runs, in groups of 32 without minimums; those that follow are
// for the tokens, groups, minimums and levels of their names.
//
//go:noescape
func matVecStrip32x1NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecStrip32x2NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecStrip32x4NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecStrip32x1DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecStrip32x2DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecStrip32x4DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecStrip32Minx1NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecStrip32Minx2NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecStrip32Minx4NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecStrip32Minx1DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecStrip32Minx2DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecStrip32Minx4DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecStrip16x1NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecStrip16x2NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecStrip16x4NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecStrip16x1DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecStrip16x2DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecStrip16x4DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecStrip16Minx1NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecStrip16Minx2NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecStrip16Minx4NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecStrip16Minx1DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecStrip16Minx2DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecStrip16Minx4DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

// stripKernels are matrix-vector kernels of unpacked rows.
type stripKernels struct{ fine, fineMins, coarse, coarseMins [5]matVecKernel }

func useStrips(s *Set, k stripKernels) {
	s.product(fineGroup, false).strip, s.product(fineGroup, true).strip = k.fine, k.fineMins
	s.product(coarseGroup, false).strip, s.product(coarseGroup, true).strip = k.coarse, k.coarseMins
}

func stripsNEON() stripKernels {
	return stripKernels{
		fine:       [5]matVecKernel{1: matVecStrip16x1NEON, 2: matVecStrip16x2NEON, 4: matVecStrip16x4NEON},
		fineMins:   [5]matVecKernel{1: matVecStrip16Minx1NEON, 2: matVecStrip16Minx2NEON, 4: matVecStrip16Minx4NEON},
		coarse:     [5]matVecKernel{1: matVecStrip32x1NEON, 2: matVecStrip32x2NEON, 4: matVecStrip32x4NEON},
		coarseMins: [5]matVecKernel{1: matVecStrip32Minx1NEON, 2: matVecStrip32Minx2NEON, 4: matVecStrip32Minx4NEON},
	}
}

func stripsDotProd() stripKernels {
	return stripKernels{
		fine:       [5]matVecKernel{1: matVecStrip16x1DotProd, 2: matVecStrip16x2DotProd, 4: matVecStrip16x4DotProd},
		fineMins:   [5]matVecKernel{1: matVecStrip16Minx1DotProd, 2: matVecStrip16Minx2DotProd, 4: matVecStrip16Minx4DotProd},
		coarse:     [5]matVecKernel{1: matVecStrip32x1DotProd, 2: matVecStrip32x2DotProd, 4: matVecStrip32x4DotProd},
		coarseMins: [5]matVecKernel{1: matVecStrip32Minx1DotProd, 2: matVecStrip32Minx2DotProd, 4: matVecStrip32Minx4DotProd},
	}
}
