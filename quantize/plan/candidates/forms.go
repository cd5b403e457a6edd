package candidates

import (
	"context"
	"math"
	"slices"

	"github.com/nstf/nstf/decompose"
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/quantize/factored"
	"github.com/nstf/nstf/quantize/fit"
	qplan "github.com/nstf/nstf/quantize/plan"
)

// Candidates with factors. Their ranks are found, not given: one factorization
// of a matrix, and one of what its coarsest codes got wrong, give the error
// against the rank, and ranks on the lower hull of bytes and error, those of
// codes alone included, become candidates. So a form that does not pay is not
// one.

const (
	maxFormed      = 1 << 26 // weights of a matrix that is factored for planning
	maxCorrections = 128     // largest rank of a correction that is looked at
	maxProduct     = 512     // and of a product alone, where not all are found at once
	rankStep       = 16      // ranks are multiples: of a trellis tile
)

// correctable are the codes coarse enough for a correction to pay: each bit
// more takes three quarters of the error, which no correction of its size does
// where codes are finer.
var correctable = []string{"tcq2", "tcq3"}

// factorSchemes are those of factors, coarsest first.
var factorSchemes = []string{"tcq3", "tcq4", "q8_0"}

// A formBuilder looks for the forms of one tensor.
type formBuilder struct {
	*builder
	t      *formats.Tensor
	w      []float32 // a matrix of it
	n, k   int
	in     *fit.Input
	h      *decompose.Moments
	o      fit.Options
	dense  map[string]float64 // relative error by scheme
	shapes []int64
	out    []qplan.Candidate
}

// forms returns the candidates with factors of a tensor, none for a table that is
// looked up and multiplied: its moments say nothing of the one. dense are errors of
// codes alone, by recipe.
func (b *builder) forms(ctx context.Context, it *qplan.Item, t *formats.Tensor, dense map[string]float64, sensitivity float64) ([]qplan.Candidate, error) {
	n, k := matrixOf(t.Shape)
	tied := b.m != nil && b.m.Graph.Tied() && t.Name == b.m.Graph.Embed.Table
	if tied || n*k > maxFormed || min(n, k) < 2*rankStep || len(dense) < 2 {
		return nil, nil
	}
	f := &formBuilder{builder: b, t: t, n: n, k: k, dense: dense, shapes: t.Shape,
		o: fit.Options{Seed: b.o.Seed, Effort: b.o.Effort, Threads: b.o.Threads, Lookup: it.Role == string(model.RoleEmbed)}}
	if err := f.load(t); err != nil {
		return nil, err
	}
	for _, look := range []func(context.Context) error{f.products, f.corrections, f.basis, f.train} {
		if err := look(ctx); err != nil {
			return nil, named(err, t.Name)
		}
	}
	// Sensitivities hold for errors like those of codes: one that is much larger
	// than the coarsest codes leave is not looked at.
	most := 0.0
	for _, e := range dense {
		most = max(most, e)
	}
	f.out = slices.DeleteFunc(f.out, func(c qplan.Candidate) bool { return c.Error > 1.5*most })
	for i := range f.out {
		f.out[i].Loss = f.out[i].Error * sensitivity
	}
	return f.out, nil
}

// load reads the middle matrix of a stack, and what it reads.
func (f *formBuilder) load(t *formats.Tensor) error {
	rows, _ := t.Rows()
	matrix := int(rows) / f.n / 2
	expert := -1
	if len(t.Shape) > 2 {
		expert = matrix
	}
	var err error
	if f.in, err = f.moments(t.Name, expert); err != nil {
		return err
	}
	if f.in != nil {
		f.h = decompose.NewMoments(f.in.Moments())
	}
	f.w = make([]float32, f.n*f.k)
	return form.DecodeRows(f.w, t, int64(matrix*f.n), int64(f.n))
}

