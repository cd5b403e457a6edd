//go:build !noasm

package cpu

// matVecQ10x1NEON computes
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
func matVecQ10x1NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecQ10x2NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecQ10x4NEON(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecQ10x1DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecQ10x2DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

//go:noescape
func matVecQ10x4DotProd(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

// unpackQ10NEON computes
//
//	for i := range runs {
//		run i of w as 256 signed codes, float32 S and M in dst[384*i:]
//	}
//
//go:noescape
func unpackQ10NEON(dst, w []byte, runs int)
