package fit

// ends32 are the ends (see [layout]) of groups of 32 with 4 or 5 bits.
var ends32 = []float32{-1, -0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75, 1, 1.5, 2}

// q40 is the layout of docs/schemes/q40.md.
var q40 = layout{limit: 8 * maxHalf, group: 32, low: -8, high: 7, ends: ends32, pack: packQ40}

func packQ40(dst []byte, b *block) {
	le.PutUint16(dst, b.d)
	packNibbles(dst[2:18], b.q[:32])
}

// packNibbles puts code j below and code j+16 above into byte j.
func packNibbles(dst []byte, q []uint8) {
	low, high := q[:16], q[16:32]
	for j, v := range low {
		dst[j] = v | high[j]<<4
	}
}
