package cpu

import "encoding/binary"

// unpackTQ10 unpacks a block of tq1_0 (docs/schemes/tq10.md): S = d for all, and
// the code q stands for q-1.
func unpackTQ10(u *unpacked, src []byte) {
	fillScale(u, f16ToFloat(binary.LittleEndian.Uint16(src[52:])))
	unpackTrits(u.codes[0:160], src[0:32])
	unpackTrits(u.codes[160:240], src[32:48])
	unpackTrits(u.codes[240:256], src[48:52])
}

// unpackTrits unpacks digit n of every byte of q to codes[n*len(q):].
func unpackTrits(codes, q []byte) {
	power := uint8(1)
	for ; len(codes) > 0; codes = codes[len(q):] {
		for j, c := range q {
			codes[j] = uint8(uint16(c*power)*3>>8) + 127
		}
		power *= 3
	}
}

// fillScale gives all groups one scale.
func fillScale(u *unpacked, d float32) {
	for g := range u.s {
		u.s[g] = d
	}
}
