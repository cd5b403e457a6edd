package cpu

import "encoding/binary"

// unpackIQ1S unpacks a block of iq1_s (docs/schemes/iq1s.md): codes are eight
// times the shifted grid, so S = d*(2s+1)/8 of 32 weights.
func unpackIQ1S(u *unpacked, src []byte) {
	d := f16ToFloat(binary.LittleEndian.Uint16(src))
	for g := range 8 {
		high := int(binary.LittleEndian.Uint16(src[34+2*g:]))
		u.s[g] = d * float32(high>>12&7*2+1) * 0.125
		for l := range 4 {
			at := int(src[2+4*g+l]) | high>>(3*l)&7<<8
			putShifted(u.codes[32*g+8*l:][:8], at, high>>15)
		}
	}
}

// putShifted writes a point of iq1 with one added, or taken off where down is 1.
func putShifted(codes []uint8, at, down int) {
	binary.LittleEndian.PutUint64(codes, iq1Grid[at&2047]+bytesOf1-uint64(2*down)*bytesOf1)
}
