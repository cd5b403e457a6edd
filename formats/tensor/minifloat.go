package tensor

import "math"

// A minifloat describes a format of at most 8 bits: a sign, exp bits of
// exponent with a bias, man bits of mantissa, gradual underflow.
//
// Sources: OCP 8-bit Floating Point Specification 1.0 (E4M3, E5M2); OCP
// Microscaling Formats 1.0 (E3M2, E2M3, E2M1, E8M0); arXiv:2206.02915 for the
// two "fnuz" variants.
type minifloat struct {
	exp, man uint
	bias     int
	max      uint8 // code of the largest finite value
	inf      uint8 // code of +Inf, 0 where there is none
	nan      uint8 // code of NaN, 0 where there is none
	fnuz     bool  // the code of -0 is the only NaN
}

var (
	f8e4m3  = minifloat{exp: 4, man: 3, bias: 7, max: 0x7E, nan: 0x7F}
	f8e5m2  = minifloat{exp: 5, man: 2, bias: 15, max: 0x7B, inf: 0x7C, nan: 0x7E}
	f8e4m3z = minifloat{exp: 4, man: 3, bias: 8, max: 0x7F, nan: 0x80, fnuz: true}
	f8e5m2z = minifloat{exp: 5, man: 2, bias: 16, max: 0x7F, nan: 0x80, fnuz: true}
	f6e2m3  = minifloat{exp: 2, man: 3, bias: 1, max: 0x1F}
	f6e3m2  = minifloat{exp: 3, man: 2, bias: 3, max: 0x1F}
	f4e2m1  = minifloat{exp: 2, man: 1, bias: 1, max: 0x07}

	f8e4m3Values  = f8e4m3.values()
	f8e5m2Values  = f8e5m2.values()
	f8e4m3zValues = f8e4m3z.values()
	f8e5m2zValues = f8e5m2z.values()
	f6e2m3Values  = f6e2m3.values()
	f6e3m2Values  = f6e3m2.values()
	f4e2m1Values  = f4e2m1.values()
)

// sign returns the sign bit.
func (f *minifloat) sign() uint8 { return 1 << (f.exp + f.man) }

// values lists what every code means; codes beyond the format's width repeat.
func (f *minifloat) values() *[256]float32 {
	var t [256]float32
	for c := range t {
		t[c] = f.decode(uint8(c))
	}
	return &t
}

func (f *minifloat) decode(c uint8) float32 {
	c &= f.sign()<<1 - 1 // the shift of 0x80 wraps to 0, and 0-1 to 0xFF
	mag := c &^ f.sign()
	var v float64
	switch e, m := int(mag>>f.man), float64(mag&(1<<f.man-1)); {
	case f.fnuz && c == f.nan:
		return float32(math.NaN())
	case !f.fnuz && f.nan != 0 && mag > f.max && mag == f.inf:
		v = math.Inf(1)
	case !f.fnuz && f.nan != 0 && mag > f.max:
		return float32(math.NaN())
	case e == 0:
		v = math.Ldexp(m, 1-f.bias-int(f.man))
	default:
		v = math.Ldexp(m+float64(int(1)<<f.man), e-f.bias-int(f.man))
	}
	if c&f.sign() != 0 {
		v = -v
	}
	return float32(v)
}

// encode rounds to nearest, ties to even, then saturates: a finite magnitude
// beyond the largest becomes the largest. Infinity stays where the format has
// it and saturates elsewhere. NaN needs f.nan, or becomes zero: callers check.
func (f *minifloat) encode(x float32) uint8 {
	if x != x {
		return f.nan
	}
	var sign uint8
	if math.Signbit(float64(x)) {
		sign = f.sign()
	}
	a := math.Abs(float64(x))
	if math.IsInf(a, 1) {
		if f.inf != 0 {
			return sign | f.inf
		}
		return sign | f.max
	}
	// The exponent of the last place, never below the subnormals'. With q
	// units in it the code is linear in q, and a carry rolls over by itself.
	e := max(int(math.Float64bits(a)>>52)-1023, 1-f.bias)
	q := math.RoundToEven(math.Ldexp(a, int(f.man)-e))
	code := (e+f.bias-1)<<f.man + int(q)
	if code > int(f.max) {
		code = int(f.max)
	}
	if code == 0 && f.fnuz {
		return 0
	}
	return sign | uint8(code)
}

// F8E4M3Values lists the 256 values of OCP E4M3, for decoding loops. The
// caller must not write to it.
func F8E4M3Values() *[256]float32 { return f8e4m3Values }

// F8E8M0ToF32 returns 2^(c-127), NaN for 255.
func F8E8M0ToF32(c uint8) float32 {
	switch c {
	case 0:
		return 0x1p-127
	case 255:
		return float32(math.NaN())
	}
	return math.Float32frombits(uint32(c) << 23)
}

// F32ToF8E8M0 rounds to the nearest power of two between 2^-127 and 2^127, a
// tie to the even code. Negative values and NaN become 255, NaN.
func F32ToF8E8M0(x float32) uint8 {
	if x != x || x < 0 {
		return 255
	}
	if x < 0x1p-126 {
		if x > 0x1.8p-127 { // the tie goes to code 0
			return 1
		}
		return 0
	}
	b := math.Float32bits(x)
	c := b >> 23
	if m := b & 0x7FFFFF; m > 0x400000 || m == 0x400000 && c&1 == 1 {
		c++
	}
	return uint8(min(c, 254))
}
