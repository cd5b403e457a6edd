package scheme

// iq4Values are the 16 levels of iq4_nl and iq4_xs.
//
// Source: kvalues_iq4nl in ggml/src/ggml-common.h of ggml-org/llama.cpp.
var iq4Values = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// IQ4Levels returns the levels of iq4_nl and iq4_xs, ascending, by code.
func IQ4Levels() []float32 { return append([]float32(nil), iq4Values[:]...) }

// decodeIQ4NL decodes iq4_nl: 18 bytes per 32 weights, an f16 scale and 16
// bytes of codes in the order of q4_0.
//
//	w = d * level[q]
func decodeIQ4NL(dst []float32, src []byte) {
	for len(dst) >= 32 && len(src) >= 18 {
		levels16((*[32]float32)(dst), half(src), (*[16]byte)(src[2:]), &iq4Values)
		dst, src = dst[32:], src[18:]
	}
}

// levels16 writes d times the level of each nibble: byte j holds weight j
// below and weight j+16 above.
func levels16(y *[32]float32, d float32, q *[16]byte, levels *[16]float32) {
	for j, c := range q {
		y[j] = d * levels[c&15]
		y[j+16] = d * levels[c>>4]
	}
}
