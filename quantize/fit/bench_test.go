package fit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/quantize/fit"
)

// BenchmarkFit reports weights per second on one core.
func BenchmarkFit(b *testing.B) {
	const k = 2048
	w := gaussian(rand.New(rand.NewPCG(1, 2)), 16*k)
	for _, s := range fittable(b) {
		if s.Plain() {
			continue
		}
		b.Run(s.Name, func(b *testing.B) {
			f, _ := fit.For(s)
			size, _ := s.Size([]int64{16, k}, nil)
			dst := make([]byte, size)
			for b.Loop() {
				if err := f(dst, w, nil, k); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*float64(len(w))/b.Elapsed().Seconds()/1e6, "Mweights/s")
		})
	}
}

// BenchmarkMatrix reports the seconds that 100 million weights take with
// second moments, and those that one input's moments take to be factored. With
// GOMAXPROCS=2 that is a machine of two cores.
func BenchmarkMatrix(b *testing.B) {
	for _, c := range []struct{ n, k int }{{4096, 4096}, {4096, 14336}} {
		rng := rand.New(rand.NewPCG(1, 2))
		w := gaussian(rng, c.n*c.k)
		in := fit.NewInput(lowRank(rng, c.k), c.k)
		begin := time.Now()
		if _, err := fit.Estimate(context.Background(), w[:16*c.k], 16, c.k, plan.MustCode("q8_0"), in, fit.Options{}); err != nil {
			b.Fatal(err)
		}
		factor := time.Since(begin)
		for _, run := range []struct {
			recipe string
			effort int
		}{{"q4_k", 1}, {"q4_k", 2}, {"q4_k", 3}, {"q6_k", 1}, {"q6_k", 3}, {"iq4_xs", 1}, {"iq4_xs", 3}} {
			b.Run(fmt.Sprintf("%s/%d/effort%d", run.recipe, c.k, run.effort), func(b *testing.B) {
				for b.Loop() {
					if _, err := fit.Matrix(context.Background(), "w", w, c.n, c.k, plan.MustCode(run.recipe), in, fit.Options{Effort: run.effort}); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)*1e8/float64(len(w)), "s/100M")
				b.ReportMetric(factor.Seconds(), "s/factor")
			})
		}
	}
}

func gaussian(rng *rand.Rand, n int) []float32 {
	w := make([]float32, n)
	for i := range w {
		w[i] = float32(rng.NormFloat64()) * 0.02
	}
	return w
}

// lowRank returns second moments of inputs that mostly lie in a few directions.
func lowRank(rng *rand.Rand, k int) []float64 {
	const rank = 8
	u := gaussian(rng, rank*k)
	h := make([]float64, k*k)
	for i := range k {
		for j := range i + 1 {
			var sum float64
			for r := range rank {
				sum += float64(u[r*k+i]) * float64(u[r*k+j])
			}
			h[i*k+j], h[j*k+i] = sum, sum
		}
		h[i*k+i] += 1e-3 * (1 + rng.Float64())
	}
	return h
}
