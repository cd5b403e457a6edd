package fit

// q2k is the layout of docs/schemes/q2k.md.
var q2k = layout{limit: 15 * maxHalf, group: 16, high: 3, most: 15, offset: true, pack: packQ2K,
	ends:   []float32{-0.9, -0.7, -0.5, -0.4, -0.3, -0.2, -0.1, 0, 0.1, 0.2, 0.3, 0.5},
	starts: []float32{15, 14, 16.5}}

func packQ2K(dst []byte, b *block) {
	for g := range 16 {
		dst[g] = uint8(b.sc[g]) | uint8(b.mn[g])<<4
	}
	packPairs(dst[16:80], &b.q)
	le.PutUint16(dst[80:], b.d)
	le.PutUint16(dst[82:], b.m)
}

// packPairs packs the low two bits of 256 codes: weight 32*s+j of each half has
// bits 2*s of byte j.
func packPairs(dst []byte, q *[256]uint8) {
	for h := range 2 {
		half := q[128*h : 128*h+128]
		for j := range 32 {
			dst[32*h+j] = half[j]&3 | half[32+j]&3<<2 | half[64+j]&3<<4 | half[96+j]&3<<6
		}
	}
}
