package pipeline_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/quantize/pipeline"
	qplan "github.com/nstf/nstf/quantize/plan"
	"github.com/nstf/nstf/quantize/plan/planner"
)

// sabotaged are statistics that say of the tensors of one block that they hardly
// count.
func sabotaged(m *model.Model, block int) *stats.File {
	s := &stats.File{Sensitivity: map[string]float64{}}
	for _, w := range m.Graph.Weights() {
		s.Sensitivity[w.Name] = 1
		if w.Block == block {
			s.Sensitivity[w.Name] = 1e-9
		}
		if w.Block < 0 {
			s.Sensitivity[w.Name] = 10
		}
	}
	return s
}

// driftRequest asks for a package of few bits by sabotaged statistics.
func driftRequest(t *testing.T, m *model.Model, most float64) pipeline.Request {
	t.Helper()
	by := planner.New(m, planner.Options{Schemes: "tcq2,tcq3,tcq4,tcq6,q8_0", Seed: 1, Effort: 1})
	return pipeline.Request{Out: atomicfile.Scratch(filepath.Join(t.TempDir(), "m.nstf")), Windows: windows(m.Graph.Vocab, 4)[:3], Held: windows(m.Graph.Vocab, 4)[3:],
		Stats: sabotaged(m, 0), MaxDrift: most, Tool: "test",
		Planner: func(ctx context.Context, s *stats.File, loss float64, r pipeline.Revision) (*plan.Plan, error) {
			return by.Again(ctx, s, qplan.Budget{BPW: 6}, r.Done, r.Assumed)
		}}
}

// TestDrift holds hidden states to a bound that a sabotaged sensitivity breaks:
// the block gets more bits at the cost of what follows, within the budget, and
// the ledger says so. A bound that nothing keeps stops the walk at its block.
func TestDrift(t *testing.T) {
	m, err := checkpoint.Open("../../testdata/micro/llama-31")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	free, err := pipeline.Quantize(context.Background(), m, driftRequest(t, m, 0))
	if err != nil {
		t.Fatal(err)
	}
	most := 0.6 * slices.Max(free.Measured.Drift)
	held, err := pipeline.Quantize(context.Background(), m, driftRequest(t, m, most))
	if err != nil {
		t.Fatalf("drifts of %v, %g allowed: %v", free.Measured.Drift, most, err)
	}
	if got := slices.Max(held.Measured.Drift); got > most {
		t.Errorf("a drift of %g, %g allowed", got, most)
	}
	if bpw := held.Ledger.Model.BPW; bpw > 6 || len(held.Ledger.Notes) == 0 {
		t.Errorf("%.3f bits per weight, notes %q", bpw, held.Ledger.Notes)
	}
	if err := held.Plan.Check("", m.Graph); err != nil {
		t.Error(err)
	}
	more, fewer := 0, 0
	for i, row := range held.Plan.Tensors {
		was := free.Plan.Tensors[i]
		if block := held.Ledger.Tensors[i].Block; block == 0 && row.Bytes > was.Bytes {
			more++
		} else if block != 0 && row.Bytes < was.Bytes {
			fewer++
		}
		if got := held.Ledger.Tensors[i].Recipe; got != row.Recipe.String() && got != "keep" {
			t.Errorf("%s is %s, planned %s", row.Name, got, row.Recipe)
		}
	}
	if more == 0 || fewer == 0 {
		t.Errorf("%d tensors of the block grew, %d of others shrank", more, fewer)
	}
	var drift *pipeline.DriftError
	if _, err := pipeline.Quantize(context.Background(), m, driftRequest(t, m, 1e-9)); !errors.As(err, &drift) || drift.Block != 0 {
		t.Errorf("%v", err)
	}
}
