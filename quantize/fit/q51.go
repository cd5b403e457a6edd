package fit

// q51 is the layout of docs/schemes/q51.md.
var q51 = layout{limit: maxHalf, group: 32, high: 31, ends: ends5K, offset: true, pack: packQ51}

func packQ51(dst []byte, b *block) {
	le.PutUint16(dst, b.d)
	le.PutUint16(dst[2:], b.m)
	packFives(dst[4:24], &b.q)
}
