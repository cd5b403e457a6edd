package model_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
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
	m, err := model.Open(path)
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
	n, k := x.Rows()
	out := make([]float32, n*k)
	if err := scheme.DecodeRows(out, &x, 0, n); err != nil {
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
		norm := strings.HasSuffix(w.Name, "norm.weight")
		for i := range x {
			if norm && da != db {
				if x[i]+da != y[i]+db {
					t.Fatalf("%s[%d] is %v+%v, was %v+%v", w.Name, i, y[i], db, x[i], da)
				}
			} else if x[i] != y[i] {
				t.Fatalf("%s[%d] is %v, was %v", w.Name, i, y[i], x[i])
			}
		}
	}
}

// unsayable are the micro checkpoints that GGUF, as llama.cpp runs it, has no
// words for, with a word of the reason.
var unsayable = map[string]string{
	"gptj": "architecture", "gptj-oldcfg": "architecture",
	"llama-dynamic":       "dynamic",
	"llama-yarn-explicit": "rotary", // whole dimensions only bound llama.cpp's ramp
	"gpt2-scaled":         "attn.scale", "gpt2-untied": "attn.scale",
	"gemma2": "attn.scale", "gemma2-oldcfg": "attn.scale", "gemma3": "attn.scale", "gemma3-oldcfg": "attn.scale",
	"gemma3-mm": "attn.scale", "gemma3-mm-oldcfg": "attn.scale",
	"qwen3-bias": "no such bias", "gpt_neox-sequential": "expects biases",
	"qwen3_moe": "every layer", "qwen3_moe-oldcfg": "every layer", "qwen3_moe-sparse-step": "every layer",
}

// unnamable are those whose GGUF no config.json of ours describes.
var unnamable = map[string]string{
	"llama-31": "factors", "llama-31-oldcfg": "factors", // only the published factors are recognised
}

func TestGGUFExportReadsBack(t *testing.T) {
	exported := 0
	for _, dir := range micros(t) {
		name := filepath.Base(dir)
		t.Run(name, func(t *testing.T) {
			m := open(t, dir)
			x, err := m.GGUF(named(t, "f32"))
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
			x2, err := back.GGUF(nil)
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

func writeGGUF(t *testing.T, x *model.Export) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "out.gguf")
	if err := x.WriteGGUF(t.Context(), path, nil); err != nil {
		t.Fatal(err)
	}
	return path
}

func exportHF(t *testing.T, m *model.Model) *model.Model {
	t.Helper()
	x, err := m.HF(named(t, "f32"))
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	if err := x.WriteDir(t.Context(), out, 20<<10, nil); err != nil {
		t.Fatal(err)
	}
	return open(t, out)
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
			x, err := m.GGUF(named(t, "f32"))
			if err != nil {
				t.Fatal(err)
			}
			path := writeGGUF(t, x)
			g := open(t, path)
			if why := unnamable[name]; why != "" {
				if _, err := g.HF(named(t, "f32")); err == nil || !strings.Contains(err.Error(), why) {
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
	x, err := m.GGUF(nil)
	if err != nil {
		t.Fatal(err)
	}
	h, err := m.HF(named(t, "bf16"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ended, cancel := context.WithCancel(t.Context())
	defer cancel()
	for what, write := range map[string]func(func(done, total int64)) error{
		"gguf":        func(p func(done, total int64)) error { return x.WriteGGUF(ended, filepath.Join(dir, "x.gguf"), p) },
		"safetensors": func(p func(done, total int64)) error { return h.WriteDir(ended, filepath.Join(dir, "x"), 20<<10, p) },
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
	if err := h.WriteDir(t.Context(), full, 1<<30, nil); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("error %v on a folder with something in it", err)
	}
}
