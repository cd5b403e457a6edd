// Package random makes Hugging Face checkpoints of the llama architecture, of
// mixtures and of delta nets, in any size with random weights: what readers,
// converters and kernels are measured on where a trained model of that size
// cannot be had.
//
// In: a [Shape], an element type, a seed. Out: a [export.Model], whose WriteDir
// writes config.json, a tokenizer, shards and their index. It needs nothing but
// readers' vocabulary; no command of a user depends on it.
//
// The weights have what makes real ones hard to quantize: tails heavier than
// a normal distribution's, columns of differing scale, a few of them eight
// times the rest, and norms spread around 1. The model computes finite,
// unsurprising logits and says nothing. Every weight is a function of seed,
// tensor name and place alone: tensors are computed while they are written,
// on all cores, and never held; the same options give the same bytes.
//
// Only that last property is promised within one version: another version may
// make other weights.
package random

import (
	"fmt"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/export"
	"github.com/nstf/nstf/formats/tensor"
)

// A Shape is the size of a llama or, with experts, of a mixtral, or, with delta nets, of
// a dense qwen3_5: every fourth block has attention, the others a delta net.
type Shape struct {
	Layers, Width, Inner int64 // blocks, D, width of the feed-forward network
	Heads, KVHeads       int64
	HeadDim              int64 // 0: Width / Heads
	Experts, Used        int64 // of each block's mixture, and of those, for a token; 0: none
	Delta                DeltaShape
	Vocab, Context       int64
	RopeTheta            float64
	Tied                 bool // the embedding is the head
	// Published names a model of which ShapeByName took the shape and whose architecture is
	// neither of these. Its layers alone may be others, and Checkpoint does not make it.
	Published string
}

// A DeltaShape is the size of the delta nets: heads of values, heads of keys, each shared by
// as many of values as there are to one, and the numbers of each. All 0: none.
type DeltaShape struct {
	Heads, KeyHeads, HeadDim int64
}

// ShapeNames lists the names of known shapes, the smallest first.
func ShapeNames() []string {
	return []string{"1.1b", "2b-delta", "3b-a1b", "7b", "8b", qwen9B, gptOSS20B, gemma26BA4, qwen35BA3B, kimi48BA3B, "120b-a5b"}
}

// ShapeByName returns the shape of TinyLlama (1.1b), Qwen3.5-2B (2b-delta), Granite 3.0 3B-A800M
// (3b-a1b, without its factors), Llama 2 (7b), Llama 3 (8b) or gpt-oss-120b (120b-a5b, without its
// windows, biases and sinks), as their config.json files state them, or of a published model with
// all that it has.
func ShapeByName(name string) (Shape, bool) {
	switch name {
	case "1.1b":
		return Shape{Layers: 22, Width: 2048, Inner: 5632, Heads: 32, KVHeads: 4, Vocab: 32000, Context: 2048, RopeTheta: 1e4}, true
	case "2b-delta":
		return Shape{Layers: 24, Width: 2048, Inner: 6144, Heads: 8, KVHeads: 2, HeadDim: 256, Delta: DeltaShape{Heads: 16, KeyHeads: 16, HeadDim: 128},
			Vocab: 248320, Context: 262144, RopeTheta: 1e7, Tied: true}, true
	case "3b-a1b":
		return Shape{Layers: 32, Width: 1536, Inner: 512, Heads: 24, KVHeads: 8, Experts: 40, Used: 8, Vocab: 49155, Context: 4096, RopeTheta: 1e4, Tied: true}, true
	case "7b":
		return Shape{Layers: 32, Width: 4096, Inner: 11008, Heads: 32, KVHeads: 32, Vocab: 32000, Context: 4096, RopeTheta: 1e4}, true
	case "8b":
		return Shape{Layers: 32, Width: 4096, Inner: 14336, Heads: 32, KVHeads: 8, Vocab: 128256, Context: 8192, RopeTheta: 5e5}, true
	case qwen9B:
		return Shape{Published: name, Layers: 32, Width: 4096, Inner: 12288, Heads: 16, KVHeads: 4, HeadDim: 256,
			Delta: DeltaShape{Heads: 32, KeyHeads: 16, HeadDim: 128}, Vocab: 248320, Context: 262144, RopeTheta: 1e7}, true
	case qwen35BA3B:
		return Shape{Published: name, Layers: 40, Width: 2048, Inner: 512, Heads: 16, KVHeads: 2, HeadDim: 256, Experts: 256, Used: 8,
			Delta: DeltaShape{Heads: 32, KeyHeads: 16, HeadDim: 128}, Vocab: 248320, Context: 262144, RopeTheta: 1e7}, true
	case kimi48BA3B:
		return Shape{Published: name, Layers: 27, Width: 2304, Inner: 1024, Heads: 32, KVHeads: 32, HeadDim: 72, Experts: 256, Used: 8,
			Delta: DeltaShape{Heads: 32, KeyHeads: 32, HeadDim: 128}, Vocab: 163840, Context: 1048576, RopeTheta: 1e4}, true
	case gptOSS20B:
		return Shape{Published: name, Layers: 24, Width: 2880, Inner: 2880, Heads: 64, KVHeads: 8, HeadDim: 64, Experts: 32, Used: 4,
			Vocab: 201088, Context: 131072, RopeTheta: 1.5e5}, true
	case gemma26BA4:
		return Shape{Published: name, Layers: 30, Width: 2816, Inner: 704, Heads: 16, KVHeads: 8, HeadDim: 256, Experts: 128, Used: 8,
			Vocab: 262144, Context: 262144, RopeTheta: 1e4, Tied: true}, true
	case "120b-a5b":
		return Shape{Layers: 36, Width: 2880, Inner: 2880, Heads: 64, KVHeads: 8, HeadDim: 64, Experts: 128, Used: 4, Vocab: 201088, Context: 131072, RopeTheta: 1.5e5}, true
	}
	return Shape{}, false
}

