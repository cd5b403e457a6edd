package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/attention"
	"github.com/nstf/nstf/formats/inspect"
	"github.com/nstf/nstf/quantize/pipeline"
)

// One command makes a package that says how it keeps keys and values and which pages its
// heads need; what it says was measured of its own tensors, and counts where a size is asked
// for.
func TestLongContext(t *testing.T) {
	dir, model := t.TempDir(), reaching(t)
	packed := filepath.Join(dir, "m.nstf")
	long := []string{"quantize", model, "--calib", demoText, "--ctx", "64", "--samples", "8", "--long-window", "1120", "--long-samples", "2", "--device", "cpu"}
	var made pipeline.Outcome
	const size = 560 << 10
	if err := json.Unmarshal([]byte(must(t, append(long, "--size", "560KiB", "--schemes", "q4_0,q8_0", "--long-context", "--kv-bpw", "5", "-o", packed, "--json")...)), &made); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(packed)
	if err != nil || info.Size() > size || info.Size() < size*9/10 {
		t.Errorf("%d bytes of %d (%v)", info.Size(), size, err)
	}
	kept, err := inspect.Kept(packed)
	if err != nil || kept.List() != made.Kept.List() || !(kept.Measured.KLD > 0) || !(kept.Measured.Bits <= 5) {
		t.Fatalf("%+v (%v)", kept, err)
	}
	policy, err := inspect.Attention(packed)
	if err != nil || len(policy.Measured) != 3 || !(policy.Measured[0].KLD > 0) || policy.Source.Held != 1 {
		t.Fatalf("%+v (%v)", policy, err)
	}
	l, err := inspect.Ledger(packed)
	if err != nil || len(l.Layers) != len(kept.Chosen)+1 {
		t.Fatalf("%d layers (%v)", len(l.Layers), err)
	}
	shares := policy.Shares(len(kept.Chosen), layerPages)
	for i, x := range l.Layers[:len(kept.Chosen)] {
		if x.Block != int64(i) || x.Bytes <= 0 || x.Bits == nil || x.KV == nil || x.KV.Format != kept.Chosen[i] || x.Pages == nil || !(x.Pages.Read > 0) || len(shares[i]) == 0 {
			t.Errorf("layer %d: %+v", i, x)
		}
	}
	if out := must(t, "inspect", "--ledger", packed); !strings.Contains(out, "of keys and values bytes of a position") || !strings.Contains(out, kept.Chosen[0]+", ") || strings.Contains(out, "~") {
		t.Errorf("the ledger says nothing of layers:\n%s", out)
	}
	page := filepath.Join(dir, "r.html")
	must(t, "report", packed, "-o", page)
	if html, err := os.ReadFile(page); err != nil || !strings.Contains(string(html), "pages not read") {
		t.Errorf("the report says nothing of layers (%v)", err)
	}
	if r := invoke("run", packed, "-p", "One", "-n", "3", "--greedy", "--attention", "policy"); r.code != exitFine || !strings.Contains(r.err, "as the package says: ") {
		t.Errorf("run: exit %d, %s", r.code, r.err)
	}

	// The figures are of the package's tensors: measured again of them they are the same.
	again := filepath.Join(dir, "again.json")
	must(t, "calibrate", packed, "--calib", demoText, "--ctx", "1120", "--samples", "2", "--kv-bpw", "5", "-o", again)
	k, err := attention.ReadKept(again)
	if err != nil || k.List() != kept.List() || k.Measured != kept.Measured {
		t.Errorf("measured again %+v, was %+v (%v)", k, kept, err)
	}

	bits := filepath.Join(dir, "bits.nstf")
	must(t, append(long, "--scheme", "q8_0", "--kv-bpw", "6", "-o", bits)...)
	if k, err := inspect.Kept(bits); err != nil || !(k.Measured.Bits <= 6) {
		t.Errorf("%+v (%v)", k, err)
	}
	if p, err := inspect.Attention(bits); err == nil {
		t.Errorf("a policy that nobody asked for: %+v", p)
	}

	no := filepath.Join(dir, "no.nstf")
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{exitUsage, "go with --long-context", append(long, "--scheme", "q8_0", "-o", no)},
		{exitUsage, "give --calib FILE", []string{"quantize", model, "--bpw", "5", "--long-context", "-o", no}},
		{exitUsage, "are the least", []string{"quantize", model, "--bpw", "5", "--calib", demoText, "--long-context", "--long-window", "1024", "-o", no}},
		{exitUsage, "do not foretell", append(long, "--bpw", "5", "--long-context", "--memory", "8GiB", "-o", no)},
		{exitUsage, "one choice", append(long, "--bpw", "5", "--kv-bpw", "5", "--kv-kld", "1", "-o", no)},
		{exitUnsupported, "the fewest", append(long, "--scheme", "q8_0", "--kv-bpw", "2", "-o", no)},
		{exitUnsupported, "windows of 1057 tokens are the least", []string{"quantize", demoModel, "--bpw", "5", "--calib", demoText, "--ctx", "16", "--samples", "4", "--long-context", "--long-samples", "2", "-o", no}},
		{exitUnsupported, "latents", []string{"quantize", filepath.Join(micro, "deepseek_v3"), "--scheme", "q8_0", "--calib", demoText, "--ctx", "16", "--samples", "4", "--long-context", "-o", no}},
		{exitUnsupported, "windows of 1120 need", []string{"quantize", model, "--bpw", "5", "--calib", demoText, "--ctx", "16", "--samples", "4", "--long-context", "--long-window", "1120", "--long-samples", "64", "-o", no}},
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
