package cpu

import "github.com/nstf/nstf/formats/scheme"

// unpackNVFP4 unpacks four blocks of nvfp4 (docs/schemes/nvfp4.md): S = half(s), for 16
// weights each.
func unpackNVFP4(u *unpacked, src []byte) {
	levels, scales := levelsMXFP4(), scheme.NVFP4Scales()
	for g := range 16 {
		b := src[36*(g/4) : 36*(g/4)+36]
		u.s[g] = scales[b[g%4]]
		for j, q := range b[4+8*(g%4) : 12+8*(g%4)] {
			u.codes[16*g+j], u.codes[16*g+j+8] = levels[q&15], levels[q>>4]
		}
	}
}
