package factored

import (
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/quantize/fit"
)

// Describe returns what fitting would make of a tensor by a recipe that
// [FitsTensor] it, without its bytes, as [fit.Describe] does for schemes.
func Describe(name string, shape []int64, r plan.Recipe, o fit.Options) (formats.Tensor, error) {
	if r.Form == plan.FormDense {
		return fit.Describe(name, shape, r.Code, o)
	}
	if !FitsTensor(r, shape) {
		return formats.Tensor{}, formats.Unsupportedf("", name, "shape %v as %s", shape, r)
	}
	d := description{o: o}
	switch r.Form {
	case plan.FormShared:
		d.add("c", plan.MustCode("f32"), shape[0], int64(r.Rank))
		d.add("u", r.A, int64(r.Rank), shape[1], shape[2])
		if r.Code != (plan.Code{}) {
			d.add("q", r.Code, shape...)
		}
		return d.tensor(name, form.Shared, shape, nil)
	case plan.FormTrain:
		return d.train(name, shape, r)
	}
	n := len(shape)
	left, right := slices.Clone(shape), slices.Clone(shape)
	left[n-1], right[n-2] = int64(r.Rank), int64(r.Rank)
	id := form.LowRank
	if r.Form == plan.FormCorrected {
		id = form.Corrected
		d.add("q", r.Code, shape...)
	}
	d.add("a", r.A, left...)
	d.add("b", r.B, right...)
	return d.tensor(name, id, shape, nil)
}

// A description gathers factors until one fails.
type description struct {
	o       fit.Options
	factors []formats.Tensor
	err     error
}

func (d *description) add(name string, c plan.Code, shape ...int64) {
	if d.err != nil {
		return
	}
	var t formats.Tensor
	t, d.err = fit.Describe(name, shape, c, d.o)
	d.factors = append(d.factors, t)
}

func (d *description) tensor(name string, id form.ID, shape []int64, params map[string]int64) (formats.Tensor, error) {
	if d.err != nil {
		return formats.Tensor{}, d.err
	}
	return form.New(name, id, shape, params, d.factors...)
}

func (d *description) train(name string, shape []int64, r plan.Recipe) (formats.Tensor, error) {
	d.o.Lookup = true
	rows, columns := TrainDigits(int(shape[0]), int(shape[1]))
	cores := []form.TrainCore{
		{Rows: int64(rows[0]), RankIn: 1, Columns: int64(columns[0]), RankOut: int64(r.Rank)},
		{Rows: int64(rows[1]), RankIn: int64(r.Rank), Columns: int64(columns[1]), RankOut: 1},
	}
	for i, c := range cores {
		d.add([]string{"g1", "g2"}[i], r.A, c.Rows, c.RankIn*c.Columns*c.RankOut)
	}
	return d.tensor(name, form.Train, shape, form.TrainParams(cores))
}
