package plan

import (
	"math"
	"math/rand/v2"
	"testing"
)

// random makes items whose costs fall about fourfold with each bit.
func random(rng *rand.Rand, items, options int) [][]choice {
	out := make([][]choice, items)
	for i := range out {
		n := math.Exp2(10 + 8*rng.Float64())
		scale := math.Exp(3 * rng.NormFloat64())
		for j := range options {
			bits := 2 + 5*rng.Float64()
			out[i] = append(out[i], choice{cost: scale * math.Exp2(-2*bits) * (0.8 + 0.4*rng.Float64()), weight: math.Round(n * bits / 8), index: j})
		}
		if rng.IntN(2) == 0 { // as in the source
			out[i] = append(out[i], choice{cost: 0, weight: math.Round(n * 2), index: options})
		}
	}
	return out
}

// exhaustive returns the least cost of all combinations within a capacity.
func exhaustive(items [][]choice, capacity float64) float64 {
	if capacity < 0 {
		return math.Inf(1)
	}
	if len(items) == 0 {
		return 0
	}
	best := math.Inf(1)
	for _, c := range items[0] {
		if rest := capacity - c.weight; rest >= 0 {
			best = min(best, c.cost+exhaustive(items[1:], rest))
		}
	}
	return best
}

func sums(items [][]choice, picked []int) (cost, weight float64) {
	for i, options := range items {
		for _, c := range options {
			if c.index == picked[i] {
				cost += c.cost
				weight += c.weight
			}
		}
	}
	return cost, weight
}

// between returns a capacity at a share of the way from the lightest to the
// heaviest options.
func between(items [][]choice, share float64) float64 {
	lo, hi := 0.0, 0.0
	for _, options := range items {
		l, h := math.Inf(1), 0.0
		for _, c := range options {
			l, h = min(l, c.weight), max(h, c.weight)
		}
		lo, hi = lo+l, hi+h
	}
	return math.Floor(lo + share*(hi-lo))
}

// TestPackBrute compares with all combinations.
func TestPackBrute(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 400 {
		items := random(rng, 1+rng.IntN(6), 1+rng.IntN(5))
		capacity := between(items, rng.Float64())
		want := exhaustive(items, capacity)
		s, ok := pack(items, capacity)
		if !ok {
			t.Fatal("no solution")
		}
		cost, weight := sums(items, s.picked)
		if weight > capacity || math.Abs(cost-s.cost) > 1e-12*cost || cost > want*(1+tolerance)+1e-300 || s.bound > want*(1+1e-12) {
			t.Fatalf("cost %g (said %g), the best is %g (bound %g), weight %g of %g", cost, s.cost, want, s.bound, weight, capacity)
		}
	}
}

// TestPackBound holds large problems to the bound.
func TestPackBound(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, size := range []struct{ items, options int }{{8, 12}, {40, 8}, {226, 10}, {226, 40}} {
		for range 2 {
			items := random(rng, size.items, size.options)
			for _, share := range []float64{0, 0.02, 0.1, 0.3, 0.6, 0.95, 1} {
				capacity := between(items, share)
				s, ok := pack(items, capacity)
				if !ok {
					t.Fatal("no solution")
				}
				cost, weight := sums(items, s.picked)
				if weight > capacity || cost-s.bound > tolerance*cost*(1+1e-9) {
					t.Errorf("%v at %g: cost %g, bound %g, weight %g of %g", size, share, cost, s.bound, weight, capacity)
				}
			}
		}
	}
}

func TestPackImpossible(t *testing.T) {
	items := [][]choice{{{1, 10, 0}, {0, 20, 1}}, {{1, 5, 0}}}
	if _, ok := pack(items, 14); ok {
		t.Error("14 are enough")
	}
	if s, ok := pack(items, 15); !ok || s.picked[0] != 0 {
		t.Errorf("%v %v", s, ok)
	}
	if s, ok := pack(items, 25); !ok || s.picked[0] != 1 || s.bound != 1 {
		t.Errorf("%v %v", s, ok)
	}
	if _, ok := pack(items, math.NaN()); ok {
		t.Error("NaN is enough")
	}
}
