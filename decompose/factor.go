package decompose

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"
)

// Options say how far a factorization goes; the zero value of each field has a
// meaning.
type Options struct {
	Rank  int   // the largest rank wanted; 0: all
	Seed  int64 // of the random start of large factorizations
	Extra int   // vectors beside Rank that a large one carries along; 0: 16
	Steps int   // power iterations of a large one; 0: 3
	// Fast treats a small matrix like a large one: some ten times faster for a
	// rank of a quarter of its size.
	Fast bool
}

// Factors are the best approximations of W[N][K] by matrices of each rank, in
// the norm of H: the left singular vectors of W H^(1/2).
type Factors struct {
	N, K   int
	Values []float64 // squared singular values, descending: what each rank takes off the loss
	Total  float64   // tr(W H W'), the loss of rank 0
	// Missed bounds what a large factorization may have overlooked: no rank
	// is further from the optimum than its number times Missed. It holds with
	// a probability of 1 - 1e-10 and is 0 for an exact factorization.
	Missed float64

	u  []float32 // [Rank][N], orthonormal rows
	wt []float32 // W transposed
}

// exactSize is the smaller dimension up to which factorizations are exact. The
// symmetric eigenproblem of gonum takes 1.3 s for 512 and 11 s for 1024 on the
// machine of docs/perf/decomposition.md, the randomized one of 4096 x 11008
// less than that.
const exactSize = 512

