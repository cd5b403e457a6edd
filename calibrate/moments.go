package calibrate

import (
	"github.com/nstf/nstf/formats/stats"
)

// Moments are the second moments of one input: the mean of x x' over tokens.
type Moments struct {
	K      int
	Tokens int64
	AbsMax []float32 // [K]; of the finite values

	sums []float64 // lower triangle of the sum, row after row
	odd  bool      // a NaN or an infinity came
}

// plus returns the moments of both, in the memory of m; m may be nil.
func (m *Moments) plus(more *Moments) *Moments {
	if m == nil {
		return more
	}
	m.Tokens, m.odd = m.Tokens+more.Tokens, m.odd || more.odd
	for i, v := range more.AbsMax {
		m.AbsMax[i] = max(m.AbsMax[i], v)
	}
	for i, v := range more.sums {
		m.sums[i] += v
	}
	return m
}

// Mean returns the moments as a full matrix [K][K], zeros where no token came.
func (m *Moments) Mean() []float64 {
	out := make([]float64, m.K*m.K)
	if m.Tokens == 0 {
		return out
	}
	for i := range m.K {
		for j := range i + 1 {
			out[i*m.K+j] = m.sums[i*(i+1)/2+j] / float64(m.Tokens)
		}
	}
	stats.Mirror(out, m.K)
	return out
}

// packed returns the mean as a file holds it: a triangle of float32.
func (m *Moments) packed() []float32 {
	out := make([]float32, len(m.sums))
	for i, v := range m.sums {
		out[i] = float32(v / float64(m.Tokens))
	}
	return out
}

// Input returns the moments as statistics, which share nothing with them.
func (m *Moments) Input() *stats.Input {
	if m.Tokens == 0 {
		return &stats.Input{K: m.K}
	}
	return stats.NewInput(m.K, m.Tokens, m.packed(), append([]float32(nil), m.AbsMax...))
}
