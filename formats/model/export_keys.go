package model

import (
	"math"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/gguf"
)

// ggufKeys fills in the metadata of an export: for a model that came from
// GGUF its own, with what describes the tensors brought up to date; otherwise
// the graph's constants under llama.cpp's keys and the tokenizer's.
func (m *Model) ggufKeys(a *architecture, x *Export) error {
	tensors := x.Tensors
	if meta, ok := m.File(MetadataFile); ok {
		f, err := gguf.Parse(m.Path, meta)
		if err != nil {
			return err
		}
		kvs := f.KVs()
		for i := range kvs {
			if kvs[i].Key == "general.file_type" {
				kvs[i].Value = fileType(tensors)
			}
		}
		x.Keys = dropSplit(kvs)
		return nil
	}
	tok, err := m.Tokenizer()
	if err != nil {
		return err
	}
	vocabulary, doubt, err := vocabularyKeys(tok, m.Graph.Vocab)
	if err != nil {
		return err
	}
	if doubt != "" {
		x.Warnings = append(x.Warnings, doubt)
	}
	name := a.gguf
	if name == "" {
		name = "llama" // mistral and mixtral
	}
	w := &keyWriter{prefix: name + ".", g: m.Graph, llama: a.llama}
	w.raw("general.architecture", name)
	w.raw("general.type", "model")
	w.raw("general.name", base(m.Path))
	w.raw("general.file_type", fileType(tensors))
	w.raw("general.quantization_version", uint32(2))
	w.sizes()
	w.attention()
	if len(m.Graph.Ropes) > 0 {
		w.rope(&m.Graph.Ropes[0])
	}
	w.mixture()
	x.Keys = append(w.out, vocabulary...)
	return nil
}

// dropSplit removes the keys that say a file is one of several.
func dropSplit(kvs []gguf.KV) []gguf.KV {
	var out []gguf.KV
	for _, kv := range kvs {
		if !strings.HasPrefix(kv.Key, "split.") {
			out = append(out, kv)
		}
	}
	return out
}

type keyWriter struct {
	prefix string
	g      *Graph
	llama  *llamaCPP
	out    []gguf.KV
}

func (w *keyWriter) raw(key string, v gguf.Value) { w.out = append(w.out, gguf.KV{Key: key, Value: v}) }
func (w *keyWriter) int(key string, v int64)      { w.raw(w.prefix+key, uint32(v)) }
func (w *keyWriter) float(key string, v float64)  { w.raw(w.prefix+key, float32(v)) }
func (w *keyWriter) str(key, v string)            { w.raw(w.prefix+key, v) }

func (w *keyWriter) sizes() {
	g := w.g
	w.int("vocab_size", g.Vocab)
	w.int("context_length", min(g.Context, math.MaxUint32))
	w.int("embedding_length", g.Width)
	w.int("block_count", int64(len(g.Blocks)))
	for i := range g.Blocks {
		if f := g.Blocks[i].FFN; f != nil {
			w.int("feed_forward_length", f.Up.Out)
			break
		}
		if i == len(g.Blocks)-1 {
			w.int("feed_forward_length", g.Blocks[0].MoE.Up.Out)
		}
	}
	if g.Norm.Kind == RMSNorm {
		w.float("attention.layer_norm_rms_epsilon", float64(g.Norm.Eps))
	} else {
		w.float("attention.layer_norm_epsilon", float64(g.Norm.Eps))
	}
	if w.llama.parallel {
		w.raw(w.prefix+"use_parallel_residual", g.Blocks[0].Parallel)
	}
	if g.Head.Softcap != 0 {
		w.float("final_logit_softcapping", float64(g.Head.Softcap))
	}
}

func (w *keyWriter) attention() {
	a := &w.g.Blocks[0].Attn
	w.int("attention.head_count", a.Heads)
	w.int("attention.head_count_kv", a.KVHeads)
	w.int("attention.key_length", a.HeadDim)
	w.int("attention.value_length", a.HeadDim)
	if a.Softcap != 0 {
		w.float("attn_logit_softcapping", float64(a.Softcap))
	}
	window := int64(0)
	for i := range w.g.Blocks {
		window = max(window, w.g.Blocks[i].Attn.Window)
	}
	if w.llama.window == required || window > 0 && w.llama.window == optional {
		w.int("attention.sliding_window", window)
	}
}

func (w *keyWriter) rope(r *Rope) {
	w.int("rope.dimension_count", r.Dim)
	w.float("rope.freq_base", r.Theta)
	c := &r.Scaling
	switch c.Kind {
	case ScaleLinear:
		w.str("rope.scaling.type", "linear")
		w.float("rope.scaling.factor", c.Factor)
	case ScaleYarn:
		w.str("rope.scaling.type", "yarn")
		w.float("rope.scaling.factor", c.Factor)
		w.int("rope.scaling.original_context_length", c.Original)
		if c.BetaFast != 32 || c.BetaSlow != 1 {
			w.float("rope.scaling.yarn_beta_fast", c.BetaFast)
			w.float("rope.scaling.yarn_beta_slow", c.BetaSlow)
		}
		if f := c.Attention / yarnScale(c.Factor, 1); f != 1 && c.Attention != 0 {
			w.float("rope.scaling.attn_factor", f)
		}
	case ScaleLongRope:
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
		return
	}
}

// fileType names the scheme that holds most weights as llama.cpp's
// enum llama_ftype (include/llama.h) does; 1024 says that it was guessed.
func fileType(tensors []formats.Tensor) uint32 {
	size := map[string]int64{}
	best := ""
	for _, t := range tensors {
		if len(t.Shape) < 2 {
			continue
		}
		size[t.Scheme] += t.Elements()
		if best == "" || size[t.Scheme] > size[best] {
			best = t.Scheme
		}
	}
	known := map[string]uint32{
		"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "q2_k": 10, "q3_k": 12,
		"q4_k": 15, "q5_k": 17, "q6_k": 18, "iq2_xxs": 19, "iq2_xs": 20, "iq3_xs": 22, "iq3_xxs": 23, "iq1_s": 24,
		"iq4_nl": 25, "iq3_s": 26, "iq2_s": 28, "iq4_xs": 30, "iq1_m": 31, "bf16": 32, "tq1_0": 36, "tq2_0": 37, "mxfp4": 38,
	}
	if v, ok := known[best]; ok {
		return v
	}
	return 1024
}
