package pipeline

import (
	"context"
	"strings"

	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/stats"
	qplan "github.com/nstf/nstf/quantize/plan"
	"github.com/nstf/nstf/quantize/plan/candidates"
	"github.com/nstf/nstf/quantize/plan/planner"
)

// An Aim is what a planner is to reach: of Bytes and BPW at most one is set;
// with neither it is asked for a divergence.
type Aim struct {
	Bytes   int64             // of the whole package
	BPW     float64           // bits per weight
	Schemes []string          // names of candidates.Recipes that matrices may get; nil: all
	Forms   bool              // factors too, where they pay
	Keep    []candidates.Rule // overrides
	Seed    int64             // of rotations
	Effort  int64
	Threads int
}

// Planner returns a planner for a request about m, of which it counts what the
// package will say about how it was made. It looks at the candidates once.
func (a Aim) Planner(m *model.Model, q *Request) Planner {
	var p *planner.Planner
	return func(ctx context.Context, s *stats.File, loss float64) (*plan.Plan, error) {
		if p == nil {
			o := planner.Options{Schemes: strings.Join(a.Schemes, ","), Forms: a.Forms, Keep: a.Keep, Seed: a.Seed, Effort: a.Effort, Threads: a.Threads,
				Made: nstf.Provenance{Tool: q.Tool, Flags: q.Flags, Sources: q.Sources}}
			if q.Progress != nil {
				step, end := q.Progress("looking at candidates", "weights")
				defer end()
				o.Progress = step
			}
			p = planner.New(m, o)
		}
		b := qplan.Budget{Bytes: a.Bytes, BPW: a.BPW}
		if a.Bytes == 0 && a.BPW == 0 {
			b.MaxLoss = loss
		}
		return p.Plan(ctx, s, b)
	}
}
