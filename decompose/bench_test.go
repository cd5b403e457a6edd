package decompose

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"
)

// BenchmarkLarge factors a matrix of a large model, 4096 x 11008, rank 128, under
// moments whose neighbours correlate by 0.9 and of which one in 500 is of a size
// of 20. It reports the seconds of each step and, on Linux, the peak memory of the
// process.
func BenchmarkLarge(b *testing.B) {
	const n, k, rank = 4096, 11008, 128
	rng := rand.New(rand.NewPCG(1, 1))
	w := make([]float32, n*k)
	for i := range w {
		w[i] = float32(rng.NormFloat64())
	}
	size := make([]float64, k)
	for i := range size {
		if size[i] = 1 + 2*rng.Float64(); rng.IntN(500) == 0 {
			size[i] *= 20
		}
	}
	h := make([]float64, k*k)
	for i := range k {
		for j, v := i, 1.0; j < k && v > 1e-9; j, v = j+1, 0.9*v {
			h[i*k+j] = size[i] * size[j] * v
			h[j*k+i] = h[i*k+j]
		}
	}
	for b.Loop() {
		at := time.Now()
		m := NewMoments(h, k)
		b.ReportMetric(time.Since(at).Seconds(), "s-moments")
		at = time.Now()
		f, err := Factor(context.Background(), w, n, k, m, Options{Rank: rank})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(at).Seconds(), "s-factor")
		at = time.Now()
		f.Take(rank)
		b.ReportMetric(time.Since(at).Seconds(), "s-take")
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(status)) {
		var kib float64
		if _, err := fmt.Sscanf(line, "VmHWM: %f kB", &kib); err == nil {
			b.ReportMetric(kib/(1<<20), "GiB-peak")
		}
	}
}
