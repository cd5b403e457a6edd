package cpu

import "encoding/binary"

// unpackIQ2XS unpacks a block of iq2_xs (docs/schemes/iq2xs.md): S =
// (d*(0.5+s))*0.25 of 16 weights.
func unpackIQ2XS(u *unpacked, src []byte) {
	scalesIQ2(u, src, src[66:74])
	for i := range 32 {
		word := binary.LittleEndian.Uint16(src[2+2*i:])
		putSigned(u.codes[8*i:8*i+8], iq2xsGrid[word&511], evenSigns[word>>9])
	}
}

// scalesIQ2 unpacks the 4-bit scales of iq2_xs and iq2_s.
func scalesIQ2(u *unpacked, src, scales []byte) {
	d := f16ToFloat(binary.LittleEndian.Uint16(src))
	for g := range 16 {
		u.s[g] = d * (0.5 + float32(scales[g>>1]>>(4*(g&1))&15)) * 0.25
	}
}
