package cpu

// unpackQ5K unpacks a block of q5_k (docs/schemes/q5k.md): S = d*sc and
// M = dmin*m of 32 weights.
func unpackQ5K(u *unpacked, src []byte) {
	scalesK4(u, src)
	for i := range u.codes {
		low := src[48+i>>6<<5+i&31] >> (i >> 5 & 1 * 4) & 15
		u.codes[i] = low | src[16+i&31]>>(i>>5)&1<<4
	}
}
