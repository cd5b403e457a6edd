package cpu

import "encoding/binary"

// unpackIQ4XS unpacks a block of iq4_xs (docs/schemes/iq4xs.md): S = d*(sc-32)
// of 32 weights.
func unpackIQ4XS(u *unpacked, src []byte) {
	levels := levelsIQ4()
	d, high := f16ToFloat(binary.LittleEndian.Uint16(src)), binary.LittleEndian.Uint16(src[2:])
	for g := range 8 {
		sc := int(src[4+g>>1]>>(4*(g&1))&15) | int(high>>(2*g)&3)<<4
		u.s[g] = d * float32(sc-32)
		unpackLevels(u.codes[32*g:32*g+32], src[8+16*g:], &levels)
	}
}
