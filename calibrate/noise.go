package calibrate

import (
	"math"
	"math/rand/v2"

	"github.com/nstf/nstf/kernels/cpu"
)

// A shaper makes errors like those that a quantizer with error feedback leaves:
// with H + damping = C C' the moments of what a matrix reads, the errors are
// E = N diag(C) C^-1, where N is white, as rounding one column after the other
// leaves them (LDLQ: Chee et al., QuIP, 2023, arXiv 2307.13304). Without moments
// they are white.
type shaper struct {
	k       int
	damping float32   // what was added to the diagonal
	c       []float32 // [K][K], the transpose of C in the upper triangle; nil: the identity
	// inverses are those of its squares on the diagonal, [factorBlock][factorBlock] and the last smaller.
	inverses [][]float32
	set      *cpu.Set
	pool     *cpu.Pool
	scratch  []cpu.GemmScratch
}

const (
	// Damping begins at this share of the diagonal's mean, as fitting does, and
	// doubles until the matrix is positive definite.
	leastDamping = 0.025
	factorBlock  = 64  // columns that are factored or solved at once
	scaleRows    = 128 // rows that share the size of their errors
)

// newShaper factors moments h[K][K], nil for the identity.
func newShaper(k int, h []float64, set *cpu.Set, pool *cpu.Pool) *shaper {
	s := &shaper{k: k, set: set, pool: pool, scratch: make([]cpu.GemmScratch, pool.Threads())}
	var mean float64
	for i := 0; i < len(h); i += k + 1 {
		mean += h[i] / float64(k)
	}
	if mean == 0 {
		return s
	}
	s.c = make([]float32, k*k)
	for share := leastDamping; ; share *= 2 {
		pool.Run(k, func(i int) {
			row := s.c[i*k : (i+1)*k]
			for j, v := range h[i*k : (i+1)*k] {
				row[j] = float32(v / mean)
			}
			row[i] += float32(share)
		})
		if s.damping = float32(share); s.factor() || share > 1e6 {
			s.transpose()
			s.invert()
			return s
		}
	}
}

// transpose swaps the triangles, so that a column of C lies in a row.
func (s *shaper) transpose() {
	const side = 32 // of squares that are swapped, so that both stay in the cache
	k := s.k
	s.pool.Run((k+side-1)/side, func(part int) {
		for from := 0; from <= part*side; from += side {
			for i := part * side; i < min((part+1)*side, k); i++ {
				for j := from; j < min(from+side, i); j++ {
					s.c[j*k+i], s.c[i*k+j] = s.c[i*k+j], 0
				}
			}
		}
	})
}

// factor turns the lower triangle of c into C, block column by block column.
func (s *shaper) factor() bool {
	k := s.k
	for j := 0; j < k; j += factorBlock {
		b := min(factorBlock, k-j)
		s.subtract(j, b)
		for i := j; i < j+b; i++ { // the diagonal block
			row := s.c[i*k:]
			for m := j; m <= i; m++ {
				v := float64(row[m]) - inner(row[j:m], s.c[m*k+j:m*k+m])
				if m < i {
					row[m] = float32(v / float64(s.c[m*k+m]))
					continue
				}
				if !(v > 0) {
					return false
				}
				row[m] = float32(math.Sqrt(v))
			}
		}
		s.pool.Run((k-j-b+15)/16, func(part int) {
			for i := j + b + part*16; i < min(j+b+(part+1)*16, k); i++ {
				row := s.c[i*k:]
				for m := j; m < j+b; m++ {
					row[m] = float32((float64(row[m]) - inner(row[j:m], s.c[m*k+j:m*k+m])) / float64(s.c[m*k+m]))
				}
			}
		})
	}
	return true
}

// subtract takes from columns [j, j+b) what the columns before them explain.
func (s *shaper) subtract(j, b int) {
	if j == 0 {
		return
	}
	k := s.k
	const rows = 128
	s.pool.RunWorkers((k-j+rows-1)/rows, func(worker, part int) {
		lo, hi := j+part*rows, min(j+(part+1)*rows, k)
		product := make([]float32, (hi-lo)*b)
		s.set.Gemm(product, b, s.c[lo*k:], k, hi-lo, 0, b, j, func(dst []float32, row int) {
			copy(dst, s.c[(j+row)*k:(j+row)*k+j])
		}, &s.scratch[worker])
		for i := lo; i < hi; i++ {
			for m, v := range product[(i-lo)*b : (i-lo+1)*b] {
				s.c[i*k+j+m] -= v
			}
		}
	})
}

func inner(a, b []float32) float64 {
	var sum float64
	for i, v := range a {
		sum += float64(v) * float64(b[i])
	}
	return sum
}

// A draw names the noise of one matrix. Rows draw by themselves, scaleRows at a time, so that threads share a
// matrix and noise does not depend on how many they are.
type draw struct{ seed, made uint64 }

func (d draw) of(part int) *rand.Rand { return rand.New(rand.NewPCG(d.seed, d.made<<32|uint64(part))) }

