package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A policy of attention is measured, goes into a package, is shown, and is what models are
// run by; figures without it are those of dense attention.
func TestAttentionPolicy(t *testing.T) {
	dir := t.TempDir()
	policy, packed := filepath.Join(dir, "p.json"), filepath.Join(dir, "m.nstf")
	out := must(t, "calibrate", "--attention", demoModel, "--calib", demoText, "--ctx", "1120", "--samples", "2", "--steps", "3", "-o", policy)
	for _, want := range []string{"1 to fit and 1 held out", "KL from dense", "read by prompts", "needs most"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	must(t, "convert", demoModel, "--attention", policy, "-o", packed)
	if out := must(t, "inspect", packed); !strings.Contains(out, "nstf/attention.json") || !strings.Contains(out, "pages asked for") {
		t.Errorf("inspect says nothing of the policy:\n%s", out)
	}
	text := []string{"--text", demoText, "--ctx", "1120", "--max-tokens", "1119", "--steps", "6", "--exact", "--ref", demoModel}
	dense := evaluate(t, append(text, packed)...)
	if dense.PagesRead != 0 || dense.Steps != 6 || dense.Scored != 6 || dense.Ref.KL.Value > 1e-9 {
		t.Errorf("dense: %+v, KL %v", dense, dense.Ref.KL)
	}
	before := 0.
	for _, kind := range []string{"policy", policy} { // the package's own, and the file's
		r := evaluate(t, append(text, packed, "--attention", kind, "--attention-pages", "20%")...)
		if !(r.PagesRead > 0.2 && r.PagesRead < 1) || !(r.Ref.KL.Value > 1e-9) || before != 0 && r.Ref.KL.Value != before {
			t.Errorf("%s: %g of the pages, KL %v", kind, r.PagesRead, r.Ref.KL)
		}
		before = r.Ref.KL.Value
	}
	if r := evaluate(t, append(text, packed, "--attention", "policy", "--attention-pages", "1")...); r.PagesRead != 1 || r.Ref.KL.Value > 1e-6 {
		t.Errorf("all pages: %g of them, KL %v", r.PagesRead, r.Ref.KL)
	}
	must(t, "run", packed, "-p", "One", "-n", "3", "--greedy", "--attention", "policy")

	damaged := filepath.Join(dir, "d.json")
	data, err := os.ReadFile(policy)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(damaged, data[:len(data)/2], 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{exitUsage, "--attention \"some\"", []string{"run", packed, "-p", "x", "--attention", "some"}},
		{exitUsage, "--attention-pages", []string{"run", packed, "-p", "x", "--attention", "policy", "--attention-pages", "0"}},
		{exitUsage, "--attention-least", []string{"run", packed, "-p", "x", "--attention", "policy", "--attention-least", "3"}},
		{exitUsage, "--attention-mass", []string{"run", packed, "-p", "x", "--attention", "policy", "--attention-mass", "2"}},
		{exitUsage, "goes with --attention policy", []string{"run", packed, "-p", "x", "--attention-pages", "5%"}},
		{exitUsage, "goes with --attention policy", []string{"run", packed, "-p", "x", "--kv-host", "1GiB"}},
		{exitUsage, "--kv-host", []string{"run", packed, "-p", "x", "--attention", "policy", "--kv-host", "much"}},
		{exitUsage, "--kv-host", []string{"bench", packed, "--attention", "policy", "--kv-host", "1GiB", "--concurrency", "2"}},
		{exitUnsupported, "on the processor", []string{"run", packed, "-p", "x", "--attention", "policy", "--kv-host", "1GiB", "--device", "cpu"}},
		{exitUnsupported, "several devices", []string{"bench", packed, "--attention", "policy", "--kv-host", "1GiB", "--device", "cpu,hip:0"}},
		{exitUsage, "--steps", []string{"eval", packed, "--text", demoText, "--attention", "policy"}},
		{exitUsage, "--steps", []string{"calibrate", "--attention", packed, "--steps", "1", "-o", filepath.Join(dir, "no.json")}},
		{exitUsage, "longer windows", []string{"calibrate", "--attention", packed, "--calib", demoText, "--ctx", "512", "--samples", "2", "-o", filepath.Join(dir, "no.json")}},
		{exitInput, "d.json", []string{"run", packed, "-p", "x", "--attention", damaged}},
		{exitInput, "none of the model's", []string{"convert", filepath.Join(micro, "llama-f32"), "--attention", policy, "-o", filepath.Join(dir, "no.nstf")}},
		{exitUnsupported, "latents", []string{"run", filepath.Join(micro, "deepseek_v3"), "-p", "x", "--attention", "policy"}},
	} {
		r := invoke(c.args...)
		if r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("%v: exit %d, %s", c.args, r.code, r.err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "no.*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
