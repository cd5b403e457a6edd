package cpu

import "encoding/binary"

// unpackQ41 unpacks eight blocks of q4_1 (docs/schemes/q41.md): S = d, M = -m.
func unpackQ41(u *unpacked, src []byte) {
	for g := range 8 {
		b := src[20*g : 20*g+20]
		u.s[g] = f16ToFloat(binary.LittleEndian.Uint16(b))
		u.m[g] = -f16ToFloat(binary.LittleEndian.Uint16(b[2:]))
		unpackNibbles(u.codes[32*g:32*g+32], b[4:], 0)
	}
}
