package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/work"
	"github.com/nstf/nstf/quantize/encode"
	"github.com/nstf/nstf/quantize/pipeline"
)

func quantized(t *testing.T, args ...string) encode.Report {
	t.Helper()
	var r encode.Report
	out := filepath.Join(t.TempDir(), "out.nstf")
	decode(t, must(t, append([]string{"quantize", "-o", out, "--json"}, args...)...), &r)
	must(t, "verify", out)
	return r
}

// schemes maps roles to the schemes they got.
func schemes(r encode.Report) map[string]string {
	out := map[string]string{}
	for _, x := range r.Tensors {
		out[x.Role] = x.To
	}
	return out
}

func TestQuantizePolicy(t *testing.T) {
	for _, c := range []struct {
		args        []string
		linear      string
		embed, head string // the demo model's are one tensor, so head decides
		bpw         float64
	}{
		{[]string{"--scheme", "q4_k"}, "q4_k", "q6_k", "q6_k", 4.9},
		{[]string{"--scheme", "q4_0", "--head-scheme", "q8_0"}, "q4_0", "q8_0", "q8_0", 5.3},
		{[]string{"--scheme", "q8_0"}, "q8_0", "q8_0", "q8_0", 8.6},
		{[]string{"--scheme", "f16"}, "f16", "f16", "f16", 16},
	} {
		r := quantized(t, append(c.args, demoModel)...)
		got := schemes(r)
		if got["attn_q"] != c.linear || got["ffn_down"] != c.linear || got["embed"] != c.head || got["norm"] != "bf16" {
			t.Errorf("%v: %v", c.args, got)
		}
		if r.BPW > c.bpw || r.BPW < c.bpw-0.5 || len(r.Fallbacks()) != 0 || len(r.Warnings) != 0 {
			t.Errorf("%v: %.3f bits per weight, %v, %v", c.args, r.BPW, r.Fallbacks(), r.Warnings)
		}
	}
	untied := schemes(quantized(t, "--scheme", "q4_0", "--embed-scheme", "q5_0", filepath.Join(micro, "gpt_neox")))
	if untied["embed"] != "q5_0" && untied["embed"] != "f16" || untied["head"] == "q4_0" {
		t.Errorf("gpt_neox: %v", untied)
	}
}

// Rows that a block does not divide get the nearest scheme that fits, listed
// and counted.
func TestQuantizeFallback(t *testing.T) {
	src := filepath.Join(micro, "llama-2")
	r := quantized(t, "--scheme", "q4_k", src)
	f := r.Fallbacks()
	if len(f) == 0 {
		t.Fatal("no fallbacks in a model of rows below 256")
	}
	var bytes int64
	for _, x := range r.Tensors {
		bytes += x.Bytes
	}
	if want := 8 * float64(bytes) / float64(r.Params); r.BPW != want {
		t.Errorf("%v bits per weight, the tensors take %v", r.BPW, want)
	}
	out := filepath.Join(t.TempDir(), "out.nstf")
	said := must(t, "quantize", src, "-o", out, "--scheme", "q4_k")
	for _, x := range f {
		if !strings.Contains(said, x.Name) || x.Wanted == x.To {
			t.Errorf("%+v is not listed in\n%s", x, said)
		}
	}
	fits(t, said)
}

func TestQuantizeKeepsRouters(t *testing.T) {
	r := quantized(t, "--scheme", "q4_0", filepath.Join(micro, "mixtral"))
	got := schemes(r)
	if got["moe_router"] == "q4_0" || got["norm"] == "q4_0" || got["moe_up"] == got["moe_router"] {
		t.Errorf("mixtral: %v", got)
	}
	gpt2 := quantized(t, "--scheme", "q8_0", filepath.Join(micro, "gpt2"))
	for _, x := range gpt2.Tensors {
		if x.Name == "embed.positions.weight" && x.To != x.From {
			t.Errorf("learned positions became %s", x.To)
		}
	}
}

