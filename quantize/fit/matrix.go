package fit

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// Options say how a matrix is fitted.
type Options struct {
	// Seed of the signs that trellis codes rotate by. Matrices that read the
	// same Input share its rotated factors where their seeds are alike.
	Seed int64
	// Effort trades time for error. Blocks: at 1 the input's diagonal weighs
	// errors and nothing is answered; at 2 errors are answered and each block is
	// searched once; at 3, the default that 0 stands for, twice; beyond, once more
	// for each.
	Effort int
	// Threads that work on a matrix; 0: all. The result does not depend on it.
	Threads int
	// Lookup says that rows are looked up alone, as those of an embedding
	// table, so that they may not be rotated together.
	Lookup bool
	// Searcher finds trellis codes where there are many; nil: the processor does. The
	// result does not depend on it.
	Searcher Searcher
	// Turn is this fit's among others that run at once and share their threads; nil: it is
	// alone. Factors of an Input are made beside them.
	Turn *Turn

	sample bool // w is a sample of the matrix's rows: an estimate will do
}

func (o Options) threads() int {
	if o.Threads > 0 {
		return o.Threads
	}
	return runtime.GOMAXPROCS(0)
}

// Methods of a [Result].
const (
	MethodPlain    = "plain"    // all errors of a row counted alike
	MethodWeighted = "weighted" // weighted by the input's second moments
	MethodFeedback = "feedback" // errors answered in later columns
)

// A Result is a fitted matrix.
type Result struct {
	Tensor formats.Tensor
	// Error is tr(E H E'), E = W - (what is stored), and Reference tr(W H W');
	// of large matrices the reference is taken from some of the rows.
	Error, Reference float64
	Method           string
}

// Matrix fits w[n][k] by a code: of a trellis, or of a scheme that has a fitter. Under the calibrated error tr(E H E') the result is not
// worse than rounding without moments: where these, or a sample of rows, leave any doubt
// all ways are computed and the best is kept. The same weights, moments and options give the same bytes on every
// machine and at any number of threads.
//
// It fails with an UnsupportedError for a code that cannot be fitted or does
// not suit the shape, with a FormatError that names the tensor for weights or
// moments that are not finite, and with the context's error. Lengths that do
// not fit together panic.
func Matrix(ctx context.Context, name string, w []float32, n, k int, c plan.Code, in *Input, o Options) (Result, error) {
	if len(w) != n*k || in != nil && in.k != k {
		panic(fmt.Sprintf("fit: %d weights for %d rows of %d", len(w), n, k))
	}
	if !Fits(c, n, k) {
		return Result{}, unfit(name, c, n, k)
	}
	if in != nil && in.err != nil {
		return Result{}, formats.Errorf("", name, "%v", in.err)
	}
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	if c.Bits == 0 && c.Scheme.Plain() {
		return castMatrix(ctx, name, w, n, k, c.Scheme, in, o)
	}
	cut, err := newCut(name, func(first, n int) ([]float32, error) { return w[first*k : (first+n)*k], nil }, n, k, c, in, o)
	if err != nil {
		return Result{}, err
	}
	all, err := cut.Fit(ctx, 0, n)
	if err != nil {
		return Result{}, err
	}
	return Join(name, all)
}

// valued names the tensor of a weight that cannot be fitted, in rows from first on. Other
// errors stay as they are.
func valued(name string, first int, err error) error {
	v, ok := errors.AsType[*ValueError](err)
	if !ok {
		return err
	}
	v.Row += first
	e := formats.Errorf("", name, "cannot be quantized")
	e.Err = v
	return e
}

