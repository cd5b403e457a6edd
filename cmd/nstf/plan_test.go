package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/plan"
)

// TestPlan makes a plan, edits it and executes it.
func TestPlan(t *testing.T) {
	src := filepath.Join(micro, "llama-tied")
	dir := t.TempDir()
	file := filepath.Join(dir, "plan.json")
	r := invoke("plan", src, "--bpw", "6", "-o", file, "--effort", "1", "--schemes", "tcq2,tcq4,q8_0,q4_0", "--keep", "ffn.down=q8_0")
	if r.code != exitFine || !strings.Contains(r.err, "all errors count alike") {
		t.Fatalf("%d: %s", r.code, r.err)
	}
	fits(t, r.out)
	p, err := plan.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	if p.Predicted.BPW > 6 || p.Predicted.KLD != 0 || len(p.Budget.Keep) != 1 {
		t.Errorf("%+v", p)
	}
	for _, x := range p.Tensors {
		if strings.Contains(x.Name, "ffn.down") && x.Recipe.String() != "q8_0" {
			t.Errorf("%s is %s", x.Name, x.Recipe)
		}
	}
	text := func(args ...string) []string {
		return append(args, "--calib", microText, "--samples", "4", "--ctx", "16", "--effort", "1")
	}
	var measured plan.Plan
	decode(t, must(t, text("plan", src, "--size", "44KiB", "--json")...), &measured)
	if measured.Predicted.KLD <= 0 || measured.Predicted.Bytes > 44<<10 {
		t.Errorf("%+v", measured.Predicted)
	}
	var fast plan.Plan
	decode(t, must(t, text("plan", src, "--max-kld", "0.1", "--objective", "latency", "--device", "7900xtx", "--schemes", "q4_0,q8_0", "--json")...), &fast)
	if fast.Predicted.KLD > 0.1 || fast.Predicted.Seconds <= 0 || fast.Budget.Device != "7900xtx" {
		t.Errorf("%+v %+v", fast.Predicted, fast.Budget)
	}
	out := filepath.Join(dir, "out.nstf")
	must(t, "quantize", src, "--plan", file, "-o", out, "--calib", microText, "--samples", "4", "--ctx", "16")
	info, err := os.Stat(out)
	if err != nil || info.Size() > p.Predicted.Bytes || info.Size() < p.Predicted.Bytes-8192 {
		t.Errorf("%v: %d bytes, predicted %d", err, info.Size(), p.Predicted.Bytes)
	}
}

func TestPlanFailures(t *testing.T) {
	src := filepath.Join(micro, "llama-tied")
	dir := t.TempDir()
	out := filepath.Join(dir, "p.json")
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{exitUsage, "give one of", []string{}},
		{exitUsage, "give one of", []string{"--bpw", "3", "--size", "1MB"}},
		{exitUsage, "goes with --max-kld", []string{"--bpw", "3", "--objective", "latency", "--device", "h200"}},
		{exitUsage, "needs --latency-device", []string{"--max-kld", "3", "--objective", "latency"}},
		{exitUsage, "not known", []string{"--max-kld", "3", "--objective", "latency", "--latency-device", "abacus"}},
		{exitUsage, "size or latency", []string{"--bpw", "3", "--objective", "beauty"}},
		{exitUsage, "goes with --objective latency", []string{"--bpw", "3", "--latency-device", "h200"}},
		{exitUsage, "h200", []string{"--bpw", "3", "--device", "h200"}},
		{exitUsage, "negative", []string{"--bpw", "-3"}},
		{exitUsage, "--size", []string{"--size", "big"}},
		{exitUsage, "nosuch", []string{"--bpw", "3", "--schemes", "nosuch"}},
		{exitUsage, "regex=recipe", []string{"--bpw", "3", "--keep", "x"}},
		{exitUsage, "matches no tensor", []string{"--bpw", "6", "--keep", "nosuch=q8_0", "--schemes", "q4_0"}},
		{exitUsage, "exclude", []string{"--bpw", "6", "--stats", "a", "--calib", "b"}},
		{exitInput, "nosuch", []string{"--bpw", "6", "--stats", "/nosuch"}},
		{exitUsage, "a plan for 1.2 bits per weight is impossible: the smallest is", []string{"--bpw", "1.2", "--schemes", "q4_0"}},
		{exitUsage, "a plan for 0.001MiB is impossible: the smallest is", []string{"--size", "1KB", "--schemes", "q4_0"}},
		{exitUsage, "--size 900 has no unit", []string{"--size", "900"}},
		{exitUnsupported, "sensitivities", []string{"--max-kld", "0.1", "--schemes", "q4_0"}},
	} {
		r := invoke(append([]string{"plan", src, "-o", out}, c.args...)...)
		r.fails(t, c.code, c.says)
		if !strings.Contains(r.err, "hint: ") && c.code != exitInput {
			t.Errorf("%v gives no hint: %s", c.args, r.err)
		}
	}
	r := invoke("quantize", src, "-o", out, "--bpw", "0.5", "--calib", demoText)
	r.fails(t, exitUsage, "0.5 bits per weight is impossible")
	if strings.Contains(r.err, "calibrating") {
		t.Errorf("text was measured for what is impossible: %s", r.err)
	}
	empty(t, dir)
	invoke("plan", "/nosuch", "--bpw", "3").fails(t, exitInput, "nosuch")
}