// name returns what files call it.
func (s *Shape) name() string {
	if s.Published != "" {
		return s.Published
	}
	return "random"
}

// headDim returns the numbers of a head.
func (s *Shape) headDim() int64 {
	if s.HeadDim > 0 {
		return s.HeadDim
	}
	return s.Width / s.Heads
}

// attends reports whether a block has attention and no delta net.
func (s *Shape) attends(block int64) bool { return s.Delta == DeltaShape{} || block%4 == 3 }

// maxDim bounds every size; products of two stay far inside an int64.
const maxDim = 1 << 24

// Check reports what keeps a shape from being a llama, or the published model that it names.
func (s *Shape) Check() error {
	if s.Published != "" {
		p, ok := ShapeByName(s.Published)
		if ok {
			p.Layers = s.Layers
		}
		if p != *s || s.Layers < 1 || s.Layers > 1<<10 {
			return fmt.Errorf("of shape %s other layers alone can be asked for, 1 to %d", s.Published, 1<<10)
		}
		return nil
	}
	for _, d := range []struct {
		name  string
		value int64
	}{
		{"layers", s.Layers}, {"width", s.Width}, {"inner", s.Inner}, {"heads", s.Heads},
		{"kv-heads", s.KVHeads}, {"vocab", s.Vocab}, {"context", s.Context},
	} {
		if d.value < 1 || d.value > maxDim {
			return fmt.Errorf("%s %d is not in 1 to %d", d.name, d.value, maxDim)
		}
	}
	switch {
	case s.HeadDim == 0 && s.Width%(2*s.Heads) != 0:
		return fmt.Errorf("width %d is not an even number for each of %d heads", s.Width, s.Heads)
	case s.HeadDim < 0 || s.HeadDim > maxDim || s.HeadDim%2 != 0:
		return fmt.Errorf("heads of %d numbers are not of an even number", s.HeadDim)
	case s.Experts < 0 || s.Experts > 1<<16 || s.Used < 0 || s.Used > s.Experts || s.Experts > 0 && s.Used == 0:
		return fmt.Errorf("%d experts, %d of them used, make no mixture", s.Experts, s.Used)
	case s.Heads%s.KVHeads != 0:
		return fmt.Errorf("%d heads do not share %d kv-heads evenly", s.Heads, s.KVHeads)
	case s.Delta != DeltaShape{} && (s.Experts > 0 || s.headDim()%8 != 0 || s.Delta.check() != nil):
		return fmt.Errorf("delta nets of %+v, heads of %d and %d experts make no qwen3_5", s.Delta, s.headDim(), s.Experts)
	case s.Vocab < minVocab:
		return fmt.Errorf("vocab %d is less than %d: 256 bytes and special tokens", s.Vocab, minVocab)
	case !(s.RopeTheta > 1):
		return fmt.Errorf("rope-theta %v is not above 1", s.RopeTheta)
	}
	return nil
}

// check reports sizes that are out of range, and heads that do not share keys evenly.
func (d *DeltaShape) check() error {
	for _, n := range []int64{d.Heads, d.KeyHeads, d.HeadDim} {
		if n < 1 || n > 1<<12 {
			return fmt.Errorf("%d is not in 1 to %d", n, 1<<12)
		}
	}
	if d.Heads%d.KeyHeads != 0 {
		return fmt.Errorf("%d heads do not share %d of keys evenly", d.Heads, d.KeyHeads)
	}
	return nil
}