// Codes of no more bits than are asked for stay as they are, and nothing warns; fewer
// are made of them. The package goes to GGUF with the codes, and says the same there.
func TestQuantizeKeepsSmallerCodes(t *testing.T) {
	src, dir := filepath.Join(micro, "gpt_oss-mxfp4"), t.TempDir()
	out := filepath.Join(dir, "out.nstf")
	r := invoke("quantize", src, "-o", out, "--scheme", "q8_0")
	if r.code != 0 || strings.Contains(r.err, "warning") {
		t.Fatalf("exit %d: %s", r.code, r.err)
	}
	for _, x := range open(t, out).Tensors() {
		if want := strings.Contains(x.Name, ".moe.") && strings.HasSuffix(x.Name, ".weight") && !strings.Contains(x.Name, "router"); want != (x.Scheme == "mxfp4") {
			t.Errorf("%s is %s", x.Name, x.Scheme)
		}
	}
	if x := schemes(quantized(t, "--scheme", "tcq2", src)); x["moe_up"] != "tcq" {
		t.Errorf("two bits: %v", x)
	}
	file := filepath.Join(dir, "out.gguf")
	must(t, "export", out, "-o", file)
	says := func(model string) string { return must(t, "run", model, "-p", "In the inn", "-n", "12", "--temp", "0") }
	if a, b := says(out), says(file); a != b {
		t.Errorf("the package says %q, GGUF %q", a, b)
	}
}

// Quantizing what is quantized warns, and what is in the scheme already stays.
func TestQuantizeAgain(t *testing.T) {
	first := filepath.Join(t.TempDir(), "q8.nstf")
	must(t, "quantize", demoModel, "-o", first, "--scheme", "q8_0")
	out := filepath.Join(t.TempDir(), "q4.nstf")
	r := invoke("quantize", first, "-o", out, "--scheme", "q4_k")
	if r.code != 0 || !strings.Contains(r.err, "warning: the source is quantized already (q8_0)") {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
	if report := must(t, "inspect", out); !strings.Contains(report, "quantized already (q8_0)") {
		t.Errorf("no note in\n%s", report)
	}
	same := quantized(t, "--scheme", "q8_0", first)
	for _, x := range same.Tensors {
		if x.From != x.To {
			t.Errorf("%s went from %s to %s", x.Name, x.From, x.To)
		}
	}
}

func TestQuantizeFailures(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out.nstf")
	invoke("quantize", "/nosuch", "-o", out, "--scheme", "q4_k").fails(t, exitInput, "nosuch")
	bad := copyDir(t, filepath.Join(micro, "llama-f32"))
	path := filepath.Join(bad, "model.safetensors")
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := len(p) / 2; i < len(p); i++ {
		p[i] = 0xFF // NaN
	}
	if err := os.WriteFile(path, p, 0o666); err != nil {
		t.Fatal(err)
	}
	invoke("quantize", bad, "-o", out, "--scheme", "q4_0").fails(t, exitInput, "not finite")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errInterrupted)
	invokeWith(ctx, nil, "quantize", demoModel, "-o", out, "--scheme", "q4_k").fails(t, exitInterrupted, "interrupted")
	empty(t, dir)
}

