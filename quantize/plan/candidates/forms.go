package candidates

import (
	"context"
	"math"
	"slices"

	"github.com/nstf/nstf/decompose"
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/quantize/factored"
	"github.com/nstf/nstf/quantize/fit"
	qplan "github.com/nstf/nstf/quantize/plan"
)

// Candidates with factors. Their ranks are found, not given: one factorization
// of a matrix under its moments, and one with all errors alike, give the error
// against the rank, and ranks on the lower hull of bytes and error, those of
// codes alone included, become candidates. So a form that does not pay is not
// one. Nothing is fitted for it.

const (
	maxFormed      = 1 << 26 // weights of a matrix that is factored for planning
	maxCorrections = 128     // largest rank of a correction that is looked at
	maxProduct     = 512     // and of a product alone, where not all are found at once
	rankStep       = 16      // ranks are multiples: of a trellis tile
)

// correctable are the codes that corrections are looked at for.
func correctable() []plan.Code {
	return []plan.Code{plan.Trellis(2), plan.Trellis(3), plan.Trellis(4), plan.Trellis(5)}
}

// factorCodes are those of factors, coarsest first.
func factorCodes() []plan.Code {
	return []plan.Code{plan.Trellis(2), plan.Trellis(3), plan.Trellis(4), plan.MustCode("q8_0")}
}

// A formBuilder looks for the forms of one tensor.
type formBuilder struct {
	*builder
	t      *formats.Tensor
	w      []float32 // a matrix of it
	n, k   int
	in     *fit.Input
	h      *decompose.Moments
	o      fit.Options
	dense  map[plan.Code]float64 // relative error
	shapes []int64
	out    []qplan.Candidate
}

// forms returns the candidates with factors of a tensor, none for a table that is
// looked up and multiplied: its moments say nothing of the one. dense are errors of
// codes alone, by recipe.
func (b *builder) forms(ctx context.Context, it *qplan.Item, t *formats.Tensor, dense map[plan.Code]float64, sensitivity float64) ([]qplan.Candidate, error) {
	n, k := matrixOf(t.Shape)
	tied := b.m != nil && b.m.Graph.Tied() && t.Name == b.m.Graph.Embed.Table
	if tied || n*k > maxFormed || min(n, k) < 2*rankStep || len(dense) < 2 {
		return nil, nil
	}
	f := &formBuilder{builder: b, t: t, n: n, k: k, dense: dense, shapes: t.Shape,
		o: fit.Options{Seed: b.o.Seed, Effort: b.o.Effort, Threads: b.o.Threads, Lookup: graph.Role(it.Role).Base() == graph.RoleEmbed}}
	if err := f.load(t); err != nil {
		return nil, err
	}
	for _, look := range []func(context.Context) error{f.products, f.corrections, f.basis, f.train} {
		if err := look(ctx); err != nil {
			return nil, formats.Of(t.Name, err)
		}
	}
	f.out = slices.DeleteFunc(f.out, func(c qplan.Candidate) bool { return c.Error > f.tolerated() })
	for i := range f.out {
		f.out[i].Loss = f.out[i].Error * sensitivity
	}
	return f.out, nil
}

// tolerated is the largest error that is looked at: sensitivities were seen to
// hold up to 8 % (docs/perf/sensitivity.md), and for errors like those of codes.
func (f *formBuilder) tolerated() float64 {
	most := 0.08
	for _, e := range f.dense {
		most = max(most, 1.5*e)
	}
	return most
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
	if !factored.FitsTensor(r, f.shapes) {
		return nil
	}
	x, err := factored.Describe(f.t.Name, f.shapes, r, f.o)
	if err != nil {
		return err
	}
	f.out = append(f.out, qplan.Candidate{Recipe: r, Bytes: x.Size(), Error: e})
	return nil
}

