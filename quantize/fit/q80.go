package fit

// q80 is the layout of docs/schemes/q80.md. The code -128 is not used, so that
// kernels may negate codes.
var q80 = layout{limit: 127 * maxHalf, group: 32, low: -127, high: 127, ends: []float32{-0.25, 0, 0.25}, pack: packQ80}

func packQ80(dst []byte, b *block) {
	le.PutUint16(dst, b.d)
	for j, v := range b.q[:32] {
		dst[2+j] = v - 127
	}
}
