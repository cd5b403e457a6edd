package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/scheme"
	kernels "github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/kerneltest"
	"github.com/nstf/nstf/runtime/device"
)

// BenchmarkWidth multiplies 1 to 16 rows with matrices of a model of 1.1 B weights,
// enough of them to leave the caches, on one thread.
func BenchmarkWidth(b *testing.B) {
	const n, k = 5632, 2048
	for _, c := range []struct{ code, factors string }{
		{"q4_k", ""}, {"q6_k", ""}, {"q8_0", ""}, {"q3_k", ""}, {"bf16", ""}, {"fp8", ""}, {"nf4", ""}, {"tcq3", ""}, {"q4_k", "q8_0"},
	} {
		for _, t := range []int{1, 2, 4, 8, 12, 16} {
			b.Run(fmt.Sprintf("%s%s/T=%d", c.code, c.factors, t), func(b *testing.B) {
				rng := rand.New(rand.NewPCG(1, 1))
				e := &Engine{set: kernels.Best(), pool: kernels.NewPool(1), local: make([]local, 1), tiles: kernels.TilesFor(0)}
				defer e.pool.Close()
				e.part = e.bindParts()
				var list []*matrix
				for range 8 {
					l := &loader{set: e.set, memory: &device.Memory{}}
					if m := codedParts(b, rng, c.code, n, k); m != nil {
						list = append(list, &matrix{n: n, k: k, rows: e.set.Rows(m), dots: e.set.Dots(m), coded: e.set.Coded(m)})
						continue
					}
					x := coded(b, rng, "q", c.code, n, k)
					if c.factors != "" {
						var err error
						x, err = form.New("w", form.Corrected, []int64{n, k}, nil, x, coded(b, rng, "a", c.factors, n, 32), coded(b, rng, "b", c.factors, 32, k))
						if err != nil {
							b.Fatal(err)
						}
					}
					if list = append(list, l.open(x)); l.err != nil {
						b.Fatal(l.err)
					}
				}
				x, y := make([]float32, t*k), make([]float32, t*n)
				for i := range x {
					x[i] = float32(rng.NormFloat64())
				}
				i := 0
				for b.Loop() {
					e.multiply(t, x, []target{{list[i%len(list)], y}})
					i++
				}
			})
		}
	}
}

// codedParts makes a matrix of a scheme with several parts, nil of others.
func codedParts(b *testing.B, rng *rand.Rand, name string, n, k int) *scheme.Matrix {
	b.Helper()
	for _, c := range kerneltest.Codings() {
		if c.Name == name {
			m, err := kerneltest.RandomMatrix(rng, c, n, k)
			if err != nil {
				b.Fatal(err)
			}
			return m
		}
	}
	return nil
}
