//go:build !noasm

package cpu

// matVecQ3Kx1NEON computes
//
//	for n := range rows {
//		for t := range 1 {
//			y[t*ldy+n] = row w[n*ldw:] times the records a[t*512:], runs of both
//		}
//	}
//
// with runs >= 1, records at distance step; group sums are exact, then float32.
// The others differ in the number of tokens and in the instructions used.
//
//go:noescape
func matVecQ3Kx1NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecQ3Kx2NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecQ3Kx4NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecQ3Kx1DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecQ3Kx2DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecQ3Kx4DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

// unpackQ3KNEON computes
//
//	for i := range runs {
//		run i of w as 256 signed codes, float32 S and M in dst[384*i:]
//	}
//
//go:noescape
func unpackQ3KNEON(dst, w []byte, runs int)
