package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/safetensors"
	"github.com/nstf/nstf/quantize/pipeline"
)

// Numbers that nothing can be counted with, outputs that cannot be written, and
// flags that would be passed over are refused before any work, and leave nothing.
func TestQuantizeRefusals(t *testing.T) {
	args := withText(t, "llama-tied")
	text, dir := args[2], t.TempDir()
	folder := filepath.Join(dir, "folder")
	if err := os.Mkdir(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	calib := func(more ...string) []string { return append(append([]string{}, args...), more...) }
	for _, c := range []struct {
		code int
		says string
		out  string
		args []string
	}{
		{exitUsage, "finite", "", calib("--bpw", "Inf")},
		{exitUsage, "finite", "", calib("--max-kld", "Inf")},
		{exitUsage, "finer than divergences are measured", "", calib("--max-kld", "1e-9")},
		{exitUsage, "finite", "", calib("--max-kld", "NaN")},
		{exitUsage, "finite", "", calib("--bpw", "5", "--max-drift", "NaN")},
		{exitUsage, "finite", "", calib("--bpw", "5", "--max-drift", "Inf")},
		{exitUsage, "--seed", "", calib("--bpw", "5", "--seed", "9007199254740992")},
		{exitUsage, "--ctx", "", calib("--bpw", "5", "--ctx", "9223372036854775807")},
		{exitInput, "a folder", "", calib("--bpw", "5", "--stats", dir)},
		{exitInput, "a folder", "", calib("--plan", dir)},
		{exitUsage, "--verify-text", "", []string{args[0], "--scheme", "q4_0", "--verify-text", text}},
		{exitUsage, "--memory", "", []string{args[0], "--scheme", "q4_0", "--memory", "1GiB"}},
		{exitUsage, "matches vectors alone", "", calib("--bpw", "6", "--keep", "norm=q8_0")},
		{exitUnsupported, "blocks of 32 do not divide rows of 4", "", calib("--bpw", "6", "--keep", "attn.q=lowrank:4:q8_0")},
		{exitUsage, "a package, one file", folder, calib("--bpw", "5")},
		{exitFailure, "no folder", filepath.Join(dir, "none", "x.nstf"), calib("--bpw", "5")},
		{exitUsage, "is read to make it", text, calib("--bpw", "5")},
		{exitUsage, "is read to make it", filepath.Join(args[0], "config.json"), calib("--bpw", "5")},
	} {
		out := c.out
		if out == "" {
			out = filepath.Join(t.TempDir(), "x.nstf")
		}
		r := invoke(append([]string{"quantize", "-o", out}, c.args...)...)
		r.fails(t, c.code, c.says)
		if strings.Contains(r.err, "--resume") {
			t.Errorf("%v: work was done: %s", c.args, r.err)
		}
		if c.out == "" {
			empty(t, filepath.Dir(out))
		}
	}
	invoke("quantize", args[0], "--scheme", "q4_0", "-o", "").fails(t, exitUsage, "no name")
	invoke(append([]string{"quantize", "-o", ""}, calib("--bpw", "5")...)...).fails(t, exitUsage, "no name")
	invoke("calibrate", args[0], "--calib", text, "-o", text).fails(t, exitUsage, "is read to make it")
	invoke("calibrate", args[0], "--calib", text, "-o", folder).fails(t, exitFailure, "not a regular file")
	invoke("plan", args[0], "--calib", text, "--bpw", "5", "-o", folder).fails(t, exitFailure, "not a regular file")
	if _, err := os.Stat(folder + ".work"); err == nil {
		t.Error("work was begun beside a folder")
	}
}

// A recipe that a tensor cannot be stored by is refused with the plan's file, the
// tensor and the reason, before anything is read.
func TestQuantizePlanMisfits(t *testing.T) {
	args := withText(t, "llama-tied")
	dir := t.TempDir()
	file := filepath.Join(dir, "plan.json")
	must(t, "plan", args[0], "--bpw", "6", "--effort", "1", "--schemes", "q4_0,q8_0", "-o", file)
	for recipe, says := range map[string]string{
		"q4_k": "blocks of 256", "lowrank:5000:bf16": "its rank is below", "shared:2:bf16": "only a stack", "nvfp4": "only be read",
		"tcq3+lr:4:tcq2": "tiles of 16", "train:100000:bf16": "its rank is at most",
	} {
		p, err := plan.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		x, _ := p.Tensor("blocks.1.ffn.down.weight")
		x.Recipe = plan.MustRecipe(recipe)
		edited, out := filepath.Join(dir, "edited.json"), filepath.Join(t.TempDir(), "x.nstf")
		if err := p.Write(atomicfile.Scratch(edited)); err != nil {
			t.Fatal(err)
		}
		r := invoke(append([]string{"quantize", "--plan", edited, "-o", out}, args...)...)
		r.fails(t, exitUnsupported, says)
		if !strings.Contains(r.err, edited) || !strings.Contains(r.err, x.Name) {
			t.Errorf("%s: %s", recipe, r.err)
		}
		empty(t, filepath.Dir(out))
	}
}

// Rounding with --dry-run writes nothing, and says the size that comes out.
func TestQuantizeDryRounding(t *testing.T) {
	src := filepath.Join(micro, "llama-k256")
	dir := t.TempDir()
	var f pipeline.Forecast
	decode(t, must(t, "quantize", src, "--scheme", "q4_k", "--dry-run", "--json"), &f)
	empty(t, dir)
	if r := quantized(t, "--scheme", "q4_k", src); f.Bytes != r.TensorBytes || f.BPW != r.BPW {
		t.Errorf("%d bytes were predicted, %d came out", f.Bytes, r.TensorBytes)
	}
}

// --keep takes forms and vectors in 16 bits, and passes over vectors where it means
// matrices; the rules in the help are rules for a model with one table.
func TestQuantizeKeep(t *testing.T) {
	args := withText(t, "llama-tied")
	keep := []string{"--keep", "attn.q=lowrank:16:tcq4", "--keep", "attn.k=q4_0+lr:3:f16", "--keep", "norm=f32", "--keep", `blocks\.1\.=q8_0`, "--schemes", "q8_0"}
	var o pipeline.Outcome
	out := filepath.Join(t.TempDir(), "out.nstf")
	decode(t, must(t, append(append([]string{"quantize", "-o", out, "--bpw", "16", "--json"}, args...), keep...)...), &o)
	must(t, "verify", out)
	for _, x := range o.Ledger.Tensors {
		want := ""
		switch {
		case strings.Contains(x.Name, "attn.q"):
			want = "lowrank:16:tcq4"
		case strings.Contains(x.Name, "attn.k"):
			want = "q4_0+lr:3:f16"
		case strings.Contains(x.Name, "norm"):
			want = "f32"
		case strings.HasPrefix(x.Name, "blocks.1."):
			want = "q8_0"
		}
		if want != "" && x.Recipe != want {
			t.Errorf("%s is %s, not %s", x.Name, x.Recipe, want)
		}
		if strings.Contains(want, ":") && (!(x.Predicted > 0) || x.Predicted > 1.5*x.Obtained || x.Obtained > 1.5*x.Predicted) {
			t.Errorf("%s: predicted %g, obtained %g", x.Name, x.Predicted, x.Obtained)
		}
	}
	rules := regexp.MustCompile(`'([^']+=(?:keep|q\d_\w))'`)
	found := 0
	for _, command := range []string{"plan", "quantize"} {
		for _, m := range rules.FindAllStringSubmatch(must(t, command, "--help"), -1) {
			found++
			must(t, "plan", filepath.Join(micro, "llama-k256"), "--bpw", "16", "--schemes", "q8_0", "--keep", m[1])
		}
	}
	if found < 4 {
		t.Errorf("%d rules in the help", found)
	}
}

// Windows are no longer than what a model was made for, unless it is asked for.
func TestCalibrateWindows(t *testing.T) {
	text := withText(t, "llama-tied")[2]
	out := filepath.Join(t.TempDir(), "x.nstats")
	var r calibrationReport
	decode(t, must(t, "calibrate", filepath.Join(micro, "gpt2"), "--calib", text, "--samples", "4", "--sensitivity=false", "--json", "-o", out), &r)
	if r.Source.Context != 56 {
		t.Errorf("windows of %d tokens", r.Source.Context)
	}
	short := filepath.Join(t.TempDir(), "short.nstats") // windows between which nothing lies to compare
	must(t, "calibrate", filepath.Join(micro, "llama-3"), "--calib", text, "--samples", "4", "--ctx", "2", "-o", short)
	invoke("calibrate", filepath.Join(micro, "gpt2"), "--calib", text, "--samples", "4", "--ctx", "57", "-o", out).fails(t, exitUnsupported, "gpt2")
	if r := invoke("calibrate", filepath.Join(micro, "llama-3"), "--calib", text, "--samples", "2", "--ctx", "300", "--sensitivity=false", "-o", out); r.code != exitFine || !strings.Contains(r.err, "beyond the 256 positions") {
		t.Errorf("%d: %s", r.code, r.err)
	}
}

// An importance matrix of another model with the same shapes cannot be told, but
// what it does not know is.
func TestImportanceMatrixOfAnother(t *testing.T) {
	r := invoke("plan", filepath.Join(micro, "llama-3"), "--bpw", "16", "--effort", "1", "--schemes", "q8_0", "--stats", "../../testdata/imatrix/mixtral.dat")
	if r.code != exitFine || !strings.Contains(r.err, "says nothing of") || !strings.Contains(r.err, "ffn") {
		t.Errorf("%d: %s", r.code, r.err)
	}
}

// A matrix of zeros has no factors to look for, and is stored all the same.
func TestQuantizeZeros(t *testing.T) {
	args := withText(t, "llama-k256")
	dir := t.TempDir()
	if err := copyFiles(dir, args[0]); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "model.safetensors")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range f.Tensors() {
		if strings.Contains(x.Name, "down_proj") || strings.Contains(x.Name, "q_proj") {
			at := bytes.Index(data, content(t, x))
			clear(data[at : at+int(x.Size())])
		}
	}
	f.Close()
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	args[0] = dir
	for _, more := range [][]string{{"--forms", "--effort", "1"}, {"--effort", "1", "--schemes", "q8_0", "--keep", "down=lowrank:32:tcq3", "--keep", "attn.q=tcq2+lr:16:tcq2"}} {
		var o pipeline.Outcome
		out := filepath.Join(t.TempDir(), "out.nstf")
		decode(t, must(t, append(append([]string{"quantize", "-o", out, "--bpw", "12", "--json"}, args...), more...)...), &o)
		if o.Measured == nil || !(o.Measured.KLD.Mean < 1) {
			t.Errorf("%v: %+v", more, o.Measured)
		}
	}
}
