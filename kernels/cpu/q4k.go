package cpu

import "encoding/binary"

// unpackQ4K unpacks a block of q4_k (docs/schemes/q4k.md): S = d*sc and
// M = dmin*m of 32 weights.
func unpackQ4K(u *unpacked, src []byte) {
	scalesK4(u, src)
	for p := range 4 {
		for j, c := range src[16+32*p : 48+32*p] {
			u.codes[64*p+j], u.codes[64*p+32+j] = c&15, c>>4
		}
	}
}

// scalesK4 unpacks the head of q4_k and q5_k: d, dmin, and 6-bit scales and
// minimums in 12 bytes.
func scalesK4(u *unpacked, src []byte) {
	d, dmin := f16ToFloat(binary.LittleEndian.Uint16(src)), f16ToFloat(binary.LittleEndian.Uint16(src[2:]))
	p := src[4:16]
	for j := range 4 {
		a, b, c := p[j], p[j+4], p[j+8]
		u.s[j], u.m[j] = d*float32(a&63), dmin*float32(b&63)
		u.s[j+4], u.m[j+4] = d*float32(c&15|a>>6<<4), dmin*float32(c>>4|b>>6<<4)
	}
}
