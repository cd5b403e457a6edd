package fit

// q41 is the layout of docs/schemes/q41.md.
var q41 = layout{limit: maxHalf, group: 32, high: 15, ends: ends4K, offset: true, pack: packQ41}

func packQ41(dst []byte, b *block) {
	le.PutUint16(dst, b.d)
	le.PutUint16(dst[2:], b.m)
	packNibbles(dst[4:20], b.q[:32])
}
