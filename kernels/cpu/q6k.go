package cpu

import "encoding/binary"

// unpackQ6K unpacks a block of q6_k (docs/schemes/q6k.md): S = d*sc of 16
// weights, and the code q stands for q-32.
func unpackQ6K(u *unpacked, src []byte) {
	d := f16ToFloat(binary.LittleEndian.Uint16(src[208:]))
	for g := range 16 {
		u.s[g] = d * float32(int8(src[192+g]))
	}
	for i := range u.codes {
		low := src[i>>7<<6+i&63] >> (i >> 6 & 1 * 4) & 15
		high := src[128+i>>7<<5+i&31] >> (i >> 5 & 3 * 2) & 3
		u.codes[i] = low | high<<4 + 96
	}
}
