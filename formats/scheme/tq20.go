package scheme

// decodeTQ20 decodes tq2_0: 66 bytes per 256 weights, 64 bytes of 2-bit codes
// that lie as in q2_k, and an f16 scale. Code 3 is never written but decodes.
//
//	w = d * (q - 1)
func decodeTQ20(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 66 {
		d := half(src[64:])
		values := [4]float32{d * -1, d * 0, d * 1, d * 2}
		for g := range 8 {
			y, q := dst[32*g:32*g+32], src[32*(g>>2):32*(g>>2)+32]
			for j := range y {
				y[j] = values[q[j]>>(2*(g&3))&3]
			}
		}
		dst, src = dst[256:], src[66:]
	}
}
