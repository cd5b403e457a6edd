package pipeline

import (
	"slices"

	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/ledger"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/plan"
)

// account makes the ledger of a result. measured may be nil.
func account(m *model.Model, p *plan.Plan, r *Result, measured *Measured, source ledger.Source) *ledger.Ledger {
	l := &ledger.Ledger{Version: ledger.Version, Source: source, Experts: []ledger.Expert{}, Blocks: []ledger.Block{}, Notes: slices.Clone(r.Notes)}
	l.Model.PredictedKLD = p.Predicted.KLD
	var params int64
	for _, w := range m.Graph.Weights() {
		row := accountTensor(m, p, r, &w)
		l.Tensors = append(l.Tensors, row)
		l.Model.Bytes += row.Bytes
		t := m.Tensor(w.Name)
		params += t.Elements()
	}
	l.Model.BPW = 8 * float64(l.Model.Bytes) / float64(params)
	if measured == nil {
		l.Notes = append(l.Notes, "nothing was held out to measure on")
		return l
	}
	l.Model.KLD, l.Model.Floor, l.Model.Perplexity = &measured.KLD, &measured.Floor, &measured.Perplexity
	l.Model.Original, l.Model.Top1 = &measured.Original, &measured.Top1
	for i, d := range measured.Drift {
		l.Blocks = append(l.Blocks, ledger.Block{Index: int64(i), Drift: d})
	}
	return l
}

func accountTensor(m *model.Model, p *plan.Plan, r *Result, w *graph.Weight) ledger.Tensor {
	t := m.Tensor(w.Name)
	elements := t.Elements()
	row := ledger.Tensor{Name: w.Name, Role: string(w.Role), Block: int64(w.Block), Recipe: plan.Recipe{}.String()}
	if fitted, ok := r.Tensors[w.Name]; ok {
		f := r.Fits[w.Name]
		t, row.Recipe, row.Method, row.Obtained = fitted, f.Recipe.String(), f.Method, f.Relative()
	}
	row.Bytes = t.Size()
	row.Bits = 8 * float64(row.Bytes) / float64(elements)
	if planned, ok := p.Tensor(w.Name); ok {
		row.Predicted, row.Loss = planned.Error, planned.Loss
		if a := planned.RunnerUp; a != nil {
			row.RunnerUp = &ledger.Alternative{Recipe: a.Recipe.String(), Bytes: a.Bytes, Loss: a.Loss}
		}
	}
	return row
}
