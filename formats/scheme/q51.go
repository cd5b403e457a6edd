package scheme

// decodeQ51 decodes q5_1: 24 bytes per 32 weights, an f16 scale, an f16
// minimum, 4 bytes of fifth bits and 16 bytes of low nibbles as in q5_0.
//
//	w = d*q + m
func decodeQ51(dst []float32, src []byte) {
	for len(dst) >= 32 && len(src) >= 24 {
		d, m, h := half(src), half(src[2:]), le.Uint32(src[4:])
		y, q := dst[:32], src[8:24]
		for j, c := range q {
			y[j] = float32(d*float32(int(c&15)|int(h>>j&1)<<4)) + m
			y[j+16] = float32(d*float32(int(c>>4)|int(h>>(j+16)&1)<<4)) + m
		}
		dst, src = dst[32:], src[24:]
	}
}
