package fit

// q20 is the layout of docs/schemes/q20.md.
var q20 = layout{limit: maxHalf, group: 64, low: -1, high: 2, ends: []float32{-0.25, 0, 0.25, 0.5, 0.75, 1, 1.5, 2}, pack: packQ20}

func packQ20(dst []byte, b *block) {
	le.PutUint16(dst, b.d)
	for j := range 16 {
		q := b.q[4*j : 4*j+4]
		dst[2+j] = q[0] | q[1]<<2 | q[2]<<4 | q[3]<<6
	}
}
