//go:build !noasm

package cpu

func gemmNEON() gemmKernel {
	return gemmKernel{least: 4, mr: 8, nr: 8, tile: gemmTileNEON, pack: packNEON}
}

// gemmTileNEON computes
//
//	for i := range m {
//		for j := range 8 {
//			s := sum over k < kc of a[i*lda+k] * w[k*8+j], k ascending
//			c[i*ldc+j] = s, or += s where add is set
//		}
//	}
//
// for 4 <= m <= 8 and kc >= 0; strides count elements.
func gemmTileNEON(m int, a []float32, lda int, w []float32, kc int, c []float32, ldc int, add bool) {
	switch m {
	case 4:
		gemmTile4NEON(a, lda, w, kc, c, ldc, add)
	case 5:
		gemmTile5NEON(a, lda, w, kc, c, ldc, add)
	case 6:
		gemmTile6NEON(a, lda, w, kc, c, ldc, add)
	case 7:
		gemmTile7NEON(a, lda, w, kc, c, ldc, add)
	default:
		gemmTile8NEON(a, lda, w, kc, c, ldc, add)
	}
}

// packNEON transposes in blocks of four features and finishes with plain Go.
func packNEON(dst []float32, nr int, src []float32, k0 int) {
	pack4NEON(dst, nr, src, k0)
	packRest(dst, nr, src, k0, k0&^3)
}

// gemmTile4NEON is gemmTileNEON for m = 4; the others alike.
//
//go:noescape
func gemmTile4NEON(a []float32, lda int, w []float32, kc int, c []float32, ldc int, add bool)

//go:noescape
func gemmTile5NEON(a []float32, lda int, w []float32, kc int, c []float32, ldc int, add bool)

//go:noescape
func gemmTile6NEON(a []float32, lda int, w []float32, kc int, c []float32, ldc int, add bool)

//go:noescape
func gemmTile7NEON(a []float32, lda int, w []float32, kc int, c []float32, ldc int, add bool)

//go:noescape
func gemmTile8NEON(a []float32, lda int, w []float32, kc int, c []float32, ldc int, add bool)

// pack4NEON computes
//
//	for k := range k0 - k0%4 {
//		for j := range 8 {
//			dst[k*nr+j] = src[j*k0+k]
//		}
//	}
//
//go:noescape
func pack4NEON(dst []float32, nr int, src []float32, k0 int)
