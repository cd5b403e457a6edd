package scheme

// decodeIQ4XS decodes iq4_xs: 136 bytes per 256 weights, an f16 scale, 16
// bits with the high pairs and 4 bytes with the low nibbles of 8 scales of 6
// bits, and 128 bytes of codes, each 16 bytes in the order of q4_0.
//
//	w = (d*(sc-32)) * level[q]
func decodeIQ4XS(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 136 {
		d, high := half(src), int(le.Uint16(src[2:]))
		for g := range 8 {
			sc := int(src[4+(g>>1)]>>(4*(g&1))&15) | high>>(2*g)&3<<4
			dl := d * float32(sc-32)
			levels16((*[32]float32)(dst[32*g:]), dl, (*[16]byte)(src[8+16*g:]), &iq4Values)
		}
		dst, src = dst[256:], src[136:]
	}
}
