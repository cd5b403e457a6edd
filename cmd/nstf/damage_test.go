package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nstf/nstf/formats/nstf"
)

// flipped copies a package with one bit of a tensor turned over.
func flipped(t *testing.T, pkg, name string) string {
	t.Helper()
	p, err := nstf.Open(pkg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	item, ok := p.Tensor(name)
	if !ok {
		t.Fatalf("no tensor %q", name)
	}
	want, err := item.Parts[len(item.Parts)-1].Data.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(pkg)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.LastIndex(string(whole), string(want))
	whole[at+len(want)/2] ^= 0x10
	out := filepath.Join(t.TempDir(), "damaged.nstf")
	if err := os.WriteFile(out, whole, 0o644); err != nil {
		t.Fatal(err)
	}
	return out
}

// Nobody turns damaged weights into a new file: what reads a tensor to write it again
// names it and ends with exit code 3, and so does what measures with it.
func TestDamageIsNotLaundered(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	plain := packaged(t, filepath.Join(micro, "llama-2"))
	must(t, "quantize", filepath.Join(micro, "llama-2"), "--scheme", "q8_0", "-o", at("coded.nstf"))
	calib := []string{"--calib", microText, "--samples", "4", "--ctx", "16"}
	commands := map[string][]string{
		"verify":            {"verify", "M"},
		"convert":           {"convert", "M", "-o", "OUT.nstf"},
		"convert --dtype":   {"convert", "M", "--dtype", "f32", "-o", "OUT.nstf"},
		"quantize":          {"quantize", "M", "--scheme", "q4_0", "-o", "OUT.nstf"},
		"quantize --embed":  {"quantize", "M", "--scheme", "q4_0", "--embed-scheme", "q8_0", "-o", "OUT.nstf"},
		"quantize --calib":  append([]string{"quantize", "M", "--scheme", "q4_0", "-o", "OUT.nstf"}, calib...),
		"calibrate":         append([]string{"calibrate", "M", "-o", "OUT.nstats"}, calib...),
		"export":            {"export", "M", "--dtype", "f16", "-o", "OUT.gguf"},
		"export directory":  {"export", "M", "-o", "OUT/"},
		"diff":              {"diff", "M", "WHOLE"},
		"eval":              {"eval", "M", "--text", microText, "--ctx", "8", "--max-tokens", "16"},
		"eval --save-ref":   {"eval", "M", "--text", microText, "--ctx", "8", "--max-tokens", "16", "--save-ref", "OUT.ref"},
		"eval --dump":       {"eval", "M", "--token-ids", at("ids.json"), "--dump-logits", "OUT.npy"},
		"eval --ref":        {"eval", "WHOLE", "--text", microText, "--ctx", "8", "--max-tokens", "16", "--ref", "M"},
		"run --verify":      {"run", "M", "-p", "x", "--max-tokens", "1", "--verify"},
		"serve --verify":    {"serve", "M", "--listen", "127.0.0.1:0", "--verify"},
		"run --device auto": nil, // a GPU's part is tested in runtime/gpu
	}
	if err := os.WriteFile(at("ids.json"), []byte("[1,2,3]"), 0o644); err != nil {
		t.Fatal(err)
	}
	parts := packaged(t, filepath.Join(micro, "quant-ct-int4-asym"))
	for _, pkg := range []string{plain, at("coded.nstf"), parts} {
		for _, name := range []string{"embed", "blocks.0.attn.q", "blocks.0.ffn.down", "blocks.0.attn_norm", "norm.weight"} {
			damaged := flipped(t, pkg, tensorLike(t, pkg, name))
			for what, args := range commands {
				if args == nil {
					continue
				}
				out := t.TempDir()
				line := []string{}
				for _, a := range args {
					if a == "M" {
						a = damaged
					}
					if a == "WHOLE" {
						a = pkg
					}
					line = append(line, strings.Replace(a, "OUT", filepath.Join(out, "out"), 1))
				}
				t.Run(fmt.Sprintf("%s/%s/%s", filepath.Base(pkg), name, what), func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // for a server that does begin
					defer cancel()
					r := invokeWith(ctx, strings.NewReader(""), line...)
					r.fails(t, exitInput, "damaged: its")
					if !strings.Contains(r.err, tensorLike(t, pkg, name)) {
						t.Errorf("the tensor is not named: %s", r.err)
					}
					empty(t, out)
				})
			}
		}
	}
}

// tensorLike finds the tensor of a package whose name is, or begins like, a name.
func tensorLike(t *testing.T, pkg, name string) string {
	t.Helper()
	p, err := nstf.Open(pkg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, i := range p.Tensors() {
		if strings.HasPrefix(i.Name, name) {
			return i.Name
		}
	}
	t.Fatalf("no tensor like %q", name)
	return ""
}
