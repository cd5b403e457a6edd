package scheme

// decodeQ10 decodes q1_0: 18 bytes per 128 weights, an f16 scale and 16 bytes of
// signs; bit i of byte j belongs to weight 8j+i and says that it is not negative.
//
//	w = ±d
func decodeQ10(dst []float32, src []byte) {
	for len(dst) >= 128 && len(src) >= 18 {
		d := half(src)
		for j, c := range src[2:18] {
			y := (*[8]float32)(dst[8*j:])
			for i := range y {
				y[i] = flip(d, uint32(^c)>>i)
			}
		}
		dst, src = dst[128:], src[18:]
	}
}
