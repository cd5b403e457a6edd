package decompose

import "fmt"

// Moments are the mean second moments H[K][K] of an input; nil stands for the
// identity: all errors count alike. Immutable.
type Moments struct {
	k int
	h []float32
}

// NewMoments takes a full symmetric matrix h[K][K] and keeps a copy in float32.
// It panics where the length does not fit.
func NewMoments(h []float64, k int) *Moments {
	if len(h) != k*k {
		panic(fmt.Sprintf("decompose: %d moments for %d columns", len(h), k))
	}
	return &Moments{k: k, h: narrow(h)}
}

// through returns x[rows][K] H.
func (m *Moments) through(x []float32, rows, k int) []float32 {
	if m == nil {
		return x
	}
	return multiply(x, m.h, rows, k, k)
}

// Loss returns tr(E H E') for e[N][K].
func (m *Moments) Loss(e []float32, n, k int) float64 {
	const strip = 512 // rows at a time
	var sum float64
	for at := 0; at < n; at += strip {
		rows := min(strip, n-at)
		x := e[at*k : (at+rows)*k]
		sum += inner(m.through(x, rows, k), x)
	}
	return sum
}
