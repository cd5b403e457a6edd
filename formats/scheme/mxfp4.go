package scheme

import (
	"fmt"
	"math"
)

// mxfp4Values are the E2M1 values doubled, so that they are whole.
//
// Source: OCP Microscaling Formats 1.0, table of FP4 E2M1.
var mxfp4Values = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// decodeMXFP4 decodes mxfp4: 17 bytes per 32 weights, an E8M0 exponent e and
// 16 bytes of E2M1 codes in the order of q4_0.
//
//	w = 2^(e-128) * doubled[q]
func decodeMXFP4(dst []float32, src []byte) {
	for len(dst) >= 32 && len(src) >= 17 {
		levels16((*[32]float32)(dst), halfE8M0(src[0]), (*[16]byte)(src[1:]), &mxfp4Values)
		dst, src = dst[32:], src[17:]
	}
}

// halfE8M0 returns 2^(e-128). Unlike the OCP format, and like ggml, it gives
// 255 no special meaning.
func halfE8M0(e uint8) float32 {
	if e < 2 {
		return math.Float32frombits(0x200000 << e)
	}
	return math.Float32frombits(uint32(e-1) << 23)
}

// PackMXFP4 interleaves the two arrays of the other layout in circulation
// (gpt-oss, compressed-tensors) into blocks of mxfp4: codes holds 16 bytes
// per block, weight 2j in the low nibble of byte j and 2j+1 above; scales
// holds the exponents. dst takes 17 bytes per scale. It panics where the lengths
// do not agree.
func PackMXFP4(dst, codes, scales []byte) {
	if n := len(scales); len(dst) != 17*n || len(codes) != 16*n {
		panic(fmt.Sprintf("scheme: %d bytes of mxfp4 blocks, %d of codes, %d of scales", len(dst), len(codes), n))
	}
	for i, e := range scales {
		block, q := dst[17*i:17*i+17], codes[16*i:16*i+16]
		block[0] = e
		for j := range 8 {
			a, b := q[j], q[j+8] // weights 2j, 2j+1 and 2j+16, 2j+17
			block[1+2*j] = a&15 | b<<4
			block[2+2*j] = a>>4 | b&0xF0
		}
	}
}
