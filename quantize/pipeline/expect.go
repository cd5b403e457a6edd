package pipeline

import (
	"context"

	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/quantize/fit"
)

// expect guesses in seconds, before anything is measured, how long a request takes, from
// samples that are timed now: some rows of a matrix, and one window through one block.
// Without a plan each matrix is taken to get the typical code. It is meant to tell
// minutes from hours: what deciding a plan and factoring moments cost is not in it.
// [Predict] knows more where statistics are there.
func (f *flow) expect(ctx context.Context) (float64, error) {
	sum, err := f.expectFits(ctx, f.Typical)
	if err != nil || len(f.Windows) == 0 {
		return sum, err
	}
	more := 0.0
	if f.Stats == nil && f.Plan == nil {
		// Statistics walk all windows once, sensitivities a few passages once for
		// each matrix, through the blocks behind it.
		windows, matrices := float64(len(f.Windows)), 0.0
		for _, w := range f.m.Graph.Weights() {
			if len(w.Shape) >= 2 && !w.Role.IsMTP() {
				matrices++
			}
		}
		more = windows + min(windows, 3)*matrices/2
	}
	text, err := f.runs(ctx, more)
	return sum + text, err
}

// guess is a forecast before anything is measured.
func (f *flow) guess(ctx context.Context) (*Forecast, error) {
	p, err := Chosen{Scheme: f.Typical.String()}.Plan(f.m)
	if err != nil {
		return nil, err
	}
	o := f.options(nil)
	needs := Need(f.m, p, o)
	out := &Forecast{Bytes: f.Asked, Memory: max(needs.Memory, leastNeed(f.m, o).Memory), Disk: needs.Disk, Device: needs.Device}
	if f.measures() {
		out.Disk += statsBytes(f.m.Graph)
	}
	if f.Asked > 0 {
		typical, params := planBytes(f.m, p)
		out.BPW = 8 * float64(f.Asked) / float64(params)
		out.Disk = max(out.Disk+2*(f.Asked-typical), f.Asked) // in the work folder and in the package
	}
	out.Seconds, err = f.expect(ctx)
	return out, err
}

// statsBytes returns what measured statistics take of the disk: moments in float32.
func statsBytes(g *graph.Graph) int64 {
	sum := triangle(g.Head.In)
	for i := range g.Blocks {
		sum += gatherBytes(&g.Blocks[i])
	}
	return sum / 2
}

// expectFits returns the seconds that fitting all matrices takes.
func (f *flow) expectFits(ctx context.Context, code plan.Code) (sum float64, err error) {
	if f.Plan != nil {
		return f.fits(ctx, f.Plan)
	}
	rate := -1.0
	for _, w := range f.m.Graph.Weights() {
		t := f.m.Tensor(w.Name)
		if n, k := t.Rows(); len(w.Shape) < 2 || !fit.Fits(code, int(n), int(k)) {
			continue
		}
		if rate < 0 {
			if rate, err = f.rate(ctx, &t, plan.Dense(code)); err != nil {
				return 0, err
			}
		}
		sum += rate * float64(t.Elements())
	}
	return sum, nil
}
