package cpu

import "encoding/binary"

// unpackQ2K unpacks a block of q2_k (docs/schemes/q2k.md): S = d*sc,
// M = dmin*m of 16 weights.
func unpackQ2K(u *unpacked, src []byte) {
	d, dmin := f16ToFloat(binary.LittleEndian.Uint16(src[80:])), f16ToFloat(binary.LittleEndian.Uint16(src[82:]))
	for g := range 16 {
		u.s[g], u.m[g] = d*float32(src[g]&15), dmin*float32(src[g]>>4)
	}
	for i := range u.codes {
		u.codes[i] = src[16+i>>7<<5+i&31] >> (i >> 5 & 3 * 2) & 3
	}
}
