package fit

import (
	"fmt"
	"math"
	"sync"

	"github.com/nstf/nstf/kernels/cpu"
)

// An Input is what a linear reads, as fitting needs it: the second moments of
// its input, with factorizations that are made once, when first needed, and
// shared by all linears that read it. It is safe for concurrent use; a nil
// *Input means that all errors count alike (H = I).
type Input struct {
	k        int
	h        []float64 // [K][K], symmetric; nil of an input that was unpacked
	own      []float64 // [K], the diagonal of h
	diagonal []float32 // own over the largest
	err      error     // the moments cannot be used

	mu      sync.Mutex
	rotated map[rotation]*Feedback
	plain   *factor
}

// A rotation names what second moments were turned by.
type rotation struct {
	block int
	seed  int64
}

// NewInput takes mean second moments h[K][K], a full symmetric matrix, which
// it keeps and which must not be changed any more. Moments that are NaN,
// infinite or negative on the diagonal make every use fail, by name. It panics
// where the lengths do not fit.
func NewInput(h []float64, k int) *Input {
	if k <= 0 || len(h) != k*k {
		panic(fmt.Sprintf("fit: %d moments for %d columns", len(h), k))
	}
	own := make([]float64, k)
	for i := range own {
		own[i] = h[i*k+i]
	}
	in := newInput(own)
	in.h = h
	return in
}

// newInput returns an input whose moments have a diagonal.
func newInput(own []float64) *Input {
	in := &Input{k: len(own), own: own, diagonal: make([]float32, len(own)), rotated: map[rotation]*Feedback{}}
	var top float64
	for i, d := range own {
		if !(d >= 0 && d <= math.MaxFloat64) {
			in.err = &MomentError{Column: i, Value: d}
			return in
		}
		top = max(top, d)
	}
	for i, d := range own {
		if top > 0 { // only ratios count, and these fit a float32
			in.diagonal[i] = float32(d / top)
		}
	}
	return in
}

// A MomentError says which second moment of an input cannot be used.
type MomentError struct {
	Column int
	Value  float64
}

// Error implements error.
func (e *MomentError) Error() string {
	return fmt.Sprintf("second moment of input column %d is %g: not finite and non-negative", e.Column, e.Value)
}

// feedback returns the factored moments of the rotated input.
func (in *Input) feedback(block, tile int, seed int64, threads int) (*Feedback, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	key := rotation{block, seed}
	if f := in.rotated[key]; f != nil {
		return f, nil
	}
	f, err := newFeedback(in.h, in.k, tile, block, seed, threads)
	if err == nil {
		in.rotated[key] = f
	}
	return f, err
}

// factor returns the moments' factors.
func (in *Input) factor(set *cpu.Set, threads int) (*factor, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.plain != nil {
		return in.plain, nil
	}
	pool := cpu.NewPool(threads)
	defer pool.Close()
	f, err := factored(&moments{h: in.h, k: in.k, rotate: 1}, blockDamping, false, set, pool)
	in.plain = f
	return f, err
}

// blockDamping is the damping of the moments that blocks are answered by. From
// 0.003 to 0.1 the errors on text that was held out differ by 1 %.
const blockDamping = 0.05

// trace returns what an error of variance 1 in all columns of a row costs.
func (in *Input) trace() (sum float64) {
	for _, d := range in.own {
		sum += d
	}
	return sum
}

// Moments returns h[K][K], which must not be changed, and K. An input that was unpacked has none.
func (in *Input) Moments() (h []float64, k int) { return in.h, in.k }

// quadraticRows is how many rows go through the moments at once: a row of these is read
// once for all, and terms of so many rows of 8192 columns are 4 MiB.
const quadraticRows = 64

// quadratic returns the sum over rows of e H e', e[n][K]. It does not depend on the
// threads: terms are added in the order of rows.
func (in *Input) quadratic(e []float32, threads int) float64 {
	var sum float64
	if in == nil {
		for _, v := range e {
			sum += float64(float64(v) * float64(v))
		}
		return sum
	}
	k := in.k
	pool := cpu.NewPool(threads)
	defer pool.Close()
	most := min(quadraticRows, len(e)/k) * k
	x, terms := make([]float64, most), make([]float64, most)
	for ; len(e) > 0; e = e[min(most, len(e)):] {
		n := min(most, len(e))
		for i, v := range e[:n] {
			x[i] = float64(v)
		}
		const part = 16 // columns; the last have most to do and come first
		parts := (k + part - 1) / part
		pool.Run(parts, func(p int) {
			p = parts - 1 - p
			for i := p * part; i < min((p+1)*part, k); i++ {
				in.terms(terms[:n], x[:n], i)
			}
		})
		for i, t := range terms[:n] {
			if x[i] != 0 {
				sum += t
			}
		}
	}
	return sum
}

// terms sets what column i of rows x[..][K] adds to e H e' with the columns before it.
func (in *Input) terms(terms, x []float64, i int) {
	row := in.h[i*in.k : i*in.k+i]
	for at := 0; at < len(x); at += in.k {
		if v := x[at+i]; v != 0 {
			// The lower triangle, twice, without the diagonal twice.
			terms[at+i] = float64(v * (2*inner(row, x[at:at+i]) + float64(in.h[i*in.k+i]*v)))
		}
	}
}

// inner sums in four fixed chains.
func inner(a, b []float64) float64 {
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
