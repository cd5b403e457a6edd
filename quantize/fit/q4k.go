package fit

// ends4K are the ends (see [layout]) of ranges of 16 levels.
var ends4K = []float32{-1.5, -1, -0.7, -0.4, -0.2, 0, 0.2, 0.4, 0.7, 1, 1.5, 2}

// q4k is the layout of docs/schemes/q4k.md.
var q4k = layout{limit: 63 * maxHalf, group: 32, high: 15, most: 63, offset: true, ends: ends4K, pack: packQ4K}

func packQ4K(dst []byte, b *block) {
	packSixes(dst, b)
	for p := range 4 {
		low, high := b.q[64*p:64*p+32], b.q[64*p+32:64*p+64]
		for j, v := range low {
			dst[16+32*p+j] = v | high[j]<<4
		}
	}
}

// packSixes packs the two scales and the 12 bytes of 6-bit numbers.
func packSixes(dst []byte, b *block) {
	le.PutUint16(dst, b.d)
	le.PutUint16(dst[2:], b.m)
	p := dst[4:16]
	for j := range 4 {
		s, m := uint8(b.sc[j+4]), uint8(b.mn[j+4])
		p[j] = uint8(b.sc[j]) | s>>4<<6
		p[j+4] = uint8(b.mn[j]) | m>>4<<6
		p[j+8] = s&15 | m<<4
	}
}
