package scheme

// decodeQ4K decodes q4_k: 144 bytes per 256 weights, an f16 scale of scales
// and one of minimums, 12 bytes of 6-bit scales and minimums for 8 groups of
// 32, and 128 bytes of codes: 32 bytes for each pair of groups, the first
// group in the low nibbles.
//
//	w = (d*sc)*q - dmin*m
func decodeQ4K(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 144 {
		d, dmin := half(src), half(src[2:])
		sc, mn := scaleMin6((*[12]byte)(src[4:16]))
		for p := range 4 {
			y, q := dst[64*p:64*p+64], src[16+32*p:48+32*p]
			d0, m0 := d*float32(sc[2*p]), float32(dmin*float32(mn[2*p]))
			d1, m1 := d*float32(sc[2*p+1]), float32(dmin*float32(mn[2*p+1]))
			for j, c := range q {
				y[j] = float32(d0*float32(c&15)) - m0
				y[j+32] = float32(d1*float32(c>>4)) - m1
			}
		}
		dst, src = dst[256:], src[144:]
	}
}

// scaleMin6 unpacks the 8 scales and 8 minimums of q4_k and q5_k, 6 bits
// each: bytes 0 to 3 hold scales 0 to 3 and, above them, the high two bits of
// scales 4 to 7; bytes 4 to 7 the same for minimums; bytes 8 to 11 the low
// nibbles of scales 4 to 7 and, above them, of minimums 4 to 7.
func scaleMin6(p *[12]byte) (sc, mn [8]uint8) {
	for j := range 4 {
		a, b, c := p[j], p[j+4], p[j+8]
		sc[j], mn[j] = a&63, b&63
		sc[j+4] = c&15 | a>>6<<4
		mn[j+4] = c>>4 | b>>6<<4
	}
	return sc, mn
}
