package cpu_test

import (
	"fmt"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
)

// BenchmarkSquares reports the rate of the triangle's multiplications and
// additions, K(K+1) for each token.
func BenchmarkSquares(b *testing.B) {
	for _, threads := range []int{1, 2} {
		for _, k := range []int{512, 2048, 4096} {
			b.Run(fmt.Sprintf("threads=%d/k=%d", threads, k), func(b *testing.B) {
				const t = 512
				pool := cpu.NewPool(threads)
				defer pool.Close()
				var q cpu.Squares
				sums, x := make([]float64, k*(k+1)/2), make([]float32, t*k)
				for i := range x {
					x[i] = float32(i%977)/977 - 0.5
				}
				b.ResetTimer()
				for range b.N {
					cpu.Best().AddSquares(pool, sums, x, k, &q)
				}
				b.ReportMetric(float64(b.N)*t*float64(k)*float64(k+1)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}
