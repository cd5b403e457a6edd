package fit

// q3k is the layout of docs/schemes/q3k.md.
var q3k = layout{limit: 31 * 3 * maxHalf, group: 16, low: -4, high: 3, least: -32, most: 31, pack: packQ3K,
	ends: []float32{-0.9, -0.7, -0.5, -0.35, -0.2, -0.1, 0, 0.1, 0.2, 0.35, 0.5, 0.8}}

func packQ3K(dst []byte, b *block) {
	clear(dst[:110])
	for i, v := range b.q {
		dst[i%32] |= v >> 2 << (i / 32)
	}
	packPairs(dst[32:96], &b.q)
	for j, v := range b.sc {
		u := uint8(v + 32)
		dst[96+j%8] |= u & 15 << (4 * (j / 8))
		dst[104+j%4] |= u >> 4 << (2 * (j / 4))
	}
	le.PutUint16(dst[108:], b.d)
}
