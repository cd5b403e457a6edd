//go:build !noasm

package cpu

// accumRowsNEON computes
//
//	for t := range p {
//		for d := range dst {
//			dst[d] += p[t] * v[t*ld+d]
//		}
//	}
//
// each product and sum rounded once; ld counts elements.
//
//go:noescape
func accumRowsNEON(dst []float32, p []float32, v []float32, ld int)

// scaleNEON computes
//
//	for i := range x {
//		x[i] *= a
//	}
//
//go:noescape
func scaleNEON(x []float32, a float32)

// addNEON computes
//
//	for i, v := range x {
//		dst[i] += v
//	}
//
//go:noescape
func addNEON(dst []float32, x []float32)

// mulNEON computes
//
//	for i, v := range x {
//		dst[i] *= v
//	}
//
//go:noescape
func mulNEON(dst []float32, x []float32)

// maximumNEON computes
//
//	m := x[0]
//	for _, v := range x {
//		m = max(m, v)
//	}
//
// for at least one element; a NaN is passed over.
//
//go:noescape
func maximumNEON(x []float32) float32
