//go:build !noasm

package cpu

// tile32DotProd and the others by name are tileKernels: for groups of 32 or 16
// weights, with minimums or without. Codes are signed and stand for themselves
// times S, less M where there are minimums.

func tile32DotProd(m int, a, panel []byte, c []float32, ldc int, add bool) {
	[...]tileKernel{1: tile32x1DotProd, 2: tile32x2DotProd, 3: tile32x3DotProd,
		4: tile32x4DotProd, 5: tile32x5DotProd, 6: tile32x6DotProd}[m](m, a, panel, c, ldc, add)
}

func tile32MinDotProd(m int, a, panel []byte, c []float32, ldc int, add bool) {
	[...]tileKernel{1: tile32Minx1DotProd, 2: tile32Minx2DotProd, 3: tile32Minx3DotProd,
		4: tile32Minx4DotProd, 5: tile32Minx5DotProd, 6: tile32Minx6DotProd}[m](m, a, panel, c, ldc, add)
}

func tile16DotProd(m int, a, panel []byte, c []float32, ldc int, add bool) {
	[...]tileKernel{1: tile16x1DotProd, 2: tile16x2DotProd, 3: tile16x3DotProd,
		4: tile16x4DotProd, 5: tile16x5DotProd, 6: tile16x6DotProd}[m](m, a, panel, c, ldc, add)
}

func tile16MinDotProd(m int, a, panel []byte, c []float32, ldc int, add bool) {
	[...]tileKernel{1: tile16Minx1DotProd, 2: tile16Minx2DotProd, 3: tile16Minx3DotProd,
		4: tile16Minx4DotProd, 5: tile16Minx5DotProd, 6: tile16Minx6DotProd}[m](m, a, panel, c, ldc, add)
}

// tile32x1DotProd computes, for m = 1 and as those that follow for theirs,
//
//	for i := range m {
//		for j := range 32 {
//			for each group of 32 weights of row j:
//				c += S * (d * sum of codes*q)
//		}
//	}
//
// with c = c[i*ldc+j], begun at 0 where add is not set.
//
//go:noescape
func tile32x1DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)

//go:noescape
func tile32x2DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)

//go:noescape
func tile32x3DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)

//go:noescape
func tile32x4DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)

//go:noescape
func tile32x5DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)

//go:noescape
func tile32x6DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)

// tile32Minx1DotProd computes, for m = 1 and as those that follow for theirs,
//
//	for i := range m {
//		for j := range 32 {
//			for each group of 32 weights of row j:
//				c += S * (d * sum of codes*q) - M * (d * sum of q)
//		}
//	}
//
// with c = c[i*ldc+j], begun at 0 where add is not set.
//
//go:noescape
func tile32Minx1DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)

//go:noescape
func tile32Minx2DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)

//go:noescape
func tile32Minx3DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)

//go:noescape
func tile32Minx4DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)

//go:noescape
func tile32Minx5DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)

//go:noescape
func tile32Minx6DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)

// tile16x1DotProd computes, for m = 1 and as those that follow for theirs,
//
//	for i := range m {
//		for j := range 32 {
//			for each group of 16 weights of row j:
//				c += S * (d * sum of codes*q)
//		}
//	}
//
// with c = c[i*ldc+j], begun at 0 where add is not set.
//
//go:noescape
func tile16x1DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)

//go:noescape
func tile16x2DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)

//go:noescape
func tile16x3DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)

//go:noescape
func tile16x4DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)

//go:noescape
func tile16x5DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)

//go:noescape
func tile16x6DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)

// tile16Minx1DotProd computes, for m = 1 and as those that follow for theirs,
//
//	for i := range m {
//		for j := range 32 {
//			for each group of 16 weights of row j:
//				c += S * (d * sum of codes*q) - M * (d * sum of q)
//		}
//	}
//
// with c = c[i*ldc+j], begun at 0 where add is not set.
//
//go:noescape
func tile16Minx1DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)

//go:noescape
func tile16Minx2DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)

//go:noescape
func tile16Minx3DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)

//go:noescape
func tile16Minx4DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)

//go:noescape
func tile16Minx5DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)

//go:noescape
func tile16Minx6DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)
