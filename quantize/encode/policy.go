package encode

import (
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/quantize/fit"
)

// A Policy says which scheme each role of a graph gets.
type Policy struct {
	Scheme *scheme.Scheme // linears, stacked experts included
	Embed  *scheme.Scheme // the embedding table
	Head   *scheme.Scheme // the output matrix
	Tied   *scheme.Scheme // the table that is both
}

// headBPW is the least bits per weight that a head gets by itself: errors in
// the head reach the logits directly, and it is a small part of most models.
// llama-quantize's plain types do the same (output.weight in Q6_K).
const headBPW = 6.5625

// NewPolicy completes a policy from names. embed and head may be "": the
// embedding table then gets the linears' scheme, the head q6_k where that
// scheme has fewer bits. A table that is both is a head, unless only the
// embedding's scheme was asked for. Unknown names and schemes that can only be read are
// a [formats.UnsupportedError].
func NewPolicy(name, embed, head string) (*Policy, error) {
	p := &Policy{}
	for _, f := range []struct {
		name string
		to   **scheme.Scheme
	}{{name, &p.Scheme}, {embed, &p.Embed}, {head, &p.Head}} {
		if f.name == "" {
			continue
		}
		s, err := writable(f.name)
		if err != nil {
			return nil, err
		}
		*f.to = s
	}
	if p.Embed == nil {
		p.Embed = p.Scheme
	}
	if p.Head == nil {
		p.Head = p.Scheme
		if q6k, ok := scheme.ByName("q6_k"); ok && bits(p.Scheme) < headBPW {
			p.Head = q6k
		}
	}
	p.Tied = p.Head
	if head == "" && embed != "" {
		p.Tied = p.Embed
	}
	return p, nil
}

// writable returns a scheme that can be fitted.
func writable(name string) (*scheme.Scheme, error) {
	s, ok := scheme.ByName(name)
	if ok {
		if _, ok = fit.For(s); ok {
			return s, nil
		}
	}
	e := formats.Unsupportedf("", "", "quantizing to scheme %q", name)
	e.Hint = "schemes that can be written: " + strings.Join(Schemes(), ", ")
	return nil, e
}

// Schemes lists the names of all schemes that can be written, in the table's
// order.
func Schemes() []string {
	var names []string
	for _, s := range scheme.Table() {
		if _, ok := fit.For(s); ok {
			names = append(names, s.Name)
		}
	}
	return names
}

// bits returns the bits per weight of whole blocks.
func bits(s *scheme.Scheme) float64 {
	if s.Plain() {
		return float64(s.DType.Bits())
	}
	return 8 * float64(s.BlockBytes) / float64(s.Block)
}

// Choose returns the scheme a tensor of the graph gets, nil to keep it as it
// is: norms, biases and learned positions are small and decide much, and a
// router's rounding changes which experts run.
func (p *Policy) Choose(g *model.Graph, w *model.Weight) *scheme.Scheme {
	switch {
	case w.Role == model.RoleNorm, w.Role == model.RoleRouter, w.Role == model.RoleOther, w.Name == g.Embed.Positions:
		return nil
	case w.Name == g.Head.Weight && g.Tied():
		return p.Tied
	case w.Name == g.Head.Weight:
		return p.Head
	case w.Role == model.RoleEmbed:
		return p.Embed
	}
	return p.Scheme
}
