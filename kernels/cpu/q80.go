package cpu

import "encoding/binary"

// unpackQ80 unpacks eight blocks of q8_0 (docs/schemes/q80.md): S = d, once for
// each 16 weights.
func unpackQ80(u *unpacked, src []byte) {
	for g := range 8 {
		b := src[34*g : 34*g+34]
		d := f16ToFloat(binary.LittleEndian.Uint16(b))
		u.s[2*g], u.s[2*g+1] = d, d
		for j, c := range b[2:] {
			u.codes[32*g+j] = c ^ 128
		}
	}
}
