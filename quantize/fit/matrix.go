package fit

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/cpu"
)

// Options say how a matrix is fitted.
type Options struct {
	// Seed of the signs that trellis codes rotate by. Matrices that read the
	// same Input share its rotated factors where their seeds are alike.
	Seed int64
	// Effort trades time for error: 0 is the default, 1 the least.
	Effort int
	// Threads that work on a matrix; 0: all. The result does not depend on it.
	Threads int
	// Lookup says that rows are looked up alone, as those of an embedding
	// table, so that they may not be rotated together.
	Lookup bool
}

// Methods of a [Result].
const (
	MethodPlain    = "plain"    // all errors of a row counted alike
	MethodWeighted = "weighted" // weighted by the input's second moments
	MethodFeedback = "feedback" // errors answered in later columns
)

// A Result is a fitted matrix.
type Result struct {
	Tensor    formats.Tensor
	Error     float64 // tr(E H E'), E = W - (what is stored)
	Reference float64 // tr(W H W')
	Method    string
}

// Matrix fits w[n][k] by a recipe: "tcq2" to "tcq6", or the name of a scheme
// that has a fitter. Under the calibrated error tr(E H E') the result is never
// worse than rounding without moments: both are computed and the better is
// kept. The same weights, moments and options give the same bytes on every
// machine and at any number of threads.
//
// It fails with an UnsupportedError for a recipe that does not exist or does
// not suit the shape, with a FormatError that names the tensor for weights or
// moments that are not finite, and with the context's error. Lengths that do
// not fit together panic.
func Matrix(ctx context.Context, name string, w []float32, n, k int, recipe string, in *Input, o Options) (Result, error) {
	if len(w) != n*k || in != nil && in.k != k {
		panic(fmt.Sprintf("fit: %d weights for %d rows of %d", len(w), n, k))
	}
	if !Fits(recipe, n, k) {
		return Result{}, unfit(name, recipe, n, k)
	}
	if in != nil && in.err != nil {
		return Result{}, formats.Errorf("", name, "%v", in.err)
	}
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	r, err := matrix(ctx, name, w, n, k, recipe, in, o)
	if v, ok := errors.AsType[*ValueError](err); ok {
		return Result{}, formats.Errorf("", name, "cannot be quantized: %v", v)
	}
	return r, err
}

func matrix(ctx context.Context, name string, w []float32, n, k int, recipe string, in *Input, o Options) (Result, error) {
	reference := in.quadratic(w)
	var best Result
	for _, c := range candidates(recipe, in) {
		if err := ctx.Err(); err != nil {
			return best, err
		}
		t, err := c.fit(name, w, n, k, in, o)
		if err != nil {
			return best, err
		}
		e := make([]float32, len(w))
		if err := scheme.DecodeRows(e, &t, 0, int64(n)); err != nil {
			return best, err
		}
		for i, v := range w {
			e[i] = v - e[i]
		}
		r := Result{Tensor: t, Error: in.quadratic(e), Reference: reference, Method: c.method}
		if best.Method == "" || r.Error < best.Error {
			best = r
		}
	}
	return best, nil
}

// A candidate is one way to fit a recipe.
type candidate struct {
	method string
	fit    func(name string, w []float32, n, k int, in *Input, o Options) (formats.Tensor, error)
}

// candidates lists the ways to fit a recipe, the plain one first.
func candidates(recipe string, in *Input) []candidate {
	if bits := trellisBits(recipe); bits > 0 {
		c := []candidate{{MethodPlain, trellisFit(bits, false)}}
		if in != nil {
			c = append(c, candidate{MethodFeedback, trellisFit(bits, true)})
		}
		return c
	}
	s, _ := scheme.ByName(recipe)
	c := []candidate{{MethodPlain, blockFit(s, false)}}
	if in != nil && !s.Plain() {
		c = append(c, candidate{MethodWeighted, blockFit(s, true)}, candidate{MethodFeedback, answerFit(s)})
	}
	return c
}

func blockFit(s *scheme.Scheme, weighted bool) func(string, []float32, int, int, *Input, Options) (formats.Tensor, error) {
	return func(name string, w []float32, n, k int, in *Input, o Options) (formats.Tensor, error) {
		f, _ := For(s)
		var importance []float32
		if weighted {
			importance = in.diagonal
		}
		shape := []int64{int64(n), int64(k)}
		size, err := s.Size(shape, nil)
		if err != nil {
			return formats.Tensor{}, err
		}
		dst := make([]byte, size)
		if err := f(dst, w, importance, k); err != nil {
			return formats.Tensor{}, err
		}
		return scheme.New(name, s, shape, nil, tensor.BytesBlob(dst))
	}
}

func answerFit(s *scheme.Scheme) func(string, []float32, int, int, *Input, Options) (formats.Tensor, error) {
	return func(name string, w []float32, n, k int, in *Input, o Options) (formats.Tensor, error) {
		set, threads := cpu.Best(), o.Threads
		if threads <= 0 {
			threads = runtime.GOMAXPROCS(0)
		}
		f, err := in.factor(set, threads)
		if err != nil {
			return formats.Tensor{}, formats.Errorf("", name, "%v", err)
		}
		shape := []int64{int64(n), int64(k)}
		dst := make([]byte, Bytes(s.Name, n, k))
		if _, err := answer(context.Background(), dst, w, n, k, s, fitters[s.Name].layout, f, set, threads, 2); err != nil {
			return formats.Tensor{}, err
		}
		return scheme.New(name, s, shape, nil, tensor.BytesBlob(dst))
	}
}

