package scheme

// decodeIQ3XXS decodes iq3_xxs: 98 bytes per 256 weights, an f16 scale, 64
// bytes that index the grid of 4 weights, and for each 32 weights a word: 7
// sign bits for each 8 weights and a 4-bit scale s on top.
//
//	w = ±((d*(0.5+s))*0.5) * grid
func decodeIQ3XXS(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 98 {
		d := half(src)
		for g := range 8 {
			word := le.Uint32(src[66+4*g:])
			db := d * (0.5 + float32(word>>28)) * 0.5
			for l := range 4 {
				i := 2 + 8*g + 2*l
				point := uint64(iq3xxsGrid[src[i]]) | uint64(iq3xxsGrid[src[i+1]])<<32
				signed8((*[8]float32)(dst[32*g+8*l:]), db, point, signs8(word>>(7*l)))
			}
		}
		dst, src = dst[256:], src[98:]
	}
}
