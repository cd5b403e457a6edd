package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A text that a package was calibrated on is named where it is measured on, as the same
// file and as the same windows of another; other texts, and models that were not fitted,
// are measured without a word.
func TestEvalOnCalibrationText(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	model := filepath.Join(micro, "llama-31")
	whole, err := os.ReadFile(demoText)
	if err != nil {
		t.Fatal(err)
	}
	words, others := string(whole[:3000]), string(whole[3000:6000])
	line, err := json.Marshal(map[string]string{"text": words})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"calib.txt": words, "copy.txt": words, "same.jsonl": string(line) + "\n", "other.txt": others} {
		if err := os.WriteFile(at(name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	calib := []string{"--calib", at("calib.txt"), "--samples", "8", "--ctx", "16"}
	must(t, append([]string{"quantize", model, "--scheme", "q4_0", "-o", at("fitted.nstf")}, calib...)...)
	must(t, append([]string{"quantize", model, "--scheme", "q4_0", "-o", at("verified.nstf"), "--verify-text", at("other.txt")}, calib...)...)
	must(t, "quantize", model, "--scheme", "q4_0", "-o", at("rounded.nstf"))
	for _, c := range []struct {
		model, text string
		warned      bool
	}{
		{"fitted.nstf", "calib.txt", true}, {"fitted.nstf", "copy.txt", true}, {"fitted.nstf", "same.jsonl", true}, {"fitted.nstf", "other.txt", false},
		{"verified.nstf", "calib.txt", true}, {"verified.nstf", "same.jsonl", true}, {"verified.nstf", "other.txt", false}, {"rounded.nstf", "calib.txt", false},
	} {
		r := invoke("eval", at(c.model), "--text", at(c.text), "--ctx", "16", "--max-tokens", "64")
		if r.code != exitFine || strings.Contains(r.err, "calibrated on") != c.warned {
			t.Errorf("%s on %s: exit %d, %s", c.model, c.text, r.code, r.err)
		}
	}
}
