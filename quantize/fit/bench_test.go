package fit_test

import (
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/quantize/fit"
)

// BenchmarkFit reports weights per second on one core.
func BenchmarkFit(b *testing.B) {
	const k = 2048
	rng := rand.New(rand.NewPCG(1, 2))
	w := make([]float32, 4*k)
	for i := range w {
		w[i] = float32(rng.NormFloat64()) * 0.02
	}
	for _, name := range []string{"q4_0", "q5_0", "q8_0", "q4_k", "q5_k", "q6_k"} {
		b.Run(name, func(b *testing.B) {
			s, _ := scheme.ByName(name)
			f, _ := fit.For(s)
			size, _ := s.Size([]int64{4, k}, nil)
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
