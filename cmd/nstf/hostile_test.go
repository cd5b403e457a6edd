package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A victim is a model and the file of it that gets cut.
type victim struct {
	model, file string
	needed      string // commands that read that file
}

const (
	everything = "inspect convert quantize export run eval"
	// what a vocabulary lies in is read by tokenize too
	vocabulary = everything + " tokenize"
)

// victims returns small models of every container, each to be damaged.
func victims(t *testing.T) []victim {
	t.Helper()
	single, sharded := filepath.Join(micro, "llama-2"), filepath.Join(micro, "llama-headdim")
	pkg := packaged(t, single)
	gguf := filepath.Join(t.TempDir(), "model.gguf")
	must(t, "export", pkg, "-o", gguf)
	v := []victim{{pkg, pkg, vocabulary + " verify"}, {gguf, gguf, vocabulary}}
	for _, f := range []struct{ from, name, needed string }{
		{single, "model.safetensors", everything},
		{single, "config.json", everything},
		{single, "tokenizer.json", "tokenize run eval convert quantize export"},
		{single, "tokenizer_config.json", "tokenize run eval convert quantize export"},
		{single, "generation_config.json", vocabulary},
		{sharded, "model-00002-of-00004.safetensors", everything},
		{sharded, "model.safetensors.index.json", everything},
	} {
		dir := copyDir(t, f.from)
		v = append(v, victim{dir, filepath.Join(dir, f.name), f.needed})
	}
	return v
}

// lines are the commands as they are tried on a model.
func lines(model, out string) map[string][]string {
	return map[string][]string{
		"inspect":  {"inspect", model, "--tensors"},
		"verify":   {"verify", model},
		"convert":  {"convert", model, "-o", filepath.Join(out, "out.nstf")},
		"quantize": {"quantize", model, "-o", filepath.Join(out, "out.nstf"), "--scheme", "q4_0"},
		"export":   {"export", model, "-o", filepath.Join(out, "out.gguf")},
		"run":      {"run", model, "-p", "x", "--max-tokens", "1"},
		"eval":     {"eval", model, "--text", microText, "--max-tokens", "16", "--ctx", "8"},
		"tokenize": {"tokenize", model},
	}
}

// A file that was cut anywhere is a bad input file to every command that
// reads it: exit code 3, the file named, nothing written.
func TestTruncated(t *testing.T) {
	for _, v := range victims(t) {
		t.Run(strings.TrimPrefix(filepath.Ext(v.file), ".")+"/"+filepath.Base(v.file), func(t *testing.T) {
			whole, err := os.ReadFile(v.file)
			if err != nil {
				t.Fatal(err)
			}
			out := t.TempDir()
			for name, args := range lines(v.model, out) {
				if strings.Contains(v.needed, name) {
					must(t, args...) // uncut, it works
				}
			}
			if err := os.RemoveAll(out); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(out, 0o777); err != nil {
				t.Fatal(err)
			}
			step := 1024
			if len(whole) < 8*step {
				step = max(len(whole)/16, 1)
			}
			for size := 0; size < len(whole)-1; size += step { // the last byte may be a newline
				if err := os.WriteFile(v.file, whole[:size], 0o666); err != nil {
					t.Fatal(err)
				}
				for name, args := range lines(v.model, out) {
					if strings.Contains(v.needed, name) {
						t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
							invoke(args...).fails(t, exitInput, filepath.Base(v.file))
							empty(t, out)
						})
					}
				}
			}
		})
	}
}

// A tokenizer that is missing, or that we cannot use, does not keep a model
// from being converted.
func TestConvertWithoutTokenizer(t *testing.T) {
	for change, want := range map[string]string{
		"":                  "no tokenizer",
		`{"version":"9.0"}`: `version "9.0"`,
	} {
		dir := copyDir(t, filepath.Join(micro, "llama-2"))
		path := filepath.Join(dir, "tokenizer.json")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if change != "" {
			if err := os.WriteFile(path, []byte(change), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		out := filepath.Join(t.TempDir(), "out.nstf")
		r := invoke("convert", dir, "-o", out)
		if r.code != exitFine || !strings.Contains(r.err, "warning: ") || !strings.Contains(r.err, want) {
			t.Errorf("%q: exit %d, stderr:\n%s", change, r.code, r.err)
		}
		must(t, "verify", out)
	}
}
