// Package planner makes plans of models: it lists candidates by the statistics
// (quantize/plan/candidates), counts packages (quantize/plan/layout) and
// chooses under a budget (quantize/plan).
//
// In: a model, statistics, a budget. Out: a formats/plan.Plan, the same for the
// same input on every machine of one SIMD level, at any number of threads.
package planner

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/stats"
	qplan "github.com/nstf/nstf/quantize/plan"
	"github.com/nstf/nstf/quantize/plan/candidates"
	"github.com/nstf/nstf/quantize/plan/layout"
)

// Options say what a plan may do.
type Options struct {
	Schemes string        // see candidates.Codes; "": all
	Forms   bool          // factors too, where they pay
	Device  *qplan.Device // whose time for a token is to be least, under a budget of loss; nil: bytes are
	Keep    []candidates.Rule
	Seed    int64
	Effort  int64
	Threads int // 0: all
	// Made is the provenance of the package to come, sources beside the model
	// included: its length counts.
	Made nstf.Provenance
	// Attached are files that the package will carry beside the model's own: they count.
	Attached []nstf.File
	// Progress is called with weights looked at and their total; nil: nobody.
	Progress func(done, total int64)
}

// A Planner makes plans of one model. It keeps the candidates, so that asking
// for another budget is cheap. It serves one goroutine at a time.
type Planner struct {
	m     *model.Model
	o     Options
	of    *stats.File // that items were made by
	items []qplan.Item
}

// New returns a planner.
func New(m *model.Model, o Options) *Planner {
	if o.Schemes == "" {
		o.Schemes = "all"
	}
	return &Planner{m: m, o: o}
}

// Items lists the candidates by statistics, which may be nil. Errors are those
// of [candidates.Build] and of statistics of another model.
func (p *Planner) Items(ctx context.Context, s *stats.File) ([]qplan.Item, error) {
	if p.items != nil && p.of == s {
		return p.items, nil
	}
	if s != nil {
		if err := s.Check(p.m); err != nil {
			return nil, err
		}
	}
	recipes, err := candidates.Codes(p.o.Schemes)
	if err != nil {
		return nil, err
	}
	items, err := candidates.Build(ctx, p.m, candidates.Options{Codes: recipes, Keep: p.o.Keep, Forms: p.o.Forms, Slower: p.o.Device != nil, Stats: s, Seed: p.o.Seed,
		Effort: int(p.o.Effort), Threads: p.o.Threads, Progress: p.o.Progress})
	if err != nil {
		return nil, err
	}
	if p.o.Device != nil {
		p.time(items)
	}
	p.items, p.of = items, s
	return items, nil
}

// time fills in what candidates add to the time of a token.
func (p *Planner) time(items []qplan.Item) {
	g := p.m.Graph
	share := map[string]float64{g.Embed.Positions: 1 / float64(g.Context)}
	for i := range g.Blocks {
		for _, part := range g.Blocks[i].Parts(g.Width) {
			if part.Experts > 0 {
				share[part.Linear.Weight] = float64(part.Used) / float64(part.Experts)
			}
		}
	}
	if !g.Tied() {
		share[g.Embed.Table] = 1 / float64(g.Vocab) // a row
	}
	for i := range items {
		if graph.Role(items[i].Role).IsMTP() { // not read for a token's logits
			continue
		}
		t := p.m.Tensor(items[i].Name)
		n, k := t.Rows()
		source, _ := scheme.ByName(t.Scheme)
		part, ok := share[t.Name]
		if !ok {
			part = 1
		}
		for j := range items[i].Candidates {
			c := &items[i].Candidates[j]
			c.Seconds = p.o.Device.Seconds(c.Recipe, source, n, k, c.Bytes, part)
		}
	}
}

// Plan makes a plan by statistics under a budget, whose Package is filled in.
// Without statistics, or without sensitivities in them, errors count alike,
// nothing is predicted, and a budget of loss is a [formats.UnsupportedError].
// Other errors are those of [Planner.Items] and of quantize/plan.
func (p *Planner) Plan(ctx context.Context, s *stats.File, b qplan.Budget) (*plan.Plan, error) {
	return p.Again(ctx, s, b, nil, nil)
}