// disturb adds errors to w[N][K] whose tr(E H E') is relative*tr(W H W'), where whole is what [shaper.size] says of
// w. Errors of neighbouring rows have one size, that of a quantizer with a scale for them; with alone each row has
// its own.
func (s *shaper) disturb(w []float32, relative, whole float64, alone bool, noise draw) {
	k := s.k
	e := make([]float32, len(w))
	// E C = N diag(C), by which E is made: its size needs no product.
	errors := s.each(w, func(part, lo, hi int) float64 {
		rng, group := noise.of(part), hi-lo
		if alone {
			group = k
		}
		for ; lo < hi; lo += group {
			scale := math.Sqrt(squares(w[lo:lo+group]) / float64(group))
			for i := lo; i < lo+group; i++ {
				e[i] = float32(scale * rng.NormFloat64())
			}
		}
		return s.diagonal(e[part*scaleRows*k : hi])
	})
	s.shape(e)
	if s.c != nil {
		errors -= float64(s.damping) * s.each(e, func(_, lo, hi int) float64 { return squares(e[lo:hi]) })
	}
	if !(errors > 0) || whole == 0 {
		return
	}
	f := float32(math.Sqrt(relative * whole / errors))
	s.each(e, func(_, lo, hi int) float64 {
		for i := lo; i < hi; i++ {
			w[i] += f * e[i]
		}
		return 0
	})
}

// each calls f with the parts of x[N][K], scaleRows rows each, and adds up what it returns, in their order.
func (s *shaper) each(x []float32, f func(part, lo, hi int) float64) float64 {
	size := scaleRows * s.k
	sums := make([]float64, (len(x)+size-1)/size)
	s.pool.Run(len(sums), func(part int) { sums[part] = f(part, part*size, min((part+1)*size, len(x))) })
	var sum float64
	for _, v := range sums {
		sum += v
	}
	return sum
}

// diagonal returns the squares of x diag(C).
func (s *shaper) diagonal(x []float32) (sum float64) {
	if s.c == nil {
		return squares(x)
	}
	for ; len(x) > 0; x = x[s.k:] {
		for i, v := range x[:s.k] {
			v := float64(v) * float64(s.c[i*s.k+i])
			sum += v * v
		}
	}
	return sum
}

func squares(x []float32) float64 {
	var sum float64
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return sum
}

// shape replaces white e[N][K] by E with E C = e diag(C), from the last columns
// to the first.
func (s *shaper) shape(e []float32) {
	if s.c == nil {
		return
	}
	k, n := s.k, len(e)/s.k
	last := (k - 1) / factorBlock * factorBlock
	s.pool.RunWorkers((n+scaleRows-1)/scaleRows, func(worker, part int) {
		mine := e[part*scaleRows*k : min((part+1)*scaleRows, n)*k]
		product, solved := make([]float32, len(mine)/k*factorBlock), make([]float32, len(mine)/k*factorBlock)
		for j := last; j >= 0; j -= factorBlock {
			b := min(factorBlock, k-j)
			clear(product)
			if rest := j + b; rest < k {
				s.set.GemmMany(product, b, mine[rest:], k, len(mine)/k, 0, b, k-rest, func(dst []float32, column int) {
					copy(dst, s.c[(j+column)*k+rest:])
				}, &s.scratch[worker])
			}
			for r := range len(mine) / k {
				for m, v := range mine[r*k+j : r*k+j+b] {
					product[r*b+m] = v*s.c[(j+m)*k+j+m] - product[r*b+m]
				}
			}
			inverse := s.inverses[j/factorBlock]
			s.set.GemmMany(solved, b, product, b, len(mine)/k, 0, b, b, func(dst []float32, column int) {
				copy(dst, inverse[column*b:(column+1)*b])
			}, &s.scratch[worker])
			for r := range len(mine) / k {
				copy(mine[r*k+j:r*k+j+b], solved[r*b:])
			}
		}
	})
}

// invert inverts the squares of C' on the diagonal, in float64.
func (s *shaper) invert() {
	k := s.k
	s.inverses = make([][]float32, (k+factorBlock-1)/factorBlock)
	s.pool.Run(len(s.inverses), func(part int) {
		j := part * factorBlock
		b := min(factorBlock, k-j)
		x := make([]float64, b*b) // row m has ones and what is behind them taken out
		for m := b - 1; m >= 0; m-- {
			row := x[m*b : (m+1)*b]
			row[m] = 1
			for i := m + 1; i < b; i++ {
				v := float64(s.c[(j+m)*k+j+i])
				for l, u := range x[i*b+i : (i+1)*b] {
					row[i+l] -= v * u
				}
			}
			for l := m; l < b; l++ {
				row[l] /= float64(s.c[(j+m)*k+j+m])
			}
		}
		s.inverses[part] = make([]float32, b*b)
		for i, v := range x {
			s.inverses[part][i] = float32(v)
		}
	})
}

// size returns tr(X H X') of x[N][K], over the mean of H's diagonal.
func (s *shaper) size(x []float32) float64 {
	if s.c == nil {
		return s.each(x, func(_, lo, hi int) float64 { return squares(x[lo:hi]) })
	}
	k, n := s.k, len(x)/s.k
	parts := (n + scaleRows - 1) / scaleRows
	sums := make([]float64, parts)
	s.pool.RunWorkers(parts, func(worker, part int) {
		mine := x[part*scaleRows*k : min((part+1)*scaleRows, n)*k]
		product := make([]float32, len(mine)/k*factorBlock)
		for j := 0; j < k; j += factorBlock {
			b := min(factorBlock, k-j)
			s.set.GemmMany(product, b, mine[j:], k, len(mine)/k, 0, b, k-j, func(dst []float32, column int) {
				copy(dst, s.c[(j+column)*k+j:])
			}, &s.scratch[worker])
			sums[part] += squares(product[:len(mine)/k*b])
		}
		sums[part] -= float64(s.damping) * squares(mine)
	})
	var sum float64
	for _, v := range sums {
		sum += v
	}
	return sum
}
