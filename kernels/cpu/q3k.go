package cpu

import "encoding/binary"

// unpackQ3K unpacks a block of q3_k (docs/schemes/q3k.md): S = d*(sc-32) of 16
// weights, and the code q stands for q-4.
func unpackQ3K(u *unpacked, src []byte) {
	d, p := f16ToFloat(binary.LittleEndian.Uint16(src[108:])), src[96:108]
	for g := range 16 {
		sc := p[g&7]>>(4*(g>>3))&15 | p[8+g&3]>>(2*(g>>2))&3<<4
		u.s[g] = d * float32(int(sc)-32)
	}
	for i := range u.codes {
		low := src[32+i>>7<<5+i&31] >> (i >> 5 & 3 * 2) & 3
		u.codes[i] = low + src[i&31]>>(i>>5)&1<<2 + 124
	}
}
