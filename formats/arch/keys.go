package arch

import (
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/gguf"
	"github.com/nstf/nstf/formats/graph"
)

// keys reads GGUF metadata below an architecture's prefix and remembers the
// first error. Tensors are asked where the metadata is silent: GGUF says by a
// tensor's presence that a bias exists or that a head is not tied.
type keys struct {
	f       *gguf.File
	prefix  string
	tensors map[string]formats.Tensor
	varied  []string // keys that may have another value for each layer: see byLayer
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

func (k *keys) stringOr(key, def string) string {
	if !k.has(key) {
		return def
	}
	v, err := k.f.String(k.prefix + key)
	k.note(err)
	return v
}

// positive returns v, noting where it is not above 0.
func (k *keys) positive(key string, v float64) float64 {
	if !(v > 0) {
		k.note(formats.Errorf(k.f.Name(), k.prefix+key, "value %v is not positive", v))
		return 1
	}
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
		if n != list[0] && !slices.Contains(k.varied, key) {
			k.note(formats.Unsupportedf(k.f.Name(), k.prefix+key, "different values per layer %v", list))
			break
		}
	}
	if len(list) == 0 {
		return 0
	}
	return list[0]
}

// byLayer reads an integer of each layer, which may be one for all.
func (k *keys) byLayer(key string, layers int) []int64 {
	list, err := k.f.Ints(k.prefix + key)
	if err != nil {
		return slices.Repeat([]int64{k.int(key)}, layers)
	}
	if len(list) < layers {
		k.note(formats.Errorf(k.f.Name(), k.prefix+key, "%d layers of %d", len(list), layers))
		return make([]int64, layers)
	}
	return list[:layers]
}

// common reads the keys that all architectures share, of heads with keys and values of
// one size.
func (k *keys) common(arch string) *decoder {
	d := k.sizes(arch)
	d.headDim = k.intOr("attention.key_length", d.width/max(d.heads, 1))
	if v := k.intOr("attention.value_length", d.headDim); v != d.headDim {
		k.note(formats.Unsupportedf(k.f.Name(), k.prefix+"attention.value_length", "value heads of %d with key heads of %d", v, d.headDim))
	}
	return d
}

// sizes is common without the size of heads.
func (k *keys) sizes(arch string) *decoder {
	d := newDecoder(arch)
	d.width = k.int("embedding_length")
	layers := k.int("block_count")
	if layers < 1 || layers > graph.MaxBlocks {
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
	if d.inner = 0; k.has("feed_forward_length") || !k.has("expert_feed_forward_length") { // mixtures alone have no dense layers
		d.inner = k.uniform("feed_forward_length")
	} else {
		d.inner = k.uniform("expert_feed_forward_length")
	}
	if k.has("attention.layer_norm_rms_epsilon") {
		d.eps = float32(k.float("attention.layer_norm_rms_epsilon"))
	} else {
		d.eps = float32(k.float("attention.layer_norm_epsilon"))
		d.norm = graph.LayerNorm
	}
	if !k.boolOr("attention.causal", true) {
		k.note(formats.Unsupportedf(k.f.Name(), k.prefix+"attention.causal", "attention to what follows"))
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

// slidingLayers returns the window of each layer: all but every n-th, or those
// that a list of bools names. def is n where the key is absent.
func (k *keys) slidingLayers(window int64, layers int, def int64) func(int) int64 {
	const key = "attention.sliding_window_pattern"
	sliding := func(layer int) bool { return (int64(layer)+1)%def != 0 }
	if v, _ := k.f.Get(k.prefix + key); v != nil {
		if list, ok := v.([]bool); ok {
			if len(list) < layers {
				k.note(formats.Errorf(k.f.Name(), k.prefix+key, "%d layers of %d", len(list), layers))
				return nil
			}
			sliding = func(layer int) bool { return list[layer] }
		} else if n := k.int(key); n == 0 {
			sliding = func(int) bool { return true }
		} else {
			sliding = func(layer int) bool { return (int64(layer)+1)%n != 0 }
		}
	}
	return func(layer int) int64 {
		if sliding(layer) {
			return window
		}
		return 0
	}
}