// castMatrix converts elements. Its error is tiny, and told by few rows.
func castMatrix(ctx context.Context, name string, w []float32, n, k int, s *scheme.Scheme, in *Input, o Options) (Result, error) {
	if err := fitters[s.Name].check(s, w, nil, k); err != nil {
		return Result{}, valued(name, 0, err)
	}
	dst := make([]byte, Bytes(plan.Code{Scheme: s}, n, k))
	fitters[s.Name].cast(dst, w)
	t, err := scheme.New(name, s, []int64{int64(n), int64(k)}, nil, tensor.BytesBlob(dst))
	if err != nil {
		return Result{}, err
	}
	rows := tiles(n, sampled)
	x := rows.of(w, k)
	y := make([]float32, len(w))
	if err := scheme.DecodeRows(y, &t, 0, int64(n)); err != nil {
		return Result{}, err
	}
	e := rows.of(y, k)
	for i, v := range x {
		e[i] = v - e[i]
	}
	scale := float64(n) / float64(len(x)/k)
	return Result{Tensor: t, Error: scale * in.quadratic(e, o.threads()), Reference: scale * in.quadratic(x, o.threads()), Method: MethodPlain}, ctx.Err()
}

func unfit(name string, c plan.Code, n, k int) error {
	if !Fittable(c) {
		e := formats.Unsupportedf("", name, "quantizing to %q", c)
		e.Hint = "recipes: " + Names()
		return e
	}
	return formats.Unsupportedf("", name, "%d rows of %d weights as %s", n, k, c)
}

// Fittable reports whether numbers can be fitted to a code.
func Fittable(c plan.Code) bool { return slices.Contains(Codes(), c) }

// Fits reports whether a code can be fitted and can hold a matrix of this shape.
func Fits(c plan.Code, n, k int) bool {
	if n <= 0 || k <= 0 || !Fittable(c) {
		return false
	}
	return c.Scheme.Fits(int64(k)) && (c.Bits == 0 || n%scheme.TCQTile == 0)
}

// Bytes returns the size of a matrix by a code that [Fits] it, all parts
// together and without padding between tensors.
func Bytes(c plan.Code, n, k int) int64 {
	var params map[string]int64
	if c.Bits > 0 {
		params = trellisScheme(c.Bits, n, k, Options{}).Params()
	}
	size, err := c.Scheme.Size([]int64{int64(n), int64(k)}, params)
	if err != nil {
		panic(fmt.Sprintf("fit: bytes of %q for %d rows of %d: %v", c, n, k, err))
	}
	return size
}

// Codes lists the codes that [Matrix] knows, in the order of the schemes' ids
// with the trellis codes last.
func Codes() []plan.Code {
	var out []plan.Code
	for _, s := range scheme.Table() {
		if _, ok := fitters[s.Name]; ok {
			out = append(out, plan.Code{Scheme: s})
		}
	}
	for bits := scheme.TCQMinBits; bits <= scheme.TCQMaxBits; bits++ {
		out = append(out, plan.Trellis(bits))
	}
	return out
}

// Names lists [Codes] for people.
func Names() string {
	var names []string
	for _, c := range Codes() {
		names = append(names, c.String())
	}
	return strings.Join(names, ", ")
}

// sampled is the number of rows by which [Estimate] tells the error of all,
// and sampledReference that for what the matrix does to its input: rows differ
// more in that.
const (
	sampled          = 32
	sampledReference = 128
)

// Estimate returns the relative calibrated error tr(E H E')/tr(W H W') that
// [Matrix] would leave, from a sample of rows, 0 for a matrix of zeros. It
// fails like Matrix.
func Estimate(ctx context.Context, w []float32, n, k int, c plan.Code, in *Input, o Options) (float64, error) {
	if !Fits(c, n, k) {
		return 0, unfit("", c, n, k)
	}
	if in != nil && in.err != nil {
		return 0, formats.Errorf("", "", "%v", in.err)
	}
	if c.Bits > 0 {
		e, err := trellisEstimate(ctx, w, n, k, c.Bits, in, o)
		return e, valued("", 0, err)
	}
	rows := tiles(n, sampled).of(w, k)
	o.sample = true
	r, err := Matrix(ctx, "", rows, len(rows)/k, k, c, in, o)
	if err != nil {
		return 0, err
	}
	many := tiles(n, sampledReference).of(w, k)
	reference, err := in.errors(ctx, many, o)
	if err != nil {
		return 0, formats.Errorf("", "", "%v", err)
	}
	if total := sum(reference) / float64(len(many)); total > 0 {
		return r.Error / float64(len(rows)) / total, nil
	}
	return 0, nil
}

func sum(x []float64) (s float64) {
	for _, v := range x {
		s += v
	}
	return s
}
