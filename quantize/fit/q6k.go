package fit

// q6k is the layout of docs/schemes/q6k.md.
var q6k = layout{limit: 127 * 31 * maxHalf, group: 16, low: -32, high: 31, least: -128, most: 127, pack: packQ6K,
	ends: []float32{-1, -0.5, 0, 0.5, 1}}

func packQ6K(dst []byte, b *block) {
	for h := range 2 {
		half := b.q[128*h : 128*h+128]
		for j := range 32 {
			q0, q1, q2, q3 := half[j], half[32+j], half[64+j], half[96+j]
			dst[64*h+j] = q0&15 | q2&15<<4
			dst[64*h+32+j] = q1&15 | q3&15<<4
			dst[128+32*h+j] = q0>>4 | q1>>4<<2 | q2>>4<<4 | q3>>4<<6
		}
	}
	for g, v := range b.sc {
		dst[192+g] = uint8(v)
	}
	le.PutUint16(dst[208:], b.d)
}
