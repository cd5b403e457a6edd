package encode

import (
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
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

// Settled reports whether a tensor is in codes that take no more than so many bits per
// weight: fitting those again would add to their error and nothing else. Where a
// scheme of ggml's is asked for, they have to be ggml's too.
func Settled(t *formats.Tensor, most float64, ggml bool) bool {
	s, ok := scheme.ByName(t.Scheme)
	if !ok || s.Plain() || t.Form != "" || ggml && s.GGML < 0 {
		return false
	}
	own, err := s.BPW(t.Shape, t.Params)
	return err == nil && own <= most
}

// Choose returns the scheme a tensor of the graph gets, nil to keep it as it
// is: norms, biases and learned positions are small and decide much, and so do matrices
// that steer.
func (p *Policy) Choose(g *graph.Graph, w *graph.Weight) *scheme.Scheme {
	switch role := w.Role.Base(); {
	case role == graph.RoleNorm, role.Steers(), role == graph.RoleOther, w.Name == g.Embed.Positions:
		return nil
	case w.Name == g.Head.Weight && g.Tied():
		return p.Tied
	case w.Name == g.Head.Weight, role == graph.RoleHead:
		return p.Head
	case role == graph.RoleEmbed:
		return p.Embed
	}
	return p.Scheme
}
