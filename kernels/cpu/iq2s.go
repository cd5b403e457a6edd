package cpu

// unpackIQ2S unpacks a block of iq2_s (docs/schemes/iq2s.md): S =
// (d*(0.5+s))*0.25 of 16 weights.
func unpackIQ2S(u *unpacked, src []byte) {
	scalesIQ2(u, src, src[74:82])
	for i := range 32 {
		at := int(src[2+i]) | int(src[66+i>>2]>>(2*(i&3))&3)<<8
		putSigned(u.codes[8*i:8*i+8], iq2sGrid[at], src[34+i])
	}
}
