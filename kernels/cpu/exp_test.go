package cpu_test

import (
	"math"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
)

// ulps is the error of got in units of the last place of want.
func ulps(got float32, want float64) float64 {
	_, e := math.Frexp(want)
	return math.Abs(float64(got)-want) / math.Ldexp(1, max(e-24, -149))
}

// TestExponential goes through SiLU of large negative and of small numbers and
// through Softmax of two scores, which lay the exponential bare, at about 70
// thousand arguments, and holds its error to 2 units of the last place.
func TestExponential(t *testing.T) {
	eachLevel(t, func(t *testing.T, s *cpu.Set) {
		worst, at := 0.0, float32(0)
		row := make([]float32, 17)
		for x := -87.3; x <= 0; x += 0.00125 {
			for i := range row {
				row[i] = float32(math.Inf(-1))
			}
			v := float32(x)
			row[0], row[16] = 0, v
			s.Softmax(row)
			e := math.Exp(float64(v))
			if u := ulps(row[16], e/(1+e)); u > worst {
				worst, at = u, v
			}
		}
		t.Logf("%v: %.2f units of the last place at %g", s.Level(), worst, at)
		if worst > 2.5 { // the sum, its inverse and the product round too
			t.Errorf("error of %.2f units at %g", worst, at)
		}
	})
}

// Subnormal results keep what places they have.
func TestSoftmaxSubnormal(t *testing.T) {
	eachLevel(t, func(t *testing.T, s *cpu.Set) {
		for x := float32(-110); x < -86; x += 0.37 {
			row := []float32{0, x}
			s.Softmax(row)
			if u := ulps(row[1], math.Exp(float64(x))); u > 2 {
				t.Errorf("exp(%g) = %g, off by %.1f units", x, row[1], u)
			}
		}
	})
}
