package scheme

// decodeIQ3S decodes iq3_s: 110 bytes per 256 weights, an f16 scale, 64 low
// bytes of indices into the grid of 4 weights, 8 bytes of ninth index bits,
// 32 bytes of signs, and 4 bytes of 4-bit scales s, one for each 32 weights,
// low nibble first.
//
//	w = ±(d*(1+2s)) * grid
func decodeIQ3S(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 110 {
		d := half(src)
		for g := range 8 {
			db := d * float32(1+2*(src[106+(g>>1)]>>(4*(g&1))&15))
			high := int(src[66+g])
			for l := range 4 {
				i := 2 + 8*g + 2*l
				a := int(src[i]) | high>>(2*l)&1<<8
				b := int(src[i+1]) | high>>(2*l+1)&1<<8
				point := uint64(iq3sGrid[a]) | uint64(iq3sGrid[b])<<32
				signed8((*[8]float32)(dst[32*g+8*l:]), db, point, uint32(src[74+4*g+l]))
			}
		}
		dst, src = dst[256:], src[110:]
	}
}
