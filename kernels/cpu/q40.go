package cpu

import "encoding/binary"

// unpackQ40 unpacks eight blocks of q4_0 (docs/schemes/q40.md): S = d, and the
// code q stands for q-8.
func unpackQ40(u *unpacked, src []byte) {
	for g := range 8 {
		b := src[18*g : 18*g+18]
		u.s[g] = f16ToFloat(binary.LittleEndian.Uint16(b))
		unpackNibbles(u.codes[32*g:32*g+32], b[2:], 120)
	}
}

// unpackNibbles unpacks 16 bytes, the low nibbles first, and adds bias.
func unpackNibbles(codes, q []byte, bias uint8) {
	for j := range 16 {
		codes[j] = q[j]&15 + bias
		codes[j+16] = q[j]>>4 + bias
	}
}
