package pipeline

import (
	"context"

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

// fit fits a tensor, matrix by matrix where it is a stack of experts.
func (j *job) fit(ctx context.Context) (formats.Tensor, Fit, error) {
	t := j.m.Tensor(j.name)
	n, k := t.Rows()
	rows := n
	if len(t.Shape) > 2 {
		rows = t.Shape[len(t.Shape)-2]
	}
	out := Fit{Recipe: j.recipe}
	if j.recipe.Whole() {
		x, err := j.whole(ctx, &t, &out)
		return x, out, err
	}
	var stack []formats.Tensor
	for first := int64(0); first < n; first += rows {
		expert := -1
		if rows < n {
			expert = int(first / rows)
		}
		in, err := j.moments.Input(j.input(j.name), expert)
		if err != nil {
			return t, out, err
		}
		more, err := j.matrix(ctx, &t, first, rows, k, in, &out)
		if err != nil {
			return t, out, err
		}
		stack = append(stack, more...)
	}
	x, err := factored.Stack(j.name, t.Shape, stack)
	return x, out, err
}

// options say how its matrices are fitted.
func (j *job) options() fit.Options {
	return fit.Options{Seed: j.p.Seed, Effort: int(j.p.Effort), Threads: j.o.Threads, Lookup: j.lookup, Searcher: j.o.Searcher}
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
	j.done += n * k
	if err == nil && j.o.Progress != nil {
		j.o.Progress(j.done, j.total)
	}
	return r.Tensor, err
}

// matrix fits n rows of k weights from first on, in runs where they are many.
func (j *job) matrix(ctx context.Context, t *formats.Tensor, first, n, k int64, in *fit.Input, out *Fit) ([]formats.Tensor, error) {
	o := j.options()
	run := n
	if j.recipe.Form == plan.FormDense && n*k > maxChunk {
		run = max(maxChunk/k/chunkTile, 1) * chunkTile
		o.Lookup = true
	}
	var stack []formats.Tensor
	for at := int64(0); at < n; at += run {
		rows := min(run, n-at)
		w := make([]float32, rows*k)
		if err := form.DecodeRows(w, t, first+at, rows); err != nil {
			return nil, err
		}
		r, err := factored.Matrix(ctx, j.name, w, int(rows), int(k), j.recipe, in, o)
		if err != nil {
			return nil, err
		}
		stack = append(stack, r.Tensor)
		out.Error += r.Error
		out.Reference += r.Reference
		out.Method = joined(out.Method, r.Method)
		j.done += rows * k
		if j.o.Progress != nil {
			j.o.Progress(j.done, j.total)
		}
	}
	return stack, nil
}

// joined names the methods of a stack's matrices.
func joined(a, b string) string {
	if a == "" || a == b {
		return b
	}
	return "mixed"
}
