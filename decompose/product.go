package decompose

import (
	"runtime"
	"sync"

	"github.com/nstf/nstf/kernels/cpu"
)

// multiply returns c[m][n] = a[m][k] b[n][k]', in float32, on all processors.
func multiply(a, b []float32, m, n, k int) []float32 {
	c := make([]float32, m*n)
	if m == 0 || n == 0 || k == 0 {
		return c
	}
	set := cpu.Best()
	rows := func(dst []float32, row int) { copy(dst, b[row*k:(row+1)*k]) }
	const part = 128 // columns of c at a time
	parts := make(chan int, (n+part-1)/part)
	for at := 0; at < n; at += part {
		parts <- at
	}
	close(parts)
	var wait sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), cap(parts)) {
		wait.Go(func() {
			var scratch cpu.GemmScratch
			for at := range parts {
				set.Gemm(c, n, a, k, m, at, min(at+part, n), k, rows, &scratch)
			}
		})
	}
	wait.Wait()
	return c
}

// transpose returns x[n][k] as [k][n].
func transpose(x []float32, n, k int) []float32 {
	const tile = 32
	out := make([]float32, len(x))
	for i := 0; i < n; i += tile {
		for j := 0; j < k; j += tile {
			for r := i; r < min(i+tile, n); r++ {
				for c := j; c < min(j+tile, k); c++ {
					out[c*n+r] = x[r*k+c]
				}
			}
		}
	}
	return out
}

// inner sums a[i]*b[i] in float64, in four fixed chains.
func inner(a, b []float32) float64 {
	var s [4]float64
	i := 0
	for ; i+4 <= len(a); i += 4 {
		s[0] += float64(a[i]) * float64(b[i])
		s[1] += float64(a[i+1]) * float64(b[i+1])
		s[2] += float64(a[i+2]) * float64(b[i+2])
		s[3] += float64(a[i+3]) * float64(b[i+3])
	}
	for ; i < len(a); i++ {
		s[0] += float64(a[i]) * float64(b[i])
	}
	return (s[0] + s[1]) + (s[2] + s[3])
}

// narrow and widen convert.
func narrow(x []float64) []float32 {
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(v)
	}
	return out
}

func widen(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}
