package tensor

import "math"

// F16ToF32 converts an IEEE binary16 pattern exactly. Infinities stay, a NaN
// keeps its payload and becomes quiet, as the F16C instructions do it.
func F16ToF32(h uint16) float32 {
	if h&0x7C00-0x400 < 0x7800 {
		// A normal number: the shift spreads the sign over the top bits, the
		// mask leaves the highest of them, the sum mends the exponent.
		return math.Float32frombits(uint32(int16(h))<<13&0x8FFFE000 + 0x38000000)
	}
	return f16Special(h)
}

// decodeF16 is F16ToF32 in a loop, whose usual case the compiler does not
// inline.
func decodeF16(dst []float32, src []byte) {
	src = src[:2*len(dst)]
	for i := range dst {
		h := uint16(src[2*i]) | uint16(src[2*i+1])<<8
		if h&0x7C00-0x400 < 0x7800 {
			dst[i] = math.Float32frombits(uint32(int16(h))<<13&0x8FFFE000 + 0x38000000)
			continue
		}
		dst[i] = f16Special(h)
	}
}

// f16Special converts zeros, subnormal numbers, infinities and NaN.
func f16Special(h uint16) float32 {
	sign, man := uint32(h&0x8000)<<16, uint32(h&0x3FF)
	switch {
	case h&0x7C00 == 0:
		return math.Float32frombits(math.Float32bits(float32(man)*0x1p-24) | sign)
	case man == 0:
		return math.Float32frombits(sign | 0x7F800000)
	}
	return math.Float32frombits(sign | 0x7FC00000 | man<<13)
}

// F32ToF16 rounds to the nearest binary16, ties to even. Magnitudes of 65520
// and more become infinite; a NaN becomes quiet and keeps its high payload
// bits.
func F32ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	b &= 0x7FFFFFFF
	switch {
	case b > 0x7F800000:
		return sign | 0x7E00 | uint16(b>>13&0x3FF)
	case b >= 0x47800000: // 65536
		return sign | 0x7C00
	case b < 0x38800000: // 2^-14: a subnormal, whose unit 2^-24 is that of 0.5
		r := math.Float32frombits(b) + 0.5
		return sign | uint16(math.Float32bits(r)-0x3F000000)
	}
	b += 0xFFF + b>>13&1
	return sign | uint16((b-0x38000000)>>13)
}

// BF16ToF32 converts a bfloat16 pattern exactly: it is the upper half.
func BF16ToF32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// F32ToBF16 rounds to the nearest bfloat16, ties to even; a NaN becomes quiet
// and keeps its high payload bits.
func F32ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7FFFFFFF > 0x7F800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7FFF + b>>16&1) >> 16)
}
