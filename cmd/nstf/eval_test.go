package main

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstf/nstf/runtime/eval"
)

func evaluate(t *testing.T, args ...string) eval.Result {
	t.Helper()
	var r eval.Result
	decode(t, must(t, append([]string{"eval", "--json"}, args...)...), &r)
	return r
}

// A quantized package against its source: by the source itself, and by what
// --save-ref stored of it.
// Percentages are printed with one sign.
func TestEvalPercent(t *testing.T) {
	if out := must(t, "eval", demoModel, "--text", microText, "--max-tokens", "64", "--ctx", "32", "--ref", demoModel); strings.Contains(out, "%%") || !strings.Contains(out, "KL 90 %") {
		t.Errorf("%s", out)
	}
}

func TestEvalReference(t *testing.T) {
	dir := t.TempDir()
	q4, ref := filepath.Join(dir, "q4.nstf"), filepath.Join(dir, "demo.ref")
	must(t, "quantize", demoModel, "-o", q4, "--scheme", "q4_k")
	text := []string{"--text", demoText, "--max-tokens", "1022"}
	base := evaluate(t, append(text, demoModel, "--save-ref", ref)...)
	if base.Windows != 2 || base.Scored != 1022 || base.Context != 512 || base.Ref != nil {
		t.Errorf("%+v", base)
	}
	live := evaluate(t, append(text, q4, "--ref", demoModel)...)
	stored := evaluate(t, append(text, q4, "--ref", ref)...)
	l, s := live.Ref, stored.Ref
	if math.Abs(l.Perplexity.Value/base.Perplexity.Value-1) > 1e-9 {
		t.Errorf("the reference's perplexity is %v beside the model, %v alone", l.Perplexity, base.Perplexity)
	}
	if l.KL.Value < 0.005 || l.KL.Value > 0.2 || !(l.Median.Value < l.P90.Value && l.P90.Value < l.P99.Value) || l.Top1.Value < 0.7 {
		t.Errorf("q4_k: %+v", l)
	}
	for name, d := range map[string]float64{"mean": s.KL.Value - l.KL.Value, "median": s.Median.Value - l.Median.Value, "99 %": s.P99.Value - l.P99.Value} {
		if math.Abs(d) > 1e-5 {
			t.Errorf("storing the reference moves KL's %s by %g", name, d)
		}
	}
	if s.Top1 != l.Top1 {
		t.Errorf("top-1 agreement is %v stored, %v live", s.Top1, l.Top1)
	}
	self := evaluate(t, append(text, demoModel, "--ref", ref)...)
	if math.Abs(self.Ref.KL.Value) > 1e-7 || self.Ref.Top1.Value != 1 {
		t.Errorf("the model against itself: %+v", self.Ref)
	}
	fits(t, must(t, append([]string{"eval", q4, "--ref", ref}, text...)...))
	invoke("eval", q4, "--text", demoText, "--max-tokens", "511", "--ref", ref).fails(t, exitFailure, "hint: use the flags")
	invoke("eval", q4, "--text", demoText, "--ref", ref, "--ctx", "64").fails(t, exitFailure, ref)
}

func TestEvalProtocols(t *testing.T) {
	own := evaluate(t, demoModel, "--text", demoText, "--ctx", "128", "--max-tokens", "300")
	if own.Windows != 2 || own.Scored != 2*127 {
		t.Errorf("nstf: %+v", own)
	}
	peer := evaluate(t, demoModel, "--text", demoText, "--ctx", "128", "--max-tokens", "300", "--protocol", "llama.cpp")
	if peer.Windows != 2 || peer.Scored != 2*63 || peer.Perplexity.Value >= own.Perplexity.Value {
		t.Errorf("llama.cpp: %+v, scored with more context than %+v", peer, own)
	}
	for want, args := range map[string][]string{
		"nstf": {}, "llama.cpp": {"--protocol", "llama.cpp"}, "float32": {"--protocol", "llama.cpp", "--exact"},
	} {
		if r := evaluate(t, append(args, "--device", "cpu", demoModel, "--text", demoText, "--max-tokens", "600", "--ctx", "64")...); r.Activations != want {
			t.Errorf("%v: activations %q, want %q", args, r.Activations, want)
		}
	}
	if r := evaluate(t, demoModel, "--text", demoText, "--max-tokens", "64", "--ctx", "32", "--protocol", "llama.cpp", "--activations", "nstf"); r.Activations != "nstf" {
		t.Errorf("activations %q, nstf was asked for", r.Activations)
	}
	short := evaluate(t, demoModel, "--text", demoText, "--max-tokens", "20")
	if short.Windows != 1 || short.Scored != 20 || short.Context != 21 {
		t.Errorf("a text shorter than a window: %+v", short)
	}
}