// Trellis codes are calibrated; what they cannot hold (here a vocabulary that is no
// multiple of 16) is rounded, and the text
// is among the package's sources.
func TestQuantizeTrellis(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("Once upon a time there was a little calibration text. ", 60)), 0o666); err != nil {
		t.Fatal(err)
	}
	calib := []string{"--calib", text, "--ctx", "64", "--samples", "4", filepath.Join(micro, "llama-31")}
	r := quantized(t, append([]string{"--scheme", "tcq2"}, calib...)...)
	if got := schemes(r); got["attn_q"] != "tcq" || got["ffn_down"] != "tcq" || got["embed"] != "q4_0" || got["norm"] == "tcq" {
		t.Errorf("%v", got)
	}
	rounded := schemes(quantized(t, append([]string{"--scheme", "tcq3", "--embed-scheme", "q8_0"}, calib...)...))
	if rounded["embed"] == "tcq" || rounded["attn_q"] != "tcq" {
		t.Errorf("%v", rounded)
	}
	out := filepath.Join(t.TempDir(), "x.nstf")
	must(t, append([]string{"quantize", "-o", out, "--scheme", "tcq2"}, calib...)...)
	if s := must(t, "inspect", out, "--json"); !strings.Contains(s, "text.txt") || strings.Contains(s, filepath.Dir(text)) {
		t.Errorf("provenance: %s", s)
	}
	invoke("export", out, "-o", filepath.Join(t.TempDir(), "x.gguf")).fails(t, exitUnsupported, "nstf quantize --schemes ggml")
	unsaid := invoke("quantize", "-o", filepath.Join(t.TempDir(), "x.nstf"), "--scheme", "tcq2", "--ctx", "32", "--samples", "4", filepath.Join(micro, "llama-31"))
	if unsaid.code != 0 || !strings.Contains(unsaid.err, "--calib") {
		t.Errorf("without a text: exit %d, %s", unsaid.code, unsaid.err)
	}
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{exitUsage, "one of", []string{"--scheme", "q4_k", "--bpw", "3", demoModel}},
		{exitUsage, "one of", []string{demoModel}},
		{exitUsage, "--sequential", []string{"--scheme", "tcq3", "--calib", text, "--parallel", "--sequential", demoModel}},
		{exitUsage, "--size", []string{"--size", "3.9QiB", "--calib", text, demoModel}},
		{exitUsage, "--embed-scheme", []string{"--bpw", "3", "--embed-scheme", "q8_0", "--calib", text, demoModel}},
		{exitUsage, "--source", []string{"--bpw", "3", "--source", demoModel, "--calib", text, demoModel}},
		{exitUsage, "effort", []string{"--plan", "none.json", "--effort", "2", "--calib", text, demoModel}},
		{exitInput, "none.json", []string{"--plan", "none.json", "--calib", text, "--samples", "4", "--ctx", "64", demoModel}},
		{exitUnsupported, "MiB are needed", append([]string{"--scheme", "tcq3", "--memory", "1MiB"}, calib...)},
		{exitUnsupported, "--samples", []string{"--scheme", "tcq3", "--calib", text, "--samples", "5000", demoModel}},
		{exitInput, "none.txt", []string{"--scheme", "tcq3", "--calib", "none.txt", demoModel}},
		{exitUsage, "abacus", []string{"--scheme", "tcq3", "--device", "abacus", "--calib", text, demoModel}},
		{exitUsage, "--scheme q4_k takes neither", []string{"--scheme", "q4_k", "--device", "cuda", demoModel}},
		{exitUsage, "--latency-device \"abacus\"", []string{"--max-kld", "1", "--objective", "latency", "--latency-device", "abacus", "--calib", text, demoModel}},
		{exitUsage, "needs --latency-device", []string{"--max-kld", "1", "--objective", "latency", "--calib", text, demoModel}},
		{exitUsage, "--latency-device goes with", []string{"--bpw", "4", "--latency-device", "h200", "--calib", text, demoModel}},
		{exitFailure, "cuda", append([]string{"--scheme", "tcq3", "--device", "cuda:999"}, calib...)},
	} {
		out := filepath.Join(t.TempDir(), "x.nstf")
		r := invoke(append([]string{"quantize", "-o", out}, c.args...)...)
		if r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("%v: exit %d, %s", c.args, r.code, r.err)
		}
		empty(t, filepath.Dir(out))
	}
}

