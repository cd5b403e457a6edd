package scheme

// decodeIQ2XXS decodes iq2_xxs: 66 bytes per 256 weights, an f16 scale, then
// for each group of 32 weights 4 bytes that index the grid and a word: 7 sign
// bits for each 8 weights and a 4-bit scale s on top.
//
//	w = ±((d*(0.5+s))*0.25) * grid
func decodeIQ2XXS(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 66 {
		d := half(src)
		for g := range 8 {
			p := src[2+8*g : 10+8*g]
			word := le.Uint32(p[4:])
			db := d * (0.5 + float32(word>>28)) * 0.25
			for l := range 4 {
				y := (*[8]float32)(dst[32*g+8*l:])
				signed8(y, db, iq2xxsGrid[p[l]], signs8(word>>(7*l)))
			}
		}
		dst, src = dst[256:], src[66:]
	}
}
