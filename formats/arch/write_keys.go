package arch

import (
	"math"
	"slices"

	"github.com/nstf/nstf/formats/gguf"
	"github.com/nstf/nstf/formats/graph"
)

// Keys writes a graph's constants under llama.cpp's keys, and before them those
// that name the file: the inverse of [OfGGUF].
func (a *Architecture) Keys(g *graph.Graph, name string, fileType uint32) []gguf.KV {
	prefix := a.gguf
	if m, _ := experts(g); m != nil && a.ggufExperts != "" {
		prefix = a.ggufExperts
	}
	if prefix == "" {
		prefix = a.covered
	}
	w := &keyWriter{prefix: prefix + ".", g: g, llama: a.llama}
	w.raw("general.architecture", prefix)
	w.raw("general.type", "model")
	w.raw("general.name", name)
	w.raw("general.file_type", fileType)
	w.raw("general.quantization_version", uint32(2))
	w.sizes()
	w.attention()
	if len(g.Ropes) > 0 {
		w.rope(&g.Ropes[0])
	}
	w.mixture()
	if a.toGGUF != nil {
		a.toGGUF(w, g)
	}
	return w.out
}

// A keyWriter is GGUF metadata in the making.
type keyWriter struct {
	prefix string
	g      *graph.Graph
	llama  *llamaCPP
	out    []gguf.KV
}

func (w *keyWriter) raw(key string, v gguf.Value) { w.out = append(w.out, gguf.KV{Key: key, Value: v}) }
func (w *keyWriter) int(key string, v int64)      { w.raw(w.prefix+key, uint32(v)) }
func (w *keyWriter) float(key string, v float64)  { w.raw(w.prefix+key, float32(v)) }
func (w *keyWriter) str(key, v string)            { w.raw(w.prefix+key, v) }

// replace gives a key that was written another value.
func (w *keyWriter) replace(key string, v gguf.Value) {
	for i := range w.out {
		if w.out[i].Key == w.prefix+key {
			w.out[i].Value = v
		}
	}
}

func (w *keyWriter) sizes() {
	g := w.g
	w.int("vocab_size", g.Vocab)
	w.int("context_length", min(g.Context, math.MaxUint32))
	w.int("embedding_length", g.Width)
	w.int("block_count", int64(len(g.Blocks)+len(g.MTP)))
	for i := range g.Blocks {
		if f := g.Blocks[i].FFN; f != nil {
			w.int("feed_forward_length", f.Up.Out)
			break
		}
		if i == len(g.Blocks)-1 {
			w.int("feed_forward_length", inner(g))
		}
	}
	if g.Norm.Kind == graph.RMSNorm {
		w.float("attention.layer_norm_rms_epsilon", float64(g.Norm.Eps))
	} else {
		w.float("attention.layer_norm_epsilon", float64(g.Norm.Eps))
	}
	if w.llama.parallel {
		w.raw(w.prefix+"use_parallel_residual", g.Blocks[0].Parallel)
	}
	if g.Head.Softcap != 0 || w.llama.capped { // whose own is 30
		w.float("final_logit_softcapping", float64(g.Head.Softcap))
	}
}

func (w *keyWriter) attention() {
	a := attention(w.g)
	heads, kvHeads, key, value := a.Heads, a.KVHeads, a.HeadDim, a.HeadDim
	if l := latentOf(w.g); l.Heads > 0 { // as one key-value head
		heads, kvHeads, key, value = l.Heads, 1, l.KeyDim(), l.Rank
	}
	w.int("attention.head_count", heads)
	w.int("attention.head_count_kv", kvHeads)
	w.int("attention.key_length", key)
	w.int("attention.value_length", value)
	if a.Softcap != 0 {
		w.float("attn_logit_softcapping", float64(a.Softcap))
	}
	widest := int64(0)
	for i := range w.g.Blocks {
		widest = max(widest, window(&w.g.Blocks[i]))
	}
	if w.llama.window == required || widest > 0 && w.llama.window == optional {
		w.int("attention.sliding_window", widest)
	}
}

// windowPattern says which layers have a window, where any has.
func (w *keyWriter) windowPattern(g *graph.Graph) {
	list := make([]bool, len(g.Blocks))
	for i := range g.Blocks {
		list[i] = g.Blocks[i].Attn.Window > 0
	}
	if slices.Contains(list, true) {
		w.raw(w.prefix+"attention.sliding_window_pattern", list)
	}
}

func (w *keyWriter) rope(r *graph.Rope) {
	w.int("rope.dimension_count", r.Dim)
	w.float("rope.freq_base", r.Theta)
	c := &r.Scaling
	switch c.Kind {
	case graph.ScaleLinear:
		w.str("rope.scaling.type", "linear")
		w.float("rope.scaling.factor", c.Factor)
	case graph.ScaleYarn:
		w.str("rope.scaling.type", "yarn")
		w.float("rope.scaling.factor", c.Factor)
		w.int("rope.scaling.original_context_length", c.Original)
		if f := c.Attention / yarnScale(c.Factor, 1); f != 1 && c.Attention != 0 {
			w.float("rope.scaling.attn_factor", f)
		}
	case graph.ScaleLongRope:
		w.int("rope.scaling.original_context_length", c.Original)
		attention := c.Attention
		if attention == 0 {
			attention = 1
		}
		w.float("rope.scaling.attn_factor", attention)
	}
}

func (w *keyWriter) mixture() {
	for i := range w.g.Blocks {
		m := w.g.Blocks[i].MoE
		if m == nil {
			continue
		}
		w.int("expert_count", m.Experts)
		w.int("expert_used_count", m.TopK)
		if w.g.Arch != "mixtral" {
			w.int("expert_feed_forward_length", m.Up.Out)
		}
		if m.Shared != nil {
			w.int("expert_shared_feed_forward_length", m.Shared.Up.Out)
		}
		return
	}
}