// withText returns flags that calibrate on a little text, and a model.
func withText(t *testing.T, name string) []string {
	t.Helper()
	text := filepath.Join(t.TempDir(), "text.txt")
	var b strings.Builder
	for i := range 400 {
		fmt.Fprintf(&b, "Sentence %d of the text says that %d is not %d. ", i, i*i%97, i%13)
	}
	if err := os.WriteFile(text, []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	return []string{filepath.Join(micro, name), "--calib", text, "--ctx", "32", "--samples", "8"}
}

// A package carries its plan and its ledger, whose figures are those printed; an
// edited plan redoes only what it changes; packages of other models and without a plan
// are refused.
func TestQuantizePlanAgain(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first.nstf"), filepath.Join(dir, "second.nstf")
	args := withText(t, "llama-31")
	src, calib := args[0], args[1:]
	var o pipeline.Outcome
	decode(t, must(t, append([]string{"quantize", src, "-o", first, "--scheme", "tcq3", "--json"}, calib...)...), &o)
	if o.Measured == nil || !(o.Measured.KLD.Mean > o.Measured.Floor.Mean) || len(o.Measured.Drift) != 2 || o.Ledger.Source.HeldCount != 1 {
		t.Errorf("%+v", o.Measured)
	}
	pkg, err := nstf.Open(first)
	if err != nil {
		t.Fatal(err)
	}
	defer pkg.Close()
	p := carriedPlan(t, pkg)
	changed := "blocks.1.ffn.down.weight"
	x, ok := p.Tensor(changed)
	if !ok || x.Recipe.String() != "tcq3" {
		t.Fatalf("%+v", x)
	}
	x.Recipe = plan.MustRecipe("q8_0")
	edited := filepath.Join(dir, "edited.json")
	if err := p.Write(atomicfile.Scratch(edited)); err != nil {
		t.Fatal(err)
	}
	again := append([]string{"quantize", first, "--source", src, "--plan", edited, "-o", second}, calib...)
	invoke(append([]string{"quantize", first, "--plan", edited, "-o", second}, calib...)...).fails(t, exitUsage, "--source MODEL")
	must(t, again...)
	other, err := nstf.Open(second)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, item := range pkg.Tensors() {
		is, ok := other.Tensor(item.Name)
		if !ok || (item.Name == changed) != (is.Scheme == "q8_0") {
			t.Errorf("%s is %s", item.Name, is.Scheme)
		}
		if a, b := content(t, item.Tensor), content(t, is.Tensor); bytes.Equal(a, b) == (item.Name == changed) {
			t.Errorf("%s: equal to before: %v", item.Name, item.Name != changed)
		}
	}
	invoke(append([]string{"quantize", first, "--source", filepath.Join(micro, "llama-2"), "--plan", edited, "-o", filepath.Join(dir, "x.nstf")}, calib...)...).fails(t, exitInput, "")
	bare := filepath.Join(dir, "bare.nstf")
	must(t, "convert", src, "-o", bare)
	again[1], again[len(again)-len(calib)-1] = bare, filepath.Join(dir, "y.nstf")
	invoke(again...).fails(t, exitUnsupported, "nstf/plan.json")
}

// content returns a tensor's bytes.
func content(t *testing.T, x formats.Tensor) []byte {
	t.Helper()
	var out []byte
	for _, p := range x.Parts {
		b, err := p.Data.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b...)
	}
	return out
}

