package decompose

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
)

func random(rng *rand.Rand, n int) []float32 { return gaussians(rng, n) }

// uneven returns second moments with a decaying spectrum in a random basis.
func uneven(rng *rand.Rand, k int) *Moments {
	x := random(rng, 2*k*k)
	for i := range 2 * k {
		for j := range k {
			x[i*k+j] *= float32(math.Exp(-4 * float64(j) / float64(k)))
		}
	}
	basis := random(rng, k*k)
	y := multiply(x, basis, 2*k, k, k)
	t := transpose(y, 2*k, k)
	return NewMoments(widen(multiply(t, t, k, k, 2*k)), k)
}

func difference(w, a, b []float32, n, k, r int) []float32 {
	e := append([]float32(nil), w...)
	for i, v := range multiply(a, transpose(b, r, k), n, k, r) {
		e[i] -= v
	}
	return e
}

// TestFactor holds truncated singular values to be the loss, for matrices of
// all proportions and with and without moments, and no small change of the
// factors to be better.
func TestFactor(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, c := range []struct{ n, k int }{{40, 96}, {96, 40}, {64, 64}, {600, 33}} {
		for _, h := range []*Moments{nil, uneven(rng, c.k)} {
			w := random(rng, c.n*c.k)
			f, err := Factor(context.Background(), w, c.n, c.k, h, Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range []int{0, 1, 7, min(c.n, c.k)} {
				a, b := f.Take(r)
				got, want := h.Loss(difference(w, a, b, c.n, c.k, r), c.n, c.k), f.Loss(r)
				if math.Abs(got-want) > 2e-5*f.Total {
					t.Errorf("%v rank %d: the loss is %g, the spectrum says %g of %g", c, r, got, want, f.Total)
				}
				for range 3 {
					near := append([]float32(nil), b...)
					for i := range near {
						near[i] += 0.01 * float32(rng.NormFloat64())
					}
					if r == 7 && h.Loss(difference(w, a, near, c.n, c.k, r), c.n, c.k) < got {
						t.Errorf("%v rank %d: a random neighbour is better", c, r)
					}
				}
			}
			for i := 1; i < len(f.Values); i++ {
				if f.Values[i] > f.Values[i-1]*(1+1e-9) {
					t.Fatalf("values %d and %d ascend", i-1, i)
				}
			}
		}
	}
}

// TestSubspace holds the random path to the exact one and to its own bound.
func TestSubspace(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	n, k, r := 180, 220, 12
	h := uneven(rng, k)
	w := random(rng, n*k)
	exact, err := Factor(context.Background(), w, n, k, h, Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := &Factors{N: n, K: k, Total: exact.Total, wt: transpose(w, n, k)}
	if err := f.bySubspace(context.Background(), w, h, r, Options{Seed: 3}); err != nil {
		t.Fatal(err)
	}
	for i, v := range f.Values {
		if d := exact.Values[i] - v; d < -1e-4*exact.Values[0] || d > f.Missed || d > 0.02*exact.Values[i] {
			t.Errorf("value %d: %g instead of %g, missed at most %g", i, v, exact.Values[i], f.Missed)
		}
	}
	if f.Missed <= 0 || f.Missed > 40*exact.Values[r] {
		t.Errorf("the bound %g does not fit the next value %g", f.Missed, exact.Values[r])
	}
	a, b := f.Take(r)
	if got := h.Loss(difference(w, a, b, n, k, r), n, k); math.Abs(got-f.Loss(r)) > 1e-4*f.Total {
		t.Errorf("the loss is %g, the spectrum says %g", got, f.Loss(r))
	}
}

// TestKnownRank finds a matrix of rank 5 to be one.
func TestKnownRank(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	n, k := 600, 700
	w := multiply(random(rng, n*5), random(rng, k*5), n, k, 5)
	f, err := Factor(context.Background(), w, n, k, nil, Options{Rank: 8})
	if err != nil {
		t.Fatal(err)
	}
	if f.Loss(4) < 0.01*f.Total || f.Loss(5) > 1e-5*f.Total || f.Missed > 1e-3*f.Total {
		t.Errorf("losses %g, %g of %g, missed at most %g", f.Loss(4), f.Loss(5), f.Total, f.Missed)
	}
}

// rounding stores to multiples of a step.
func rounding(step float32) Store[string] {
	return func(_ context.Context, w []float32, n, k int, h *Moments) (string, []float32, error) {
		out := make([]float32, len(w))
		for i, v := range w {
			out[i] = step * float32(math.RoundToEven(float64(v/step)))
		}
		return "rounded", out, nil
	}
}

func keeping(_ context.Context, w []float32, n, k int, h *Moments) (string, []float32, error) {
	return "kept", w, nil
}

// TestCorrect holds corrections to the best of the codes alone, and rounds to
// pay.
func TestCorrect(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	n, k := 64, 96
	h := uneven(rng, k)
	w := random(rng, n*k)
	for i, v := range multiply(random(rng, n*3), random(rng, k*3), n, k, 3) {
		w[i] += 3 * v // what a few factors can say
	}
	one, err := Correct(context.Background(), w, n, k, 6, 1, h, rounding(2), keeping, rounding(0.01))
	if err != nil {
		t.Fatal(err)
	}
	if one.Curve[0] < one.Curve[6]*1.2 || math.Abs(one.Error-one.Curve[6]) > 0.02*one.Curve[0] {
		t.Errorf("left %g, the curve goes from %g to %g", one.Error, one.Curve[0], one.Curve[6])
	}
	many, err := Correct(context.Background(), w, n, k, 6, 8, h, rounding(2), keeping, rounding(0.01))
	if err != nil {
		t.Fatal(err)
	}
	if many.Error > one.Error || many.Q != "rounded" || many.A != "kept" || many.B != "rounded" {
		t.Errorf("eight rounds leave %g (%+v), one %g", many.Error, many, one.Error)
	}
}

// TestRankBeyond asks for more than a matrix has.
func TestRankBeyond(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	w := multiply(random(rng, 600*2), random(rng, 24*2), 600, 24, 2)
	c, _, err := Product(context.Background(), w, 600, 24, 8, nil, keeping, keeping)
	if err != nil || c.Error > 1e-6*c.Reference {
		t.Errorf("left %g of %g: %v", c.Error, c.Reference, err)
	}
}

// TestRefused holds values that are not finite and cancelled work to errors.
func TestRefused(t *testing.T) {
	w := make([]float32, 6)
	w[3] = float32(math.NaN())
	if _, err := Factor(context.Background(), w, 2, 3, nil, Options{}); err == nil {
		t.Error("NaN was factored")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Factor(ctx, make([]float32, 6), 2, 3, nil, Options{}); err == nil {
		t.Error("went on after the end")
	}
}

// TestShare finds two matrices in common, and holds the loss to what is left.
func TestShare(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	e, n, k := 6, 20, 24
	h := uneven(rng, k)
	base, mix := random(rng, 2*n*k), random(rng, e*2)
	w := multiply(mix, transpose(base, 2, n*k), e, n*k, 2)
	for i := range w {
		w[i] += 0.05 * float32(rng.NormFloat64())
	}
	b, err := Share(context.Background(), w, e, n, k, h)
	if err != nil {
		t.Fatal(err)
	}
	if b.Loss(1) < 0.05*b.Total || b.Loss(2) > 0.01*b.Total {
		t.Errorf("losses %g, %g of %g", b.Loss(1), b.Loss(2), b.Total)
	}
	c, u := b.Take(2)
	left := difference(w, c, u, e, n*k, 2)
	var sum float64
	for i := range e {
		sum += h.Loss(left[i*n*k:(i+1)*n*k], n, k)
	}
	if math.Abs(sum-b.Loss(2)) > 1e-4*b.Total {
		t.Errorf("the loss is %g, the spectrum says %g", sum, b.Loss(2))
	}
}

// TestChain makes trains of two and three cores and holds the error to what the
// truncations left; with full ranks nothing is lost.
func TestChain(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	v, k := 23, 12
	w := random(rng, v*k)
	for _, c := range []struct {
		rows, columns, ranks []int
		exact                bool
	}{
		{[]int{4, 6}, []int{3, 4}, []int{12}, true},
		{[]int{4, 6}, []int{3, 4}, []int{5}, false},
		{[]int{2, 3, 4}, []int{2, 3, 2}, []int{4, 8}, true},
		{[]int{2, 3, 4}, []int{2, 3, 2}, []int{3, 5}, false},
	} {
		cores, left, err := Chain(context.Background(), w, v, k, c.rows, c.columns, c.ranks)
		if err != nil {
			t.Fatal(err)
		}
		var sum float64
		for i := range v {
			row := decodeRow(cores, i)
			for j, x := range row {
				sum += math.Pow(float64(w[i*k+j]-x), 2)
			}
		}
		if sum > left*1.001+1e-6 || c.exact && left > 1e-3 || !c.exact && sum < 0.1*left {
			t.Errorf("%v: the error is %g, truncations left %g", c.ranks, sum, left)
		}
	}
}

// decodeRow multiplies the cores of one row.
func decodeRow(cores []Core, row int) []float32 {
	left := []float32{1}
	columns := 1
	digits := make([]int, len(cores))
	for i := len(cores) - 1; i >= 0; i-- {
		digits[i] = row % cores[i].Rows
		row /= cores[i].Rows
	}
	for i, c := range cores {
		size := c.RankIn * c.Columns * c.RankOut
		g := c.W[digits[i]*size:][:size]
		out := make([]float32, columns*c.Columns*c.RankOut)
		for a := range columns {
			for r := range c.RankIn {
				for x := range c.Columns * c.RankOut {
					out[a*c.Columns*c.RankOut+x] += left[a*c.RankIn+r] * g[r*c.Columns*c.RankOut+x]
				}
			}
		}
		left, columns = out, columns*c.Columns
	}
	return left
}

// A matrix of zeros, and one that reads nothing, have no factors but those of zeros,
// by every way of factoring.
func TestZeros(t *testing.T) {
	ctx := t.Context()
	rng := rand.New(rand.NewPCG(3, 4))
	for _, size := range [][2]int{{24, 40}, {40, 24}, {600, 520}} {
		n, k := size[0], size[1]
		zeros, some := make([]float32, n*k), make([]float32, n*k)
		for i := range some {
			some[i] = float32(rng.NormFloat64())
		}
		dead := NewMoments(make([]float64, k*k), k)
		for _, o := range []Options{{Rank: 8}, {Rank: 8, Fast: true}} {
			for i, w := range [][]float32{zeros, some} {
				f, err := Factor(ctx, w, n, k, []*Moments{nil, dead}[i], o)
				if err != nil {
					t.Fatal(err)
				}
				if f.Total != 0 || f.Loss(8) != 0 {
					t.Errorf("%v %+v: %g and %g are lost of nothing", size, o, f.Total, f.Loss(8))
				}
				a, b := f.Take(8)
				if len(a)/n != len(b)/k || len(a)%n != 0 {
					t.Errorf("%v %+v: factors of %d and %d", size, o, len(a), len(b))
				}
			}
		}
	}
}
