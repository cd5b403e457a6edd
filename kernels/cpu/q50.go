package cpu

import "encoding/binary"

// unpackQ50 unpacks eight blocks of q5_0 (docs/schemes/q50.md): S = d, and the
// code q stands for q-16.
func unpackQ50(u *unpacked, src []byte) {
	for g := range 8 {
		b := src[22*g : 22*g+22]
		u.s[g] = f16ToFloat(binary.LittleEndian.Uint16(b))
		codes := u.codes[32*g : 32*g+32]
		unpackNibbles(codes, b[6:], 112)
		addFifth(codes, binary.LittleEndian.Uint32(b[2:]))
	}
}

// addFifth adds 16 to the codes whose bit is set.
func addFifth(codes []byte, bits uint32) {
	for j := range codes {
		codes[j] += uint8(bits>>j&1) << 4
	}
}
