package cpu

import "encoding/binary"

// unpackIQ1M unpacks a block of iq1_m (docs/schemes/iq1m.md): codes are eight
// times the shifted grid, so S = d*(2s+1)/8 of 16 weights.
func unpackIQ1M(u *unpacked, src []byte) {
	words := binary.LittleEndian.Uint64(src[48:])
	d := f16ToFloat(uint16(words>>12&15 | words>>28&15<<4 | words>>44&15<<8 | words>>60<<12))
	for g := range 16 {
		u.s[g] = d * float32(words>>(16*(g>>2)+3*(g&3))&7*2+1) * 0.125
	}
	for i := range 32 {
		high := int(src[32+i>>1]) >> (4 * (i & 1))
		putShifted(u.codes[8*i:8*i+8], int(src[i])|high&7<<8, high>>3&1)
	}
}