// carriedPlan reads a package's plan.
func carriedPlan(t *testing.T, p *nstf.Package) *plan.Plan {
	t.Helper()
	for _, name := range []string{nstf.PlanFile, nstf.LedgerFile} {
		if _, err := p.File(name); err != nil {
			t.Fatal(err)
		}
	}
	data, err := p.File(nstf.PlanFile)
	if err != nil {
		t.Fatal(err)
	}
	out, err := plan.Parse("plan", data)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Work that an interrupted run left is not taken silently, and not by another job.
func TestQuantizeWork(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out.nstf")
	args := append([]string{"quantize", "-o", out, "--scheme", "tcq2"}, withText(t, "llama-31")...)
	folder, err := work.Create(work.Path(out), work.Job{"program": "another"})
	if err != nil {
		t.Fatal(err)
	}
	folder.Close()
	invoke(args...).fails(t, exitFailure, "--resume")
	invoke(append(args, "--resume")...).fails(t, exitUnsupported, "another calibration text")
	must(t, append(args, "--discard")...)
	if _, err := os.Stat(work.Path(out)); err == nil {
		t.Error("the work folder stayed")
	}
	r := invoke(append([]string{"quantize", "--dry-run", "--max-kld", "0.1"}, withText(t, "llama-31")...)...)
	if r.code != exitFine || !strings.Contains(r.err, "nothing was measured") || !strings.Contains(r.out, "known when the model is measured") || strings.Contains(r.err, "calibrating: ") {
		t.Errorf("exit %d: %s%s", r.code, r.err, r.out)
	}
	dry := must(t, append(args, "--dry-run")...)
	if !strings.Contains(dry, "bits per weight") || !strings.Contains(dry, "memory") || !strings.Contains(dry, "disk") {
		t.Errorf("%s", dry)
	}
}

// A budget is kept to the byte, overrides and lists of schemes are obeyed, and what only
// ggml's schemes are in goes to llama.cpp.
func TestQuantizeBudget(t *testing.T) {
	dir := t.TempDir()
	args := withText(t, "llama-31")
	made := func(name string, flags ...string) (o pipeline.Outcome) {
		t.Helper()
		r := invoke(append([]string{"quantize", "-o", filepath.Join(dir, name), "--json"}, append(flags, args...)...)...)
		if r.code != exitFine || !strings.Contains(r.err, "quantizing takes about ") {
			t.Fatalf("exit %d: %s", r.code, r.err)
		}
		decode(t, r.out, &o)
		must(t, "verify", filepath.Join(dir, name))
		return o
	}
	const budget = 44 << 10
	o := made("size.nstf", "--size", fmt.Sprint(budget))
	if o.FileBytes > budget || o.FileBytes < budget*9/10 || o.Plan.Predicted.Bytes > budget || o.FileBytes > o.Plan.Predicted.Bytes {
		t.Errorf("%d bytes, predicted %d, for %d", o.FileBytes, o.Plan.Predicted.Bytes, budget)
	}
	ggml := made("ggml.nstf", "--bpw", "5", "--schemes", "ggml", "--keep", `blocks\.0\.ffn\.down=q8_0`)
	if ggml.BPW > 5 || ggml.BPW < 4.5 || !(ggml.Plan.Predicted.KLD > 0) {
		t.Errorf("%v bits per weight, %v predicted", ggml.BPW, ggml.Plan.Predicted)
	}
	for _, x := range ggml.Tensors {
		if x.To == "tcq" || (x.Name == "blocks.0.ffn.down.weight") && x.To != "q8_0" {
			t.Errorf("%s is %s", x.Name, x.To)
		}
	}
	must(t, "export", filepath.Join(dir, "ggml.nstf"), "-o", filepath.Join(dir, "out.gguf"))
	bound := made("bound.nstf", "--max-kld", "0.1")
	if b := bound.Measured.Bound(); b > 0.1 || len(bound.Tries) == 0 {
		t.Errorf("%v after %+v", b, bound.Tries)
	}
	for _, c := range []struct {
		code  int
		flags []string
	}{
		{exitUsage, []string{"--size", "1KiB"}},
		{exitUsage, []string{"--bpw", "0.5"}},
		{exitUsage, []string{"--max-kld", "1e-9", "--schemes", "q4_0"}},
	} {
		out := filepath.Join(dir, "no.nstf")
		r := invoke(append([]string{"quantize", "-o", out, "--tries", "2"}, append(c.flags, args...)...)...)
		if r.code != c.code || lies(out) {
			t.Errorf("%v: exit %d, %s", c.flags, r.code, r.err)
		}
	}
}

func lies(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestQuantizeDevices takes a device to plan for under either flag, and one to search on.
func TestQuantizeDevices(t *testing.T) {
	for _, c := range [][4]string{ // --latency-device, --device; what is planned for, where is searched
		{"", "h200", "h200", "auto"},
		{"", "cpu", "cpu", "cpu"},
		{"h200", "cpu", "h200", "cpu"},
		{"h200", "cuda:1", "h200", "cuda:1"},
		{"", "cuda:1", "", "cuda:1"},
	} {
		f := quantizeFlags{planFlags: planFlags{objective: "latency", device: c[0]}, on: deviceFlag{name: c[1]}}
		if f.bothDevices(&f.on); f.device != c[2] || f.on.name != c[3] {
			t.Errorf("%v: planned for %q, searched on %q", c, f.device, f.on.name)
		}
	}
	f := quantizeFlags{planFlags: planFlags{objective: "size"}, on: deviceFlag{name: "h200"}}
	if f.bothDevices(&f.on); f.device != "" || f.on.check() == nil {
		t.Error("a device to plan for is taken without --objective latency")
	}
}

// TestTrellises wants the bits of trellis codes among those to choose from, near the budget first.
func TestTrellises(t *testing.T) {
	for _, c := range []struct {
		schemes string
		bpw     float64
		want    string
	}{
		{"all", 3, "[3 2 4 5 6]"},
		{"all", 0, "[2 3 4 5 6]"},
		{"tcq2,q8_0,tcq4,tcq4", 3.5, "[4 2]"},
		{"ggml", 3, "[]"},
	} {
		var f quantizeFlags
		f.schemes, f.budget.BPW = c.schemes, c.bpw
		if got := fmt.Sprint(f.trellises()); got != c.want {
			t.Errorf("%s at %v: %s, want %s", c.schemes, c.bpw, got, c.want)
		}
	}
}
