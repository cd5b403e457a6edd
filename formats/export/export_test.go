package export_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/arch"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/export"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/hf"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/scheme"
)

// micros returns the micro checkpoints' directories.
func micros(t *testing.T) []string {
	t.Helper()
	configs, err := filepath.Glob("../../testdata/micro/*/config.json")
	if err != nil || len(configs) < 40 {
		t.Fatalf("%d micro checkpoints: %v", len(configs), err)
	}
	for i := range configs {
		configs[i] = filepath.Dir(configs[i])
	}
	return configs
}

func open(t *testing.T, path string) *model.Model {
	t.Helper()
	m, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func named(t *testing.T, name string) *scheme.Scheme {
	t.Helper()
	s, ok := scheme.ByName(name)
	if !ok {
		t.Fatalf("no scheme %q", name)
	}
	return s
}

func values(t *testing.T, x formats.Tensor) []float32 {
	t.Helper()
	out, err := form.Decode(&x)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// sameWeights compares every tensor of two models' graphs bit for bit. Norms
// whose offset went into their weights, or out of them, are compared by sum.
func sameWeights(t *testing.T, a, b *model.Model) {
	t.Helper()
	da, db := a.Graph.Norm.Offset, b.Graph.Norm.Offset
	for _, w := range a.Graph.Weights() {
		x, y := values(t, a.Tensor(w.Name)), values(t, b.Tensor(w.Name))
		norm := strings.HasSuffix(w.Name, "norm.weight") && !strings.HasSuffix(w.Name, "delta.norm.weight")
		for i := range x {
			if norm && da != db {
				if x[i]+da != y[i]+db {
					t.Fatalf("%s[%d] is %v+%v, was %v+%v", w.Name, i, y[i], db, x[i], da)
				}
			} else if p, q := decay(a, w.Name, x[i]), decay(b, w.Name, y[i]); p != 0 {
				if math.Abs(p-q) > 2e-7*math.Abs(p) {
					t.Fatalf("%s[%d] is %v, was %v", w.Name, i, q, p)
				}
			} else if x[i] != y[i] {
				t.Fatalf("%s[%d] is %v, was %v", w.Name, i, y[i], x[i])
			}
		}
	}
}

// decay returns what a number of a delta net's or state space's decays stands for, 0 for other tensors.
func decay(m *model.Model, name string, x float32) float64 {
	_, block, _ := arch.Split(name)
	switch {
	case strings.HasSuffix(name, ".mamba.decay"):
		if m.Graph.Blocks[block].Mamba.DecayLog {
			return -math.Exp(float64(x))
		}
		return float64(x)
	case !strings.HasSuffix(name, ".delta.decay"):
		return 0
	}
	if m.Graph.Blocks[block].Delta.DecayLog {
		return -math.Exp(float64(x))
	}
	return float64(x)
}

// unsayable are the micro checkpoints that GGUF, as llama.cpp runs it, has no
// words for, with a word of the reason.
var unsayable = map[string]string{
	"gptj": "architecture", "gptj-oldcfg": "architecture",
	"qwen3_next": "every layer", "qwen3_5": "as long as their keys", "qwen3_5-oldcfg": "as long as their keys",
	"llama4":              "attn.",
	"llama-dynamic":       "dynamic",
	"llama-yarn-explicit": "beta_fast",
	"mistral-window":      "sliding window", "mistral-window-oldcfg": "sliding window",
	"qwen2-window": "sliding window", "qwen2-window-oldcfg": "sliding window",
	"phi3": "sliding window", "phi3-oldcfg": "sliding window",
	"gpt2-scaled": "attn.scale", "gpt2-untied": "attn.scale",
	"gemma2": "attn.scale", "gemma2-oldcfg": "attn.scale", "gemma3": "attn.scale", "gemma3-oldcfg": "attn.scale",
	"gemma3-mm": "attn.scale", "gemma3-mm-oldcfg": "attn.scale",
	"qwen3-bias": "no such bias", "gpt_neox-sequential": "expects biases",
	"cohere-norms":   "64 layers and more",
	"exaone4-window": "window", "falcon-sequential": "no such bias", "smollm3-window": "no such bias",
	"gemma4-e":        "keys and values of layer 3 from layer 1",
	"glm4_moe-groups": "groups is", "lfm2-bias": "no such bias", "lfm2_moe-stacked": "exp_probs_b",
	"deepseek_v2-groups":     "no such bias",
	"granitemoehybrid-dense": "state space in some layer", "granitemoehybrid-limits": "biases of the convolutions",
	"nemotron_h-dense": "biases of the convolutions", "nemotron_h-latent": "groups",
	"qwen3_moe": "every layer", "qwen3_moe-oldcfg": "every layer", "qwen3_moe-sparse-step": "every layer",
}

// unnamable are those whose GGUF no config.json of ours describes.
var unnamable = map[string]string{
	"apertus": "factors", "apertus-oldcfg": "factors",
	"llama-31": "factors", "llama-31-oldcfg": "factors", // only the published factors are recognised
}

func TestGGUFExportReadsBack(t *testing.T) {
	exported := 0
	for _, dir := range micros(t) {
		name := filepath.Base(dir)
		t.Run(name, func(t *testing.T) {
			m := open(t, dir)
			x, err := export.GGUF(m, named(t, "f32"))
			if why := unsayable[name]; why != "" {
				var u *formats.UnsupportedError
				if !errors.As(err, &u) || !strings.Contains(err.Error(), why) {
					t.Fatalf("error %v does not say %q", err, why)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for i := range x.Tensors {
				if w := &x.Tensors[i]; strings.HasSuffix(w.Name, "_exps.weight") && len(w.Shape) != 3 {
					t.Errorf("%s of shape %v", w.Name, w.Shape)
				}
			}
			path := writeGGUF(t, x)
			back := open(t, path)
			sameWeights(t, m, back)
			exported++
			tok, err := back.Tokenizer()
			if err != nil {
				t.Fatal(err)
			}
			if tok.VocabSize() != int(m.Graph.Vocab) {
				t.Errorf("the vocabulary has %d tokens, the table %d rows", tok.VocabSize(), m.Graph.Vocab)
			}
			// and once more: a file from GGUF goes back to GGUF byte for byte.
			x2, err := export.GGUF(back, nil)
			if err != nil {
				t.Fatal(err)
			}
			first, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			second, err := os.ReadFile(writeGGUF(t, x2))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(first, second) {
				t.Error("exporting the export gives another file")
			}
		})
	}
	if exported < 35 {
		t.Errorf("only %d micro checkpoints were exported", exported)
	}
}

func TestSafetensorsExportReadsBack(t *testing.T) {
	for _, dir := range micros(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			m := open(t, dir)
			back := exportHF(t, m)
			sameWeights(t, m, back)
			if len(back.Passthrough) != len(m.Passthrough) {
				t.Errorf("%d tensors pass through, %d did", len(back.Passthrough), len(m.Passthrough))
			}
			for _, f := range m.Files {
				if data, _ := back.File(f.Name); m.Quantized == "" && !bytes.Equal(data, f.Data) {
					t.Errorf("%s changed", f.Name)
				}
			}
		})
	}
}

func writeGGUF(t *testing.T, x *export.Model) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "out.gguf")
	if err := x.WriteGGUF(t.Context(), atomicfile.Scratch(path), nil); err != nil {
		t.Fatal(err)
	}
	return path
}

