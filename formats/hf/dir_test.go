package hf

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/safetensors"
	"github.com/nstf/nstf/formats/tensor"
)

// write makes a directory of files.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// weights are the bytes of a safetensors file with one tensor.
func weights(t testing.TB, name string) string {
	t.Helper()
	w, err := safetensors.NewWriter(nil, []formats.Tensor{stored(name, tensor.F32, f32(1, 2), 2)})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestOpen(t *testing.T) {
	for _, file := range []string{"model.safetensors", "pytorch_model.safetensors"} {
		dir := write(t, map[string]string{"config.json": `{"model_type": "x"}`, "generation_config.json": `{"eos_token_id": [1, 2]}`,
			"tokenizer.json": "not read here", "README.md": "#", file: weights(t, "a"), "pytorch_model.bin": "ignored beside safetensors",
			"adapter_model.safetensors": weights(t, "b")})
		if err := os.Mkdir(filepath.Join(dir, "onnx"), 0o700); err != nil {
			t.Fatal(err)
		}
		d, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if s, err := d.Config().String("model_type"); s != "x" || err != nil {
			t.Error(s, err)
		}
		g, ok := d.Generation()
		if ids, err := g.Ints("eos_token_id"); !ok || len(ids) != 2 || err != nil {
			t.Error(ok, ids, err)
		}
		if p, ok := d.File("tokenizer.json"); !ok || string(p) != "not read here" {
			t.Errorf("%q, %v", p, ok)
		}
		if _, ok := d.File("tokenizer.model"); ok {
			t.Error("a file that is not there")
		}
		if want := []string{"config.json", "generation_config.json", "tokenizer.json"}; !slices.Equal(d.Files(), want) {
			t.Errorf("files %q", d.Files())
		}
		if !slices.Equal(d.Others(), []string{"README.md"}) {
			t.Errorf("others %q", d.Others())
		}
		if ts := d.Tensors(); len(ts) != 1 || ts[0].Name != "a" || d.Method() != "" || d.Path() != dir || len(d.Weights().Parts()) != 1 {
			t.Errorf("tensors %v", ts)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	const config = `{"model_type": "x"}`
	for what, c := range map[string]struct {
		files       map[string]string
		unsupported bool
		say         string
	}{
		"empty":           {nil, false, "config.json: missing"},
		"no weights":      {map[string]string{"config.json": config, "training_args.bin": ""}, false, "no weights"},
		"config broken":   {map[string]string{"config.json": `{`}, false, "expected"},
		"config an array": {map[string]string{"config.json": `[]`}, false, "an array"},
		"config huge":     {map[string]string{"config.json": strings.Repeat(" ", 4<<20+1)}, false, "more than 4194304"},
		"generation":      {map[string]string{"config.json": config, "generation_config.json": ""}, false, "generation_config.json"},
		"pytorch":         {map[string]string{"config.json": config, "pytorch_model.bin": ""}, true, "PyTorch"},
		"gguf":            {map[string]string{"config.json": config, "x.gguf": ""}, true, "GGUF"},
		"adapter":         {map[string]string{"config.json": config, "adapter_model.safetensors": ""}, true, "adapter"},
		"several":         {map[string]string{"config.json": config, "a.safetensors": "", "b.safetensors": ""}, false, "several weights"},
		"weights broken":  {map[string]string{"config.json": config, "model.safetensors": "x"}, false, "model.safetensors: "},
		"index broken":    {map[string]string{"config.json": config, "model.safetensors.index.json": "{}"}, false, "weight_map"},
	} {
		_, err := Open(write(t, c.files))
		var bad *formats.FormatError
		var unsupported *formats.UnsupportedError
		if c.unsupported && (!errors.As(err, &unsupported) || unsupported.Hint == "") || !c.unsupported && !errors.As(err, &bad) {
			t.Errorf("%s: error %v of the wrong family", what, err)
		} else if !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// Templates in the folder of their own are read, and nothing else in it.
func TestTemplateFiles(t *testing.T) {
	dir := write(t, map[string]string{"config.json": `{}`, "model.safetensors": weights(t, "a"), "chat_template.jinja": "d"})
	if names, err := TemplateFiles(dir); err != nil || len(names) != 0 {
		t.Errorf("without the folder: %q, %v", names, err)
	}
	add := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, TemplateDir, "sub.jinja"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, TemplateDir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	add("rag.jinja", "r")
	add("tool_use.jinja", "u")
	add("README.md", "no template")
	d, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	want := []string{"additional_chat_templates/rag.jinja", "additional_chat_templates/tool_use.jinja", "chat_template.jinja", "config.json"}
	if !slices.Equal(d.Files(), want) {
		t.Errorf("files %q, want %q", d.Files(), want)
	}
	if p, _ := d.File(want[0]); string(p) != "r" {
		t.Errorf("%s is %q", want[0], p)
	}
	for i := range maxTemplates {
		add(fmt.Sprintf("%d.jinja", i), "x")
	}
	var bad *formats.FormatError
	if _, err := Open(dir); !errors.As(err, &bad) {
		t.Errorf("%d templates: %v", maxTemplates+2, err)
	}
}

// TestMicro opens every plain checkpoint.
func TestMicro(t *testing.T) {
	dirs, err := filepath.Glob(micro + "*/config.json")
	if err != nil || len(dirs) < 40 {
		t.Fatalf("%d directories, %v", len(dirs), err)
	}
	for _, path := range dirs {
		d, err := Open(filepath.Dir(path))
		if err != nil {
			t.Error(err)
			continue
		}
		if len(d.Tensors()) == 0 || !bytes.Equal(d.Config().Raw(), d.files["config.json"]) {
			t.Errorf("%s: %d tensors", path, len(d.Tensors()))
		}
		d.Close()
	}
}

// TestShared opens the trained models.
func TestShared(t *testing.T) {
	shared := os.Getenv("NSTF_SHARED")
	if shared == "" {
		t.Skip("NSTF_SHARED names no folder of trained models")
	}
	for name, parts := range map[string]int{"tiny-llama": 1, "tiny-qwen3": 4, "tiny-gptj": 1, "tiny-gemma3": 1, "tiny-mixtral": 1} {
		d, err := Open(filepath.Join(shared, "models", name))
		if err != nil {
			t.Error(err)
			continue
		}
		defer d.Close()
		if len(d.Weights().Parts()) != parts || len(d.Tensors()) < 20 || len(d.Weights().Unlisted()) > 0 {
			t.Errorf("%s: parts %q, %d tensors", name, d.Weights().Parts(), len(d.Tensors()))
		}
	}
}

// FuzzQuantized gives a configuration and weights that are not made for each
// other, and reads what comes out.
func FuzzQuantized(f *testing.F) {
	for name := range quantized {
		c, err := os.ReadFile(filepath.Join(micro, name, "config.json"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(c, []byte{})
	}
	for _, c := range badGroups {
		w, err := safetensors.NewWriter(nil, c.tensors)
		if err != nil {
			f.Fatal(err)
		}
		var b bytes.Buffer
		if _, err := w.WriteTo(&b); err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(`{"quantization_config": `+c.config+`}`), b.Bytes())
	}
	f.Fuzz(func(t *testing.T, conf, weights []byte) {
		c, err := ParseConfig("config", conf)
		if err != nil {
			return
		}
		s, err := safetensors.Parse("weights", weights)
		if err != nil {
			return
		}
		d := &Dir{path: "dir", config: c, tensors: s.Tensors()}
		if err := d.joinQuantized(); err != nil {
			var bad *formats.FormatError
			var unsupported *formats.UnsupportedError
			if !errors.As(err, &bad) && !errors.As(err, &unsupported) {
				t.Errorf("error of neither family: %v", err)
			}
			return
		}
		for _, x := range d.Tensors() {
			for _, p := range x.Parts {
				if n := p.Data.Len(); n > 1<<24 {
					t.Errorf("%v: a part of %d bytes out of %d", &x, n, len(weights))
				} else if all, err := p.Data.Bytes(); err == nil && int64(len(all)) != n {
					t.Errorf("%v: %d bytes instead of %d", &x, len(all), n)
				}
			}
		}
	})
}
