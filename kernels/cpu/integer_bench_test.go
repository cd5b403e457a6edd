package cpu_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/kerneltest"
)

// BenchmarkInteger times the integer kernels of every scheme and level: one
// token against 256 MiB of weights (GB/s of weights) and against 1 MiB, which a
// cache holds, and 512 tokens (GFLOP/s).
func BenchmarkInteger(b *testing.B) {
	for _, l := range cpu.Levels() {
		s, err := cpu.ForLevel(l)
		if err != nil {
			b.Fatal(err)
		}
		for _, name := range cpu.Integers() {
			sc, _ := scheme.ByName(name)
			for _, c := range []struct {
				what    string
				t, size int
			}{{"memory", 1, 256 << 20}, {"cache", 1, 1 << 20}, {"cacheT4", 4, 1 << 20}, {"cacheT8", 8, 1 << 20}, {"T16", 16, 1 << 20}, {"T512", 512, 1 << 20}} {
				const k = 4096
				if l == cpu.LevelGeneric && c.size*c.t > 1<<20 {
					continue
				}
				b.Run(fmt.Sprintf("%v/%s/%s", l, name, c.what), func(b *testing.B) {
					row := k / sc.Block * sc.BlockBytes
					n := c.size / row &^ 63
					r := rand.New(rand.NewPCG(1, 2))
					w := kerneltest.RandomRows(r, sc, 64, k)
					for len(w) < n*row {
						w = append(w, w[:min(len(w), n*row-len(w))]...)
					}
					var a cpu.Activations
					var scratch cpu.IntegerScratch
					s.Quantize(&a, random(r, c.t*k), k, c.t, k, s.Integer(name).Group())
					y := make([]float32, c.t*n)
					for b.Loop() {
						s.Integer(name).MatMul(y, n, w, &a, 0, n, &scratch)
					}
					seconds := b.Elapsed().Seconds() / float64(b.N)
					b.ReportMetric(float64(len(w))/seconds/1e9, "GB/s")
					b.ReportMetric(2*float64(c.t*n*k)/seconds/1e9, "GFLOP/s")
				})
			}
		}
	}
}
