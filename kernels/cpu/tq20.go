package cpu

import "encoding/binary"

// unpackTQ20 unpacks a block of tq2_0 (docs/schemes/tq20.md): S = d for all, and
// the code q stands for q-1.
func unpackTQ20(u *unpacked, src []byte) {
	fillScale(u, f16ToFloat(binary.LittleEndian.Uint16(src[64:])))
	for g := range 8 {
		q := src[g>>2*32 : g>>2*32+32]
		for j, c := range q {
			u.codes[32*g+j] = c>>(2*(g&3))&3 + 127
		}
	}
}
