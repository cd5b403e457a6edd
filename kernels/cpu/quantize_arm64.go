//go:build !noasm

package cpu

// quantizeNEON computes
//
//	dst = the record of x, as quantizeGeneric makes it, bit for bit
//
// except that values of a block with a NaN or an infinity are 0.
//
//go:noescape
func quantizeNEON(dst *[512]byte, x *[256]float32)
