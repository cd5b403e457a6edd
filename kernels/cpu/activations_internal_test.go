package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// Every level quantizes to the bytes of plain Go.
func TestQuantizeIsTheSameEverywhere(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	fills := map[string]func() float32{
		"gaussian":  func() float32 { return float32(r.NormFloat64()) },
		"any bits":  func() float32 { return math.Float32frombits(r.Uint32()) },
		"finite":    func() float32 { return math.Float32frombits(r.Uint32() &^ (1 << 30)) },
		"tiny":      func() float32 { return math.Float32frombits(0x0d7fffff + r.Uint32N(3)) },
		"subnormal": func() float32 { return math.Float32frombits(r.Uint32() & 0x807fffff) },
		"ties":      func() float32 { return float32(r.IntN(255)-127) / 2 },
		"huge":      func() float32 { return math.MaxFloat32 * float32(r.IntN(3)-1) },
		"zeros":     func() float32 { return float32(math.Copysign(0, float64(r.IntN(2))-0.5)) },
	}
	for _, l := range Levels() {
		s, err := ForLevel(l)
		if err != nil {
			t.Fatal(err)
		}
		for name, fill := range fills {
			for range 200 {
				var x [recordValues]float32
				for i := range x {
					x[i] = fill()
				}
				wantRecord(t, fmt.Sprintf("%v, %s", l, name), &x, s.quantize, quantizeGeneric)
				wantRecord(t, fmt.Sprintf("%v, %s, fine", l, name), &x, s.quantizeFine, quantizeFineGeneric)
				wantRecord(t, fmt.Sprintf("%v, %s, eights", l, name), &x, orderedBy(quantizeGeneric, s.eights), orderedBy(quantizeGeneric, eightsGeneric))
				wantRecord(t, fmt.Sprintf("%v, %s, sixteens", l, name), &x, orderedBy(quantizeFineGeneric, s.sixteens), orderedBy(quantizeFineGeneric, sixteensGeneric))
			}
		}
	}
}

// orderedBy quantizes and puts the record into another order.
func orderedBy(quantize func(*[recordBytes]byte, *[recordValues]float32), order func(dst, src *[recordBytes]byte)) func(*[recordBytes]byte, *[recordValues]float32) {
	return func(dst *[recordBytes]byte, x *[recordValues]float32) {
		var record [recordBytes]byte
		quantize(&record, x)
		order(dst, &record)
		clear(dst[atEightsHigh+64:])
	}
}

// wantRecord compares what two quantizers write, wherever they write.
func wantRecord(t *testing.T, what string, x *[recordValues]float32, quantize, reference func(*[recordBytes]byte, *[recordValues]float32)) {
	t.Helper()
	var want, got [recordBytes]byte
	for i := range got {
		got[i], want[i] = 0xaa, 0x55
	}
	reference(&want, x)
	quantize(&got, x)
	for i := range got {
		if want[i] != got[i] {
			t.Fatalf("%s: byte %d of the record is %#02x, want %#02x", what, i, got[i], want[i])
		}
	}
}

// The divisor of a group of 16 is the best of its eight, the largest of equals.
func TestFineScaleLeavesLeast(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		var x [16]float32
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		most, chosen := largestOf(x[:]), math.Inf(1)
		d, inverse := fineScaleOf(&x)
		left := func(d, inverse float32) (e float64) {
			for _, v := range x {
				q := math.RoundToEven(float64(v * inverse))
				if math.Abs(q) > 127 {
					t.Fatalf("%g times %g is beyond a byte", v, inverse)
				}
				e += math.Pow(float64(v)-q*float64(d), 2)
			}
			return e
		}
		chosen = left(d, inverse)
		for n := float32(127); n >= 120; n-- {
			if other := left(most*(1/n), n/most); chosen > other*(1+1e-5) {
				t.Fatalf("divisor %g leaves %g, that of d = %g leaves %g", n, other, d, chosen)
			}
		}
	}
	if d, inverse := fineScaleOf(&[16]float32{127, -3, 5}); d != 1 || inverse != 1 {
		t.Errorf("whole numbers up to 127 get d = %g and the inverse %g, want 1 and 1", d, inverse)
	}
}

// BenchmarkQuantize times both forms on 4096 activations, which a cache holds.
func BenchmarkQuantize(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, 4096)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	for _, l := range Levels() {
		s, err := ForLevel(l)
		if err != nil {
			b.Fatal(err)
		}
		for _, group := range []int{coarseGroup, fineGroup} {
			b.Run(fmt.Sprintf("%v/%d", l, group), func(b *testing.B) {
				var a Activations
				for b.Loop() {
					s.Quantize(&a, x, len(x), 1, len(x), group)
				}
			})
		}
	}
}
