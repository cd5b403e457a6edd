package fit

import "github.com/nstf/nstf/formats/scheme"

// The schemes whose weights come in points of 4 of 8 magnitudes.

var (
	iq3xxsLevels = []float32{4, 12, 20, 28, 36, 44, 52, 62}
	iq3sLevels   = []float32{1, 3, 5, 7, 9, 11, 13, 15}
	iq3xxsGrid   = scheme.IQ3XXSGrid()
	iq3sGrid     = scheme.IQ3SGrid()
)

// mirrored returns levels of both signs, ascending.
func mirrored(levels []float32) []float32 {
	var out []float32
	for i := range levels {
		out = append(out, -levels[len(levels)-1-i])
	}
	return append(out, levels...)
}

// iq3xxs and iq3s are the layouts of docs/schemes/iq3xxs.md and iq3s.md.
var (
	iq3xxs = layout{limit: 31 / 4 * 62 * maxHalf, group: 32, low: -62, high: 62, table: newLevelTable(mirrored(iq3xxsLevels)),
		ends: []float32{-18, -13, -9, -6, -3, 0, 4, 8, 14}, points: newPoints(4, iq3xxsLevels, true, 1./4, iq3xxsGrid[:]), pack: packIQ3XXS}
	iq3s = layout{limit: 31 * 15 * maxHalf, group: 32, low: -15, high: 15, table: newLevelTable(mirrored(iq3sLevels)),
		ends: []float32{-4.5, -3.2, -2.2, -1.4, -0.7, 0, 1, 2, 3.5}, points: newPoints(4, iq3sLevels, false, 1, iq3sGrid[:]), pack: packIQ3S}
)

func packIQ3XXS(dst []byte, b *block) {
	le.PutUint16(dst, b.d)
	for i, at := range b.at {
		dst[2+i] = uint8(at)
	}
	for g := range 8 {
		le.PutUint32(dst[66+4*g:], b.sevens(g)|uint32(b.sc[g])<<28)
	}
}

func packIQ3S(dst []byte, b *block) {
	le.PutUint16(dst, b.d)
	clear(dst[66:74])
	for i, at := range b.at {
		dst[2+i] = uint8(at)
		dst[66+i/8] |= uint8(at>>8) << (i % 8)
	}
	copy(dst[74:106], b.signs[:])
	b.nibbles(dst[106:110])
}
