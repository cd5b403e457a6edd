package fit

import (
	"context"
	"fmt"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/scheme"
)

// A Cut is a matrix that is fitted by runs of its rows, in one process or in several. What
// [Join] makes of them is what [Matrix] makes of the whole, bit for bit, wherever it was cut:
// rows depend on one another only in which method is the best for all. Where a sample of rows
// leaves that open, each run is fitted by all methods in question. A Cut belongs to one
// goroutine.
type Cut struct {
	name string
	n, k int
	rows Rows
	rowJob
	sample bool
	// Methods are those in question, as another Cut of the matrix has found them; nil: a
	// sample will say.
	Methods []string
}

// Rows gives rows [first, first+n) of a matrix, which are not changed.
type Rows func(first, n int) ([]float32, error)

// CutStep divides the row that a run begins with: rows up to there are rotated together.
const CutStep = scheme.TCQMaxRotate

// A rowJob fits rows of a matrix.
type rowJob interface {
	// check refuses weights that cannot be fitted, with a [*ValueError].
	check(w []float32) error
	// methods returns those of which one is the best for all rows of a matrix.
	methods(ctx context.Context, rows Rows) ([]string, error)
	// fit fits rows, and returns the calibrated error of each.
	fit(ctx context.Context, w []float32, method string) (formats.Tensor, []float64, error)
	// losses returns what each row of weights or errors does to the input.
	losses(ctx context.Context, e []float32) ([]float64, error)
	// measured returns the rows by which the reference is told, and whether they stand for
	// all.
	measured() (rows spans, scaled bool)
}

// Cuttable reports whether matrices of a code can be fitted by runs of rows: those that take
// time.
func Cuttable(c plan.Code) bool { return Fittable(c) && (c.Bits > 0 || !c.Scheme.Plain()) }

// NewCut begins a matrix of n rows of k weights, by a code that is [Cuttable]. Errors, here
// and of [Cut.Fit], are those of [Matrix], and what rows returns.
func NewCut(name string, rows Rows, n, k int, c plan.Code, in *Input, o Options) (*Cut, error) {
	if in != nil && in.k != k {
		panic(fmt.Sprintf("fit: moments of %d columns for rows of %d", in.k, k))
	}
	if !Fits(c, n, k) || !Cuttable(c) {
		return nil, unfit(name, c, n, k)
	}
	if in != nil && in.err != nil {
		return nil, formats.Errorf("", name, "%v", in.err)
	}
	return newCut(name, rows, n, k, c, in, o)
}

func newCut(name string, rows Rows, n, k int, c plan.Code, in *Input, o Options) (*Cut, error) {
	out := &Cut{name: name, n: n, k: k, rows: rows, sample: o.sample}
	if c.Bits > 0 {
		out.rowJob = &trellisJob{name: name, bits: c.Bits, n: n, k: k, in: in, o: o}
		return out, nil
	}
	j, err := newBlockJob(name, n, k, c.Scheme, in, o)
	out.rowJob = j
	return out, err
}

// A Piece is a run of rows, fitted by each method that may be the best for the matrix. As
// JSON it is without the weights.
type Piece struct {
	Ways []Way `json:"ways"`
	// Reference is what rows do to the input: all, or those of the run among Of rows of the
	// matrix that stand for all.
	Reference []float64 `json:"reference"`
	Of        int       `json:"of,omitempty"`
}

// A Way is a run of rows by one method.
type Way struct {
	Method string         `json:"method"`
	Losses []float64      `json:"losses"` // of each row
	Tensor formats.Tensor `json:"-"`
}

// Fit fits runs of rows that follow one another from first on, a multiple of [CutStep], as
// one, and returns a piece for each.
func (c *Cut) Fit(ctx context.Context, first int, runs ...int) ([]Piece, error) {
	n := 0
	for _, run := range runs {
		if (first+n)%CutStep != 0 {
			panic(fmt.Sprintf("fit: %q cut at row %d", c.name, first+n))
		}
		n += run
	}
	w, err := c.rows(first, n)
	if err != nil {
		return nil, err
	}
	if err := c.check(w); err != nil {
		return nil, valued(c.name, first, err)
	}
	if c.Methods == nil {
		if c.Methods, err = c.methods(ctx, c.rows); err != nil {
			return nil, valued(c.name, 0, err)
		}
	}
	out := make([]Piece, len(runs))
	for _, m := range c.Methods {
		t, losses, err := c.fit(ctx, w, m)
		if err != nil {
			return nil, valued(c.name, first, err)
		}
		if err := divide(out, runs, m, t, losses); err != nil {
			return nil, err
		}
	}
	at := 0
	for i, run := range runs {
		if err := c.refer(ctx, &out[i], first+at, w[at*c.k:(at+run)*c.k]); err != nil {
			return nil, err
		}
		at += run
	}
	return out, nil
}

// divide gives each piece its run of what was fitted by a method.
func divide(pieces []Piece, runs []int, method string, t formats.Tensor, losses []float64) (err error) {
	at := 0
	for i, run := range runs {
		x := t
		if len(runs) > 1 {
			if x, err = scheme.Slice(t, int64(at), int64(run)); err != nil {
				return err
			}
		}
		pieces[i].Ways = append(pieces[i].Ways, Way{method, losses[at : at+run], x})
		at += run
	}
	return nil
}

// refer measures what a piece's rows, from first on, do to the input.
func (c *Cut) refer(ctx context.Context, p *Piece, first int, w []float32) (err error) {
	if c.sample {
		return nil
	}
	rows, scaled := c.measured()
	if scaled {
		p.Of = rows.count()
	}
	p.Reference, err = c.losses(ctx, rows.within(first, len(w)/c.k).of(w, c.k))
	return err
}

// Join makes a matrix of the pieces of all its rows, in their order.
func Join(name string, pieces []Piece) (Result, error) {
	var best Result
	at := 0
	for i, way := range pieces[0].Ways {
		var total float64
		for _, p := range pieces {
			if len(p.Ways) != len(pieces[0].Ways) || p.Ways[i].Method != way.Method {
				return Result{}, formats.Errorf("", name, "pieces that are fitted by different methods")
			}
			for _, v := range p.Ways[i].Losses {
				total += v
			}
		}
		if i == 0 || total < best.Error {
			best.Error, best.Method, at = total, way.Method, i
		}
	}
	n, k, of := int64(0), int64(0), 0
	var tensors []formats.Tensor
	for _, p := range pieces {
		t := p.Ways[at].Tensor
		rows, columns := t.Rows()
		n, k, of, tensors = n+rows, columns, p.Of, append(tensors, t)
		for _, v := range p.Reference {
			best.Reference += v
		}
	}
	if of > 0 {
		best.Reference = best.Reference * float64(n) / float64(of)
	}
	best.Tensor = tensors[0]
	var err error
	if len(tensors) > 1 {
		best.Tensor, err = scheme.Concat(name, []int64{n, k}, tensors...)
	}
	return best, err
}
