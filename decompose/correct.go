package decompose

import (
	"context"
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
)

// A Store brings a matrix w[n][k], whose errors cost tr(E H E') with moments h,
// into the form in which it is kept, and says what is then stored. The value
// is the caller's.
type Store[T any] func(ctx context.Context, w []float32, n, k int, h *Moments) (value T, stored []float32, err error)

// A Corrected is Q + A B, or A B alone.
type Corrected[T any] struct {
	Q, A, B   T       // what the stores returned; Q is empty for a product alone
	Error     float64 // tr(E H E')
	Reference float64 // tr(W H W')
	Rounds    int     // of those tried, the one that was best, from 1
	// Curve is the loss of Q with products of ranks 0, 1, 2 ... found after it,
	// before these are stored, from the first round.
	Curve []float64
}

// Correct fits Q + A B to w[n][k]. It begins with the best product of W itself,
// all errors alike, because codes of rotated weights get wrong a part of what
// they hold, whatever H is: what the product takes needs no codes. Then q stores
// W - A B, the best product under H for what is left is found and stored, and so
// in turn, until that stops paying or rounds are over (the manner of CALDERA:
// Saha et al., 2024, arXiv 2405.18886; each product is that of EoRA: Liu et al.,
// 2024, arXiv 2410.21271). Codes with the product that they were fitted behind
// answer what storing it cost, codes with the one that was found after them do
// not: of all these pairs the best is returned. Errors are those of the stores
// and of [Factor].
func Correct[T any](ctx context.Context, w []float32, n, k, rank, rounds int, h *Moments, q, a, b Store[T]) (Corrected[T], error) {
	reference := h.Loss(w, n, k)
	before, product, err := Product(ctx, w, n, k, rank, nil, a, b)
	if err != nil {
		return before, err
	}
	var best Corrected[T]
	for round := 1; round <= rounds; round++ {
		behind, after, stored, err := correctOnce(ctx, w, product, n, k, rank, h, q, a, b)
		if err != nil {
			return best, err
		}
		behind.A, behind.B, behind.Curve = before.A, before.B, after.Curve
		better := behind
		if after.Error < behind.Error {
			better = after
		}
		better.Reference, better.Rounds = reference, round
		gain := best.Error - better.Error
		if round == 1 {
			best = better
			gain = best.Error
		} else if gain > 0 {
			better.Curve = best.Curve
			best = better
		}
		if gain < 0.01*best.Error {
			break
		}
		before, product = after, stored
	}
	return best, nil
}

// correctOnce stores W less a product, then the product for what is left. The
// codes are returned with the loss behind the product that was given, and with
// the product found after them.
func correctOnce[T any](ctx context.Context, w, product []float32, n, k, rank int, h *Moments, q, a, b Store[T]) (behind, after Corrected[T], stored []float32, err error) {
	rest := make([]float32, len(w))
	for i, v := range w {
		rest[i] = v - product[i]
	}
	value, codes, err := q(ctx, rest, n, k, h)
	if err != nil {
		return behind, after, nil, err
	}
	for i, v := range w {
		rest[i] -= codes[i]
		codes[i] = v - codes[i]
	}
	behind.Q, behind.Error = value, h.Loss(rest, n, k)
	after, stored, err = Product(ctx, codes, n, k, rank, h, a, b)
	after.Q = value
	return behind, after, stored, err
}

// balance multiplies the columns of a[n][rank] with the square roots of the singular
// values, whose squares are given, and divides the rows of b[rank][k] by them. Codes of
// rotated weights get all columns of a block equally wrong, whatever their size, and so
// all rows: an error of a column costs what the row of the other factor holds, and the sum
// of what both cost is least where both have the same size.
func balance(a, b []float32, squares []float64, n, rank, k int) {
	const least = 1e-4 // of the largest, so that noise is not blown up
	for r, v := range squares[:min(rank, len(squares))] {
		root := float32(math.Sqrt(math.Sqrt(max(v, least*least*squares[0]))))
		if root == 0 {
			return // and all behind it
		}
		for i := range n {
			a[i*rank+r] *= root
		}
		for j := range k {
			b[r*k+j] /= root
		}
	}
}

