package arch

import (
	"math"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
)

// rope reads a rotary embedding that turns all of a head, in either style:
// rope_parameters, or flat rope_theta and rope_scaling. theta is the default
// base. A partial_rotary_factor that such a class happens to have changes
// nothing in transformers, and ends in an error there where the embedding is
// scaled as well: that is refused.
func (s *settings) rope(d *decoder, theta float64) graph.Rope {
	p := s.ropeObject()
	return s.whole(d, s.rotation(d, p, s.base(p, "rope_theta", theta), s.floatOr("partial_rotary_factor", 1)))
}

func (s *settings) whole(d *decoder, r graph.Rope) graph.Rope {
	if r.Dim == d.headDim {
		return r
	}
	if r.Scaling.Kind != graph.ScaleNone {
		s.refuse("partial_rotary_factor", "of a scaled rotary embedding")
	}
	r.Dim = d.headDim
	return r
}

// base reads the base of a rotary embedding from a flat key, where p has none.
// null is no number, and not absence: transformers fails on it.
func (s *settings) base(p *settings, key string, def float64) float64 {
	if key == "" || p != nil && p.has("rope_theta") {
		return def
	}
	if s.null(key) {
		s.bad(key, "null")
	}
	return s.floatOr(key, def)
}

// rotation reads a rotary embedding of a part of each head from p, nil where
// nothing describes it; theta and partial hold where p has no such keys.
func (s *settings) rotation(d *decoder, p *settings, theta, partial float64) graph.Rope {
	r := graph.Rope{Style: graph.RopeHalf, Theta: theta, Scaling: graph.RopeScaling{Kind: graph.ScaleNone}}
	if p != nil {
		if p.null("rope_theta") {
			p.bad("rope_theta", "null")
		}
		r.Theta = p.floatOr("rope_theta", theta)
		partial = p.floatOr("partial_rotary_factor", partial)
	}
	r.Dim = int64(float64(d.headDim) * partial)
	if p != nil {
		s.scaling(&r, p, d)
		s.note(p.err)
	}
	return r
}

// ropeObject returns the object that describes a rotary embedding, nil where
// there is none. Where both styles are in one file, the older holds: so does
// transformers read it, for people add rope_scaling by hand.
func (s *settings) ropeObject() *settings {
	var found *settings
	for _, key := range []string{"rope_parameters", "rope_scaling"} {
		sub := s.object(key)
		if sub == nil {
			continue
		}
		for _, name := range sub.c.Keys() {
			if _, nested := sub.c.Sub(name); nested {
				s.refuse(key, "per layer type")
			}
		}
		if len(sub.c.Keys()) > 0 {
			found = sub
		}
	}
	return found
}

// object returns the object under a key, nil where there is none.
func (s *settings) object(key string) *settings {
	if !s.has(key) {
		return nil
	}
	sub, ok := s.c.Sub(key)
	if !ok {
		s.note(formats.Errorf(s.c.File(), key, "value is not an object"))
		return nil
	}
	return newSettings(sub)
}

// scaling reads a rope_scaling or rope_parameters object. The keys and
// defaults are those of transformers' modeling_rope_utils.py.
func (s *settings) scaling(r *graph.Rope, p *settings, d *decoder) {
	c := &r.Scaling
	kind := p.stringOr("rope_type", p.stringOr("type", "default"))
	if d.arch == "phi3" {
		switch kind {
		case "su", "yarn":
			kind = "longrope" // what early Phi-3 configurations called it
		case "default", "longrope":
		default:
			s.refuse("rope_type", kind)
			return
		}
	}
	original := func() int64 {
		if d.arch == "phi3" { // its class has the key, so the one in p counts for nothing
			return s.intOr("original_max_position_embeddings", 4096)
		}
		return s.intOr("original_max_position_embeddings", p.intOr("original_max_position_embeddings", d.context))
	}
	if kind == "mrope" && (strings.HasPrefix(s.kind, "qwen2_vl") || strings.HasPrefix(s.kind, "qwen2_5_vl")) { // what their configurations call it
		kind = "default"
	}
	switch kind {
	case "default":
		return
	case "linear":
		c.Kind, c.Factor = graph.ScaleLinear, p.float("factor")
	case "dynamic":
		c.Kind, c.Factor, c.Original = graph.ScaleDynamic, p.float("factor"), d.context
		if r.Dim == 2 { // the exponent that changes the base is dim/(dim-2)
			s.bad("rope_type", "dynamic over one pair")
		}
	case "llama3":
		c.Kind, c.Factor, c.Original = graph.ScaleLlama3, p.float("factor"), original()
		c.LowFreq, c.HighFreq = p.float("low_freq_factor"), p.float("high_freq_factor")
	case "yarn":
		c.Kind, c.Original = graph.ScaleYarn, original()
		c.Factor = float64(d.context) / float64(max(c.Original, 1))
		if !p.null("factor") {
			c.Factor = p.float("factor")
		}
		c.BetaFast, c.BetaSlow = p.unlessZero("beta_fast", 32), p.unlessZero("beta_slow", 1)
		c.Truncate = p.boolOr("truncate", true)
		c.Attention = yarnAttention(p, c.Factor)
	case "longrope":
		s.longRope(c, p, d, original())
	default:
		s.refuse("rope_type", kind)
	}
}

// attention reads the factor on cos and sin; a graph's 0 is none, not zero.
func (s *settings) attention() float64 {
	f := s.float("attention_factor")
	if f == 0 {
		s.bad("attention_factor", f)
	}
	return f
}

// unlessZero reads an optional number that zero leaves out as well.
func (s *settings) unlessZero(key string, def float64) float64 {
	if v := s.floatOr(key, def); v != 0 {
		return v
	}
	return def
}

// yarnAttention returns the factor on cos and sin. Source: equation 22 of the
// YaRN paper (arXiv 2309.00071), and the mscale keys of DeepSeek's configs.
func yarnAttention(p *settings, factor float64) float64 {
	if p.has("attention_factor") {
		return p.attention()
	}
	m, all := p.floatOr("mscale", 0), p.floatOr("mscale_all_dim", 0)
	if m != 0 && all != 0 {
		return yarnScale(factor, m) / yarnScale(factor, all)
	}
	return yarnScale(factor, 1)
}

func yarnScale(factor, m float64) float64 {
	if factor <= 1 {
		return 1
	}
	return 0.1*m*math.Log(factor) + 1
}

// longRope reads Phi-3's two lists of factors. Source: the LongRoPE paper
// (arXiv 2402.13753) and transformers' modeling_rope_utils.py.
func (s *settings) longRope(c *graph.RopeScaling, p *settings, d *decoder, original int64) {
	c.Kind, c.Original = graph.ScaleLongRope, original
	for _, key := range []string{"short_mscale", "long_mscale"} { // Phi-3.5-MoE's, two factors instead of one
		if p.has(key) {
			s.refuse(key, p.float(key))
		}
	}
	factor := p.floatOr("factor", 0)
	if factor == 0 {
		factor = float64(d.context) / float64(max(original, 1))
	}
	switch {
	case p.has("attention_factor"):
		c.Attention = p.attention()
	case factor > 1 && original > 1:
		c.Attention = math.Sqrt(1 + math.Log(factor)/math.Log(float64(original)))
	}
	c.Short, c.Long = p.float32s("short_factor"), p.float32s("long_factor")
}

func (s *settings) float32s(key string) []float32 {
	s.read[key] = true
	v, err := s.c.Floats(key)
	s.note(err)
	out := make([]float32, len(v))
	for i, f := range v {
		out[i] = float32(f)
	}
	return out
}
