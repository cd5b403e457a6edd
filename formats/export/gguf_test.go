package export_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/export"
	"github.com/nstf/nstf/formats/gguf"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

func micro(t *testing.T, name string) *model.Model { return open(t, "../../testdata/micro/"+name) }

// exported returns a micro checkpoint's export, for a test to change.
func exported(t *testing.T, name string) *export.Model {
	t.Helper()
	x, err := export.GGUF(micro(t, name), named(t, "f32"))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// take removes a tensor of an export.
func take(t *testing.T, x *export.Model, name string) formats.Tensor {
	t.Helper()
	i := slices.IndexFunc(x.Tensors, func(e formats.Tensor) bool { return e.Name == name })
	if i < 0 {
		t.Fatalf("no tensor %q", name)
	}
	e := x.Tensors[i]
	x.Tensors = slices.Delete(x.Tensors, i, i+1)
	return e
}

func has(x *export.Model, name string) bool {
	return slices.ContainsFunc(x.Tensors, func(e formats.Tensor) bool { return e.Name == name })
}

// set changes or adds a key, nil removes it.
func set(x *export.Model, key string, v gguf.Value) {
	x.Keys = slices.DeleteFunc(x.Keys, func(kv gguf.KV) bool { return kv.Key == key })
	if v != nil {
		x.Keys = append(x.Keys, gguf.KV{Key: key, Value: v})
	}
}

func ones(t *testing.T, name string, n int) formats.Tensor {
	t.Helper()
	x := make([]float32, n)
	for i := range x {
		x[i] = 1
	}
	p := make([]byte, 4*n)
	tensor.FromFloat32(p, x, tensor.F32)
	e, err := scheme.New(name, named(t, "f32"), []int64{int64(n)}, nil, tensor.BytesBlob(p))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// join replaces tensors of an export by one that holds their rows.
func join(t *testing.T, x *export.Model, into string, shape []int64, ts ...formats.Tensor) {
	t.Helper()
	e, err := scheme.Concat(into, shape, ts...)
	if err != nil {
		t.Fatal(err)
	}
	x.Tensors = append(x.Tensors, e)
}

// llama.cpp loads these architectures with one matrix for query, key and value
// only, and the first two with a head of their own only.
func TestExportsAsLlamaCPPInsists(t *testing.T) {
	for name, head := range map[string]bool{"gpt2": true, "gpt_neox": true, "phi3-longrope": true, "phi3-partial": false} {
		x := exported(t, name)
		if !has(x, "blk.0.attn_qkv.weight") || has(x, "blk.0.attn_q.weight") {
			t.Errorf("%s: query, key and value are apart", name)
		}
		if has(x, "output.weight") != head {
			t.Errorf("%s: output.weight is there: %v", name, !head)
		}
	}
	x := exported(t, "gpt2")
	if embed, head := values(t, take(t, x, "token_embd.weight")), values(t, take(t, x, "output.weight")); !slices.Equal(embed, head) {
		t.Error("gpt2: the head is not the table")
	}
}

// Newer converters can fuse query, key and value, and the experts' gate and
// up, of any architecture.
func TestFusedGGUF(t *testing.T) {
	for _, name := range []string{"llama-3", "llama-bias", "mixtral", "qwen2"} {
		x := exported(t, name)
		m := micro(t, name)
		for i := range m.Graph.Blocks {
			b := &m.Graph.Blocks[i]
			blk := strings.Replace("blk.#.", "#", string(rune('0'+i)), 1)
			rows := b.Attn.Q.Out + b.Attn.K.Out + b.Attn.V.Out
			for _, suffix := range []string{".weight", ".bias"} {
				if !has(x, blk+"attn_q"+suffix) {
					continue
				}
				shape := []int64{rows, b.Attn.Q.In}
				if suffix == ".bias" {
					shape = shape[:1]
				}
				join(t, x, blk+"attn_qkv"+suffix, shape, take(t, x, blk+"attn_q"+suffix), take(t, x, blk+"attn_k"+suffix), take(t, x, blk+"attn_v"+suffix))
			}
			if b.MoE == nil {
				continue
			}
			gate, up := take(t, x, blk+"ffn_gate_exps.weight"), take(t, x, blk+"ffn_up_exps.weight")
			var pieces []formats.Tensor
			n := b.MoE.Gate.Out
			for e := range b.MoE.Experts {
				for _, half := range []formats.Tensor{gate, up} {
					p, err := scheme.Slice(half, e*n, n)
					if err != nil {
						t.Fatal(err)
					}
					pieces = append(pieces, p)
				}
			}
			join(t, x, blk+"ffn_gate_up_exps.weight", []int64{b.MoE.Experts, 2 * n, gate.Shape[2]}, pieces...)
		}
		sameWeights(t, m, open(t, writeGGUF(t, x)))
	}
}

// What llama.cpp would compute otherwise, or not load, is refused by name.
func TestGGUFThatIsRefused(t *testing.T) {
	for _, c := range []struct {
		name, from, says string
		change           func(x *export.Model)
	}{
		{"a bias of its own", "llama-3", "blk.0.attn_k.bias", func(x *export.Model) { x.Tensors = append(x.Tensors, ones(t, "blk.0.attn_k.bias", 32)) }},
		{"norms of heads", "llama-3", "attn_q_norm", func(x *export.Model) { x.Tensors = append(x.Tensors, ones(t, "blk.1.attn_q_norm.weight", 16)) }},
		{"part of a head rotated", "llama-3", "rope.dimension_count", func(x *export.Model) { set(x, "llama.rope.dimension_count", uint32(4)) }},
		{"factors and a scaling", "llama-31", "linear", func(x *export.Model) { set(x, "llama.rope.scaling.factor", float32(2)) }},
		{"attention both ways", "llama-3", "attention.causal", func(x *export.Model) { set(x, "llama.attention.causal", false) }},
		{"a scaling of longrope", "phi3-longrope", "rope.scaling.factor", func(x *export.Model) {
			set(x, "phi3.rope.scaling.type", "longrope")
			set(x, "phi3.rope.scaling.factor", float32(2))
		}},
		{"turns that llama.cpp disregards", "llama-yarn", "yarn_beta_fast", func(x *export.Model) { set(x, "llama.rope.scaling.yarn_beta_fast", float32(4)) }},
		{"a scaling under longrope", "phi3-longrope", "linear", func(x *export.Model) { set(x, "phi3.rope.scaling.factor", float32(2)) }},
	} {
		x := exported(t, c.from)
		c.change(x)
		m, err := checkpoint.Open(writeGGUF(t, x))
		if err == nil {
			m.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "unsupported") {
			t.Errorf("%s: error %v does not say %q", c.name, err, c.says)
		}
	}
}

// A file may give the factor alone, under either name: that is linear scaling.
func TestGGUFScalingWithoutAType(t *testing.T) {
	for _, key := range []string{"llama.rope.scaling.factor", "llama.rope.scale_linear"} {
		x := exported(t, "llama-3")
		set(x, key, float32(4))
		r := open(t, writeGGUF(t, x)).Graph.Ropes[0].Scaling
		if r.Kind != graph.ScaleLinear || r.Factor != 4 {
			t.Errorf("%s: %+v", key, r)
		}
	}
	x := exported(t, "llama-3")
	set(x, "llama.rope.scaling.type", "none")
	set(x, "llama.rope.scaling.factor", float32(4))
	if r := open(t, writeGGUF(t, x)).Graph.Ropes[0].Scaling; r.Kind != graph.ScaleNone {
		t.Errorf("none: %+v", r)
	}
}

// Warnings are for exact GELU and for the choice of LongRoPE's factors.
func TestExportWarnings(t *testing.T) {
	for name, says := range map[string]string{"gpt_neox": "tanh", "gpt2": "", "llama-3": "", "phi3-partial": "above 32 tokens", "qwen3": ""} {
		x := exported(t, name)
		if got := strings.Join(x.Warnings, ""); (got == "") != (says == "") || !strings.Contains(got, says) {
			t.Errorf("%s: warnings %q", name, x.Warnings)
		}
	}
}

// Gemma with the scale that llama.cpp computes, as published models have it:
// norms get their offset on the way out, and lose it on the way back.
func TestGemmaGoesThroughGGUF(t *testing.T) {
	for _, name := range []string{"gemma2-oldcfg", "gemma3-oldcfg", "gemma3-mm-oldcfg"} {
		m := open(t, withScale(t, "../../testdata/micro/"+name))
		x, err := export.GGUF(m, named(t, "f32"))
		if err != nil {
			t.Fatal(err)
		}
		back := open(t, writeGGUF(t, x))
		sameWeights(t, m, back)
		sameWeights(t, back, exportHF(t, back))
	}
}

// withScale copies a checkpoint and gives it what llama.cpp computes itself:
// the score's scale, and which layers have a window.
func withScale(t *testing.T, dir string) string {
	t.Helper()
	out := t.TempDir()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files { // some of which are links
		p, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(out, f.Name()), p, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(out, "config.json")
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var c map[string]any
	if err := json.Unmarshal(p, &c); err != nil {
		t.Fatal(err)
	}
	text := c
	if inner, ok := c["text_config"].(map[string]any); ok {
		text = inner
	}
	text["query_pre_attn_scalar"] = text["head_dim"]
	if _, ok := text["rope_local_base_freq"]; ok { // gemma3: five layers with a window to one without
		delete(text, "layer_types")
		text["sliding_window_pattern"], text["rope_local_base_freq"] = 6, 10000
	}
	if p, err = json.Marshal(c); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, p, 0o600); err != nil {
		t.Fatal(err)
	}
	return out
}

// A tokenizer with more tokens than the table has rows runs here, as long as
// no text needs them; llama.cpp does not load it.
func TestExportOfTooManyTokens(t *testing.T) {
	m := micro(t, "llama-3")
	for i, f := range m.Files {
		if f.Name != "tokenizer.json" {
			continue
		}
		data := strings.Replace(string(f.Data), `"added_tokens":`, `"added_tokens": [{"id": 264, "content": "<x>", "single_word": false, "lstrip": false,
			"rstrip": false, "normalized": false, "special": true}], "once":`, 1)
		m.Files[i].Data = []byte(data)
	}
	_, err := export.GGUF(m, nil)
	var u *formats.UnsupportedError
	if !errors.As(err, &u) || !strings.Contains(err.Error(), "rows") {
		t.Errorf("error %v", err)
	}
}

// Files of Mixtral from before experts were stacked keep them apart.
func TestExpertsApartInGGUF(t *testing.T) {
	m, x := micro(t, "mixtral"), exported(t, "mixtral")
	for i := range m.Graph.Blocks {
		for _, what := range []string{"gate", "up", "down"} {
			stacked := take(t, x, fmt.Sprintf("blk.%d.ffn_%s_exps.weight", i, what))
			experts, n := stacked.Shape[0], stacked.Shape[1]
			for e := range experts {
				part, err := scheme.Slice(stacked, e*n, n)
				if err != nil {
					t.Fatal(err)
				}
				join(t, x, fmt.Sprintf("blk.%d.ffn_%s.%d.weight", i, what, e), []int64{n, stacked.Shape[2]}, part)
			}
		}
	}
	sameWeights(t, m, open(t, writeGGUF(t, x)))
}

// A window that the model's context never exceeds is no window to llama.cpp
// either, and the values that yarn has there need not be said.
func TestExportOfWindowsBeyondTheContext(t *testing.T) {
	m, err := checkpoint.Open("../../testdata/micro/mistral-window")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	m.Graph.Context = 8
	x, err := export.GGUF(m, nil)
	if err != nil || len(x.Warnings) > 0 {
		t.Errorf("%v, %v", x, err)
	}
	m.Graph.Context = 9
	var u *formats.UnsupportedError
	if _, err = export.GGUF(m, nil); !errors.As(err, &u) || !strings.Contains(u.Hint, "max_position_embeddings 8") {
		t.Errorf("error %v with hint", err)
	}
}

// Before llama.cpp took kv_b apart its files had one matrix, and said the sizes of heads
// as they are made of latents.
func TestLatentsOfOlderGGUF(t *testing.T) {
	m := micro(t, "deepseek_v3")
	x := exported(t, "deepseek_v3")
	a := m.Graph.Blocks[0].Latent
	for i := range len(m.Graph.Blocks) + len(m.Graph.MTP) {
		blk := fmt.Sprintf("blk.%d.", i)
		joined, err := checkpoint.JoinLatent(blk+"attn_kv_b.weight", take(t, x, blk+"attn_k_b.weight"), take(t, x, blk+"attn_v_b.weight"), a)
		if err != nil {
			t.Fatal(err)
		}
		x.Tensors = append(x.Tensors, joined)
	}
	const p = "deepseek2.attention."
	set(x, p+"key_length_mla", nil)
	set(x, p+"value_length_mla", nil)
	set(x, p+"key_length", uint32(a.QueryDim()))
	set(x, p+"value_length", uint32(a.ValueDim))
	set(x, p+"head_count_kv", uint32(a.Heads))
	sameWeights(t, m, open(t, writeGGUF(t, x)))
}
