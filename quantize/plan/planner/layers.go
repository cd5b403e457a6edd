package planner

import (
	"context"

	"github.com/nstf/nstf/formats/attention"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/stats"
	qplan "github.com/nstf/nstf/quantize/plan"
)

// A Layer is a block of a model as a plan has it, and what each method by itself would save
// there and cost: fewer bits for its matrices, factors for them, fewer bits for its keys and
// values, and steps that read some pages of these. What is not known of it is nil.
type Layer struct {
	Block   int     `json:"block"` // -1: what is outside the blocks
	Bytes   int64   `json:"bytes"` // of its tensors
	Loss    float64 `json:"loss"`  // their share of the predicted KL divergence
	Bits    *Saving `json:"bits,omitempty"`
	Factors *Saving `json:"factors,omitempty"`
	KV      *KeptKV `json:"kv,omitempty"`
	Pages   *Pages  `json:"pages,omitempty"`
}

// A Saving is what tensors of a layer save where each takes the next step down that costs
// least for a byte, and the predicted divergence that this adds.
type Saving struct {
	Tensors int     `json:"tensors"` // that have such a step
	Bytes   int64   `json:"bytes"`
	Loss    float64 `json:"loss"`
}

// A KeptKV is what a layer's keys and values save of half precision as was chosen, and the
// divergence that was measured where it alone keeps them so.
type KeptKV struct {
	Format string  `json:"format"`
	Bytes  float64 `json:"bytes_per_position"`
	KLD    float64 `json:"kld"`
}

// Pages is what a layer's heads read by a policy, and the divergences that were measured
// where one head alone reads so few, added up.
type Pages struct {
	Read float64 `json:"read"` // of its pages, the mean over heads
	KLD  float64 `json:"kld"`
}

// Layers says of each block what methods would save beside a plan that was made by the same
// statistics, in the order of blocks, what is outside them last. Errors are those of
// [Planner.Items].
func (p *Planner) Layers(ctx context.Context, s *stats.File, made *plan.Plan) ([]Layer, error) {
	items, err := p.Items(ctx, s)
	if err != nil {
		return nil, err
	}
	blocks := map[string]int{}
	for _, w := range p.m.Graph.Weights() {
		blocks[w.Name] = w.Block
	}
	n := len(p.m.Graph.Blocks)
	layers := make([]Layer, n+1)
	for i := range layers {
		layers[i].Block = i
	}
	layers[n].Block = -1
	for i := range made.Tensors {
		t := &made.Tensors[i]
		l := &layers[n]
		if b := blocks[t.Name]; b >= 0 {
			l = &layers[b]
		}
		l.Bytes += t.Bytes
		l.Loss += t.Loss
		l.Bits = l.Bits.with(t, &items[i], false)
		l.Factors = l.Factors.with(t, &items[i], true)
	}
	return layers, nil
}

// with adds what one tensor would save.
func (s *Saving) with(t *plan.Tensor, it *qplan.Item, factors bool) *Saving {
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
		s = &Saving{}
	}
	s.Tensors++
	s.Bytes += t.Bytes - best.Bytes
	s.Loss += best.Loss - t.Loss
	return s
}

// Attended adds what was measured of keys and values, and of a policy whose heads read so
// many pages in the mean; either may be nil.
func Attended(layers []Layer, kept *attention.Kept, policy *attention.Policy, pages float64) {
	if kept != nil {
		for i := range kept.Blocks {
			b := &kept.Blocks[i]
			for f, name := range kept.Formats {
				if name == kept.Chosen[b.Block] {
					layers[b.Block].KV = &KeptKV{Format: name, Bytes: float64(b.Numbers) * (b.Bits[0] - b.Bits[f]) / 8, KLD: b.KLD[f]}
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
			l.Pages = &Pages{}
		}
		l.Pages.Read += shares[h.Block][h.Head] / float64(len(shares[h.Block]))
		l.Pages.KLD += policy.Loss(h, shares[h.Block][h.Head])
	}
}