func exportHF(t *testing.T, m *model.Model) *model.Model {
	t.Helper()
	x, err := export.HF(m, named(t, "f32"))
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	if err := x.WriteDir(t.Context(), atomicfile.Scratch(out), 20<<10, nil); err != nil {
		t.Fatal(err)
	}
	return open(t, out)
}

// A multimodal checkpoint goes through a folder with the names that it came with.
func TestMultimodalNamesStay(t *testing.T) {
	found := 0
	for _, dir := range micros(t) {
		d, err := hf.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, nested := d.Config().Sub("text_config"); !nested || strings.HasSuffix(dir, "-oldcfg") {
			d.Close()
			continue
		}
		found++
		defer d.Close()
		x, err := export.HF(open(t, dir), named(t, "bf16"))
		if err != nil {
			t.Fatal(err)
		}
		var want, got []string
		for _, w := range d.Tensors() {
			want = append(want, w.Name)
		}
		for i := range x.Tensors {
			got = append(got, x.Tensors[i].Name)
		}
		slices.Sort(want)
		slices.Sort(got)
		if i := slices.IndexFunc(got, func(name string) bool { return strings.HasPrefix(name, "model.layers.") }); i >= 0 {
			t.Errorf("%s: %s", filepath.Base(dir), got[i])
		}
		all := strings.Join(want, " ")
		if strings.Contains(all, ".experts.gate_up_proj") || strings.Contains(all, " model.layers.") || strings.HasPrefix(all, "model.embed") {
			continue // stacks are taken apart; older names become those of today
		}
		if !slices.Equal(want, got) {
			t.Errorf("%s: %v\nbecame %v", filepath.Base(dir), want, got)
		}
	}
	if found < 8 {
		t.Errorf("%d multimodal checkpoints", found)
	}
}

// Two classes have names of their own: Llama 4's holds a whole causal model, and
// Qwen3-VL's with experts knows stacks alone.
func TestMultimodalNamesOfTheirOwn(t *testing.T) {
	for name, want := range map[string][]string{
		"llama4-mm":    {"language_model.model.embed_tokens.weight", "language_model.model.layers.0.self_attn.q_proj.weight", "language_model.lm_head.weight"},
		"qwen3_vl_moe": {"model.language_model.embed_tokens.weight", "model.language_model.layers.1.mlp.experts.gate_up_proj", "model.language_model.layers.1.mlp.experts.down_proj"},
	} {
		x, err := export.HF(open(t, "../../testdata/micro/"+name), named(t, "bf16"))
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !slices.ContainsFunc(x.Tensors, func(t formats.Tensor) bool { return t.Name == w }) {
				t.Errorf("%s: there is no %s", name, w)
			}
		}
	}
}

