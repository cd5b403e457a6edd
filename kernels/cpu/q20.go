package cpu

import "encoding/binary"

// unpackQ20 unpacks four blocks of q2_0 (docs/schemes/q20.md): S = d for 64 weights, and
// the code q stands for q-1.
func unpackQ20(u *unpacked, src []byte) {
	for i := range u.codes {
		b := src[18*(i/64):]
		u.codes[i] = 127 + b[2+i%64/4]>>(2*(i%4))&3
		u.s[i/32] = f16ToFloat(binary.LittleEndian.Uint16(b))
	}
}
