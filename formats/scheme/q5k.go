package scheme

// decodeQ5K decodes q5_k: 176 bytes per 256 weights, an f16 scale of scales
// and one of minimums, 12 bytes of scales and minimums as in q4_k, 32 bytes of
// fifth bits and 128 bytes of low nibbles as in q4_k. Bit g of high byte j
// belongs to weight j of group g.
//
//	w = (d*sc)*q - dmin*m
func decodeQ5K(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 176 {
		d, dmin := half(src), half(src[2:])
		sc, mn := scaleMin6((*[12]byte)(src[4:16]))
		high := src[16:48]
		for p := range 4 {
			y, q := dst[64*p:64*p+64], src[48+32*p:80+32*p]
			d0, m0 := d*float32(sc[2*p]), float32(dmin*float32(mn[2*p]))
			d1, m1 := d*float32(sc[2*p+1]), float32(dmin*float32(mn[2*p+1]))
			for j, c := range q {
				h := high[j] >> (2 * p)
				y[j] = float32(d0*float32(c&15|h&1<<4)) - m0
				y[j+32] = float32(d1*float32(c>>4|h>>1&1<<4)) - m1
			}
		}
		dst, src = dst[256:], src[176:]
	}
}
