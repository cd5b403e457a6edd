package factored

import (
	"context"
	"fmt"
	"math"

	"github.com/nstf/nstf/decompose"
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/quantize/fit"
)

// Methods of whole tensors.
const (
	MethodShared = "shared" // experts as mixtures of the best shared matrices
	MethodTrain  = "train"  // truncated decompositions, digit by digit
)

// Tensor fits w, a tensor of this shape, by a recipe for whole tensors. in is
// what all matrices of a stack read, each what one of them does; each may be nil
// where it is not known. Errors are those of [Matrix].
func Tensor(ctx context.Context, name string, w []float32, shape []int64, r plan.Recipe, in *fit.Input, each func(i int) (*fit.Input, error), o fit.Options) (out fit.Result, err error) {
	if !FitsTensor(r, shape) {
		return fit.Result{}, formats.Unsupportedf("", name, "shape %v as %s", shape, r)
	}
	if r.Form == plan.FormTrain {
		out, err = chain(ctx, name, w, shape, r, o)
	} else {
		s := sharing{ctx: ctx, name: name, w: w, e: int(shape[0]), n: int(shape[1]), k: int(shape[2]), r: r, in: in, each: each, o: o}
		out, err = s.fit(shape)
	}
	if err != nil {
		return out, named(name, err)
	}
	return out, nil
}

// FitsTensor is [Fits] for a tensor of any shape.
func FitsTensor(r plan.Recipe, shape []int64) bool {
	d := len(shape)
	if d < 2 { // of one element each, whatever the length
		return r.Form == plan.FormDense && r.Code.Scheme.Plain() && fit.Fits(r.Code, 1, 1)
	}
	n, k := int(shape[d-2]), int(shape[d-1])
	switch r.Form {
	case plan.FormShared:
		return d == 3 && int64(r.Rank) <= shape[0] && fit.Fits(r.A, n, k) && (r.Code == (plan.Code{}) || fit.Fits(r.Code, n, k))
	case plan.FormTrain:
		rows, columns := TrainDigits(n, k)
		most := min(rows[0]*columns[0], rows[1]*columns[1])
		return d == 2 && r.Rank <= most && fit.Fits(r.A, rows[0], columns[0]*r.Rank) && fit.Fits(r.A, rows[1], columns[1]*r.Rank)
	}
	return Fits(r, n, k)
}

// TrainDigits returns the digits of a table of v rows of k columns in a train of
// two cores: as square as powers of two in k allow.
func TrainDigits(v, k int) (rows, columns []int) {
	c := 1
	for c*c < k && k%(2*c) == 0 {
		c *= 2
	}
	r := int(math.Ceil(math.Sqrt(float64(v))))
	r = (r + scheme.TCQTile - 1) / scheme.TCQTile * scheme.TCQTile
	return []int{(v + r - 1) / r, r}, []int{c, k / c}
}

// sharing is a stack in the making.
type sharing struct {
	ctx     context.Context
	name    string
	w       []float32
	e, n, k int
	r       plan.Recipe
	in      *fit.Input
	each    func(i int) (*fit.Input, error)
	o       fit.Options
}

func (s *sharing) fit(shape []int64) (fit.Result, error) {
	out := fit.Result{Method: MethodShared}
	h := moments(s.in)
	if s.r.Code != (plan.Code{}) {
		h = nil // codes of the remainder get a part of its size wrong, whatever it reads
	}
	basis, err := decompose.Share(s.ctx, s.w, s.e, s.n, s.k, h)
	if err != nil {
		return out, err
	}
	c, u := basis.Take(s.r.Rank)
	mix, err := plain("c", c, int64(s.e), int64(s.r.Rank))
	if err != nil {
		return out, err
	}
	size := s.n * s.k
	var list []formats.Tensor
	for b := range s.r.Rank {
		x, back, err := store("u", s.r.A, s.in, s.o)(s.ctx, u[b*size:(b+1)*size], s.n, s.k, h)
		if err != nil {
			return out, err
		}
		copy(u[b*size:], back)
		list = append(list, x)
	}
	shared, err := scheme.Concat("u", []int64{int64(s.r.Rank), int64(s.n), int64(s.k)}, list...)
	if err != nil {
		return out, err
	}
	factors := []formats.Tensor{mix, shared}
	list = nil
	for e := range s.e {
		q, err := s.remainder(e, c, u, &out)
		if err != nil {
			return out, err
		}
		list = append(list, q)
	}
	if s.r.Code != (plan.Code{}) {
		q, err := scheme.Concat("q", shape, list...)
		if err != nil {
			return out, err
		}
		factors = append(factors, q)
	}
	out.Tensor, err = form.New(s.name, form.Shared, shape, nil, factors...)
	return out, err
}

