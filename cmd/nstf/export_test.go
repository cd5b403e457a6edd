package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A package goes to GGUF and to a directory, and both give its logits.
// An output that is neither form is answered with both.
func TestExportGuess(t *testing.T) {
	for out, want := range map[string]string{"dir": "-o dir/ for a Hugging Face directory, -o dir.gguf for llama.cpp", "a.GGUF": "-o a.gguf", "a.safetensors": "-o a/ ", "a.nstf": "nstf convert"} {
		r := invoke("export", demoModel, "-o", out)
		r.fails(t, exitUsage, "neither")
		r.fails(t, exitUsage, want)
	}
}

func TestExport(t *testing.T) {
	pkg, dir := packaged(t, filepath.Join(micro, "llama-2")), t.TempDir()
	ids := filepath.Join(dir, "ids.json")
	if err := os.WriteFile(ids, []byte("[1,44,81,262,260,75,263,224]"), 0o666); err != nil {
		t.Fatal(err)
	}
	logits := func(model string) string {
		out := filepath.Join(dir, "logits.npy")
		must(t, "eval", model, "--token-ids", ids, "--dump-logits", out)
		p, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		return string(p)
	}
	want := logits(pkg)
	gguf, hf := filepath.Join(dir, "x.gguf"), filepath.Join(dir, "hf")
	out := must(t, "export", pkg, "-o", gguf)
	if info, err := os.Stat(gguf); err != nil || !strings.HasSuffix(out, " tensors, "+size(info.Size())+"\n") {
		t.Errorf("printed %q, %v", out, err)
	}
	must(t, "export", pkg, "-o", hf+"/")
	for _, path := range []string{gguf, hf} {
		if logits(path) != want {
			t.Errorf("%s gives other logits", path)
		}
	}
}

func TestExportSaysWhatTheTargetDoesOtherwise(t *testing.T) {
	out := filepath.Join(t.TempDir(), "x.gguf")
	r := invoke("export", filepath.Join(micro, "gpt_neox"), "-o", out)
	if r.code != exitFine || !strings.Contains(r.err, "warning: llama.cpp computes GELU by its tanh form") {
		t.Errorf("exit %d, %s", r.code, r.err)
	}
}

func TestExportFailures(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "x.gguf")
	invoke("export", filepath.Join(micro, "gptj"), "-o", out).fails(t, exitUnsupported, "hint: export to a folder")
	invoke("export", filepath.Join(micro, "llama-dynamic"), "-o", out).fails(t, exitUnsupported, "dynamic")
	invoke("export", filepath.Join(micro, "mistral-window"), "-o", out).fails(t, exitUnsupported, "llama.cpp attends beyond the sliding window of 8 tokens")
	invoke("export", filepath.Join(micro, "llama-yarn-explicit"), "-o", out).fails(t, exitUnsupported, "disregards yarn's beta_fast")
	invoke("export", filepath.Join(micro, "quant-bnb-nf4"), "-o", out).fails(t, exitUnsupported, "--dtype f16")
	invoke("export", "/nosuch", "-o", out).fails(t, exitInput, "nosuch")
	invoke("export", filepath.Join(micro, "llama-2"), "-o", filepath.Join(dir, "no", "x.gguf")).fails(t, exitFailure, "folder")
	invoke("export", filepath.Join(micro, "llama-2"), "-o", filepath.Join(dir, "no", "such")+"/").fails(t, exitFailure, "folder")
	empty(t, dir)
}