// schemesFor lists the schemes of factors that were allowed, with the error
// that each leaves of a matrix.
func (f *formBuilder) schemesFor(each func(c plan.Code, e float64) error) error {
	for _, s := range factorCodes() {
		if e, ok := f.dense[s]; ok {
			if err := each(s, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// products looks at products alone. Their error is what the rank leaves, and
// what each of two factors does. Larger ranks are looked at where a quarter of
// the smaller dimension leaves little.
func (f *formBuilder) products(ctx context.Context) error {
	most := min(f.n, f.k)
	var c *decompose.Factors
	for _, rank := range []int{most / 4, most / 2} { // beyond, factors have as many weights
		var err error
		if c, err = decompose.Factor(ctx, f.w, f.n, f.k, f.h, decompose.Options{Rank: min(rank, maxProduct), Fast: true}); err != nil || c.Total == 0 {
			return err
		}
		if c.Loss(len(c.Values)) > f.tolerated()*c.Total {
			break
		}
	}
	for r := rankStep; r <= len(c.Values); r += rankStep {
		left := c.Loss(r) / c.Total
		if left > f.tolerated() {
			continue
		}
		err := f.schemesFor(func(s plan.Code, e float64) error {
			return f.add(plan.Recipe{Form: plan.FormLowRank, Rank: r, A: s, B: s}, left+2*e*(1-left))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// corrections looks at codes with a product. Codes of rotated weights get a part
// of the weights' own size wrong, whatever these are, and the moments say what
// that costs. So the error falls with the size of what a product leaves; what
// the product's own codes get wrong is a part of that. See [decompose.Correct],
// which may come to less.
func (f *formBuilder) corrections(ctx context.Context) error {
	c, err := decompose.Factor(ctx, f.w, f.n, f.k, nil, decompose.Options{Rank: min(maxCorrections, min(f.n, f.k)/2), Fast: true})
	if err != nil || c.Total == 0 {
		return err
	}
	for rank := rankStep; rank <= len(c.Values); rank += rankStep {
		taken := 1 - c.Loss(rank)/c.Total
		for _, code := range correctable() {
			e, ok := f.dense[code]
			if !ok {
				continue
			}
			err := f.schemesFor(func(s plan.Code, _ float64) error {
				lost := min(1, 2*plainError(s)) // by the codes of both factors
				return f.add(plan.Recipe{Form: plan.FormCorrected, Code: code, Rank: rank, A: s, B: s}, e*(1-taken*(1-lost)))
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// plainError is the relative error that a factor's scheme leaves where all
// errors count alike: nearly that of the best code of so many bits.
func plainError(c plan.Code) float64 {
	if c.Bits > 0 {
		return 1.2 * math.Pow(4, -float64(c.Bits))
	}
	return 1e-4
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
	plain, err := decompose.Share(ctx, w, e, f.n, f.k, nil) // what codes of a remainder follow
	if err != nil {
		return err
	}
	for b := 1; b < e; b++ {
		part, size := c.Loss(b)/c.Total, plain.Loss(b)/plain.Total
		err := f.schemesFor(func(s plan.Code, stored float64) error {
			if err := f.add(plan.Recipe{Form: plan.FormShared, Rank: b, A: s, B: s}, part+stored*(1-part)); err != nil {
				return err
			}
			// Codes of the remainder also answer what U's codes got wrong.
			for _, q := range correctable() {
				if own, ok := f.dense[q]; ok {
					if err := f.add(plan.Recipe{Form: plan.FormShared, Code: q, Rank: b, A: s, B: s}, own*(size+plainError(s)*(1-size))); err != nil {
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
		err := f.schemesFor(func(s plan.Code, e float64) error {
			return f.add(plan.Recipe{Form: plan.FormTrain, Rank: r, A: s, B: s}, left+2*e*(1-left))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// formMargin is by how much a form must lie below what codes alone come to: the
// estimates are no finer, and a form costs time.
const formMargin = 0.03

// paying returns the forms that lie below the curve of bytes and loss that codes
// alone make, and on the lower hull that all make together. nothing is the loss
// of a tensor of zeros, which takes no bytes and belongs to the curve.
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

// at returns the loss that a hull has at a size. Between two candidates it falls
// by the same part with each byte, as the loss of codes falls with bits: a form
// that only fills the gap between two codes takes nothing that bytes would not,
// and random weights have such.
func at(hull []qplan.Candidate, bytes int64) float64 {
	for i, c := range hull {
		switch {
		case bytes > c.Bytes:
			continue
		case i == 0 || bytes == c.Bytes:
			return c.Loss
		}
		p := hull[i-1]
		way := float64(bytes-p.Bytes) / float64(c.Bytes-p.Bytes)
		if c.Loss <= 0 {
			return p.Loss * (1 - way)
		}
		return p.Loss * math.Pow(c.Loss/p.Loss, way)
	}
	return hull[len(hull)-1].Loss
}
