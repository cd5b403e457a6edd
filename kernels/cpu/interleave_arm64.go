//go:build !noasm

package cpu

// interleaveNEON computes
//
//	for b := range columns {
//		for c := range 16 {
//			for r := range 16 {
//				the 32-bit word dst[(16*b+c)*128+4*r:] = that of src[r*ld+64*b+4*c:]
//			}
//		}
//	}
//
//go:noescape
func interleaveNEON(dst, src []byte, ld, columns int)
