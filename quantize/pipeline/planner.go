package pipeline

import (
	"context"
	"path/filepath"

	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/stats"
	qplan "github.com/nstf/nstf/quantize/plan"
	"github.com/nstf/nstf/quantize/plan/candidates"
	"github.com/nstf/nstf/quantize/plan/layout"
)

// An Aim is what a planner is to reach: of Bytes and BPW at most one is set;
// with neither it is asked for a divergence.
type Aim struct {
	Bytes   int64             // of the whole package
	BPW     float64           // bits per weight
	Recipes []string          // that matrices may get; nil: all
	Keep    []candidates.Rule // overrides
	Seed    int64             // of rotations
	Effort  int64
	Threads int
	// Schemes spells Recipes, for the plan.
	Schemes []string
}

// Planner returns a planner for a request about m, of which it counts what the
// package will say about how it was made. It looks at the candidates once.
func (a Aim) Planner(m *model.Model, q *Request) Planner {
	var items []qplan.Item
	return func(ctx context.Context, s *stats.File, loss float64) (*plan.Plan, error) {
		if items == nil {
			o := candidates.Options{Recipes: a.Recipes, Keep: a.Keep, Stats: s, Seed: a.Seed, Effort: int(a.Effort), Threads: a.Threads}
			if q.Progress != nil {
				step, end := q.Progress("looking at candidates", "weights")
				defer end()
				o.Progress = step
			}
			var err error
			if items, err = candidates.Build(ctx, m, o); err != nil {
				return nil, err
			}
		}
		return a.solve(m, q, items, s, loss)
	}
}

func (a Aim) solve(m *model.Model, q *Request, items []qplan.Item, s *stats.File, loss float64) (*plan.Plan, error) {
	file, err := layout.New(m, nstf.Provenance{Tool: q.Tool, Flags: q.Flags, Sources: q.Sources}, a.Seed)
	if err != nil {
		return nil, err
	}
	b := qplan.Budget{Bytes: a.Bytes, BPW: a.BPW, Package: file}
	if a.Bytes == 0 && a.BPW == 0 {
		b.MaxLoss = loss
	}
	p, err := qplan.Solve(items, b)
	if err != nil {
		return nil, err
	}
	p.Source = plan.Source{Model: filepath.Base(m.Path)}
	if s != nil {
		p.Source.Hash, p.Source.Stats = s.Source.ModelHash, s.Source.Text
	}
	p.Seed, p.Effort, p.Budget.Schemes = a.Seed, a.Effort, a.Schemes
	for _, r := range a.Keep {
		p.Budget.Keep = append(p.Budget.Keep, r.String())
	}
	return p, nil
}
