package model

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nstf/nstf/formats/scheme"
)

const shout = "{% for m in messages %}{{ m.content | upper }}{% endfor %}"

// withTemplate copies a micro checkpoint and adds a file.
func withTemplate(t *testing.T, name, content string) *Model {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../testdata/micro/llama-2")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func template(t *testing.T, m *Model) string {
	t.Helper()
	tok, err := m.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	source, _ := tok.ChatTemplateSource("default")
	return source
}

func TestTemplateInAFileOfItsOwn(t *testing.T) {
	if got := template(t, withTemplate(t, "chat_template.jinja", shout)); got != shout {
		t.Errorf("chat_template.jinja gives %q", got)
	}
	if got := template(t, withTemplate(t, "chat_template.json", `{"chat_template":"`+shout+`"}`)); got != shout {
		t.Errorf("chat_template.json gives %q", got)
	}
}

// A chat template goes to GGUF and comes back in a directory.
func TestTemplateTravelsThroughGGUF(t *testing.T) {
	m := withTemplate(t, "chat_template.jinja", shout)
	x, err := m.GGUF(nil)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x.gguf")
	if err := x.WriteGGUF(t.Context(), path, nil); err != nil {
		t.Fatal(err)
	}
	g, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	bf16, _ := scheme.ByName("bf16")
	h, err := g.HF(bf16)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range h.Files {
		if f.Name == "chat_template.jinja" && string(f.Data) == shout {
			return
		}
	}
	t.Errorf("the template is not among the exported files")
}
