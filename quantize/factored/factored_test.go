package factored_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/quantize/factored"
	"github.com/nstf/nstf/quantize/fit"
)

// matrix returns noise of a size and a product of a rank.
func matrix(rng *rand.Rand, n, k, rank int, noise float64) []float32 {
	w := make([]float32, n*k)
	for i := range w {
		w[i] = float32(noise * rng.NormFloat64())
	}
	for range rank {
		a, b := make([]float64, n), make([]float64, k)
		for i := range a {
			a[i] = rng.NormFloat64()
		}
		for j := range b {
			b[j] = rng.NormFloat64()
		}
		for i := range n {
			for j := range k {
				w[i*k+j] += float32(a[i] * b[j])
			}
		}
	}
	return w
}

// input returns moments in which a few directions count much.
func input(rng *rand.Rand, k int) *fit.Input {
	h := make([]float64, k*k)
	for i := range k {
		h[i*k+i] = 1
	}
	for range 4 {
		v := make([]float64, k)
		for i := range v {
			v[i] = rng.NormFloat64()
		}
		for i := range k {
			for j := range k {
				h[i*k+j] += 2 * v[i] * v[j]
			}
		}
	}
	return fit.NewInput(h, k)
}

// TestBalanced wants factors in trellis codes of 2 bits, which get all columns of a block
// equally wrong, to cost less than two such errors where singular values fall.
func TestBalanced(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const n, k = 160, 128
	w := make([]float32, n*k)
	for i := range 40 {
		for j, v := range matrix(rng, n, k, 1, 0) {
			w[j] += v / float32(i+1)
		}
	}
	for _, c := range []struct {
		recipe string
		most   float64 // relative error; 0.111 and 0.128 where all of A's columns had the length 1
	}{{"lowrank:32:tcq2", 0.05}, {"lowrank:48:tcq2", 0.05}} {
		r, err := factored.Matrix(context.Background(), "w", w, n, k, plan.MustRecipe(c.recipe), nil, fit.Options{Seed: 3})
		if err != nil {
			t.Fatal(err)
		}
		if e := r.Error / r.Reference; e > c.most {
			t.Errorf("%s: error %.4f, want at most %.4f", c.recipe, e, c.most)
		}
	}
}

// TestMatrix holds stored tensors to the error that is reported, products to
// find what is one, and corrections to lower the error of codes.
func TestMatrix(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	n, k := 128, 192
	in := input(rng, k)
	low, full := matrix(rng, n, k, 16, 0.001), matrix(rng, n, k, 0, 1)
	for _, c := range []struct {
		w      []float32
		recipe string
		most   float64 // relative error
	}{
		{low, "lowrank:16:f16", 1e-5},
		{low, "lowrank:32:q8_0", 1e-3},
		{low, "lowrank:16:tcq6,q8_0", 2e-3},
		{full, "tcq2+lr:32:q8_0", 0.06},
		{full, "q4_0+lr:16:f16", 0.008},
	} {
		r, err := factored.Matrix(context.Background(), "w", c.w, n, k, plan.MustRecipe(c.recipe), in, fit.Options{Seed: 3})
		if err != nil {
			t.Fatal(err)
		}
		if got := form.Describe(&r.Tensor); got != c.recipe {
			t.Errorf("%s: stored as %s", c.recipe, got)
		}
		back, err := form.Decode(&r.Tensor)
		if err != nil {
			t.Fatal(err)
		}
		h, _ := in.Moments()
		var sum float64
		for i := range n {
			e := make([]float64, k)
			for j := range e {
				e[j] = float64(c.w[i*k+j] - back[i*k+j])
			}
			for j := range k {
				for l := range k {
					sum += e[j] * h[j*k+l] * e[l]
				}
			}
		}
		if math.Abs(sum-r.Error) > 1e-3*sum+1e-6*r.Reference {
			t.Errorf("%s: the error is %g, reported %g", c.recipe, sum, r.Error)
		}
		if rel := r.Error / r.Reference; rel > c.most {
			t.Errorf("%s: a relative error of %g", c.recipe, rel)
		}
		if again, err := factored.Matrix(context.Background(), "w", c.w, n, k, plan.MustRecipe(c.recipe), in, fit.Options{Seed: 3, Threads: 1}); err != nil || again.Error != r.Error {
			t.Errorf("%s: again %g instead of %g: %v", c.recipe, again.Error, r.Error, err)
		}
	}
	dense, err := factored.Matrix(context.Background(), "w", full, n, k, plan.MustRecipe("tcq2"), in, fit.Options{Seed: 3})
	corrected, err2 := factored.Matrix(context.Background(), "w", full, n, k, plan.MustRecipe("tcq2+lr:32:q8_0"), in, fit.Options{Seed: 3})
	if err != nil || err2 != nil || corrected.Error > 0.8*dense.Error {
		t.Errorf("a correction leaves %g of %g: %v %v", corrected.Error, dense.Error, err, err2)
	}
}

// TestStack joins the matrices of a stack factor by factor.
func TestStack(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var list []formats.Tensor
	var rows []float32
	for range 3 {
		r, err := factored.Matrix(context.Background(), "w", matrix(rng, 32, 64, 2, 0.1), 32, 64, plan.MustRecipe("q8_0+lr:32:f16"), nil, fit.Options{})
		if !errors.As(err, new(*formats.UnsupportedError)) {
			t.Fatalf("rank 32 of 32 rows: %v", err)
		}
		r, err = factored.Matrix(context.Background(), "w", matrix(rng, 32, 64, 2, 0.1), 32, 64, plan.MustRecipe("q8_0+lr:16:f16"), nil, fit.Options{})
		if err != nil {
			t.Fatal(err)
		}
		back, err := form.Decode(&r.Tensor)
		if err != nil {
			t.Fatal(err)
		}
		rows, list = append(rows, back...), append(list, r.Tensor)
	}
	x, err := factored.Stack("w", []int64{3, 32, 64}, list)
	if err != nil {
		t.Fatal(err)
	}
	all, err := form.Decode(&x)
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if all[i] != rows[i] {
			t.Fatalf("weight %d is %g instead of %g", i, all[i], rows[i])
		}
	}
}
