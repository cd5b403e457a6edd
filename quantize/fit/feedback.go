package fit

import (
	"fmt"
	"math"
)

// A Feedback says how errors already made in some columns of a matrix are
// best answered in the columns that are still to be chosen, when the loss of
// an error E[N][K] is tr(E H E') with H[K][K] the second moments of the
// input. It holds the unit block-lower-triangular L of H = L D L', for blocks
// of columns: columns go from last to first, and those of block j aim at
//
//	Z_j = W_j + sum over i > j of E_i L_ij,   E = W - (what was chosen)
//
// (LDLQ: Chee et al., QuIP, 2023, arXiv 2307.13304; with blocks as in QuIP#,
// arXiv 2402.04396). A Feedback is immutable.
type Feedback struct {
	K, Block int
	Damping  float64 // what was added to the diagonal, over its mean
	// panels[j] holds rows (j+1)*Block to K-1 of L's block column j, [K-(j+1)*Block][Block].
	panels [][]float32
}

// Damping begins at this share of the diagonal's mean and doubles until the
// matrix is positive definite: field practice, exllamav3's value.
const leastDamping = 0.025

// NewFeedback factors second moments h[K][K], which it overwrites; only their
// lower triangle is read. Columns that no input reached (zero on the
// diagonal) get no feedback. It panics where block does not divide K, and
// fails where h holds NaN or infinities.
func NewFeedback(h []float64, k, block int) (*Feedback, error) {
	if k%block != 0 || len(h) != k*k {
		panic(fmt.Sprintf("fit: %d moments for %d columns in blocks of %d", len(h), k, block))
	}
	var mean float64
	for i := range k {
		mean += float64(h[i*k+i] / float64(k))
	}
	if !(mean >= 0 && mean <= math.MaxFloat64) {
		return nil, fmt.Errorf("second moments are not finite: their mean is %g", mean)
	}
	if mean == 0 {
		mean = 1 // nothing reached this matrix: all errors count alike
	}
	diagonal := make([]float64, k)
	for i := range diagonal {
		diagonal[i] = h[i*k+i]
	}
	// The upper triangle keeps the moments while the lower is overwritten.
	for i := range k {
		for j := range i {
			h[j*k+i] = h[i*k+j]
		}
	}
	for damping := leastDamping; damping < 1e6; damping *= 2 {
		for i := range k {
			h[i*k+i] = diagonal[i] + float64(damping*mean)
			for j := range i {
				h[i*k+j] = h[j*k+i]
			}
		}
		if cholesky(h, k) {
			return &Feedback{K: k, Block: block, Damping: damping, panels: panels(h, k, block)}, nil
		}
	}
	return nil, fmt.Errorf("second moments of %d columns are not positive, however much is added to their diagonal", k)
}

// cholesky replaces the lower triangle of h by C with C C' = h, row by row. It
// reports whether h was positive definite.
func cholesky(h []float64, k int) bool {
	for i := range k {
		row := h[i*k:]
		for j := range i {
			other := h[j*k:]
			row[j] = (row[j] - dot(row[:j], other[:j])) / other[j]
		}
		d := row[i] - dot(row[:i], row[:i])
		if !(d > 0) {
			return false
		}
		row[i] = math.Sqrt(d)
	}
	return true
}

// dot sums in four fixed chains.
func dot(a, b []float64) float64 {
	var s0, s1, s2, s3 float64
	b = b[:len(a)]
	i := 0
	for ; i+4 <= len(a); i += 4 {
		s0 += float64(a[i] * b[i])
		s1 += float64(a[i+1] * b[i+1])
		s2 += float64(a[i+2] * b[i+2])
		s3 += float64(a[i+3] * b[i+3])
	}
	for ; i < len(a); i++ {
		s0 += float64(a[i] * b[i])
	}
	return (s0 + s1) + (s2 + s3)
}

// panels returns the blocks of C diag(C_jj)^-1 below the diagonal.
func panels(c []float64, k, block int) [][]float32 {
	out := make([][]float32, k/block)
	x := make([]float64, block)
	for j := range out {
		first := (j + 1) * block
		p := make([]float32, 0, (k-first)*block)
		for i := first; i < k; i++ {
			// x C_jj = C_ij, C_jj being lower triangular.
			for b := block - 1; b >= 0; b-- {
				v := c[i*k+j*block+b]
				for a := b + 1; a < block; a++ {
					v -= float64(x[a] * c[(j*block+a)*k+j*block+b])
				}
				x[b] = v / c[(j*block+b)*k+j*block+b]
			}
			for _, v := range x {
				p = append(p, float32(v))
			}
		}
		out[j] = p
	}
	return out
}

// Answer adds to z[rows][Block] what block j owes to the errors e[rows][K] of
// the columns behind it.
func (f *Feedback) Answer(z, e []float32, j int) {
	b, first := f.Block, (j+1)*f.Block
	panel := f.panels[j]
	for r := range len(z) / b {
		dst := z[r*b : (r+1)*b]
		for i, v := range e[r*f.K+first : (r+1)*f.K] {
			if v == 0 {
				continue
			}
			for c, l := range panel[i*b : (i+1)*b] {
				dst[c] += float32(v * l)
			}
		}
	}
}
