package cpu

import "encoding/binary"

// unpackIQ3XXS unpacks a block of iq3_xxs (docs/schemes/iq3xxs.md): S =
// (d*(0.5+s))*0.5 of 32 weights.
func unpackIQ3XXS(u *unpacked, src []byte) {
	d := f16ToFloat(binary.LittleEndian.Uint16(src))
	for g := range 8 {
		word := binary.LittleEndian.Uint32(src[66+4*g:])
		u.s[g] = d * (0.5 + float32(word>>28)) * 0.5
		for l := range 4 {
			i := 2 + 8*g + 2*l
			point := uint64(iq3xxsGrid[src[i]]) | uint64(iq3xxsGrid[src[i+1]])<<32
			putSigned(u.codes[32*g+8*l:][:8], point, evenSigns[word>>(7*l)&127])
		}
	}
}
