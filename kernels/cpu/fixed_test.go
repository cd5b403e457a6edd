package cpu_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
)

// TestFixed wants the same bits from every level, guards left alone, and
// products within what rounding to 16 bits costs.
func TestFixed(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 2))
	for _, c := range []struct{ t, n, k, ld int }{{5, 1, 1, 1}, {16, 40, 255, 260}, {37, 33, 7, 9}, {13, 96, 256, 256}, {256, 256, 256, 272}} {
		a, b := make([]float32, c.t*c.ld), make([]float32, c.n*c.ld)
		for _, x := range [][]float32{a, b} {
			for i := range x {
				x[i] = float32(rng.NormFloat64())
			}
		}
		clear(a[:c.k])                       // a row of zeros
		a[c.ld] = 1e9                        // one value that outweighs its row
		a[2*c.ld] = float32(math.Inf(1)) / 2 // an infinity: the row is dropped
		for i := range c.k {
			b[i] = 1e-44 // without an inverse
			a[3*c.ld+i] = 3
			a[4*c.ld+i] *= 1e30
		}
		ldc := (c.n+31)/32*32 + 3
		first := make([]float32, c.t*ldc)
		for i := range first {
			first[i] = float32(rng.NormFloat64())
		}
		var want []float32
		for _, l := range cpu.Levels() {
			s, err := cpu.ForLevel(l)
			if err != nil {
				t.Fatal(err)
			}
			got := append([]float32(nil), first...)
			var left, rows, right cpu.Fixed
			for range 2 { // memory is used again
				s.FixLeft(&left, a, c.ld, c.t, c.k)
				s.FixLeft(&rows, b, c.ld, c.n, c.k)
				s.FixRight(&right, &rows)
			}
			s.FixedAdd(got, ldc, &left, &right)
			for i := range want {
				if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
					t.Fatalf("%+v: level %v gives %x for element %d, want %x", c, l, got[i], i, want[i])
				}
			}
			want = got
		}
		for i := range c.t {
			for j := range ldc {
				got, exact := float64(want[i*ldc+j]), float64(first[i*ldc+j])
				var aa, bb, ab float64
				if j < c.n && i != 2 && j != 0 {
					for k := range c.k {
						x, y := float64(a[i*c.ld+k]), float64(b[j*c.ld+k])
						aa, bb, ab = aa+x*x, bb+y*y, ab+x*y
					}
				}
				if tolerance := 1e-4*math.Sqrt(aa*bb) + 1e-6*math.Abs(exact); math.Abs(got-exact-ab) > tolerance {
					t.Fatalf("%+v: element %d, %d is %g, want %g within %g", c, i, j, got, exact+ab, tolerance)
				}
			}
		}
	}
}

// BenchmarkFixed reports the products of one core, two operations each.
func BenchmarkFixed(b *testing.B) {
	const n = cpu.FixedBlock
	x, c := make([]float32, n*n), make([]float32, n*n)
	for i := range x {
		x[i] = float32(i%17) - 8
	}
	for _, l := range cpu.Levels() {
		s, err := cpu.ForLevel(l)
		if err != nil {
			b.Fatal(err)
		}
		var left, right cpu.Fixed
		s.FixLeft(&left, x, n, n, n)
		s.FixRight(&right, &left)
		rate := func(name string, work float64, f func()) {
			b.Run(l.String()+"/"+name, func(b *testing.B) {
				for b.Loop() {
					f()
				}
				b.ReportMetric(work*float64(b.N)/b.Elapsed().Seconds()/1e9, "G/s")
			})
		}
		rate("add", 2*n*n*n, func() { s.FixedAdd(c, n, &left, &right) })
		rate("left", n*n, func() { s.FixLeft(&left, x, n, n, n) })
		rate("right", n*n, func() { s.FixRight(&right, &left) })
	}
}
