package arch

import (
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/scheme"
)

// rope reads the rotary embedding. The keys' meaning is llama.cpp's: see
// llm_load_hparams and rope_scaling_type there.
func (k *keys) rope(d *decoder, style graph.RopeStyle) graph.Rope {
	r := graph.Rope{Style: style, Dim: k.intOr("rope.dimension_count", d.headDim), Theta: k.floatOr("rope.freq_base", 10000)}
	c := &r.Scaling
	c.Kind = graph.ScaleNone
	kind := k.stringOr("rope.scaling.type", "linear")
	factor := k.floatOr("rope.scaling.factor", k.floatOr("rope.scale_linear", 1)) // the second is its older name
	if factor == 0 {
		factor = 1 // some converters' "none"
	}
	switch kind {
	case "none":
	case "linear":
		if factor != 1 {
			c.Kind, c.Factor = graph.ScaleLinear, factor
		}
	case "yarn":
		c.Kind, c.Factor = graph.ScaleYarn, factor
		c.Original = k.intOr("rope.scaling.original_context_length", d.context)
		c.BetaFast, c.BetaSlow = k.yarnTurns("yarn_beta_fast", yarnBetaFast), k.yarnTurns("yarn_beta_slow", yarnBetaSlow)
		c.Truncate = true
		c.Attention = k.floatOr("rope.scaling.attn_factor", 1) * yarnScale(c.Factor, 1)
	case "longrope":
		c.Kind, c.Original = graph.ScaleLongRope, k.intOr("rope.scaling.original_context_length", d.context)
		c.Attention = k.floatOr("rope.scaling.attn_factor", 1)
		if factor != 1 {
			k.note(formats.Unsupportedf(k.f.Name(), k.prefix+"rope.scaling.factor", "value %v beside longrope's own factors", factor))
		}
	default:
		k.note(formats.Unsupportedf(k.f.Name(), k.prefix+"rope.scaling.type", "value %q", kind))
	}
	k.factors(c)
	return r
}

// yarnTurns reads a bound of yarn's ramp. llama.cpp disregards the key in every
// architecture that we know, so another value than its own is refused: the
// model's maker and llama.cpp mean two models by one file.
func (k *keys) yarnTurns(key string, own float64) float64 {
	key = "rope.scaling." + key
	v := k.floatOr(key, own)
	if v != own && v != 0 { // some converters' "not given"
		k.note(formats.Unsupportedf(k.f.Name(), k.prefix+key, "value %v, for which llama.cpp takes %v", v, own))
	}
	return own
}

// factors reads the per-pair divisors that GGUF keeps in tensors.
func (k *keys) factors(c *graph.RopeScaling) {
	own := c.Kind
	if t, ok := k.tensors["rope_freqs.weight"]; ok {
		c.Kind, c.Short = graph.ScaleFactors, k.floats(t)
		if own != graph.ScaleNone {
			k.note(formats.Unsupportedf(k.f.Name(), t.Name, "factors on top of rotary scaling %q", own))
		}
	}
	short, hasShort := k.tensors["rope_factors_short.weight"]
	long, hasLong := k.tensors["rope_factors_long.weight"]
	if !hasShort || !hasLong {
		return
	}
	if own != graph.ScaleNone && own != graph.ScaleLongRope || c.Kind == graph.ScaleFactors {
		k.note(formats.Unsupportedf(k.f.Name(), short.Name, "factors on top of rotary scaling %q", c.Kind))
	}
	if c.Kind != graph.ScaleLongRope {
		c.Kind, c.Attention = graph.ScaleLongRope, k.floatOr("rope.scaling.attn_factor", 1)
		c.Original = k.int("rope.scaling.original_context_length")
	}
	c.Short, c.Long = k.floats(short), k.floats(long)
}

// floats reads a whole small float tensor.
func (k *keys) floats(t formats.Tensor) []float32 {
	if t.Elements() > 1<<16 {
		k.note(formats.Errorf(k.f.Name(), t.Name, "%d factors make no sense", t.Elements()))
		return nil
	}
	m, err := scheme.Open(&t)
	if err != nil {
		k.note(err)
		return nil
	}
	out := make([]float32, m.N*m.K)
	for i := range m.N {
		m.DecodeRow(out[i*m.K:(i+1)*m.K], i)
	}
	return out
}
