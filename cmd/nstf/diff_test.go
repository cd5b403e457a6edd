package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/compare"
)

// TestDiff compares a checkpoint with itself and with packages of it.
func TestDiff(t *testing.T) {
	src := filepath.Join(micro, "llama-k256")
	same := packaged(t, src)
	out := must(t, "diff", src, same)
	if !strings.Contains(out, "tensors are alike") || strings.Contains(out, "difference") {
		t.Errorf("a model and its package differ:\n%s", out)
	}
	small := filepath.Join(t.TempDir(), "small.nstf")
	must(t, "quantize", src, "-o", small, "--scheme", "q4_k")
	out = must(t, "diff", same, small)
	fits(t, out)
	if !strings.Contains(out, "q4_k") || !strings.Contains(out, "0.0") {
		t.Errorf("the difference is not shown:\n%s", out)
	}
	var r compare.Report
	decode(t, must(t, "diff", same, small, "--json"), &r)
	changed := 0
	for i := range r.Tensors {
		x := &r.Tensors[i]
		d := *x.Difference
		if x.Changed() {
			changed++
			if d < 0.01 || d > 0.2 || math.IsNaN(d) {
				t.Errorf("%s differs by %g", x.Name, d)
			}
		} else if d != 0 || x.RecipeA != x.RecipeB {
			t.Errorf("%+v is no change", x)
		}
	}
	if changed < 8 || r.A.BPW <= r.B.BPW {
		t.Errorf("%d tensors changed, %g to %g bits", changed, r.A.BPW, r.B.BPW)
	}
	decode(t, must(t, "diff", same, small, "--stored", "--json"), &r)
	fits(t, must(t, "diff", same, small, "--stored", "--all"))
	invoke("diff", src, filepath.Join(micro, "gpt2")).fails(t, exitUnsupported, "comparing shape")
	invoke("diff", src, "/nosuch").fails(t, exitInput, "nosuch")
	invoke("diff", src).fails(t, exitUsage, "")
}

// TestInspectLedger shows the ledger of a package, and refuses others.
func TestInspectLedger(t *testing.T) {
	src := filepath.Join(micro, "llama-tied")
	invoke("inspect", "--ledger", packaged(t, src)).fails(t, exitUnsupported, "accuracy ledger")
	invoke("inspect", "--ledger", src).fails(t, exitUnsupported, "a directory does not have")
	out := filepath.Join(t.TempDir(), "small.nstf")
	must(t, "quantize", src, "-o", out, "--bpw", "5", "--calib", microText, "--samples", "4", "--ctx", "16", "--effort", "1")
	text := must(t, "inspect", "--ledger", out)
	fits(t, text)
	for _, want := range []string{"predicted divergence", "measured divergence", "blocks.1.ffn.down.weight", "drift", "feedback"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	page := filepath.Join(t.TempDir(), "report.html")
	must(t, "report", out, out, "-o", page)
	if html, err := os.ReadFile(page); err != nil || !strings.Contains(string(html), "blocks.1.ffn.down.weight") || !strings.Contains(string(html), "<svg") {
		t.Errorf("%v: %d bytes of report", err, len(html))
	}
	invoke("report", src, "-o", filepath.Join(t.TempDir(), "x")).fails(t, exitUnsupported, "accuracy ledger")
	invoke("report", "-o", page).fails(t, exitUsage, "")
	var l struct {
		Model struct {
			BPW float64 `json:"bpw"`
		} `json:"model"`
	}
	decode(t, must(t, "inspect", "--ledger", "--json", out), &l)
	if l.Model.BPW > 5 || l.Model.BPW < 4 {
		t.Errorf("%g bits per weight", l.Model.BPW)
	}
}
