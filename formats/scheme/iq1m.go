package scheme

import "github.com/nstf/nstf/formats/tensor"

// decodeIQ1M decodes iq1_m: 56 bytes per 256 weights: 32 low bytes of grid
// indices; 16 bytes of nibbles, one for each 8 weights, low first: three high
// index bits and the sign of the shift; four words of 16 bits, each four
// 3-bit scales s of 16 weights from the low end and a nibble of the f16 scale
// d, the first word's lowest.
//
//	w = (d*(2s+1)) * (grid ± 0.125)
func decodeIQ1M(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 56 {
		var words [4]uint16
		var d16 uint16
		for i := range words {
			words[i] = le.Uint16(src[48+2*i:])
			d16 |= words[i] >> 12 << (4 * i)
		}
		d := tensor.F16ToF32(d16)
		for i := range 32 {
			s := words[i>>3] >> ((i >> 1 & 3) * 3) & 7
			dl := d * float32(2*s+1)
			high := src[32+(i>>1)] >> (4 * (i & 1))
			at := int(src[i]) | int(high&7)<<8
			shifted8((*[8]float32)(dst[8*i:]), dl, iq1sGrid[at], flip(iq1Delta, uint32(high>>3)))
		}
		dst, src = dst[256:], src[56:]
	}
}
