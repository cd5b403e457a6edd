package scheme

// decodeIQ2XS decodes iq2_xs: 74 bytes per 256 weights, an f16 scale, 32
// words of 16 bits (9 that index the grid and 7 sign bits for 8 weights), and
// 8 bytes of 4-bit scales s, one for each 16 weights, low nibble first.
//
//	w = ±((d*(0.5+s))*0.25) * grid
func decodeIQ2XS(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 74 {
		d := half(src)
		for i := range 32 {
			word := uint32(le.Uint16(src[2+2*i:]))
			s := src[66+(i>>2)] >> ((i >> 1 & 1) * 4) & 15
			db := d * (0.5 + float32(s)) * 0.25
			signed8((*[8]float32)(dst[8*i:]), db, iq2xsGrid[word&511], signs8(word>>9))
		}
		dst, src = dst[256:], src[74:]
	}
}
