package cpu

import (
	"math"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats/scheme"
)

// What llama.cpp multiplies with weights of a scheme: its rounding of 127, 1.5,
// -2.5 and -0.3 in a block whose largest magnitude is 127, and of the same times
// 1/127, where 1/127 in half precision is 129 * 2^-14.
func TestPeerRounding(t *testing.T) {
	blocks := []float32{127, 2, -2, 0}
	for name, want := range map[string][]float32{
		"q2_k": blocks, "q4_k": blocks, "q6_k": blocks, "iq1_s": blocks, "iq4_xs": blocks, "tq2_0": blocks,
		"q4_0": blocks, "q5_1": blocks, "q8_0": blocks, "iq4_nl": blocks, "mxfp4": blocks,
		"f16":  {127, 1.5, -2.5, -0.300048828125},
		"bf16": {127, 1.5, -2.5, -0.30078125},
		"f32":  nil, "f64": nil, "affine": nil, "nf4": nil,
	} {
		s, ok := scheme.ByName(name)
		if !ok {
			t.Fatal(name)
		}
		round := peerRounding(s)
		if (round == nil) != (want == nil) {
			t.Errorf("%s: rounding is %v", name, round != nil)
		}
		if round == nil {
			continue
		}
		x, got := make([]float32, 512), make([]float32, 512)
		copy(x[256:], []float32{127, 1.5, -2.5, -0.3})
		round(got, x)
		if !slices.Equal(got[256:260], want) || slices.ContainsFunc(got[:256], func(v float32) bool { return v != 0 }) {
			t.Errorf("%s: %v, want %v", name, got[256:260], want)
		}
	}
	for name, d := range map[string]float32{"q4_k": 1. / 127, "q8_0": 129 * 0x1p-14} {
		s, _ := scheme.ByName(name)
		x, got := make([]float32, 256), make([]float32, 256)
		x[0], x[1] = -1, 64./127
		peerRounding(s)(got, x)
		if got[0] != -127*d || math.Abs(float64(got[1]-64*d)) > 1e-7 {
			t.Errorf("%s: %v, want multiples of %g", name, got[:2], d)
		}
	}
	// One scale for 256 values or for 32: the small ones beside a large one.
	x, got := make([]float32, 256), make([]float32, 256)
	x[0], x[40] = 1000, 1
	for name, want := range map[string]float32{"q4_k": 0, "q4_0": 0.99993896484375} {
		s, _ := scheme.ByName(name)
		if peerRounding(s)(got, x); got[40] != want {
			t.Errorf("%s: 1 beside 1000 becomes %g, want %g", name, got[40], want)
		}
	}
}