// Each text of a .jsonl is tokenized alone; a plain text with the same words
// is another one.
func TestEvalTexts(t *testing.T) {
	dir := t.TempDir()
	lines, plain := filepath.Join(dir, "t.jsonl"), filepath.Join(dir, "t.txt")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write(lines, "{\"text\": \"It was a cold morn\"}\n{\"text\": \"ing, and we sat\"}\n")
	write(plain, "It was a cold morning, and we sat")
	a, b := evaluate(t, demoModel, "--text", lines), evaluate(t, demoModel, "--text", plain)
	ids := append(tokenIDs(t, "It was a cold morn", demoModel, "--no-special"), tokenIDs(t, "ing, and we sat", demoModel, "--no-special")...)
	if a.Tokens != len(ids) || b.Tokens != len(tokenIDs(t, "It was a cold morning, and we sat", demoModel, "--no-special")) || a.Tokens == b.Tokens {
		t.Errorf("%d tokens of lines and %d of plain text", a.Tokens, b.Tokens)
	}
	invoke("eval", demoModel, "--text", lines, "--protocol", "llama.cpp").fails(t, exitFailure, "one continuous text")
	write(lines, "{\"txt\": \"a\"}\n")
	invoke("eval", demoModel, "--text", lines).fails(t, exitInput, "t.jsonl")
	write(plain, "")
	invoke("eval", demoModel, "--text", plain).fails(t, exitFailure, "too few")
}

func TestEvalFailures(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	text := []string{"--text", demoText, "--max-tokens", "511"}
	invoke("eval", demoModel, "--text", "/nosuch").fails(t, exitInput, "nosuch")
	invoke(append(text, "eval", demoModel, "--ref", filepath.Join(micro, "llama-2"))...).fails(t, exitFailure, "vocabulary")
	ids := filepath.Join(t.TempDir(), "ids.json")
	for _, bad := range []string{"[1, 2", "[4096]", "[-1]", "[]"} {
		if err := os.WriteFile(ids, []byte(bad), 0o666); err != nil {
			t.Fatal(err)
		}
		invoke("eval", demoModel, "--token-ids", ids, "--dump-logits", out).fails(t, exitInput, "")
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errInterrupted)
	invokeWith(ctx, nil, append(text, "eval", demoModel, "--save-ref", out)...).fails(t, exitInterrupted, "interrupted")
	empty(t, dir)
	damaged := filepath.Join(dir, "ref")
	must(t, append(text, "eval", demoModel, "--save-ref", damaged)...)
	p, err := os.ReadFile(damaged)
	if err != nil {
		t.Fatal(err)
	}
	p[len(p)/2]++
	if err := os.WriteFile(damaged, p, 0o666); err != nil {
		t.Fatal(err)
	}
	invoke(append(text, "eval", demoModel, "--ref", damaged)...).fails(t, exitInput, "damaged")
}

// Weights that are no numbers are found, not averaged.
func TestEvalNotANumber(t *testing.T) {
	bad := copyDir(t, filepath.Join(micro, "llama-f32"))
	path := filepath.Join(bad, "model.safetensors")
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := len(p) - 4096; i < len(p); i++ {
		p[i] = 0xFF
	}
	if err := os.WriteFile(path, p, 0o666); err != nil {
		t.Fatal(err)
	}
	r := invoke("eval", bad, "--text", microText, "--ctx", "16", "--max-tokens", "15")
	r.fails(t, exitInput, "not finite")
	if strings.Contains(r.out, "perplexity") {
		t.Errorf("a figure is printed: %s", r.out)
	}
}
