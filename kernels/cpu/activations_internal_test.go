package cpu

import (
	"bytes"
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
				want, got := [recordBytes]byte{}, [recordBytes]byte{recordBytes - 1: 1}
				for i := range got {
					got[i] = 0xaa
				}
				quantizeGeneric(&want, &x)
				s.quantize(&got, &x)
				if !bytes.Equal(want[:], got[:]) {
					for i := range got {
						if want[i] != got[i] {
							t.Fatalf("%v, %s: byte %d of the record is %#02x, want %#02x", l, name, i, got[i], want[i])
						}
					}
				}
			}
		}
	}
}
