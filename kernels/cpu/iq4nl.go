package cpu

import "encoding/binary"

// levelsIQ4 returns the 16 levels of iq4_nl and iq4_xs (docs/schemes/iq4nl.md),
// plus 128.
func levelsIQ4() [16]uint8 {
	return [16]uint8{1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241}
}

// unpackIQ4NL unpacks eight blocks of iq4_nl: S = d.
func unpackIQ4NL(u *unpacked, src []byte) {
	levels := levelsIQ4()
	for g := range 8 {
		b := src[18*g : 18*g+18]
		u.s[g] = f16ToFloat(binary.LittleEndian.Uint16(b))
		unpackLevels(u.codes[32*g:32*g+32], b[2:], &levels)
	}
}

// unpackLevels looks up 32 nibbles, the low ones of 16 bytes first.
func unpackLevels(codes, q []byte, levels *[16]uint8) {
	for j := range 16 {
		codes[j], codes[j+16] = levels[q[j]&15], levels[q[j]>>4]
	}
}
