//go:build !noasm

package cpu

func normsNEON() normKernels {
	n := genericNorms()
	n.moments = momentsNEON
	n.rmsApply = rmsApplyNEON
	n.ropeHalf = ropeHalfNEON
	n.ropeInterleaved = ropeInterleavedNEON
	return n
}

// momentsNEON computes
//
//	for _, f := range x {
//		d := float64(f) - mean
//		sum += d
//		squares += d * d
//	}
//	return sum, squares
//
//go:noescape
func momentsNEON(x []float32, mean float64) (sum, squares float64)

// rmsApplyNEON computes
//
//	for i, f := range x {
//		dst[i] = f * r * (w[i] + offset)
//	}
//
//go:noescape
func rmsApplyNEON(dst, x, w []float32, r, offset float32)

// ropeHalfNEON computes
//
//	h := len(cos)
//	for i := range h {
//		x[i], x[i+h] = x[i]*cos[i] - x[i+h]*sin[i], x[i+h]*cos[i] + x[i]*sin[i]
//	}
//
//go:noescape
func ropeHalfNEON(x, cos, sin []float32)

// ropeInterleavedNEON computes
//
//	for i := range cos {
//		x[2*i], x[2*i+1] = x[2*i]*cos[i] - x[2*i+1]*sin[i], x[2*i+1]*cos[i] + x[2*i]*sin[i]
//	}
//
//go:noescape
func ropeInterleavedNEON(x, cos, sin []float32)
