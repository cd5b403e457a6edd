package pipeline

import (
	"context"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/quantize/factored"
	"github.com/nstf/nstf/quantize/fit"
)

// maxChunk is the most weights that are fitted at once: a larger matrix, such
// as the head of a large vocabulary, is fitted in runs of rows, so that the
// float32 copies that fitting works on stay below a block's. 512 MiB each.
const maxChunk = 1 << 27

// chunkTile divides the rows of a run, whatever the recipe.
const chunkTile = 128

// A job is one tensor to fit.
type job struct {
	*run
	name    string
	recipe  plan.Recipe
	moments moments
	lookup  bool // rows are looked up alone
}

// fit fits a tensor, matrix by matrix where it is a stack of experts, and calls keep when that
// is done: at once, or among what comes later.
func (j *job) fit(ctx context.Context, keep func(t formats.Tensor, f Fit) error) error {
	t := j.m.Tensor(j.name)
	out := Fit{Recipe: j.recipe}
	if j.recipe.Whole() {
		if err := j.crew.all(); err != nil { // its memory is counted alone
			return err
		}
		began := time.Now()
		x, err := j.whole(ctx, &t, &out)
		if err != nil {
			return err
		}
		out.Seconds = time.Since(began).Seconds()
		return keep(x, out)
	}
	all := units(&t, j.recipe)
	results, left := make([]fit.Result, len(all)), len(all)
	for i, u := range all {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := j.crew.room(); err != nil { // no moments beside those of fits under way
			return err
		}
		in, err := j.moments.Input(j.input(j.name), u.expert)
		if err != nil {
			return err
		}
		var seconds float64
		err = j.crew.begin(func(turn *fit.Turn) (err error) {
			began := time.Now()
			results[i], err = j.unit(ctx, &t, u, in, turn)
			seconds = time.Since(began).Seconds()
			return err
		}, func(err error) error {
			if err != nil {
				return err
			}
			_, k := t.Rows()
			j.fitted(u.rows * k)
			out.Seconds += seconds
			if left--; left > 0 {
				return nil
			}
			stack := make([]formats.Tensor, len(results))
			for i := range results {
				out.add(&results[i])
				stack[i] = results[i].Tensor
			}
			x, err := factored.Stack(j.name, t.Shape, stack)
			if err != nil {
				return err
			}
			return keep(x, out)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// A unit is rows of a tensor that are fitted as a matrix: that of one expert, or a run of a
// large matrix.
type unit struct {
	first, rows int64
	expert      int  // whose it is; -1: of a tensor that is no stack
	run         bool // it is not all of its matrix
}

// units lists those of a tensor.
func units(t *formats.Tensor, recipe plan.Recipe) (out []unit) {
	n, k := t.Rows()
	rows := n
	if len(t.Shape) > 2 {
		rows = t.Shape[len(t.Shape)-2]
	}
	run := rows
	if recipe.Form == plan.FormDense && rows*k > maxChunk {
		run = max(maxChunk/k/chunkTile, 1) * chunkTile
	}
	for first := int64(0); first < n; first += rows {
		expert := -1
		if rows < n {
			expert = int(first / rows)
		}
		for at := int64(0); at < rows; at += run {
			out = append(out, unit{first + at, min(run, rows-at), expert, run < rows})
		}
	}
	return out
}

// options say how its matrices are fitted.
func (j *job) options() fit.Options {
	return fit.Options{Seed: j.p.Seed, Effort: int(j.p.Effort), Threads: j.o.Threads, Lookup: j.lookup, Searcher: j.o.Searcher}
}

// unitOptions say how a unit is fitted: runs of a matrix may not be rotated together.
func (j *job) unitOptions(u unit) fit.Options {
	o := j.options()
	o.Lookup = o.Lookup || u.run
	return o
}

// whole fits a tensor by a recipe that looks at all its matrices at once.
func (j *job) whole(ctx context.Context, t *formats.Tensor, out *Fit) (formats.Tensor, error) {
	n, k := t.Rows()
	in, err := j.moments.Input(j.input(j.name), -1)
	if err != nil {
		return *t, err
	}
	w, err := form.Decode(t)
	if err != nil {
		return *t, err
	}
	each := func(i int) (*fit.Input, error) { return j.moments.Input(j.input(j.name), i) }
	o := j.options()
	r, err := factored.Tensor(ctx, j.name, w, t.Shape, j.recipe, in, each, o)
	out.Error, out.Reference, out.Method = r.Error, r.Reference, r.Method
	if err == nil {
		j.fitted(n * k)
	}
	return r.Tensor, err
}

// unit fits a unit.
func (j *job) unit(ctx context.Context, t *formats.Tensor, u unit, in *fit.Input, turn *fit.Turn) (r fit.Result, err error) {
	_, k := t.Rows()
	w := make([]float32, u.rows*k)
	if err := form.DecodeRows(w, t, u.first, u.rows); err != nil {
		return r, err
	}
	o := j.unitOptions(u)
	o.Turn = turn
	return factored.Matrix(ctx, j.name, w, int(u.rows), int(k), j.recipe, in, o)
}

// fitted counts weights.
func (j *job) fitted(n int64) {
	j.done += n
	if j.o.Progress != nil {
		j.o.Progress(j.done, j.total)
	}
}

// add counts a unit's errors.
func (f *Fit) add(r *fit.Result) {
	f.Error += r.Error
	f.Reference += r.Reference
	f.Method = joined(f.Method, r.Method)
}

// joined names the methods of a stack's matrices.
func joined(a, b string) string {
	if a == "" || a == b {
		return b
	}
	return "mixed"
}
