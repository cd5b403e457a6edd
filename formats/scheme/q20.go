package scheme

// decodeQ20 decodes q2_0: 18 bytes per 64 weights, an f16 scale and 16 bytes of
// codes; byte j holds weights 4j to 4j+3, the first in its lowest 2 bits.
//
//	w = d * (q - 1)
func decodeQ20(dst []float32, src []byte) {
	for len(dst) >= 64 && len(src) >= 18 {
		d := half(src)
		for j, c := range src[2:18] {
			y := (*[4]float32)(dst[4*j:])
			for i := range y {
				y[i] = d * float32(int(c>>(2*i)&3)-1)
			}
		}
		dst, src = dst[64:], src[18:]
	}
}