// Checkpoint returns the checkpoint of a shape, ready to be written. dtype is
// F32, F16 or BF16; anything else, and a shape that is none, is an error of
// the caller's options.
func Checkpoint(s Shape, dtype tensor.DType, seed uint64) (*export.Model, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if s.Published != "" {
		return nil, fmt.Errorf("shape %s is made of blocks alone", s.Published)
	}
	if dtype != tensor.F32 && dtype != tensor.F16 && dtype != tensor.BF16 {
		return nil, fmt.Errorf("dtype %v is not one of f32, f16, bf16", dtype)
	}
	m := maker{dtype: dtype, seed: seed, tails: tails()}
	if s.Delta != (DeltaShape{}) {
		m.offset = 1
	}
	head, query := s.headDim(), s.Heads*s.headDim()
	if m.offset > 0 {
		query *= 2 // and a gate for each number
	}
	m.matrix("model.embed_tokens.weight", s.Vocab, s.Width, 0.02)
	for i := range s.Layers {
		p := fmt.Sprintf("model.layers.%d.", i)
		m.norm(p+"input_layernorm.weight", s.Width)
		if s.attends(i) {
			m.matrix(p+"self_attn.q_proj.weight", query, s.Width, unit(s.Width))
			m.matrix(p+"self_attn.k_proj.weight", s.KVHeads*head, s.Width, unit(s.Width))
			m.matrix(p+"self_attn.v_proj.weight", s.KVHeads*head, s.Width, unit(s.Width))
			m.matrix(p+"self_attn.o_proj.weight", s.Width, s.Heads*head, residual(s.Heads*head, s.Layers))
			if m.offset > 0 {
				m.norm(p+"self_attn.q_norm.weight", head)
				m.norm(p+"self_attn.k_norm.weight", head)
			}
		} else {
			m.delta(p+"linear_attn.", &s)
		}
		m.norm(p+"post_attention_layernorm.weight", s.Width)
		if s.Experts > 0 {
			m.matrix(p+"mlp.gate.weight", s.Experts, s.Width, unit(s.Width))
			m.stack(p+"mlp.experts.gate_up_proj", s.Experts, 2*s.Inner, s.Width, unit(s.Width))
			m.stack(p+"mlp.experts.down_proj", s.Experts, s.Width, s.Inner, residual(s.Inner, s.Layers))
			continue
		}
		m.matrix(p+"mlp.gate_proj.weight", s.Inner, s.Width, unit(s.Width))
		m.matrix(p+"mlp.up_proj.weight", s.Inner, s.Width, unit(s.Width))
		m.matrix(p+"mlp.down_proj.weight", s.Width, s.Inner, residual(s.Inner, s.Layers))
	}
	m.norm("model.norm.weight", s.Width)
	if !s.Tied {
		m.matrix("lm_head.weight", s.Vocab, s.Width, unit(s.Width))
	}
	return &export.Model{Files: s.files(dtype), Tensors: m.tensors}, nil
}

// convolution is how many positions the convolutions of delta nets see.
const convolution = 4

// delta adds a delta net. Decays are exp(-exp(A_log)·softplus(a+dt_bias)), so that A_log around
// -2 keeps a state for some ten positions.
func (m *maker) delta(p string, s *Shape) {
	d := s.Delta
	keys, values := d.KeyHeads*d.HeadDim, d.Heads*d.HeadDim
	m.matrix(p+"in_proj_qkv.weight", 2*keys+values, s.Width, unit(s.Width))
	m.matrix(p+"in_proj_z.weight", values, s.Width, unit(s.Width))
	m.matrix(p+"in_proj_b.weight", d.Heads, s.Width, unit(s.Width))
	m.matrix(p+"in_proj_a.weight", d.Heads, s.Width, unit(s.Width))
	m.stack(p+"conv1d.weight", 2*keys+values, 1, convolution, unit(convolution))
	m.vector(p+"A_log", d.Heads, -2)
	m.vector(p+"dt_bias", d.Heads, 1)
	m.vector(p+"norm.weight", d.HeadDim, 1) // without the offset of the others
	m.matrix(p+"out_proj.weight", s.Width, values, residual(values, s.Layers))
}

// A maker collects tensors.
type maker struct {
	dtype   tensor.DType
	offset  float32 // added to a norm's weights where they are used
	seed    uint64
	tails   *[1 << 16]float32
	tensors []formats.Tensor
}

// matrix adds W[N][K] whose elements have a root mean square of rms.
func (m *maker) matrix(name string, n, k int64, rms float64) {
	w := m.weights(name, n*k)
	w.columns = columns(w.seed, k, rms)
	m.add(name, w, n, k)
}

// stack adds a matrix for each expert.
func (m *maker) stack(name string, experts, n, k int64, rms float64) {
	w := m.weights(name, experts*n*k)
	w.columns = columns(w.seed, k, rms)
	m.add(name, w, experts, n, k)
}

// norm adds a norm's weights: around 1 in all.
func (m *maker) norm(name string, k int64) { m.vector(name, k, 1-m.offset) }

// vector adds numbers around a mean, a tenth apart.
func (m *maker) vector(name string, k int64, mean float32) {
	w := m.weights(name, k)
	w.columns, w.mean = []float32{0.1}, mean
	m.add(name, w, k)
}

func (m *maker) weights(name string, size int64) *weights {
	return &weights{seed: streamSeed(m.seed, name), dtype: m.dtype, tails: m.tails, elements: size}
}

func (m *maker) add(name string, w *weights, shape ...int64) {
	size := w.elements * w.width()
	m.tensors = append(m.tensors, formats.Tensor{Name: name, Shape: shape, Scheme: m.dtype.String(),
		Parts: []formats.Part{{Name: "data", DType: m.dtype, Shape: shape, Data: tensor.NewBlob(w, 0, size)}}})
}
