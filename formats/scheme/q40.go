package scheme

// decodeQ40 decodes q4_0: 18 bytes per 32 weights, an f16 scale and 16 bytes
// of codes; byte j holds weight j in its low nibble and weight j+16 above.
//
//	w = d * (q - 8)
func decodeQ40(dst []float32, src []byte) {
	for len(dst) >= 32 && len(src) >= 18 {
		d := half(src)
		y, q := dst[:32], src[2:18]
		for j, c := range q {
			y[j] = d * float32(int(c&15)-8)
			y[j+16] = d * float32(int(c>>4)-8)
		}
		dst, src = dst[32:], src[18:]
	}
}
