package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nstf/nstf/runtime/eval"
)

// Activations in int8 cost a model of 8-bit weights at most 3e-4 nats a token
// against exact ones, and with the weights' own rounding at most 5e-4 against
// bf16: the text is the harder of the two that docs/perf measures.
func TestSharedIntegerAccuracy(t *testing.T) {
	dir := os.Getenv("NSTF_SHARED")
	if dir == "" {
		t.Skip("NSTF_SHARED is not set: it names the folder of trained models and texts")
	}
	if testing.Short() {
		t.Skip("half a minute of computing")
	}
	source, text := filepath.Join(dir, "models", "base-llama"), filepath.Join(dir, "text", "eval_book.jsonl")
	temp := t.TempDir()
	small := filepath.Join(temp, "small.nstf")
	must(t, "quantize", source, "-o", small, "--scheme", "q8_0")
	for _, c := range []struct {
		what, model string
		limit       float64
	}{{"--exact", small, 3e-4}, {"bf16", source, 5e-4}} {
		ref := filepath.Join(temp, "ref")
		must(t, "eval", c.model, "--text", text, "--max-tokens", "2048", "--exact", "--save-ref", ref)
		var r eval.Result
		decode(t, must(t, "eval", small, "--text", text, "--max-tokens", "2048", "--ref", ref, "--json"), &r)
		t.Logf("KL divergence from %s: %.3g", c.what, r.Ref.KL.Value)
		if kl := r.Ref.KL.Value; !(kl > 0 && kl <= c.limit) {
			t.Errorf("KL divergence from %s is %.3g, want at most %g", c.what, kl, c.limit)
		}
	}
}
