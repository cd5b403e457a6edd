//go:build !noasm

package cpu

// useTCQ gives a set the products of trellis codes of its level.
func useTCQ(s *Set, l Level) {
	kernels := [...]tcqKernel{tcqProduct2NEON, tcqProduct3NEON, tcqProduct4NEON, tcqProduct5NEON, tcqProduct6NEON}
	if l >= LevelDotProd {
		kernels = [...]tcqKernel{tcqProduct2DotProd, tcqProduct3DotProd, tcqProduct4DotProd, tcqProduct5DotProd, tcqProduct6DotProd}
	}
	s.tcq = func(bits int) tcqKernel { return kernels[bits-2] }
}

// tcqProduct2NEON computes
//
//	acc[r] += d[g] * (sum over c of code[r][c] * q[c])
//
// for groups of 32 columns of two tiles each, codewords being the sums of the bytes of
// state * factor. It reads 12 bytes behind the last tile at most.
//
//go:noescape
func tcqProduct2NEON(acc *[16]float32, tiles *byte, record *byte, groups int, factor uint32)

// tcqProduct3NEON is tcqProduct2NEON at 3 bits.
//
//go:noescape
func tcqProduct3NEON(acc *[16]float32, tiles *byte, record *byte, groups int, factor uint32)

// tcqProduct4NEON is tcqProduct2NEON at 4 bits.
//
//go:noescape
func tcqProduct4NEON(acc *[16]float32, tiles *byte, record *byte, groups int, factor uint32)

// tcqProduct5NEON is tcqProduct2NEON at 5 bits.
//
//go:noescape
func tcqProduct5NEON(acc *[16]float32, tiles *byte, record *byte, groups int, factor uint32)

// tcqProduct6NEON is tcqProduct2NEON at 6 bits.
//
//go:noescape
func tcqProduct6NEON(acc *[16]float32, tiles *byte, record *byte, groups int, factor uint32)

// tcqProduct2DotProd is tcqProduct2NEON at 2 bits with dot products.
//
//go:noescape
func tcqProduct2DotProd(acc *[16]float32, tiles *byte, record *byte, groups int, factor uint32)

// tcqProduct3DotProd is tcqProduct2NEON at 3 bits with dot products.
//
//go:noescape
func tcqProduct3DotProd(acc *[16]float32, tiles *byte, record *byte, groups int, factor uint32)

// tcqProduct4DotProd is tcqProduct2NEON at 4 bits with dot products.
//
//go:noescape
func tcqProduct4DotProd(acc *[16]float32, tiles *byte, record *byte, groups int, factor uint32)

// tcqProduct5DotProd is tcqProduct2NEON at 5 bits with dot products.
//
//go:noescape
func tcqProduct5DotProd(acc *[16]float32, tiles *byte, record *byte, groups int, factor uint32)

// tcqProduct6DotProd is tcqProduct2NEON at 6 bits with dot products.
//
//go:noescape
func tcqProduct6DotProd(acc *[16]float32, tiles *byte, record *byte, groups int, factor uint32)
