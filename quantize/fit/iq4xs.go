package fit

// iq4xs is the layout of docs/schemes/iq4xs.md.
var iq4xs = layout{limit: 31 * 113 * maxHalf, group: 32, low: -127, high: 113, table: iq4Table, ends: endsIQ4,
	least: -32, most: 31, pack: packIQ4XS}

func packIQ4XS(dst []byte, b *block) {
	le.PutUint16(dst, b.d)
	var high uint16
	clear(dst[4:8])
	for g, v := range b.sc[:8] {
		u := uint8(v + 32)
		high |= uint16(u>>4) << (2 * g)
		dst[4+g/2] |= u & 15 << (4 * (g % 2))
		packNibbles(dst[8+16*g:24+16*g], b.q[32*g:32*g+32])
	}
	le.PutUint16(dst[2:], high)
}
