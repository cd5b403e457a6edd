//go:build !noasm

package cpu

// expSumNEON computes
//
//	for i := range x {
//		x[i] = exp(x[i] - shift)
//		sum += x[i]
//	}
//	return sum
//
//go:noescape
func expSumNEON(x []float32, shift float32) float32

// gatedNEON computes
//
//	for i, v := range x {
//		dst[i] = v / (1 + exp(-(a1*v + a3*v*v*v)))
//	}
//
// where the v of the exponent is limited to 1000 either way.
//
//go:noescape
func gatedNEON(dst []float32, x []float32, a1 float32, a3 float32)

// swiGLUNEON computes
//
//	for i, g := range gate {
//		g, u := min(g, limit), min(max(up[i], -limit), limit)
//		dst[i] = g / (1 + exp(-alpha*g)) * (u + offset)
//	}
//
//go:noescape
func swiGLUNEON(dst []float32, gate []float32, up []float32, alpha float32, limit float32, offset float32)

// geluNEON computes
//
//	for i, v := range x {
//		dst[i] = v * (1 + erf(v/sqrt(2))) / 2
//	}
//
//go:noescape
func geluNEON(dst []float32, x []float32)

// softCapNEON computes
//
//	for i, v := range x {
//		x[i] = limit * tanh(v/limit)
//	}
//
//go:noescape
func softCapNEON(x []float32, limit float32)
