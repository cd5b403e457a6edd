package scheme

// decodeQ50 decodes q5_0: 22 bytes per 32 weights, an f16 scale, 4 bytes
// whose bit j is the fifth bit of weight j, and 16 bytes of low nibbles in
// the order of q4_0.
//
//	w = d * (q - 16)
func decodeQ50(dst []float32, src []byte) {
	for len(dst) >= 32 && len(src) >= 22 {
		d, h := half(src), le.Uint32(src[2:])
		y, q := dst[:32], src[6:22]
		for j, c := range q {
			y[j] = d * float32(int(c&15)|int(h>>j&1)<<4-16)
			y[j+16] = d * float32(int(c>>4)|int(h>>(j+16)&1)<<4-16)
		}
		dst, src = dst[32:], src[22:]
	}
}
