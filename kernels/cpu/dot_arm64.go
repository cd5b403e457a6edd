//go:build !noasm

package cpu

// dotRowsF32NEON computes
//
//	for n := range y {
//		y[n] = sum over k of w[n*ld+k] * x[k]
//	}
//
// with float32 sums, for K = len(x); ld >= K counts elements of w.
//
//go:noescape
func dotRowsF32NEON(y []float32, w []float32, ld int, x []float32)

// dotRowsBF16NEON is dotRowsF32NEON for weights in bfloat16.
//
//go:noescape
func dotRowsBF16NEON(y []float32, w []byte, ld int, x []float32)

// dotRowsF16NEON is dotRowsF32NEON for weights in half precision.
//
//go:noescape
func dotRowsF16NEON(y []float32, w []byte, ld int, x []float32)
