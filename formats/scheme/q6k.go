package scheme

// decodeQ6K decodes q6_k: 210 bytes per 256 weights: 128 bytes of low
// nibbles, 64 bytes of high bit pairs, 16 signed scales of 16 weights each,
// and an f16 scale of scales.
//
// Each half of 128 weights takes 64 bytes of nibbles and 32 of pairs: weight
// 32*s+j of it has its nibble in byte 32*(s&1)+j, low for s < 2, and its pair
// in bits 2*s of byte j.
//
//	w = (d*sc) * (q - 32)
func decodeQ6K(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 210 {
		d := half(src[208:])
		sc := (*[16]byte)(src[192:208])
		for h := range 2 {
			y := dst[128*h : 128*h+128]
			ql, qh := src[64*h:64*h+64], src[128+32*h:160+32*h]
			for g := range 2 {
				s := sc[8*h+g:]
				d0, d1 := d*float32(int8(s[0])), d*float32(int8(s[2]))
				d2, d3 := d*float32(int8(s[4])), d*float32(int8(s[6]))
				for j := 16 * g; j < 16*g+16; j++ {
					a, b, c := ql[j], ql[j+32], qh[j]
					y[j] = d0 * float32(int(a&15|c<<4&48)-32)
					y[j+32] = d1 * float32(int(b&15|c<<2&48)-32)
					y[j+64] = d2 * float32(int(a>>4|c&48)-32)
					y[j+96] = d3 * float32(int(b>>4|c>>2&48)-32)
				}
			}
		}
		dst, src = dst[256:], src[210:]
	}
}
