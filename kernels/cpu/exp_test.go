package cpu_test

import (
	"math"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/ops"
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

// TestSmooth holds the functions built on the exponential to their stated
// relative error of 2^-21, times what the rounding of their argument costs, at 60
// thousand places each.
func TestSmooth(t *testing.T) {
	gelu := func(x float64) float64 { return x * math.Erfc(-x/math.Sqrt2) / 2 }
	tanh := func(x float64) float64 { e := math.Expm1(2 * x / 30); return 30 * e / (e + 2) }
	eachLevel(t, func(t *testing.T, s *cpu.Set) {
		for _, f := range []struct {
			name string
			run  func(x []float32)
			want func(x float64) float64
			cost func(x float64) float64
		}{
			{"SiLU", func(x []float32) { s.Activate(ops.SiLU, x, x) }, func(x float64) float64 { return x / (1 + math.Exp(-x)) }, nil},
			{"GELU", func(x []float32) { s.Activate(ops.GELU, x, x) }, gelu, nil},
			{"QuickGELU", func(x []float32) { s.Activate(ops.QuickGELU, x, x) },
				func(x float64) float64 { return x / (1 + math.Exp(-1.702*x)) }, func(x float64) float64 { return math.Abs(1.702 * x) }},
			{"SoftCap", func(x []float32) { s.SoftCap(x, 30) }, tanh, nil},
		} {
			worst, at := 0.0, float32(0)
			x, y := make([]float32, 0, 60001), make([]float32, 60001)
			for i := range y {
				v := (float64(i) - 30000) / 30000
				x = append(x, float32(12*v*math.Abs(v))) // closer together around 0
			}
			copy(y, x)
			f.run(y)
			for i, v := range x {
				want, allowed := f.want(float64(v)), 1.0
				if f.cost != nil {
					allowed += f.cost(float64(v))
				}
				if e := math.Abs(float64(y[i])-want) / max(math.Abs(want)*allowed, 1e-30*0x1p21); e > worst {
					worst, at = e, v
				}
			}
			t.Logf("%v %s: relative error %.2f * 2^-24 at %g", s.Level(), f.name, worst*0x1p24, at)
			if worst > 0x1p-21 {
				t.Errorf("%s: relative error %.2f * 2^-24 at %g, 8 are allowed", f.name, worst*0x1p24, at)
			}
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
