package scheme

// decodeQ80 decodes q8_0: 34 bytes per 32 weights, an f16 scale and 32 signed
// bytes.
//
//	w = d * q
func decodeQ80(dst []float32, src []byte) {
	for len(dst) >= 32 && len(src) >= 34 {
		d := half(src)
		y, q := dst[:32], src[2:34]
		for j := range y {
			y[j] = d * float32(int8(q[j]))
		}
		dst, src = dst[32:], src[34:]
	}
}