// spread reorders the columns of a[n][rank] with the rows of b[rank][k], which come by
// descending singular values: those of each block that codes rotate as one, the largest
// power of two up to 128 that divides the rank, then come from the whole range.
func spread(a, b []float32, n, rank, k int) (x, y []float32) {
	block := min(rank&-rank, 128)
	blocks := rank / block
	if blocks == 1 {
		return a, b
	}
	x, y = make([]float32, len(a)), make([]float32, len(b))
	for r := range rank {
		to := r%blocks*block + r/blocks
		copy(y[to*k:(to+1)*k], b[r*k:(r+1)*k])
		for i := range n {
			x[i*rank+to] = a[i*rank+r]
		}
	}
	return x, y
}

// Product fits A B to w[n][k] and returns it with A B as stored: A is stored
// under the moments that B gives it, then B answers A's errors by least squares
// and is stored.
func Product[T any](ctx context.Context, w []float32, n, k, rank int, h *Moments, a, b Store[T]) (c Corrected[T], stored []float32, err error) {
	f, err := Factor(ctx, w, n, k, h, Options{Rank: rank})
	if err != nil {
		return c, nil, err
	}
	c.Reference = f.Total
	for r := range len(f.Values) + 1 {
		c.Curve = append(c.Curve, f.Loss(r))
	}
	x, y := f.Take(rank)
	if len(f.Values) < rank { // the matrix has no more: the rest is zero
		x, y = widenRank(x, n, len(f.Values), rank), append(y, make([]float32, (rank-len(f.Values))*k)...)
	}
	balance(x, y, f.Values, n, rank, k)
	x, y = spread(x, y, n, rank, k)
	var backA []float32
	if c.A, backA, err = a(ctx, x, n, rank, h.of(y, rank, k)); err != nil {
		return c, nil, err
	}
	y, err = answer(backA, w, n, rank, k)
	if err != nil {
		return c, nil, err
	}
	var backB []float32
	if c.B, backB, err = b(ctx, y, rank, k, h); err != nil {
		return c, nil, err
	}
	stored = multiply(backA, transpose(backB, rank, k), n, k, rank)
	left := make([]float32, len(w))
	for i, v := range w {
		left[i] = v - stored[i]
	}
	c.Error = h.Loss(left, n, k)
	return c, stored, nil
}

// widenRank appends columns of zeros to a[n][r].
func widenRank(a []float32, n, r, rank int) []float32 {
	out := make([]float32, n*rank)
	for i := range n {
		copy(out[i*rank:], a[i*r:(i+1)*r])
	}
	return out
}

// of returns the moments B H B' of what A[N][R] is multiplied with.
func (m *Moments) of(b []float32, r, k int) *Moments {
	return &Moments{k: r, h: multiply(m.through(b, r, k), b, r, r, k)}
}

// Mean gives the moments H[K][K] back, for stores that fit codes under them.
func (m *Moments) Mean() []float64 { return widen(m.h) }

// answer returns B[R][K] = (A'A)^-1 A' W: whatever H is, no other B leaves less.
// Columns of A that are zero, or hang together, get a little ridge.
func answer(a, w []float32, n, r, k int) ([]float32, error) {
	at := transpose(a, n, r)
	g := multiply(at, at, r, r, n)
	s := mat.NewSymDense(r, nil)
	var trace float64
	for i := range r {
		trace += float64(g[i*r+i])
		for j := i; j < r; j++ {
			s.SetSym(i, j, (float64(g[i*r+j])+float64(g[j*r+i]))/2)
		}
	}
	if trace == 0 {
		return make([]float32, r*k), nil
	}
	for i := range r {
		s.SetSym(i, i, s.At(i, i)+1e-7*trace/float64(r))
	}
	var c mat.Cholesky
	if !c.Factorize(s) {
		return nil, fmt.Errorf("the least squares of a factor of rank %d have no solution", r)
	}
	var inverse mat.SymDense
	if err := c.InverseTo(&inverse); err != nil {
		return nil, fmt.Errorf("the least squares of a factor of rank %d: %w", r, err)
	}
	solve := make([]float32, r*r)
	for i := range r {
		for j := range r {
			solve[i*r+j] = float32(inverse.At(i, j))
		}
	}
	left := multiply(solve, transpose(at, r, n), r, n, r) // (A'A)^-1 A'
	return multiply(left, transpose(w, n, k), r, k, n), nil
}
