package cpu_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
)

// TestAddSquares holds the triangle to sums in float64, at every level, at one
// thread and at three, and leaves what lay in the sums.
func TestAddSquares(t *testing.T) {
	for _, level := range cpu.Levels() {
		set, err := cpu.ForLevel(level)
		if err != nil {
			t.Fatal(err)
		}
		var q1, q3 cpu.Squares
		one, three := cpu.NewPool(1), cpu.NewPool(3)
		defer one.Close()
		defer three.Close()
		for _, c := range []struct{ t, k int }{{1, 1}, {3, 2}, {5, 4}, {1, 5}, {7, 33}, {300, 13}, {257, 100}, {20, 800}, {4, 385}} {
			rng := rand.New(rand.NewPCG(uint64(c.t), uint64(c.k)))
			x := make([]float32, c.t*c.k)
			for i := range x {
				x[i] = float32(rng.NormFloat64())
			}
			sums := make([]float64, c.k*(c.k+1)/2)
			for i := range sums {
				sums[i] = float64(i)
			}
			again := slices.Clone(sums)
			set.AddSquares(one, sums, x, c.k, &q1)
			set.AddSquares(three, again, x, c.k, &q3)
			if !slices.Equal(sums, again) {
				t.Errorf("%v: %d tokens of %d features differ between one thread and three", level, c.t, c.k)
			}
			for i := range c.k {
				for j := range i + 1 {
					at := i*(i+1)/2 + j
					want, size := 0.0, 0.0
					for r := range c.t {
						p := float64(x[r*c.k+i]) * float64(x[r*c.k+j])
						want, size = want+p, size+math.Abs(p)
					}
					if got := sums[at] - float64(at); math.Abs(got-want) > 1e-5*size+1e-9*float64(at) {
						t.Fatalf("%v: %d tokens of %d features: [%d][%d] is %g, want %g", level, c.t, c.k, i, j, got, want)
					}
				}
			}
		}
	}
}
