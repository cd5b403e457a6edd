package export_test

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/export"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/formats/scheme"
)

const (
	shout   = "{% for m in messages %}{{ m.content | upper }}{% endfor %}"
	whisper = "{% for m in messages %}{{ m.content | lower }}{% endfor %}"
)

// withFiles copies a micro checkpoint and adds files.
func withFiles(t *testing.T, files map[string]string) *model.Model {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../testdata/micro/llama-2")); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return openFor(t, dir)
}

func openFor(t *testing.T, path string) *model.Model {
	t.Helper()
	m, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// wantTemplates compares the templates of a model file with the given ones,
// both through the model and through its tokenizer alone.
func wantTemplates(t *testing.T, path string, want map[string]string) {
	t.Helper()
	tok, err := openFor(t, path).Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	if got := tok.ChatTemplates(); !maps.Equal(got, want) {
		t.Errorf("%s: templates %q, want %q", filepath.Base(path), got, want)
	}
	alone, err := checkpoint.OpenTokenizer(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := alone.ChatTemplates(); !maps.Equal(got, want) {
		t.Errorf("%s: templates %q of the tokenizer alone, want %q", filepath.Base(path), got, want)
	}
}

func TestTemplateInAFileOfItsOwn(t *testing.T) {
	for name, content := range map[string]string{"chat_template.jinja": shout, "chat_template.json": `{"chat_template":"` + shout + `"}`} {
		wantTemplates(t, withFiles(t, map[string]string{name: content}).Path, map[string]string{"default": shout})
	}
}

// Chat templates, one or several, go to a package, to GGUF, and from both to
// a directory.
func TestTemplatesTravel(t *testing.T) {
	one := map[string]string{"default": shout}
	two := map[string]string{"default": shout, "rag": whisper}
	for what, c := range map[string]struct{ files, want map[string]string }{
		"one":    {map[string]string{"chat_template.jinja": shout}, one},
		"folder": {map[string]string{"chat_template.jinja": shout, "additional_chat_templates/rag.jinja": whisper}, two},
		"list": {map[string]string{"tokenizer_config.json": `{"chat_template": [{"name": "rag", "template": "` + whisper +
			`"}, {"name": "default", "template": "` + shout + `"}]}`}, two},
	} {
		t.Run(what, func(t *testing.T) {
			m := withFiles(t, c.files)
			wantTemplates(t, m.Path, c.want)
			out := t.TempDir()
			packed, foreign := filepath.Join(out, "x.nstf"), filepath.Join(out, "x.gguf")
			meta, items, err := m.Pack()
			if err != nil {
				t.Fatal(err)
			}
			if err := nstf.Write(atomicfile.Scratch(packed), meta, items, nstf.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
			wantTemplates(t, packed, c.want)
			x, err := export.GGUF(m, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := x.WriteGGUF(t.Context(), atomicfile.Scratch(foreign), nil); err != nil {
				t.Fatal(err)
			}
			wantTemplates(t, foreign, c.want)
			bf16, _ := scheme.ByName("bf16")
			for _, from := range []string{packed, foreign} {
				h, err := export.HF(openFor(t, from), bf16)
				if err != nil {
					t.Fatal(err)
				}
				dir := from + "-as-folder"
				if err := h.WriteDir(t.Context(), atomicfile.Scratch(dir), 1<<30, nil); err != nil {
					t.Fatal(err)
				}
				wantTemplates(t, dir, c.want)
			}
			for name, content := range c.files {
				got, err := os.ReadFile(filepath.Join(packed+"-as-folder", filepath.FromSlash(name)))
				if err != nil || string(got) != content {
					t.Errorf("%s went through the package to %q, %v", name, got, err)
				}
			}
		})
	}
}
