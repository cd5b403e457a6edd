package scheme

// decodeQ2K decodes q2_k: 84 bytes per 256 weights: 16 bytes, each the 4-bit
// scale (low) and minimum (high) of 16 weights; 64 bytes of 2-bit codes; an
// f16 scale of scales and one of minimums.
//
// Each half of 128 weights takes 32 bytes of codes: weight 32*s+j of it has
// bits 2*s of byte j.
//
//	w = (d*sc)*q - dmin*m
func decodeQ2K(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 84 {
		d, dmin := half(src[80:]), half(src[82:])
		for g := range 16 { // group g: half g/8, shift g/2%4, bytes 16*(g%2) on
			c := src[g]
			dl, ml := float32(d*float32(c&15)), float32(dmin*float32(c>>4))
			values := [4]float32{float32(dl*0) - ml, dl - ml, float32(dl*2) - ml, float32(dl*3) - ml}
			at := 16 + 32*(g>>3) + 16*(g&1)
			q, y := src[at:at+16], dst[16*g:16*g+16]
			shift := (g >> 1 & 3) * 2
			for j := range y {
				y[j] = values[q[j]>>shift&3]
			}
		}
		dst, src = dst[256:], src[84:]
	}
}
