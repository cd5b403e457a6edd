package fit

// ends5K is ends4K for a range of 31.
var ends5K = []float32{-1, -0.5, -0.25, 0, 0.25, 0.5, 1, 1.5}

// fitQ5K packs a block of q5_k; the layout is that of docs/schemes/q5k.md.
func fitQ5K(dst []byte, x, w []float32) {
	b := fitOffset(x, w, 31, ends5K)
	b.header(dst)
	clear(dst[16:])
	high, low := dst[16:48], dst[48:176]
	var q [32]uint8
	for g := range 8 {
		b.codes(&q, x, g)
		for j, c := range q {
			low[32*(g/2)+j] |= c & 15 << (4 * (g % 2))
			high[j] |= c >> 4 << g
		}
	}
}