// Again is [Planner.Plan] for a model that is compressed in part: tensors that
// are done keep their recipes, and assumed sensitivities, by name, replace those
// of the statistics.
func (p *Planner) Again(ctx context.Context, s *stats.File, b qplan.Budget, done map[string]plan.Recipe, assumed map[string]float64) (*plan.Plan, error) {
	known := s != nil && len(s.Sensitivity) > 0
	if !known && b.MaxLoss > 0 {
		e := formats.Unsupportedf("", "", "planning for a divergence without sensitivities")
		e.Hint = "give statistics made by nstf calibrate, which measures them"
		return nil, e
	}
	items, err := p.Items(ctx, s)
	if err != nil {
		return nil, err
	}
	if len(done)+len(assumed) > 0 {
		items = revised(items, done, assumed)
		b.Bytes = max(b.Bytes-noteBytes, 0)
	}
	l, err := layout.New(p.m, p.o.Made, p.o.Seed, p.o.Attached...)
	if err != nil {
		return nil, err
	}
	counted := headed{l, p, p.source(s)}
	b.Package = counted
	if d := p.o.Device; d != nil && b.MaxLoss > 0 {
		b.Fastest, b.ByteSeconds = true, 0.01/d.Bytes
	}
	out, err := qplan.Solve(items, b)
	if err != nil {
		return nil, err
	}
	counted.head(out)
	if !known {
		out.Predicted.KLD = 0
	}
	return out, nil
}

// Possible refuses a budget of bytes or bits that the smallest recipes of all tensors
// exceed, by their shapes, before anything is measured: the error is a
// [*qplan.ImpossibleError] or one of [candidates.Smallest]. Budgets of loss, and factors,
// whose bytes are found by looking at weights, it takes as they are.
func (p *Planner) Possible(b qplan.Budget) error {
	if b.MaxLoss > 0 || p.o.Forms {
		return nil
	}
	recipes, err := candidates.Codes(p.o.Schemes)
	if err != nil {
		return err
	}
	items, err := candidates.Smallest(p.m, candidates.Options{Codes: recipes, Keep: p.o.Keep, Seed: p.o.Seed})
	if err != nil {
		return err
	}
	l, err := layout.New(p.m, p.o.Made, p.o.Seed, p.o.Attached...)
	if err != nil {
		return err
	}
	b.Package = headed{l, p, p.source(nil)}
	_, err = qplan.Solve(items, b)
	return err
}

// noteBytes is what the ledger says of plans that were made again, at most.
const noteBytes = 4096

// revised returns items with what is known better.
func revised(items []qplan.Item, done map[string]plan.Recipe, assumed map[string]float64) []qplan.Item {
	items = slices.Clone(items)
	for i := range items {
		it := &items[i]
		it.Candidates = slices.Clone(it.Candidates)
		if s, ok := assumed[it.Name]; ok {
			for j := range it.Candidates {
				it.Candidates[j].Cost(s)
			}
		}
		if recipe, ok := done[it.Name]; ok {
			it.Candidates = slices.DeleteFunc(it.Candidates, func(c qplan.Candidate) bool { return c.Recipe != recipe })
		}
	}
	return items
}

// headed counts packages of plans that say where they come from.
type headed struct {
	*layout.Layout
	p      *Planner
	source plan.Source
}

// Size implements quantize/plan.Package.
func (h headed) Size(p *plan.Plan) (int64, error) {
	c := *p
	h.head(&c)
	return h.Layout.Size(&c)
}

func (h headed) head(p *plan.Plan) {
	p.Source, p.Seed, p.Effort = h.source, h.p.o.Seed, h.p.o.Effort
	p.Budget.Schemes, p.Budget.Keep = []string{h.p.o.Schemes}, nil
	if h.p.o.Device != nil {
		p.Budget.Device = h.p.o.Device.Name
	}
	if h.p.o.Forms {
		p.Budget.Schemes = append(p.Budget.Schemes, "forms")
	}
	for _, r := range h.p.o.Keep {
		p.Budget.Keep = append(p.Budget.Keep, r.String())
	}
}

func (p *Planner) source(s *stats.File) plan.Source {
	out := plan.Source{Model: filepath.Base(p.m.Path)}
	if s == nil {
		return out
	}
	out.Hash = s.Source.ModelHash
	if out.Stats = s.Source.Text; s.Path != "" {
		out.Stats = filepath.Base(s.Path)
	}
	return out
}