// Where transformers wants a fraction, it refuses a whole number.
func TestConfigsHaveFractions(t *testing.T) {
	x, err := export.GGUF(open(t, "../../testdata/micro/granite"), named(t, "f32"))
	if err != nil {
		t.Fatal(err)
	}
	out, err := export.HF(open(t, writeGGUF(t, x)), named(t, "f32"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range out.Files {
		if f.Name == "config.json" && !strings.Contains(string(f.Data), `"residual_multiplier": 1.0,`) {
			t.Errorf("%s", f.Data)
		}
	}
}

// A model that came as GGUF goes to safetensors with a config.json and a
// tokenizer.json of our own making.
func TestGGUFGoesToSafetensors(t *testing.T) {
	for _, dir := range micros(t) {
		name := filepath.Base(dir)
		if _, ok := unsayable[name]; ok {
			continue
		}
		t.Run(name, func(t *testing.T) {
			m := open(t, dir)
			x, err := export.GGUF(m, named(t, "f32"))
			if err != nil {
				t.Fatal(err)
			}
			path := writeGGUF(t, x)
			g := open(t, path)
			if why := unnamable[name]; why != "" {
				if _, err := export.HF(g, named(t, "f32")); err == nil || !strings.Contains(err.Error(), why) {
					t.Fatalf("error %v does not say %q", err, why)
				}
				return
			}
			back := exportHF(t, g)
			sameWeights(t, g, back)
			if _, err := back.Tokenizer(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestExportLeavesNothingBehind(t *testing.T) {
	m := open(t, "../../testdata/micro/llama-2")
	x, err := export.GGUF(m, nil)
	if err != nil {
		t.Fatal(err)
	}
	h, err := export.HF(m, named(t, "bf16"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ended, cancel := context.WithCancel(t.Context())
	defer cancel()
	for what, write := range map[string]func(func(done, total int64)) error{
		"gguf": func(p func(done, total int64)) error {
			return x.WriteGGUF(ended, atomicfile.Scratch(filepath.Join(dir, "x.gguf")), p)
		},
		"safetensors": func(p func(done, total int64)) error {
			return h.WriteDir(ended, atomicfile.Scratch(filepath.Join(dir, "x")), 20<<10, p)
		},
	} {
		err := write(func(done, total int64) {
			if done > total/2 {
				cancel()
			}
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v after the interrupt", what, err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "kept"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.WriteDir(t.Context(), atomicfile.Scratch(full), 1<<30, nil); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("error %v on a folder with something in it", err)
	}
}

// What the architecture of an export cannot say is refused, each part by itself.
func TestExportRefusesOtherRouters(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(b *graph.Block)
	}{
		{"sinks", func(b *graph.Block) { b.Attn.Sinks = "blocks.0.attn.sinks" }},
		{"score", func(b *graph.Block) { b.MoE.Score = graph.ScoreSigmoid }},
		{"scale", func(b *graph.Block) { b.MoE.Scale = 2.5 }},
		{"epsilon", func(b *graph.Block) { b.MoE.Epsilon = 1e-6 }},
		{"floor", func(b *graph.Block) { b.MoE.Floor = 1e-6 }},
		{"groups", func(b *graph.Block) { b.MoE.Groups, b.MoE.TopGroups = 2, 1 }},
		{"select bias", func(b *graph.Block) { b.MoE.SelectBias = "blocks.0.moe.select_bias" }},
		{"no gate", func(b *graph.Block) { b.MoE.Gate = nil }},
		{"shared gate", func(b *graph.Block) {
			gate := b.MoE.Router
			gate.Weight = "blocks.0.moe.shared_gate.weight"
			b.MoE.SharedGate = &gate
		}},
		{"shared layer", func(b *graph.Block) {
			up, down := b.MoE.Router, b.MoE.Router
			up.Weight, down.Weight = "blocks.0.moe.shared.up.weight", "blocks.0.moe.shared.down.weight"
			b.MoE.Shared = &graph.FFN{Act: graph.SiLU, Up: up, Down: down}
		}},
	} {
		m := open(t, "../../testdata/micro/mixtral")
		c.edit(&m.Graph.Blocks[0])
		var u *formats.UnsupportedError
		if _, err := export.GGUF(m, nil); !errors.As(err, &u) {
			t.Errorf("%s: GGUF: %v", c.name, err)
		}
		if _, err := export.HF(m, named(t, "f32")); !errors.As(err, &u) {
			t.Errorf("%s: HF: %v", c.name, err)
		}
	}
}
