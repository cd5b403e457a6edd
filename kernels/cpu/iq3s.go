package cpu

import "encoding/binary"

// unpackIQ3S unpacks a block of iq3_s (docs/schemes/iq3s.md): S = d*(1+2s) of 32
// weights.
func unpackIQ3S(u *unpacked, src []byte) {
	d := f16ToFloat(binary.LittleEndian.Uint16(src))
	for g := range 8 {
		u.s[g] = d * float32(1+2*(src[106+g>>1]>>(4*(g&1))&15))
		high := int(src[66+g])
		for l := range 4 {
			i := 2 + 8*g + 2*l
			a := int(src[i]) | high>>(2*l)&1<<8
			b := int(src[i+1]) | high>>(2*l+1)&1<<8
			putSigned(u.codes[32*g+8*l:][:8], uint64(iq3sGrid[a])|uint64(iq3sGrid[b])<<32, src[74+4*g+l])
		}
	}
}
