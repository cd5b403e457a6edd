package cpu

import "math"

// levelsMXFP4 returns the 16 values of mxfp4 (docs/schemes/mxfp4.md) doubled,
// plus 128.
func levelsMXFP4() [16]uint8 {
	return [16]uint8{128, 129, 130, 131, 132, 134, 136, 140, 128, 127, 126, 125, 124, 122, 120, 116}
}

// unpackMXFP4 unpacks eight blocks of mxfp4: S = 2^(e-128).
func unpackMXFP4(u *unpacked, src []byte) {
	levels := levelsMXFP4()
	for g := range 8 {
		b := src[17*g : 17*g+17]
		bits := uint32(0x200000) << b[0]
		if b[0] >= 2 {
			bits = uint32(b[0]-1) << 23
		}
		u.s[g] = math.Float32frombits(bits)
		unpackLevels(u.codes[32*g:32*g+32], b[1:], &levels)
	}
}
