//go:build !noasm

package cpu

func panelNEON() panelKernels {
	p := genericPanel()
	p.f32 = []panelKernel[[]float32]{{6, panelF32x6NEON}, {4, panelF32x4NEON}, {2, panelF32x2NEON}, {1, panelF32x1NEON}}
	p.f16 = []panelKernel[[]byte]{{6, panelF16x6NEON}, {4, panelF16x4NEON}, {2, panelF16x2NEON}, {1, panelF16x1NEON}}
	p.q8 = []panelKernel[[]byte]{{6, panelQ8x6NEON}, {4, panelQ8x4NEON}, {2, panelQ8x2NEON}, {1, panelQ8x1NEON}}
	p.scatterF16 = scatterF16NEON
	p.scatterQ8 = scatterQ8NEON
	p.maxBits = maxBitsNEON
	p.expPart, p.expPages = expPartNEON, expPagesBy(expPartNEON)
	return p
}

// expPartNEON is expPartGeneric, in three passes over what lies in L1.
func expPartNEON(x []float32, scale, top float32) (newTop, sum float32) {
	if len(x) == 0 {
		return top, 0
	}
	scaleNEON(x, scale)
	if m := maximumNEON(x); m > top {
		top = m
	}
	return top, expSumNEON(x, top)
}

// scatterF16NEON computes
//
//	for i, f := range src {
//		dst[2*i*ld:] = f rounded to half precision
//	}
//
//go:noescape
func scatterF16NEON(dst []byte, ld int, src []float32)

// scatterQ8NEON computes
//
//	for i, f := range src {
//		dst[i*ld] = f * inverse rounded to the nearest byte, ties to even
//	}
//
//go:noescape
func scatterQ8NEON(dst []byte, ld int, src []float32, inverse float32)

// maxBitsNEON returns the bits of the largest magnitude in x, 0 of none.
//
//go:noescape
func maxBitsNEON(x []float32) uint32

// panelF32x6NEON computes
//
//	for i := range 6 {
//		for j := range n {
//			s := 0, or c[i*ldc+j] where add is set
//			for p := range k {
//				s += a[i*lda+p] * b[p*ldb+j]
//			}
//			c[i*ldc+j] = s
//		}
//	}
//
// fused, p ascending. n is a multiple of 16; strides count elements. The others
// differ in rows and in what b is.
//
//go:noescape
func panelF32x6NEON(c []float32, ldc int, a []float32, lda int, b []float32, ldb, n, k int, add bool)

//go:noescape
func panelF32x4NEON(c []float32, ldc int, a []float32, lda int, b []float32, ldb, n, k int, add bool)

//go:noescape
func panelF32x2NEON(c []float32, ldc int, a []float32, lda int, b []float32, ldb, n, k int, add bool)

//go:noescape
func panelF32x1NEON(c []float32, ldc int, a []float32, lda int, b []float32, ldb, n, k int, add bool)

//go:noescape
func panelF16x6NEON(c []float32, ldc int, a []float32, lda int, b []byte, ldb, n, k int, add bool)

//go:noescape
func panelF16x4NEON(c []float32, ldc int, a []float32, lda int, b []byte, ldb, n, k int, add bool)

//go:noescape
func panelF16x2NEON(c []float32, ldc int, a []float32, lda int, b []byte, ldb, n, k int, add bool)

//go:noescape
func panelF16x1NEON(c []float32, ldc int, a []float32, lda int, b []byte, ldb, n, k int, add bool)

//go:noescape
func panelQ8x6NEON(c []float32, ldc int, a []float32, lda int, b []byte, ldb, n, k int, add bool)

//go:noescape
func panelQ8x4NEON(c []float32, ldc int, a []float32, lda int, b []byte, ldb, n, k int, add bool)

//go:noescape
func panelQ8x2NEON(c []float32, ldc int, a []float32, lda int, b []byte, ldb, n, k int, add bool)

//go:noescape
func panelQ8x1NEON(c []float32, ldc int, a []float32, lda int, b []byte, ldb, n, k int, add bool)
