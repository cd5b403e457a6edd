package scheme

// decodeQ41 decodes q4_1: 20 bytes per 32 weights, an f16 scale, an f16
// minimum and 16 bytes of codes in the order of q4_0.
//
//	w = d*q + m
func decodeQ41(dst []float32, src []byte) {
	for len(dst) >= 32 && len(src) >= 20 {
		d, m := half(src), half(src[2:])
		y, q := dst[:32], src[4:20]
		for j, c := range q {
			y[j] = float32(d*float32(c&15)) + m
			y[j+16] = float32(d*float32(c>>4)) + m
		}
		dst, src = dst[32:], src[20:]
	}
}
