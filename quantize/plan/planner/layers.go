package planner

import (
	"context"

	"github.com/nstf/nstf/formats/attention"
	"github.com/nstf/nstf/formats/ledger"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/stats"
	qplan "github.com/nstf/nstf/quantize/plan"
)

// Layers says of each block what methods would save beside a plan that was made by the same
// statistics, in the order of blocks, what is outside them last. Errors are those of
// [Planner.Items].
func (p *Planner) Layers(ctx context.Context, s *stats.File, made *plan.Plan) ([]ledger.Layer, error) {
	items, err := p.Items(ctx, s)
	if err != nil {
		return nil, err
	}
	layers, blocks := rows(p.m, made)
	for i := range made.Tensors {
		t := &made.Tensors[i]
		l := &layers[blocks(t.Name)]
		l.Bits = with(l.Bits, t, &items[i], false)
		l.Factors = with(l.Factors, t, &items[i], true)
	}
	return layers, nil
}

// Rows are the layers of a plan of which nothing else is known.
func Rows(m *model.Model, made *plan.Plan) []ledger.Layer {
	layers, _ := rows(m, made)
	return layers
}

// rows returns the layers of a plan, and in which of them a tensor is.
func rows(m *model.Model, made *plan.Plan) (layers []ledger.Layer, of func(name string) int) {
	n := len(m.Graph.Blocks)
	blocks := map[string]int{}
	for _, w := range m.Graph.Weights() {
		blocks[w.Name] = w.Block
	}
	of = func(name string) int {
		if b := blocks[name]; b >= 0 {
			return b
		}
		return n
	}
	layers = make([]ledger.Layer, n+1)
	for i := range layers {
		layers[i].Block = int64(i)
	}
	layers[n].Block = -1
	for i := range made.Tensors {
		t := &made.Tensors[i]
		l := &layers[of(t.Name)]
		l.Bytes += t.Bytes
		l.Loss += t.Loss
	}
	return layers, of
}

// with adds what one tensor would save.
func with(s *ledger.Saving, t *plan.Tensor, it *qplan.Item, factors bool) *ledger.Saving {
	var best *qplan.Candidate
	price := 0.
	for i := range it.Candidates {
		c := &it.Candidates[i]
		if c.Bytes >= t.Bytes || (c.Recipe.Form == plan.FormDense || c.Recipe.Kept()) == factors {
			continue
		}
		if x := (c.Loss - t.Loss) / float64(t.Bytes-c.Bytes); best == nil || x < price {
			best, price = c, x
		}
	}
	if best == nil {
		return s
	}
	if s == nil {
		s = &ledger.Saving{}
	}
	s.Tensors++
	s.Bytes += t.Bytes - best.Bytes
	s.Loss += best.Loss - t.Loss
	return s
}

// Attended adds what was measured of keys and values, and of a policy whose heads read so
// many pages in the mean; either may be nil.
func Attended(layers []ledger.Layer, kept *attention.Kept, policy *attention.Policy, pages float64) {
	if kept != nil {
		for i := range kept.Blocks {
			b := &kept.Blocks[i]
			for f, name := range kept.Formats {
				if name == kept.Chosen[b.Block] {
					layers[b.Block].KV = &ledger.KeptKV{Format: name, Bytes: float64(b.Numbers) * (b.Bits[0] - b.Bits[f]) / 8, KLD: b.KLD[f]}
				}
			}
		}
	}
	if policy == nil {
		return
	}
	shares := policy.Shares(len(layers)-1, pages)
	for i := range policy.Heads {
		h := &policy.Heads[i]
		l := &layers[h.Block]
		if l.Pages == nil {
			l.Pages = &ledger.PagesOf{}
		}
		l.Pages.Read += shares[h.Block][h.Head] / float64(len(shares[h.Block]))
		l.Pages.KLD += policy.Loss(h, shares[h.Block][h.Head])
	}
}
