package fit

// q50 is the layout of docs/schemes/q50.md.
var q50 = layout{limit: 16 * maxHalf, group: 32, low: -16, high: 15, ends: ends32, pack: packQ50}

func packQ50(dst []byte, b *block) {
	le.PutUint16(dst, b.d)
	packFives(dst[2:22], &b.q)
}

// packFives packs 32 codes of 5 bits: the fifth bits, then nibbles.
func packFives(dst []byte, q *[256]uint8) {
	var high uint32
	var low [32]uint8
	for j, v := range q[:32] {
		low[j] = v & 15
		high |= uint32(v>>4) << j
	}
	le.PutUint32(dst, high)
	packNibbles(dst[4:20], low[:])
}
