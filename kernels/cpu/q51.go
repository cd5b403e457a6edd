package cpu

import "encoding/binary"

// unpackQ51 unpacks eight blocks of q5_1 (docs/schemes/q51.md): S = d, M = -m.
func unpackQ51(u *unpacked, src []byte) {
	for g := range 8 {
		b := src[24*g : 24*g+24]
		u.s[g] = f16ToFloat(binary.LittleEndian.Uint16(b))
		u.m[g] = -f16ToFloat(binary.LittleEndian.Uint16(b[2:]))
		codes := u.codes[32*g : 32*g+32]
		unpackNibbles(codes, b[8:], 0)
		addFifth(codes, binary.LittleEndian.Uint32(b[4:]))
	}
}