// add takes a recipe into the list if the tensor fits it.
func (f *formBuilder) add(r plan.Recipe, e float64) error {
	recipe := r.String()
	if !factored.FitsTensor(recipe, f.shapes) {
		return nil
	}
	x, err := factored.Describe(f.t.Name, f.shapes, recipe, f.o)
	if err != nil {
		return err
	}
	f.out = append(f.out, qplan.Candidate{Recipe: recipe, Bytes: x.Size(), Error: e})
	return nil
}

// schemesFor lists the schemes of factors that were allowed, with the error
// that each leaves of a matrix.
func (f *formBuilder) schemesFor(each func(scheme string, e float64) error) error {
	for _, s := range factorSchemes {
		if e, ok := f.dense[s]; ok {
			if err := each(s, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// products looks at products alone. Their error is what the rank leaves, and
// what each of two factors does.
func (f *formBuilder) products(ctx context.Context) error {
	most := min(min(f.n, f.k)/2, maxProduct) // beyond, factors have as many weights
	c, err := decompose.Factor(ctx, f.w, f.n, f.k, f.h, decompose.Options{Rank: most, Fast: true})
	if err != nil || c.Total == 0 {
		return err
	}
	for r := rankStep; r <= len(c.Values); r += rankStep {
		left := c.Loss(r) / c.Total
		err := f.schemesFor(func(s string, e float64) error {
			return f.add(plan.Recipe{Form: plan.FormLowRank, Rank: r, Factors: s}, left+2*e*(1-left))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// corrections looks at what coarse codes get wrong.
func (f *formBuilder) corrections(ctx context.Context) error {
	for _, scheme := range correctable {
		e, ok := f.dense[scheme]
		if !ok || e == 0 {
			continue
		}
		r, err := fit.Matrix(ctx, f.t.Name, f.w, f.n, f.k, scheme, f.in, f.o)
		if err != nil {
			return err
		}
		left := make([]float32, len(f.w))
		if err := form.DecodeRows(left, &r.Tensor, 0, int64(f.n)); err != nil {
			return err
		}
		for i, v := range f.w {
			left[i] = v - left[i]
		}
		pays, err := f.promising(ctx, left)
		if err != nil || !pays {
			return err // finer codes leave less structure still
		}
		c, err := decompose.Factor(ctx, left, f.n, f.k, f.h, decompose.Options{Rank: maxCorrections})
		if err != nil {
			return err
		}
		for rank := rankStep; rank <= min(maxCorrections, len(c.Values)) && c.Total > 0; rank *= 2 {
			part := c.Loss(rank) / c.Total
			err := f.schemesFor(func(s string, stored float64) error {
				return f.add(plan.Recipe{Form: plan.FormCorrected, Scheme: scheme, Rank: rank, Factors: s}, e*(part+2*stored*(1-part)))
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// promising reports whether a product of a small rank could take more of an
// error than its bytes would in finer codes, if its factors took 3 bits and
// lost nothing. Most matrices end here.
func (f *formBuilder) promising(ctx context.Context, left []float32) (bool, error) {
	const doubt = 0.85 // a random subspace finds a little less than there is
	c, err := decompose.Factor(ctx, left, f.n, f.k, f.h, decompose.Options{Rank: 2 * rankStep, Fast: true})
	if err != nil || c.Total == 0 {
		return false, err
	}
	for r := rankStep; r <= len(c.Values); r += rankStep {
		bits := 3 * float64(r) * float64(f.n+f.k) / float64(f.n*f.k)
		if 1-c.Loss(r)/c.Total > doubt*(1-math.Pow(4, -bits)) {
			return true, nil
		}
	}
	return false, nil
}

// basis looks at what the matrices of a stack have in common.
func (f *formBuilder) basis(ctx context.Context) error {
	if len(f.shapes) != 3 || f.shapes[0] < 2 || int(f.shapes[0])*f.n*f.k > maxFormed {
		return nil
	}
	e := int(f.shapes[0])
	w := make([]float32, e*f.n*f.k)
	if err := form.DecodeRows(w, f.t, 0, int64(e*f.n)); err != nil {
		return err
	}
	shared, err := f.moments(f.t.Name, -1)
	if err != nil {
		return err
	}
	var h *decompose.Moments
	if shared != nil {
		h = decompose.NewMoments(shared.Moments())
	}
	c, err := decompose.Share(ctx, w, e, f.n, f.k, h)
	if err != nil || c.Total == 0 {
		return err
	}
	for b := 1; b < e; b *= 2 {
		part := c.Loss(b) / c.Total
		err := f.schemesFor(func(s string, stored float64) error {
			if err := f.add(plan.Recipe{Form: plan.FormShared, Rank: b, Factors: s}, part+stored*(1-part)); err != nil {
				return err
			}
			// Codes of the remainder also answer what U's codes got wrong.
			for _, q := range correctable {
				if own, ok := f.dense[q]; ok {
					if err := f.add(plan.Recipe{Form: plan.FormShared, Scheme: q, Rank: b, Factors: s}, own*(part+stored*(1-part))); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// train looks at a table that is looked up and multiplied with nothing.
func (f *formBuilder) train(ctx context.Context) error {
	if f.input(f.t.Name) != "" || len(f.shapes) != 2 || f.n < 1<<10 {
		return nil
	}
	rows, columns := factored.TrainDigits(f.n, f.k)
	losses, _, err := decompose.ChainLosses(ctx, f.w, f.n, f.k, rows, columns, maxCorrections)
	if err != nil || losses[0] == 0 {
		return err
	}
	for r := rankStep; r < len(losses); r *= 2 {
		left := losses[r] / losses[0]
		err := f.schemesFor(func(s string, e float64) error {
			return f.add(plan.Recipe{Form: plan.FormTrain, Rank: r, Factors: s}, left+2*e*(1-left))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// formMargin is by how much a form must lie below the hull of codes alone: the
// estimates are no finer, and a form costs time.
const formMargin = 0.03

// paying returns the forms that lie below the lower hull of bytes and loss that
// codes alone make, and on the hull that all make together. nothing is the loss
// of a tensor of zeros, which takes no bytes and belongs to the hull.
func paying(dense, forms []qplan.Candidate, nothing float64) []qplan.Candidate {
	codes := lowerHull(append(slices.Clone(dense), qplan.Candidate{Loss: nothing}))
	var below []qplan.Candidate
	for _, c := range forms {
		if c.Loss < (1-formMargin)*at(codes, c.Bytes) {
			below = append(below, c)
		}
	}
	all := lowerHull(append(slices.Clone(dense), below...))
	return slices.DeleteFunc(below, func(c qplan.Candidate) bool {
		return !slices.ContainsFunc(all, func(x qplan.Candidate) bool { return x.Recipe == c.Recipe })
	})
}

// lowerHull returns the candidates that some price of a byte makes the best.
func lowerHull(list []qplan.Candidate) []qplan.Candidate {
	var out []qplan.Candidate
	for _, c := range Undominated(list) {
		for len(out) > 1 {
			a, b := out[len(out)-2], out[len(out)-1]
			if (b.Loss-a.Loss)*float64(c.Bytes-a.Bytes) < (c.Loss-a.Loss)*float64(b.Bytes-a.Bytes) {
				break
			}
			out = out[:len(out)-1]
		}
		out = append(out, c)
	}
	return out
}

// at returns the loss that a hull has at a size: between two candidates, as if
// part of the tensor had the one and part the other.
func at(hull []qplan.Candidate, bytes int64) float64 {
	for i, c := range hull {
		switch {
		case bytes > c.Bytes:
			continue
		case i == 0 || bytes == c.Bytes:
			return c.Loss
		}
		p := hull[i-1]
		return p.Loss + (c.Loss-p.Loss)*float64(bytes-p.Bytes)/float64(c.Bytes-p.Bytes)
	}
	return hull[len(hull)-1].Loss
}
