package fit

import "math"

// mxfp4 is the layout of docs/schemes/mxfp4.md: a scale is a power of two. Levels are 8
// times the doubled values, for a [levelTable] tells halves apart and no less.
var mxfp4 = layout{limit: 1 << 40, group: 32, low: -96, high: 96, table: fp4Table, ends: []float32{-32, -16, -8, 0, 8, 16, 32}, scale: &powers, pack: packMXFP4}

// fp4Codes are the codes of the values of E2M1, ascending; -0 is left out.
var (
	fp4Codes = []uint8{15, 14, 13, 12, 11, 10, 9, 0, 1, 2, 3, 4, 5, 6, 7}
	fp4Table = newLevelTable([]float32{-96, -64, -48, -32, -24, -16, -8, 0, 8, 16, 24, 32, 48, 64, 96})
)

// powers are an eighth of the scales 2^(e-128), e below 255.
var powers = scaleCode{
	of: func(d float32) uint16 {
		if !(d > 0) {
			return 0
		}
		_, e := math.Frexp(float64(d)) // d is at least 2^(e-1)
		return uint16(max(0, min(254, e+130)))
	},
	step:  func(h uint16, by int) uint16 { return uint16(max(0, min(254, int(h)+by))) },
	value: func(h uint16) float32 { return float32(math.Ldexp(1, int(h)-131)) },
}

func packMXFP4(dst []byte, b *block) {
	var q [32]uint8
	for j, c := range b.q[:32] {
		q[j] = fp4Codes[c]
	}
	dst[0] = uint8(b.d)
	packNibbles(dst[1:17], q[:])
}
