package scheme

// decodeQ3K decodes q3_k: 110 bytes per 256 weights: 32 bytes of high bits,
// 64 bytes of low bit pairs, 12 bytes of 6-bit scales for 16 groups of 16,
// and an f16 scale of scales.
//
// Pairs lie as in q2_k; bit 4*h+s of high byte j belongs to weight 32*s+j of
// half h. A high bit that is missing subtracts 4.
//
//	w = (d*(sc-32)) * (q - 4 + 4*high)
func decodeQ3K(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 110 {
		d := half(src[108:])
		sc := scale6((*[12]byte)(src[96:108]))
		for g := range 16 {
			dl := d * float32(int(sc[g])-32)
			at := 32 + 32*(g>>3) + 16*(g&1)
			q, h, y := src[at:at+16], src[16*(g&1):16*(g&1)+16], dst[16*g:16*g+16]
			shift, bit := (g>>1&3)*2, g>>1
			for j := range y {
				y[j] = dl * float32(int(q[j]>>shift&3)+int(h[j]>>bit&1)<<2-4)
			}
		}
		dst, src = dst[256:], src[110:]
	}
}

// scale6 unpacks the 16 scales of q3_k, 6 bits each: the low nibbles of bytes
// 0 to 7 are the low bits of scales 0 to 7, their high nibbles those of
// scales 8 to 15; bits 2*(j/4) of byte 8+j%4 are the high pair of scale j.
func scale6(p *[12]byte) (sc [16]uint8) {
	for j := range sc {
		sc[j] = p[j&7]>>(4*(j>>3))&15 | p[8+(j&3)]>>(2*(j>>2))&3<<4
	}
	return sc
}
