package kerneltest

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// testHalves holds the 16-bit conversions to the definitions: every pattern one
// way, ties and random values the other, every tail, all bit for bit.
func testHalves(t *testing.T, b *Backend) {
	if b.DecodeF16 == nil || b.DecodeBF16 == nil || b.EncodeF16 == nil || b.EncodeBF16 == nil {
		t.Skipf("%s does not offer conversions", b.Name)
	}
	for _, name := range []string{"DecodeF16", "DecodeBF16", "EncodeF16", "EncodeBF16"} {
		if err := conversions(b)[name](); err != nil {
			t.Fatal(err)
		}
	}
}

// conversions are the checks of those that b offers, by name.
func conversions(b *Backend) map[string]func() error {
	all := make([]byte, 2<<16)
	for i := range 1 << 16 {
		binary.LittleEndian.PutUint16(all[2*i:], uint16(i))
	}
	checks := map[string]func() error{}
	if b.DecodeF16 != nil {
		checks["DecodeF16"] = func() error { return checkDecode("DecodeF16", b.DecodeF16, all, f16Bits) }
	}
	if b.DecodeBF16 != nil {
		checks["DecodeBF16"] = func() error {
			return checkDecode("DecodeBF16", b.DecodeBF16, all, func(h uint16) uint32 { return uint32(h) << 16 })
		}
	}
	if b.EncodeF16 != nil {
		checks["EncodeF16"] = func() error { return checkEncode("EncodeF16", b.EncodeF16, encodeInputs(13), nearestHalf) }
	}
	if b.EncodeBF16 != nil {
		checks["EncodeBF16"] = func() error { return checkEncode("EncodeBF16", b.EncodeBF16, encodeInputs(16), nearestBF16) }
	}
	return checks
}

func checkDecode(name string, decode func([]float32, []byte), src []byte, want func(uint16) uint32) error {
	for _, n := range append(lengths(), len(src)/2) {
		buf := surrounded(make([]float32, n))
		dst := buf[guard : guard+n]
		in := append(make([]byte, 1), src[len(src)-2*n:]...)[1:] // odd address, NaNs included
		decode(dst, in)
		for i, v := range dst {
			h := binary.LittleEndian.Uint16(in[2*i:])
			if math.Float32bits(v) != want(h) {
				return fmt.Errorf("%s: n=%d: %#04x decodes to %#08x, want %#08x", name, n, h, math.Float32bits(v), want(h))
			}
		}
		for i, v := range buf {
			if (i < guard || i >= guard+n) && !sameBits(v, guardWord()) {
				return fmt.Errorf("%s: n=%d: guard word %d overwritten", name, n, i-guard)
			}
		}
	}
	return nil
}

func checkEncode(name string, encode func([]byte, []float32), src []float32, want func(float32) uint16) error {
	for _, n := range append(lengths(), len(src)) {
		buf := make([]byte, 2*n+32)
		for i := range buf {
			buf[i] = 0xa5
		}
		in := input(src[len(src)-n:])
		encode(buf[15:15+2*n], in)
		for i, v := range in {
			if h := binary.LittleEndian.Uint16(buf[15+2*i:]); h != want(v) {
				return fmt.Errorf("%s: n=%d: %g (%#08x) encodes to %#04x, want %#04x", name, n, v, math.Float32bits(v), h, want(v))
			}
		}
		for i, v := range buf {
			if (i < 15 || i >= 15+2*n) && v != 0xa5 {
				return fmt.Errorf("%s: n=%d: guard byte %d overwritten", name, n, i-15)
			}
		}
	}
	return nil
}

// encodeInputs are all short patterns with the lower bits at zero, next to the
// tie, at it and below the next, then random patterns.
func encodeInputs(lower int) []float32 {
	var x []float32
	tie := uint32(1) << (lower - 1)
	for i := range uint32(1) << 16 {
		for _, low := range []uint32{0, 1, tie - 1, tie, tie + 1, 2*tie - 1} {
			x = append(x, math.Float32frombits(i<<16|low), math.Float32frombits(i<<16|i&7<<13|low&0x1fff))
		}
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range 1 << 18 {
		x = append(x, math.Float32frombits(r.Uint32()))
	}
	return x
}

// halfValue is the definition of IEEE binary16.
func halfValue(h uint16) float64 {
	sign, exp, man := 1-2*float64(h>>15), int(h>>10&31), float64(h&0x3ff)
	switch {
	case exp == 31 && man != 0:
		return math.NaN()
	case exp == 31:
		return math.Inf(int(sign))
	case exp == 0:
		return math.Copysign(math.Ldexp(man, -24), sign)
	}
	return sign * math.Ldexp(1024+man, exp-25)
}

func f16Bits(h uint16) uint32 {
	if v := halfValue(h); !math.IsNaN(v) {
		return math.Float32bits(float32(v))
	}
	return uint32(h>>15)<<31 | 0x7fc00000 | uint32(h&0x3ff)<<13
}

// nearestHalf finds the nearest half by its definition: the candidates are the
// values of the patterns, which rise with the pattern.
func nearestHalf(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	if f != f {
		return sign | 0x7e00 | uint16(b>>13&0x1ff)
	}
	return sign | nearest(math.Abs(float64(f)), 0x7c00, func(h uint16) float64 {
		if h == 0x7c00 {
			return 65536 // where the next value would be: half way is the limit
		}
		return halfValue(h)
	})
}

func nearestBF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	if f != f {
		return uint16(b>>16) | 0x40
	}
	return sign | nearest(math.Abs(float64(f)), 0x7f80, func(h uint16) float64 {
		if h == 0x7f80 {
			return 0x1p128
		}
		return float64(math.Float32frombits(uint32(h) << 16))
	})
}

// nearest returns the pattern up to top whose value is nearest to v, the even
// one where two are.
func nearest(v float64, top uint16, value func(uint16) float64) uint16 {
	lo, hi := uint16(0), top // value(lo) <= v
	for lo+1 < hi {
		if mid := (lo + hi) / 2; value(mid) <= v {
			lo = mid
		} else {
			hi = mid
		}
	}
	down, up := v-value(lo), value(hi)-v
	if down < up || down == up && lo%2 == 0 {
		return lo
	}
	return hi
}
