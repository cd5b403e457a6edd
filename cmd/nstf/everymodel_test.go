package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every architecture and variant goes through every command that a user needs:
// quantized to 3 bits per weight by a text, continued, talked to, measured, and
// exported to GGUF and to a folder, which are measured again. Where GGUF or
// llama.cpp cannot say a model, exit code 4 leaves no file. The first of each
// architecture has all recipes to choose from, its variants those of ggml, for
// searching trellis codes takes most of the time.
func TestEveryModelThroughEveryCommand(t *testing.T) {
	configs, err := filepath.Glob(filepath.Join(micro, "*", "config.json"))
	if err != nil || len(configs) < 50 {
		t.Fatalf("%d micro checkpoints, %v", len(configs), err)
	}
	written, seen := 0, map[string]bool{}
	for _, path := range configs {
		name := filepath.Base(filepath.Dir(path))
		if strings.HasPrefix(name, "quant-") || strings.HasSuffix(name, "-oldcfg") {
			continue // the same graphs: their reading is tested with logits
		}
		architecture, _, _ := strings.Cut(name, "-")
		schemes := "all"
		if seen[architecture] {
			schemes = "ggml"
		}
		seen[architecture] = true
		t.Run(name, func(t *testing.T) {
			if throughEveryCommand(t, filepath.Dir(path), schemes) {
				written++
			}
		})
	}
	if written < 60 {
		t.Errorf("%d models were written as GGUF", written)
	}
}

// smallestBits is what a model says that cannot be made so small: rows that no
// code's block divides stay as they are.
var smallestBits = regexp.MustCompile(`the smallest is ([0-9.]+)`)

func throughEveryCommand(t *testing.T, src, schemes string) (written bool) {
	t.Helper()
	talking, dir := talkative(t, src), t.TempDir()
	pkg := filepath.Join(dir, "model.nstf")
	quantize := []string{"quantize", talking, "-o", pkg, "--calib", microText, "--samples", "2", "--ctx", "16", "--effort", "1", "--schemes", schemes, "--bpw"}
	if r := invoke(append(quantize, "3")...); r.code != exitFine {
		m := smallestBits.FindStringSubmatch(r.err)
		if m == nil {
			t.Fatalf("exit %d: %s", r.code, r.err)
		}
		must(t, append(quantize, m[1])...)
	}
	if out := must(t, "run", pkg, "-p", "In the thin inn", "--greedy", "-n", "4"); strings.TrimSpace(out) == "" {
		t.Error("nothing was written")
	}
	must(t, "run", pkg, "--chat", "-p", "In", "--greedy", "-n", "4")
	want := loss(t, pkg)
	gguf := filepath.Join(dir, "model.gguf")
	switch r := invoke("export", pkg, "-o", gguf, "--dtype", "f32"); {
	case r.code == exitUnsupported:
		if _, err := os.Stat(gguf); err == nil {
			t.Error("a file is left of an export that was refused")
		}
	case r.code != exitFine:
		t.Errorf("export: exit %d: %s", r.code, r.err)
	default:
		written = true
		near(t, gguf, want)
	}
	folder := filepath.Join(dir, "folder")
	must(t, "export", pkg, "-o", folder+"/", "--dtype", "f32")
	near(t, folder, want)
	return written
}

// talkative copies a checkpoint and gives it a chat template.
func talkative(t *testing.T, src string) string {
	t.Helper()
	dir := copyDir(t, src)
	template := "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
	if err := os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte(template), 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

func loss(t *testing.T, model string) float64 {
	t.Helper()
	var r struct{ NLL struct{ Value float64 } }
	decode(t, must(t, "eval", model, "--text", microText, "--ctx", "16", "--max-tokens", "32", "--exact", "--json"), &r)
	return r.NLL.Value
}

// near holds a model that was written from another to its loss: in float32
// nothing of its weights is lost.
func near(t *testing.T, model string, want float64) {
	t.Helper()
	if got := loss(t, model); !(got > want*0.9999 && got < want*1.0001) {
		t.Errorf("%s: a loss of %v, the package has %v", filepath.Base(model), got, want)
	}
}
