package cpu

import "math"

// DecodeF16 widens little-endian IEEE half-precision values, exactly; a
// signalling NaN becomes quiet, as the F16C instructions do it. src holds two
// bytes for each element of dst.
func (s *Set) DecodeF16(dst []float32, src []byte) {
	want(len(src) == 2*len(dst), "DecodeF16", len(dst), len(src))
	s.decodeF16(dst, src)
}

// DecodeBF16 widens little-endian bfloat16 values, exactly: their bits are the
// upper half of the float32.
func (s *Set) DecodeBF16(dst []float32, src []byte) {
	want(len(src) == 2*len(dst), "DecodeBF16", len(dst), len(src))
	s.decodeBF16(dst, src)
}

// EncodeF16 rounds to IEEE half precision, to nearest, ties to even. Values
// beyond 65504 by half a step or more become infinite; small ones become
// subnormal or zero; a NaN stays a quiet NaN with its upper payload bits.
func (s *Set) EncodeF16(dst []byte, src []float32) {
	want(len(dst) == 2*len(src), "EncodeF16", len(dst), len(src))
	s.encodeF16(dst, src)
}

// EncodeBF16 rounds to bfloat16, to nearest, ties to even; a NaN stays a quiet
// NaN with its upper payload bits.
func (s *Set) EncodeBF16(dst []byte, src []float32) {
	want(len(dst) == 2*len(src), "EncodeBF16", len(dst), len(src))
	s.encodeBF16(dst, src)
}

func f16ToFloat(h uint16) float32 {
	sign, exp, man := uint32(h>>15)<<31, uint32(h>>10&31), uint32(h&0x3ff)
	switch {
	case exp == 0:
		f := float32(man) * 0x1p-24 // exact: subnormal halves are normal in float32
		return math.Float32frombits(sign | math.Float32bits(f))
	case exp == 31 && man != 0:
		return math.Float32frombits(sign | 0x7fc00000 | man<<13)
	case exp == 31:
		return math.Float32frombits(sign | 0x7f800000)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | man<<13)
}

func floatToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign, a := uint16(b>>16&0x8000), b&0x7fffffff
	switch {
	case a > 0x7f800000:
		return sign | 0x7e00 | uint16(a>>13&0x1ff)
	case a >= 0x477ff000: // 65520, half way past the largest
		return sign | 0x7c00
	case a < 0x38800000: // below 2^-14: adding 1/2 leaves units of 2^-24 in the last places, rounded
		return sign | uint16(math.Float32bits(math.Float32frombits(a)+0.5)-math.Float32bits(0.5))
	}
	return sign | uint16((a+0xfff+a>>13&1)>>13-112<<10)
}