// remainder fits what the shared matrices leave of matrix e, or only counts it.
func (s *sharing) remainder(e int, c, u []float32, out *fit.Result) (formats.Tensor, error) {
	size := s.n * s.k
	in := s.in
	if s.each != nil {
		own, err := s.each(e)
		if err != nil {
			return formats.Tensor{}, err
		}
		if own != nil {
			in = own
		}
	}
	left := append([]float32(nil), s.w[e*size:(e+1)*size]...)
	h := moments(in)
	out.Reference += h.Loss(left, s.n, s.k)
	for b := range s.r.Rank {
		v := c[e*s.r.Rank+b]
		for i, x := range u[b*size : (b+1)*size] {
			left[i] -= float32(v * x)
		}
	}
	var q formats.Tensor
	if s.r.Code != (plan.Code{}) {
		r, err := fit.Matrix(s.ctx, "q", left, s.n, s.k, s.r.Code, in, s.o)
		if err != nil {
			return q, err
		}
		out.Error += r.Error
		return r.Tensor, nil
	}
	out.Error += h.Loss(left, s.n, s.k)
	return q, nil
}

// chain fits a tensor train.
func chain(ctx context.Context, name string, w []float32, shape []int64, r plan.Recipe, o fit.Options) (fit.Result, error) {
	out := fit.Result{Method: MethodTrain}
	v, k := int(shape[0]), int(shape[1])
	rows, columns := TrainDigits(v, k)
	cores, _, err := decompose.Chain(ctx, w, v, k, rows, columns, []int{r.Rank})
	if err != nil {
		return out, err
	}
	var factors []formats.Tensor
	var sizes []form.TrainCore
	o.Lookup = true // a row of each core is looked up alone
	for i, c := range cores {
		x, _, err := store(fmt.Sprintf("g%d", i+1), r.A, nil, o)(ctx, c.W, c.Rows, len(c.W)/c.Rows, nil)
		if err != nil {
			return out, err
		}
		factors = append(factors, x)
		sizes = append(sizes, form.TrainCore{Rows: int64(c.Rows), RankIn: int64(c.RankIn), Columns: int64(c.Columns), RankOut: int64(c.RankOut)})
	}
	if out.Tensor, err = form.New(name, form.Train, shape, form.TrainParams(sizes), factors...); err != nil {
		return out, err
	}
	back, err := form.Open(&out.Tensor)
	if err != nil {
		return out, err
	}
	row := make([]float32, k)
	for i := range v {
		back.DecodeRow(row, int64(i))
		for j, x := range row {
			d := float64(w[i*k+j]) - float64(x)
			out.Error += d * d
			out.Reference += float64(w[i*k+j]) * float64(w[i*k+j])
		}
	}
	return out, nil
}

// plain keeps a small matrix in float32.
func plain(name string, w []float32, shape ...int64) (formats.Tensor, error) {
	s, _ := scheme.ByName("f32")
	f, _ := fit.For(s)
	dst := make([]byte, 4*len(w))
	if err := f(dst, w, nil, int(shape[len(shape)-1])); err != nil {
		return formats.Tensor{}, err
	}
	return scheme.New(name, s, shape, nil, tensor.BytesBlob(dst))
}
