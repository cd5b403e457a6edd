//go:build !noasm

package cpu

// quantizeNEON computes
//
//	dst = the record of x, as quantizeGeneric makes it, bit for bit
//
//go:noescape
func quantizeNEON(dst *[512]byte, x *[256]float32)

// quantizeFineNEON computes
//
//	dst = the record of x, as quantizeFineGeneric makes it, bit for bit
//
//go:noescape
func quantizeFineNEON(dst *[512]byte, x *[256]float32)
