package fit

import "github.com/nstf/nstf/formats/tensor"

// q10 is the layout of docs/schemes/q10.md: the best scale of signs is the mean
// magnitude, whatever the largest weight is sent to first. Levels are 64 times the
// signs, for a [levelTable] tells halves apart and no less.
var q10 = layout{limit: maxHalf, group: 128, low: -64, high: 64, table: newLevelTable([]float32{-64, 64}), ends: []float32{0}, scale: &sixtyFourths, pack: packQ10}

var sixtyFourths = scaleCode{
	of:    func(d float32) uint16 { return tensor.F32ToF16(64 * d) },
	step:  stepHalf,
	value: func(h uint16) float32 { return finite(h) / 64 },
}

func packQ10(dst []byte, b *block) {
	le.PutUint16(dst, b.d)
	clear(dst[2:18])
	for j, q := range b.q[:128] {
		dst[2+j/8] |= q << (j % 8)
	}
}
