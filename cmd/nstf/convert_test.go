package main

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/npy"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/quantize/encode"
)

// Every micro checkpoint converts to a package that is whole, shows itself
// within 100 columns and computes transformers' logits.
func TestConvertedLogits(t *testing.T) {
	references, err := filepath.Glob(filepath.Join(micro, "*", "reference.json"))
	if err != nil || len(references) < 50 {
		t.Fatalf("%d micro checkpoints, %v", len(references), err)
	}
	for _, path := range references {
		dir := filepath.Dir(path)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			var ref struct {
				Logits []struct {
					File string
					IDs  []int32
				}
			}
			p, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			decode(t, string(p), &ref)
			pkg := packaged(t, dir)
			must(t, "verify", pkg)
			fits(t, must(t, "inspect", pkg, "--tensors"))
			fits(t, must(t, "inspect", dir, "--tensors"))
			for _, l := range ref.Logits {
				checkDump(t, pkg, l.IDs, filepath.Join(dir, l.File))
			}
		})
	}
}

// checkDump compares eval --dump-logits with a reference: at most 2e-4 of the
// logits' range.
func checkDump(t *testing.T, model string, ids []int32, reference string) {
	t.Helper()
	dir := t.TempDir()
	idFile, out := filepath.Join(dir, "ids.json"), filepath.Join(dir, "out.npy")
	var b bytes.Buffer
	if err := printJSON(&b, ids); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(idFile, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	must(t, "eval", model, "--token-ids", idFile, "--dump-logits", out)
	got, want := readNPY(t, out), readNPY(t, reference)
	if len(got.Data) != len(want.Data) {
		t.Fatalf("logits %v, want %v", got.Shape, want.Shape)
	}
	low, high, worst := math.Inf(1), math.Inf(-1), 0.0
	for i, w := range want.Data {
		low, high = min(low, float64(w)), max(high, float64(w))
		worst = max(worst, math.Abs(float64(got.Data[i]-w)))
	}
	if !(worst <= 2e-4*(high-low)) {
		t.Errorf("logits differ from %s by %g of their range", reference, worst/(high-low))
	}
}

func readNPY(t *testing.T, path string) *npy.Array {
	t.Helper()
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	a, err := npy.Parse(path, p)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Without --dtype nothing changes: every tensor has the bytes it had, every
// file too.
func TestConvertLosesNothing(t *testing.T) {
	for _, name := range []string{"llama-headdim", "gemma3-mm", "gpt2", "qwen3_moe", "quant-gptq-int4"} {
		src := filepath.Join(micro, name)
		pkg := packaged(t, src)
		a, b := open(t, src), open(t, pkg)
		for _, want := range a.Tensors() {
			got := b.Tensor(want.Name)
			if got.Scheme != want.Scheme || len(got.Parts) != len(want.Parts) {
				t.Fatalf("%s: %s became %s", name, &want, &got)
			}
			for i := range want.Parts {
				w, err1 := want.Parts[i].Data.Bytes()
				g, err2 := got.Parts[i].Data.Bytes()
				if err1 != nil || err2 != nil || !bytes.Equal(w, g) {
					t.Errorf("%s: %s differs (%v, %v)", name, want.Name, err1, err2)
				}
			}
		}
		if len(a.Passthrough) != len(b.Passthrough) || len(a.Files) != len(b.Files) {
			t.Errorf("%s: %d tensors and %d files beside the graph, were %d and %d", name, len(b.Passthrough), len(b.Files), len(a.Passthrough), len(a.Files))
		}
		for _, f := range a.Files {
			if got, ok := b.File(f.Name); !ok || !bytes.Equal(got, f.Data) {
				t.Errorf("%s: %s differs", name, f.Name)
			}
		}
	}
}

func open(t *testing.T, path string) *model.Model {
	t.Helper()
	m, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func TestConvertListsPassthrough(t *testing.T) {
	out := filepath.Join(t.TempDir(), "mm.nstf")
	said := must(t, "convert", filepath.Join(micro, "gemma3-mm"), "-o", out)
	m := open(t, out)
	if len(m.Passthrough) == 0 {
		t.Fatal("gemma3-mm has no tensors outside the graph")
	}
	for _, x := range m.Passthrough {
		if !strings.Contains(said, clip(x.Name, tableWidth-2)) {
			t.Errorf("%s is not listed in:\n%s", x.Name, said)
		}
	}
}

func TestConvertDType(t *testing.T) {
	for _, dtype := range encode.DTypes() {
		out := filepath.Join(t.TempDir(), "out.nstf")
		var r encode.Report
		decode(t, must(t, "convert", demoModel, "-o", out, "--dtype", dtype, "--json"), &r)
		s, _ := scheme.ByName(dtype)
		if want := float64(s.DType.Bits()); r.BPW != want {
			t.Errorf("%s: %v bits per weight, want %v", dtype, r.BPW, want)
		}
		for _, x := range open(t, out).Tensors() {
			if x.Scheme != dtype {
				t.Errorf("%s is %s", x.Name, x.Scheme)
			}
		}
	}
}

// A quantized source that is cast says so, on stderr and in its provenance.
func TestConvertExpands(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.nstf")
	r := invoke("convert", filepath.Join(micro, "quant-gptq-int4"), "-o", out, "--dtype", "f16")
	if r.code != 0 || !strings.Contains(r.err, "warning: the source is quantized already (gptq)") {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
	if out := must(t, "inspect", out); !strings.Contains(out, "quantized already (gptq)") {
		t.Errorf("no note in\n%s", out)
	}
}

// The bytes do not depend on how often or where they are made.
func TestConvertReproducible(t *testing.T) {
	for _, args := range [][]string{{"convert"}, {"quantize", "--scheme", "q4_k"}} {
		var packages [2][]byte
		for i := range packages {
			out := filepath.Join(t.TempDir(), "out.nstf")
			must(t, append(args, demoModel, "-o", out)...)
			p, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			packages[i] = p
		}
		if !bytes.Equal(packages[0], packages[1]) {
			t.Errorf("%s gives other bytes the second time", args[0])
		}
	}
}

func TestConvertFailures(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out.nstf")
	invoke("convert", filepath.Join(dir, "missing"), "-o", out).fails(t, exitInput, "missing")

	cut := copyDir(t, filepath.Join(micro, "llama-2"))
	weights := filepath.Join(cut, "model.safetensors")
	p, err := os.ReadFile(weights)
	if err != nil {
		t.Fatal(err)
	}
	for size := 0; size < len(p); size += 1024 {
		if err := os.WriteFile(weights, p[:size], 0o666); err != nil {
			t.Fatal(err)
		}
		invoke("convert", cut, "-o", out).fails(t, exitInput, "model.safetensors")
	}

	unknown := copyDir(t, filepath.Join(micro, "llama-2"))
	if err := os.WriteFile(filepath.Join(unknown, "config.json"), []byte(`{"model_type": "nosuch"}`), 0o666); err != nil {
		t.Fatal(err)
	}
	r := invoke("convert", unknown, "-o", out)
	r.fails(t, exitUnsupported, `"nosuch"`)
	if !strings.Contains(r.err, "hint: ") || !strings.Contains(r.err, "llama") {
		t.Errorf("no list of known architectures in %s", r.err)
	}

	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errInterrupted)
	invokeWith(ctx, nil, "convert", demoModel, "-o", out).fails(t, exitInterrupted, "interrupted")
	empty(t, dir)

	invoke("convert", demoModel, "-o", filepath.Join(dir, "no", "such", "folder.nstf")).fails(t, exitFailure, "folder")
	invoke("convert", demoModel, "-o", dir).fails(t, exitUsage, "a package, one file")
	empty(t, dir)
}

// What lay at the output's path stays when writing fails, and the source is
// never the output.
func TestConvertKeepsWhatWasThere(t *testing.T) {
	pkg := packaged(t, filepath.Join(micro, "llama-2"))
	before, err := os.ReadFile(pkg)
	if err != nil {
		t.Fatal(err)
	}
	invoke("convert", pkg, "-o", pkg, "--dtype", "f32").fails(t, exitUsage, "is read to make it")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errInterrupted)
	invokeWith(ctx, nil, "convert", demoModel, "-o", pkg).fails(t, exitInterrupted, "interrupted")
	after, err := os.ReadFile(pkg)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the package has changed (%v)", err)
	}
}

func TestVerify(t *testing.T) {
	pkg := packaged(t, filepath.Join(micro, "llama-2"))
	var r struct {
		Root    string
		Tensors int
	}
	invoke("verify", filepath.Join(micro, "llama-2")).fails(t, exitUnsupported, "only packages do")
	invoke("verify", t.TempDir()).fails(t, exitInput, "")
	decode(t, must(t, "verify", pkg, "--json"), &r)
	if len(r.Root) != 64 || r.Tensors == 0 {
		t.Errorf("%+v", r)
	}
	if text := must(t, "verify", pkg, "embed.weight", "blocks.0.attn.q.weight"); !strings.Contains(text, "2 tensors are whole") {
		t.Error(text)
	}
	invoke("verify", pkg, "embed.weight", "nothing").fails(t, exitInput, `"nothing"`)
	p, err := os.ReadFile(pkg)
	if err != nil {
		t.Fatal(err)
	}
	report := must(t, "inspect", pkg, "--json")
	if !strings.Contains(report, r.Root) {
		t.Error("inspect and verify differ about the root hash")
	}
	m := open(t, pkg)
	tensor := m.Tensor("blocks.0.attn.q.weight")
	want, err := tensor.Parts[0].Data.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	where := bytes.Index(p, want)
	p[where+5] ^= 1
	damaged := filepath.Join(t.TempDir(), "damaged.nstf")
	if err := os.WriteFile(damaged, p, 0o666); err != nil {
		t.Fatal(err)
	}
	invoke("verify", damaged).fails(t, exitInput, `"blocks.0.attn.q.weight"`)
	invoke("verify", damaged, "blocks.0.attn.q.weight").fails(t, exitInput, `"blocks.0.attn.q.weight"`)
	must(t, "verify", damaged, "embed.weight")
	invoke("run", damaged, "-p", "x", "--verify").fails(t, exitInput, `"blocks.0.attn.q.weight"`)
	invoke("verify", filepath.Join(micro, "llama-2", "config.json")).fails(t, exitInput, "")
	if err := os.WriteFile(damaged, p[:len(p)-1], 0o666); err != nil {
		t.Fatal(err)
	}
	invoke("verify", damaged).fails(t, exitInput, "truncated")
}
