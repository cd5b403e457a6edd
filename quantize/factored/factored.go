// Package factored fits matrices to recipes with factors: it gives decompose
// the fitters of quantize/fit as its stores.
//
// In: weights W[N][K], a recipe such as "tcq2+lr:32:q8_0", and the second
// moments of the input. Out: a tensor of a form, with the error
// tr(E H E') that it leaves, like quantize/fit's. The same input gives the same
// bytes at any number of threads on one SIMD level. Nothing keeps state.
package factored

import (
	"context"
	"fmt"

	"github.com/nstf/nstf/decompose"
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/quantize/fit"
)

// Methods of a result, beside those of quantize/fit.
const (
	MethodProduct   = "product"   // the best product under the moments
	MethodAlternate = "alternate" // codes and product in turn
)

// rounds is how often codes and product take turns, at the default effort and
// at the least.
const rounds, leastRounds = 3, 1

// Fits reports whether a matrix of this shape can be stored by a recipe, dense
// ones included.
func Fits(r plan.Recipe, n, k int) bool {
	switch r.Form {
	case plan.FormDense:
		return fit.Fits(r.Code, n, k)
	case plan.FormLowRank, plan.FormCorrected:
		return r.Rank < min(n, k) && fit.Fits(r.A, n, r.Rank) && fit.Fits(r.B, r.Rank, k) && (r.Form == plan.FormLowRank || fit.Fits(r.Code, n, k))
	}
	return false
}

// Matrix fits w[n][k] by a recipe with factors or without. Errors are those of
// [fit.Matrix], and of factoring what is not finite.
func Matrix(ctx context.Context, name string, w []float32, n, k int, r plan.Recipe, in *fit.Input, o fit.Options) (fit.Result, error) {
	if r.Form == plan.FormDense {
		return fit.Matrix(ctx, name, w, n, k, r.Code, in, o)
	}
	if !Fits(r, n, k) {
		return fit.Result{}, formats.Unsupportedf("", name, "%d rows of %d weights as %s", n, k, r)
	}
	storeA, storeB := store("a", r.A, nil, o), store("b", r.B, in, o)
	h := moments(in)
	var c decompose.Corrected[formats.Tensor]
	var err error
	method, id := MethodProduct, form.LowRank
	if r.Form == plan.FormLowRank {
		c, _, err = decompose.Product(ctx, w, n, k, r.Rank, h, storeA, storeB)
	} else {
		turns := rounds
		if o.Effort == 1 {
			turns = leastRounds
		}
		c, err = decompose.Correct(ctx, w, n, k, r.Rank, turns, h, store("q", r.Code, in, o), storeA, storeB)
		method, id = MethodAlternate, form.Corrected
	}
	if err != nil {
		return fit.Result{}, named(name, err)
	}
	factors := []formats.Tensor{c.A, c.B}
	if id == form.Corrected {
		factors = append([]formats.Tensor{c.Q}, factors...)
	}
	t, err := form.New(name, id, []int64{int64(n), int64(k)}, nil, factors...)
	return fit.Result{Tensor: t, Error: c.Error, Reference: c.Reference, Method: method}, err
}

// moments gives decompose what fit holds.
func moments(in *fit.Input) *decompose.Moments {
	if in == nil {
		return nil
	}
	return decompose.NewMoments(in.Moments())
}

// store fits a factor by a scheme. What reads the tensor's own input shares its
// factorizations; for another the moments are taken as they come. Without
// moments all errors count alike.
func store(name string, c plan.Code, in *fit.Input, o fit.Options) decompose.Store[formats.Tensor] {
	return func(ctx context.Context, w []float32, n, k int, h *decompose.Moments) (formats.Tensor, []float32, error) {
		use := in
		switch {
		case h == nil:
			use = nil
		case use == nil:
			use = fit.NewInput(h.Mean(), k)
		}
		r, err := fit.Matrix(ctx, name, w, n, k, c, use, o)
		if err != nil {
			return r.Tensor, nil, err
		}
		back := make([]float32, n*k)
		return r.Tensor, back, scheme.DecodeRows(back, &r.Tensor, 0, int64(n))
	}
}

// named puts a tensor's name before what went wrong with a factor of it.
func named(name string, err error) error {
	return fmt.Errorf("%q: %w", name, err)
}

// Stack makes one tensor of the matrices of a stack, which have one recipe, or of
// the one row that is a vector.
func Stack(name string, shape []int64, matrices []formats.Tensor) (formats.Tensor, error) {
	first := &matrices[0]
	if len(shape) < 2 { // a vector, which was fitted as a row
		s, _ := scheme.ByName(first.Scheme)
		return scheme.New(name, s, shape, first.Params, first.Parts[0].Data)
	}
	if first.Form == "" {
		return scheme.Concat(name, shape, matrices...)
	}
	f, _ := form.ByName(first.Form)
	var factors []formats.Tensor
	for i := range first.Factors {
		var list []formats.Tensor
		for _, m := range matrices {
			list = append(list, m.Factors[i])
		}
		one := &first.Factors[i]
		x, err := scheme.Concat(one.Name, append(append([]int64{}, shape[:len(shape)-2]...), one.Shape...), list...)
		if err != nil {
			return formats.Tensor{}, named(name, err)
		}
		factors = append(factors, x)
	}
	return form.New(name, f.ID, shape, first.Params, factors...)
}
