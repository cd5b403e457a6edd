package fit

// ends5K are the ends (see [layout]) of ranges of 32 levels.
var ends5K = []float32{-1, -0.5, -0.25, 0, 0.25, 0.5, 1, 1.5}

// q5k is the layout of docs/schemes/q5k.md.
var q5k = layout{limit: 63 * maxHalf, group: 32, high: 31, most: 63, offset: true, ends: ends5K, pack: packQ5K}

func packQ5K(dst []byte, b *block) {
	packSixes(dst, b)
	clear(dst[16:48])
	for g := range 8 {
		for j, v := range b.q[32*g : 32*g+32] {
			dst[16+j] |= v >> 4 << g
		}
	}
	for p := range 4 {
		low, high := b.q[64*p:64*p+32], b.q[64*p+32:64*p+64]
		for j, v := range low {
			dst[48+32*p+j] = v&15 | high[j]&15<<4
		}
	}
}