// Factor finds the factors of w[N][K]. With E = W - A B the loss tr(E H E') is
// least, for a rank R, where A holds the first R left singular vectors of
// W H^(1/2), that is eigenvectors of W H W', and B = A' W: no factor of H is
// needed, and H may be singular. Matrices of a smaller dimension above 512 are
// factored by subspace iteration from a random start, with Missed as the bound
// of what it overlooked. It fails with the context's error, and where W or H is
// not finite.
func Factor(ctx context.Context, w []float32, n, k int, h *Moments, o Options) (*Factors, error) {
	if len(w) != n*k || h != nil && h.k != k {
		panic(fmt.Sprintf("decompose: %d weights for %d x %d", len(w), n, k))
	}
	rank := min(n, k)
	if o.Rank > 0 {
		rank = min(rank, o.Rank)
	}
	f := &Factors{N: n, K: k, Total: h.Loss(w, n, k)}
	if math.IsNaN(f.Total) || math.IsInf(f.Total, 0) {
		return nil, fmt.Errorf("a matrix of %d x %d or its moments are not finite", n, k)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f.wt = transpose(w, n, k)
	var err error
	switch {
	case o.Fast && rank < min(n, k):
		err = f.bySubspace(ctx, w, h, rank, o)
	case n <= exactSize:
		err = f.byRows(w, h, rank)
	case k <= exactSize:
		err = f.byColumns(w, h, rank)
	default:
		err = f.bySubspace(ctx, w, h, rank, o)
	}
	return f, err
}

// Loss returns the loss of the best approximation of a rank.
func (f *Factors) Loss(rank int) float64 { return left(f.Total, f.Values, rank) }

// left returns what the first count values leave of a total.
func left(total float64, values []float64, count int) float64 {
	for _, v := range values[:min(count, len(values))] {
		total -= v
	}
	return max(total, 0)
}

// Take returns A[N][R], orthonormal columns, and B[R][K] = A' W.
func (f *Factors) Take(rank int) (a, b []float32) {
	rank = min(rank, len(f.Values))
	u := f.u[:rank*f.N]
	return transpose(u, rank, f.N), multiply(u, f.wt, rank, f.K, f.N)
}

// keep takes eigenvectors, the columns of v, times the rows of y, as u.
func (f *Factors) keep(values []float64, vectors *mat.Dense, rank int, y []float32) {
	p := len(values)
	f.Values = make([]float64, 0, rank)
	pick := make([]float32, 0, rank*p)
	for i := range min(rank, p) {
		at := p - 1 - i // ascending in gonum
		f.Values = append(f.Values, max(values[at], 0))
		for j := range p {
			pick = append(pick, float32(vectors.At(j, at)))
		}
	}
	if y == nil {
		f.u = pick
		return
	}
	f.u = multiply(pick, transpose(y, p, f.N), len(f.Values), f.N, p)
}

// byRows is exact: eigenvectors of W H W'.
func (f *Factors) byRows(w []float32, h *Moments, rank int) error {
	g := multiply(h.through(w, f.N, f.K), w, f.N, f.N, f.K)
	values, vectors, err := eigen(g, f.N)
	if err != nil {
		return err
	}
	f.keep(values, vectors, rank, nil)
	return nil
}

// byColumns is exact for few columns: with Q the orthonormal basis of W's
// columns, W = Q S, those of S H S'.
func (f *Factors) byColumns(w []float32, h *Moments, rank int) error {
	y := append([]float32(nil), f.wt...)
	p := orthonormalize(y, f.K, f.N)
	y = y[:p*f.N]
	return f.project(y, p, w, h, rank)
}

// project solves the problem within the rows of y[p][N], of which a matrix of zeros
// has none.
func (f *Factors) project(y []float32, p int, w []float32, h *Moments, rank int) error {
	if p == 0 {
		return nil
	}
	s := multiply(y, f.wt, p, f.K, f.N)
	g := multiply(h.through(s, p, f.K), s, p, p, f.K)
	values, vectors, err := eigen(g, p)
	if err != nil {
		return err
	}
	f.keep(values, vectors, rank, y)
	return nil
}

// bySubspace iterates a random subspace (Halko, Martinsson and Tropp, 2011,
// algorithm 4.4, with W H W' for A A').
func (f *Factors) bySubspace(ctx context.Context, w []float32, h *Moments, rank int, o Options) error {
	if o.Extra == 0 {
		o.Extra = 16
	}
	if o.Steps == 0 {
		o.Steps = 3
	}
	p := min(rank+o.Extra, f.N, f.K)
	rng := rand.New(rand.NewPCG(uint64(o.Seed), 0x6465636f6d70))
	y := f.apply(gaussians(rng, p*f.K), p, w)
	for range o.Steps {
		p = orthonormalize(y, p, f.N)
		y = y[:p*f.N]
		if err := ctx.Err(); err != nil {
			return err
		}
		y = f.apply(h.through(multiply(y, f.wt, p, f.K, f.N), p, f.K), p, w)
	}
	p = orthonormalize(y, p, f.N)
	y = y[:p*f.N]
	if err := f.project(y, p, w, h, rank); err != nil {
		return err
	}
	f.Missed = f.missed(y, p, w, h, rng)
	return ctx.Err()
}

// apply returns x[p][K] W'.
func (f *Factors) apply(x []float32, p int, w []float32) []float32 {
	return multiply(x, w, p, f.N, f.K)
}

// missed bounds the largest eigenvalue of (I-P) W H W' (I-P), P projecting on
// the rows of y: ten random vectors tell its norm up to a factor of 10 sqrt(2/pi)
// with a probability of 1 - 1e-10 (the same paper, lemma 4.1). No eigenvalue of
// W H W' is further than that from the one found.
func (f *Factors) missed(y []float32, p int, w []float32, h *Moments, rng *rand.Rand) float64 {
	const probes = 10
	x := gaussians(rng, probes*f.N)
	subtract(x, probes, y, p, f.N)
	z := f.apply(h.through(multiply(x, f.wt, probes, f.K, f.N), probes, f.K), probes, w)
	subtract(z, probes, y, p, f.N)
	var top float64
	for i := range probes {
		r := z[i*f.N : (i+1)*f.N]
		top = max(top, norm(r))
	}
	return 10 * math.Sqrt(2/math.Pi) * top
}

func gaussians(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

// eigen returns the eigenvalues, ascending, and eigenvectors of symmetric
// g[n][n].
func eigen(g []float32, n int) ([]float64, *mat.Dense, error) {
	s := mat.NewSymDense(n, nil)
	for i := range n {
		for j := i; j < n; j++ {
			s.SetSym(i, j, (float64(g[i*n+j])+float64(g[j*n+i]))/2)
		}
	}
	var e mat.EigenSym
	if !e.Factorize(s, true) {
		return nil, nil, fmt.Errorf("the eigenvalues of a matrix of %d x %d were not found", n, n)
	}
	var v mat.Dense
	e.VectorsTo(&v)
	return e.Values(nil), &v, nil
}

// orthonormalize makes the rows of y[p][n] orthonormal, each against those
// before, twice, and drops rows that leave nothing. It returns how many are
// left, at the start of y.
func orthonormalize(y []float32, p, n int) int {
	const block = 32 // rows that go against those before by the matrix product
	kept := 0
	for at := 0; at < p; at += block {
		rows := min(block, p-at)
		x := y[at*n : (at+rows)*n]
		size := make([]float64, rows)
		for i := range size {
			size[i] = norm(x[i*n : (i+1)*n])
		}
		for range 2 {
			subtract(x, rows, y, kept, n)
		}
		first := kept
		for i := range rows {
			row := x[i*n : (i+1)*n]
			for range 2 {
				for j := first; j < kept; j++ {
					other := y[j*n : (j+1)*n]
					d := float32(inner(row, other))
					for c := range row {
						row[c] -= float32(d * other[c])
					}
				}
			}
			after := norm(row)
			if !(after > 1e-6*size[i]) {
				continue
			}
			dst := y[kept*n : (kept+1)*n]
			for c, v := range row {
				dst[c] = float32(float64(v) / after)
			}
			kept++
		}
	}
	return kept
}

func norm(x []float32) float64 { return math.Sqrt(inner(x, x)) }

// subtract takes the part that lies in the rows of y[p][n] out of x[rows][n].
func subtract(x []float32, rows int, y []float32, p, n int) {
	if p == 0 {
		return
	}
	part := multiply(x, y, rows, p, n)
	for i, v := range multiply(part, transpose(y[:p*n], p, n), rows, n, p) {
		x[i] -= v
	}
}
