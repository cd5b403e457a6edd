package fit

import "github.com/nstf/nstf/formats/scheme"

// The schemes whose weights come in points of 8 of the magnitudes 8, 25 and 43.

var (
	iq2Levels = []float32{8, 25, 43}
	iq2Table  = newLevelTable(mirrored(iq2Levels))
	endsIQ2   = []float32{-21, -16, -12, -8, -4, 0, 5, 10, 16, 24}

	iq2xxsGrid = scheme.IQ2XXSGrid()
	iq2xsGrid  = scheme.IQ2XSGrid()
	iq2sGrid   = scheme.IQ2SGrid()
)

func iq2Layout(group int, even bool, grid []uint64, pack func(dst []byte, b *block)) layout {
	return layout{limit: 31 / 8 * 43 * maxHalf, group: group, low: -43, high: 43, table: iq2Table, ends: endsIQ2,
		points: newPoints(8, iq2Levels, even, 1./8, grid), pack: pack}
}

// iq2xxs, iq2xs and iq2s are the layouts of docs/schemes/iq2xxs.md, iq2xs.md and
// iq2s.md.
var (
	iq2xxs = iq2Layout(32, true, iq2xxsGrid[:], packIQ2XXS)
	iq2xs  = iq2Layout(16, true, iq2xsGrid[:], packIQ2XS)
	iq2s   = iq2Layout(16, false, iq2sGrid[:], packIQ2S)
)

func packIQ2XXS(dst []byte, b *block) {
	le.PutUint16(dst, b.d)
	for g := range 8 {
		p := dst[2+8*g : 10+8*g]
		for j := range 4 {
			p[j] = uint8(b.at[4*g+j])
		}
		le.PutUint32(p[4:], b.sevens(g)|uint32(b.sc[g])<<28)
	}
}

// sevens packs the signs of four vectors but for the last of each.
func (b *block) sevens(g int) (word uint32) {
	for j, v := range b.signs[4*g : 4*g+4] {
		word |= uint32(v&127) << (7 * j)
	}
	return word
}

func packIQ2XS(dst []byte, b *block) {
	le.PutUint16(dst, b.d)
	for i, at := range b.at[:32] {
		le.PutUint16(dst[2+2*i:], at|uint16(b.signs[i]&127)<<9)
	}
	b.nibbles(dst[66:74])
}

// nibbles packs whole scales, the first of two in the low half of a byte.
func (b *block) nibbles(dst []byte) {
	for i := range dst {
		dst[i] = uint8(b.sc[2*i]) | uint8(b.sc[2*i+1])<<4
	}
}

func packIQ2S(dst []byte, b *block) {
	le.PutUint16(dst, b.d)
	clear(dst[66:74])
	for i, at := range b.at[:32] {
		dst[2+i] = uint8(at)
		dst[34+i] = b.signs[i]
		dst[66+i/4] |= uint8(at>>8) << (2 * (i % 4))
	}
	b.nibbles(dst[74:82])
}
