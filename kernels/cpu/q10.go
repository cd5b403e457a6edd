package cpu

import "encoding/binary"

// unpackQ10 unpacks two blocks of q1_0 (docs/schemes/q10.md): S = d for 128 weights, and
// a bit stands for 1 or -1.
func unpackQ10(u *unpacked, src []byte) {
	for i := range u.codes {
		b := src[18*(i/128):]
		u.codes[i] = 127 + b[2+i%128/8]>>(i%8)&1*2
		u.s[i/32] = f16ToFloat(binary.LittleEndian.Uint16(b))
	}
}
