package decompose

import (
	"context"
	"fmt"
	"math"
)

// A Basis is a few matrices that the matrices of a stack have in common: the
// Tucker form of a tensor of third order along its first mode alone.
type Basis struct {
	E, N, K int
	Values  []float64 // what each shared matrix takes off the loss, descending
	Total   float64   // sum over e of tr(W_e H W_e')

	c []float32 // [E][E], a column for each shared matrix
	w []float32
}

// Share finds the best shared matrices of w[E][N][K]: C holds eigenvectors of
// the E x E matrix of tr(W_e H W_f'), and U_b = sum over e of C[e][b] W_e. For
// one mode the higher-order singular value decomposition (De Lathauwer, De Moor
// and Vandewalle, 2000) is the best there is, so no iteration follows it.
func Share(ctx context.Context, w []float32, e, n, k int, h *Moments) (*Basis, error) {
	if len(w) != e*n*k || h != nil && h.k != k {
		panic(fmt.Sprintf("decompose: %d weights for %d matrices of %d x %d", len(w), e, n, k))
	}
	g := make([]float32, e*e)
	for i := range e {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		x := h.through(w[i*n*k:(i+1)*n*k], n, k)
		for j := range e {
			g[i*e+j] = float32(inner(x, w[j*n*k:(j+1)*n*k]))
		}
	}
	b := &Basis{E: e, N: n, K: k, w: w, c: make([]float32, e*e)}
	for i := range e {
		b.Total += float64(g[i*e+i])
	}
	if math.IsNaN(b.Total) || math.IsInf(b.Total, 0) {
		return nil, fmt.Errorf("%d matrices of %d x %d or their moments are not finite", e, n, k)
	}
	values, vectors, err := eigen(g, e)
	if err != nil {
		return nil, err
	}
	for i := range e {
		b.Values = append(b.Values, max(values[e-1-i], 0))
		for j := range e {
			b.c[j*e+i] = float32(vectors.At(j, e-1-i))
		}
	}
	return b, nil
}

// Loss returns what the first count shared matrices leave.
func (b *Basis) Loss(count int) float64 { return left(b.Total, b.Values, count) }

// Take returns C[E][B], whose columns are orthonormal, and U[B][N][K].
func (b *Basis) Take(count int) (c, u []float32) {
	size := b.N * b.K
	u = make([]float32, count*size)
	for e := range b.E {
		for i := range count {
			v := b.c[e*b.E+i]
			c = append(c, v)
			dst := u[i*size : (i+1)*size]
			for j, x := range b.w[e*size : (e+1)*size] {
				dst[j] += float32(v * x)
			}
		}
	}
	return c, u
}
