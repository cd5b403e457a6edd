package model

import (
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/gguf"
	"github.com/nstf/nstf/formats/scheme"
)

// keys reads GGUF metadata below an architecture's prefix and remembers the
// first error. Tensors are asked where the metadata is silent: GGUF says by a
// tensor's presence that a bias exists or that a head is not tied.
type keys struct {
	f       *gguf.File
	prefix  string
	tensors map[string]formats.Tensor
	err     error
}

func newKeys(f *gguf.File, arch string, tensors []formats.Tensor) *keys {
	k := &keys{f: f, prefix: arch + ".", tensors: map[string]formats.Tensor{}}
	for _, t := range tensors {
		k.tensors[t.Name] = t
	}
	return k
}

func (k *keys) note(err error) {
	if k.err == nil {
		k.err = err
	}
}

func (k *keys) has(key string) bool        { return k.f.Has(k.prefix + key) }
func (k *keys) hasTensor(name string) bool { _, ok := k.tensors[name]; return ok }

func (k *keys) int(key string) int64 {
	v, err := k.f.Int(k.prefix + key)
	k.note(err)
	return v
}

func (k *keys) intOr(key string, def int64) int64 {
	if !k.has(key) {
		return def
	}
	return k.int(key)
}

func (k *keys) float(key string) float64 {
	v, err := k.f.Float(k.prefix + key)
	k.note(err)
	return v
}

func (k *keys) floatOr(key string, def float64) float64 {
	if !k.has(key) {
		return def
	}
	return k.float(key)
}

func (k *keys) boolOr(key string, def bool) bool {
	if !k.has(key) {
		return def
	}
	v, err := k.f.Bool(k.prefix + key)
	k.note(err)
	return v
}

// uniform reads an integer that some files repeat for every layer.
func (k *keys) uniform(key string) int64 {
	v, ok := k.f.Get(k.prefix + key)
	if !ok {
		return k.int(key)
	}
	switch v.(type) {
	case []uint32, []int32, []uint64, []int64:
	default:
		return k.int(key)
	}
	list, err := k.f.Ints(k.prefix + key)
	k.note(err)
	for _, n := range list {
		if n != list[0] {
			k.note(formats.Unsupportedf(k.f.Name(), k.prefix+key, "different values per layer %v", list))
			break
		}
	}
	if len(list) == 0 {
		return 0
	}
	return list[0]
}

// common reads the keys that all architectures share.
func (k *keys) common(arch string) *decoder {
	d := newDecoder(arch)
	d.width = k.int("embedding_length")
	layers := k.int("block_count")
	if layers < 1 || layers > maxLayers {
		k.note(formats.Errorf(k.f.Name(), k.prefix+"block_count", "value %d makes no sense", layers))
		layers = 1
	}
	d.layers = int(layers)
	d.context = k.int("context_length")
	d.heads = k.uniform("attention.head_count")
	d.kvHeads = d.heads
	if k.has("attention.head_count_kv") {
		d.kvHeads = k.uniform("attention.head_count_kv")
	}
	d.inner = k.uniform("feed_forward_length")
	d.headDim = k.intOr("attention.key_length", d.width/max(d.heads, 1))
	if v := k.intOr("attention.value_length", d.headDim); v != d.headDim {
		k.note(formats.Unsupportedf(k.f.Name(), k.prefix+"attention.value_length", "value heads of %d with key heads of %d", v, d.headDim))
	}
	if k.has("attention.layer_norm_rms_epsilon") {
		d.eps = float32(k.float("attention.layer_norm_rms_epsilon"))
	} else {
		d.eps = float32(k.float("attention.layer_norm_epsilon"))
		d.norm = LayerNorm
	}
	d.tied = !k.hasTensor("output.weight")
	d.vocab = k.vocab()
	d.bias = biases{
		qkv:  k.hasTensor("blk.0.attn_q.bias") || k.hasTensor("blk.0.attn_qkv.bias"),
		o:    k.hasTensor("blk.0.attn_output.bias"),
		ffn:  k.hasTensor("blk.0.ffn_down.bias"),
		head: k.hasTensor("output.bias"),
	}
	return d
}

// vocab returns the rows of the embedding table.
func (k *keys) vocab() int64 {
	t, ok := k.tensors["token_embd.weight"]
	if !ok {
		k.note(formats.Errorf(k.f.Name(), "token_embd.weight", "tensor is missing"))
		return 0
	}
	n, _ := t.Rows()
	return n
}

// rope reads the rotary embedding. The keys' meaning is llama.cpp's: see
// llm_load_hparams and rope_scaling_type there.
func (k *keys) rope(d *decoder, style RopeStyle) Rope {
	r := Rope{Style: style, Dim: k.intOr("rope.dimension_count", d.headDim), Theta: k.floatOr("rope.freq_base", 10000)}
	c := &r.Scaling
	c.Kind = ScaleNone
	if !k.has("rope.scaling.type") {
		if f := k.floatOr("rope.scale_linear", 1); f != 1 {
			c.Kind, c.Factor = ScaleLinear, f
		}
		k.factors(c)
		return r
	}
	kind, err := k.f.String(k.prefix + "rope.scaling.type")
	k.note(err)
	switch kind {
	case "none":
	case "linear":
		if f := k.floatOr("rope.scaling.factor", 1); f != 1 {
			c.Kind, c.Factor = ScaleLinear, f
		}
	case "yarn":
		c.Kind, c.Factor = ScaleYarn, k.float("rope.scaling.factor")
		c.Original = k.intOr("rope.scaling.original_context_length", d.context)
		c.BetaFast, c.BetaSlow = k.floatOr("rope.scaling.yarn_beta_fast", 32), k.floatOr("rope.scaling.yarn_beta_slow", 1)
		c.Truncate = true
		c.Attention = k.floatOr("rope.scaling.attn_factor", 1) * yarnScale(c.Factor, 1)
	case "longrope":
		c.Kind, c.Original = ScaleLongRope, k.intOr("rope.scaling.original_context_length", d.context)
		c.Attention = k.floatOr("rope.scaling.attn_factor", 1)
	default:
		k.note(formats.Unsupportedf(k.f.Name(), k.prefix+"rope.scaling.type", "value %q", kind))
	}
	k.factors(c)
	return r
}

// factors reads the per-pair divisors that GGUF keeps in tensors.
func (k *keys) factors(c *RopeScaling) {
	if t, ok := k.tensors["rope_freqs.weight"]; ok && c.Kind == ScaleNone {
		c.Kind, c.Short = ScaleFactors, k.floats(t)
	}
	short, hasShort := k.tensors["rope_factors_short.weight"]
	long, hasLong := k.tensors["rope_factors_long.weight"]
	if !hasShort || !hasLong {
		return
	}
	if c.Kind != ScaleLongRope {
		c.Kind, c.Attention = ScaleLongRope, k.floatOr("rope.scaling.attn_factor", 1)
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