func trellisFit(bits int, answer bool) func(string, []float32, int, int, *Input, Options) (formats.Tensor, error) {
	return func(name string, w []float32, n, k int, in *Input, o Options) (formats.Tensor, error) {
		q := TCQ{TCQ: trellisScheme(bits, n, k, o)}
		if answer {
			var err error
			if q.Feedback, err = in.feedback(q.RotateIn, scheme.TCQTile, q.Seed); err != nil {
				return formats.Tensor{}, formats.Errorf("", name, "%v", err)
			}
		}
		parts, err := q.Fit(w, n, k)
		if err != nil {
			return formats.Tensor{}, err
		}
		blobs := make([]tensor.Blob, len(parts))
		for i, p := range parts {
			blobs[i] = tensor.BytesBlob(p)
		}
		s, _ := scheme.ByName("tcq")
		return scheme.New(name, s, []int64{int64(n), int64(k)}, q.Params(), blobs...)
	}
}

func trellisScheme(bits, n, k int, o Options) scheme.TCQ {
	q := scheme.TCQ{Bits: bits, Codebook: scheme.TCQCodebookFor(bits), Seed: o.Seed, RotateIn: TCQRotation(k), RotateOut: TCQRotation(n)}
	if o.Lookup {
		q.RotateOut = 1
	}
	return q
}

// trellisBits returns 2 to 6 for "tcq2" to "tcq6", 0 for another recipe.
func trellisBits(recipe string) int {
	d, ok := strings.CutPrefix(recipe, "tcq")
	if !ok || len(d) != 1 || d[0] < '0'+scheme.TCQMinBits || d[0] > '0'+scheme.TCQMaxBits {
		return 0
	}
	return int(d[0] - '0')
}

func unfit(name, recipe string, n, k int) error {
	known := trellisBits(recipe) > 0
	if s, ok := scheme.ByName(recipe); ok {
		_, known = For(s)
	}
	if !known {
		e := formats.Unsupportedf("", name, "quantizing to %q", recipe)
		e.Hint = "recipes: " + strings.Join(Recipes(), ", ")
		return e
	}
	return formats.Unsupportedf("", name, "%d rows of %d weights as %s", n, k, recipe)
}

// Fits reports whether a recipe exists and can hold a matrix of this shape.
func Fits(recipe string, n, k int) bool {
	if n <= 0 || k <= 0 {
		return false
	}
	if trellisBits(recipe) > 0 {
		return n%scheme.TCQTile == 0 && k%scheme.TCQTile == 0
	}
	s, ok := scheme.ByName(recipe)
	if !ok {
		return false
	}
	_, ok = For(s)
	return ok && s.Fits(int64(k))
}

// Bytes returns the size of a matrix by a recipe that [Fits] it, all parts
// together and without padding between tensors.
func Bytes(recipe string, n, k int) int64 {
	s, ok := scheme.ByName(recipe)
	var params map[string]int64
	if bits := trellisBits(recipe); bits > 0 {
		s, ok = scheme.ByName("tcq")
		params = trellisScheme(bits, n, k, Options{}).Params()
	}
	if !ok {
		panic(fmt.Sprintf("fit: bytes of recipe %q", recipe))
	}
	size, err := s.Size([]int64{int64(n), int64(k)}, params)
	if err != nil {
		panic(fmt.Sprintf("fit: bytes of %q for %d rows of %d: %v", recipe, n, k, err))
	}
	return size
}

// Recipes lists the recipes that [Matrix] knows, in the order of the schemes'
// ids with the trellis codes last.
func Recipes() []string {
	var names []string
	for _, s := range scheme.Table() {
		if _, ok := For(s); ok {
			names = append(names, s.Name)
		}
	}
	for bits := scheme.TCQMinBits; bits <= scheme.TCQMaxBits; bits++ {
		names = append(names, fmt.Sprintf("tcq%d", bits))
	}
	return names
}

// Rows that Estimate looks at: errors of rows are much alike, what the rows of
// the matrix itself do to the input is not.
const (
	sampled          = 32
	sampledReference = 256
)

// Estimate returns the relative calibrated error tr(E H E')/tr(W H W') that
// [Matrix] would leave, from a sample of rows, 0 for a matrix of zeros. It
// fails like Matrix.
func Estimate(ctx context.Context, w []float32, n, k int, recipe string, in *Input, o Options) (float64, error) {
	if !Fits(recipe, n, k) {
		return 0, unfit("", recipe, n, k)
	}
	rows := sample(w, n, k, sampled)
	r, err := Matrix(ctx, "", rows, len(rows)/k, k, recipe, in, o)
	if err != nil {
		return 0, err
	}
	many := sample(w, n, k, sampledReference)
	reference := in.quadratic(many) / float64(len(many))
	if reference == 0 {
		return 0, nil
	}
	return r.Error / float64(len(rows)) / reference, nil
}

// sample takes whole tiles of rows, evenly spread.
func sample(w []float32, n, k, most int) []float32 {
	const tile = scheme.TCQTile
	if n <= most {
		return w
	}
	parts := most / tile
	out := make([]float32, 0, most*k)
	for i := range parts {
		at := (2*i + 1) * (n / tile) / (2 * parts) * tile
		out = append(out, w[at*k:(at+tile)*k]...)
	}
	return out
}
