package scheme

// decodeIQ2S decodes iq2_s: 82 bytes per 256 weights, an f16 scale, 32 low
// bytes of grid indices, 32 bytes of signs, 8 bytes of high index bits (two
// for each 8 weights, low bits first), and 8 bytes of 4-bit scales s, one for
// each 16 weights, low nibble first.
//
//	w = ±((d*(0.5+s))*0.25) * grid
func decodeIQ2S(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 82 {
		d := half(src)
		for i := range 32 {
			at := int(src[2+i]) | int(src[66+(i>>2)]>>(2*(i&3))&3)<<8
			s := src[74+(i>>2)] >> ((i >> 1 & 1) * 4) & 15
			db := d * (0.5 + float32(s)) * 0.25
			signed8((*[8]float32)(dst[8*i:]), db, iq2sGrid[at], uint32(src[34+i]))
		}
		dst, src = dst[256:], src[82:]
	}
}
