package cpu

import "encoding/binary"

// unpackIQ2XXS unpacks a block of iq2_xxs (docs/schemes/iq2xxs.md): S =
// (d*(0.5+s))*0.25 of 32 weights.
func unpackIQ2XXS(u *unpacked, src []byte) {
	d := f16ToFloat(binary.LittleEndian.Uint16(src))
	for g := range 8 {
		p := src[2+8*g : 10+8*g]
		word := binary.LittleEndian.Uint32(p[4:])
		u.s[g] = d * (0.5 + float32(word>>28)) * 0.25
		for l := range 4 {
			putSigned(u.codes[32*g+8*l:][:8], iq2xxsGrid[p[l]], evenSigns[word>>(7*l)&127])
		}
	}
}
