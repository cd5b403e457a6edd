package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/quantize/fit"
)

// schemeColumns are what a scheme is complete with.
var schemeColumns = []string{"page", "vector", "fit", "generic", "AVX2", "AVX-512", "NEON", "GPU one row", "GPU many rows"}

// holes are the reasons for what a scheme does without, by regular expressions of its
// name and of columns.
var holes = []struct{ schemes, columns, because string }{
	{"i8|i16|i32|i64|u8|u16|u32|u64|bool|c64|f64|f[468]_.*", "fit|AVX2|AVX-512|NEON|GPU.*",
		"an element of parts and of small tensors, decoded number by number: no model's matrices have the type"},
	{"iq1_s|iq1_m", "fit", "below 2 bits a weight codes are only read"},
	{"tq1_0|tq2_0", "fit", "models of ternary weights are trained, not fitted"},
	{"nvfp4", "fit", "checkpoints bring their codes; small weights need a factor of the matrix, which fitters of rows do not choose"},
	{"affine|fp8|nf4", "fit", "checkpoints bring their codes; ggml's blocks are fitted at these sizes"},
	{"tq.*|iq[123].*", "AVX-512", "the AVX2 kernel unpacks it for the products of this level"},
	{"tq.*|iq[123].*", "NEON", "plain Go unpacks it for the products of this level"},
	{"fp8", "AVX-512", "the AVX2 kernel multiplies it"},
	{"fp8|nf4", "NEON", "plain Go decodes it for the products of this level"},
}

// cpuKernels are the assembly of the schemes whose kernels are not called after them.
var cpuKernels = map[string]string{
	"f32": "dotRowsF32", "f16": "dotRowsF16", "bf16": "dotRowsBF16",
	"affine": "matVecStrip.*", "fp8": "dotF8E4M3", "nf4": "dotLevels", "tcq": "tcq.*",
}

// TestSchemesComplete prints what every scheme has and fails where something is missing
// without a reason, or a reason is for nothing.
func TestSchemesComplete(t *testing.T) {
	symbols, gpu := cpuSymbols(t), gpuKernels(t)
	generic, err := cpu.ForLevel(cpu.LevelGeneric)
	if err != nil {
		t.Fatal(err)
	}
	used := make([]bool, len(holes))
	var out strings.Builder
	fmt.Fprintf(&out, "%-12s %s\n", "scheme", strings.Join(schemeColumns, " | "))
	for _, s := range scheme.Table() {
		kernel := cpuKernels[s.Name]
		if kernel == "" {
			kernel = "(matVec|unpack)" + strings.ToUpper(s.Basename())
		}
		level := func(suffix string) bool {
			name := regexp.MustCompile("^" + kernel + "(x1)?" + suffix + "$")
			return slices.ContainsFunc(symbols, name.MatchString)
		}
		base := s.Basename()
		if s.Plain() {
			base = "plain"
		}
		has := []bool{
			isFile("../../docs/schemes/" + base + ".md"),
			s.Plain() || isFile("../../testdata/vectors/"+strings.ToUpper(s.Name)+".f32.gz") || isFile("../../testdata/vectors/"+s.Name+"*.parts"),
			slices.ContainsFunc(fit.Codes(), func(c plan.Code) bool { return c.Scheme == s }),
			s.Group == 0 || generic.Integer(s.Name) != nil,
			level("AVX2"), level("AVX512"), level("(NEON|DotProd)"),
			gpu["matvec/"+s.Name+"/T=1"], gpu["matmul/"+s.Name+"/T=512"],
		}
		var cells []string
		for i, column := range schemeColumns {
			cell, reason := "x", -1
			for j, h := range holes {
				if regexp.MustCompile("^("+h.schemes+")$").MatchString(s.Name) && regexp.MustCompile("^("+h.columns+")$").MatchString(column) {
					reason = j
				}
			}
			switch {
			case has[i] && reason >= 0:
				t.Errorf("%s has %s, but it is said why not: %s", s.Name, column, holes[reason].because)
			case !has[i] && reason < 0:
				t.Errorf("%s has no %s, and no reason is given", s.Name, column)
			case !has[i]:
				cell, used[reason] = fmt.Sprint(reason+1), true
			}
			cells = append(cells, fmt.Sprintf("%*s", len(column), cell))
		}
		fmt.Fprintf(&out, "%-12s %s\n", s.Name, strings.Join(cells, " | "))
	}
	for i, h := range holes {
		fmt.Fprintf(&out, "%d: %s\n", i+1, h.because)
		if !used[i] {
			t.Errorf("nothing lacks %s for %s", h.columns, h.schemes)
		}
	}
	t.Logf("\n%s", out.String())
}

func isFile(pattern string) bool {
	found, _ := filepath.Glob(pattern)
	return len(found) > 0
}

// cpuSymbols lists the routines of kernels/cpu's assembly; its own tests run them.
func cpuSymbols(t *testing.T) (names []string) {
	files, err := filepath.Glob("../../kernels/cpu/*.s")
	if err != nil || len(files) == 0 {
		t.Fatalf("no assembly: %v", err)
	}
	text := regexp.MustCompile(`(?m)^TEXT ·(\w+)\(SB\)`)
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range text.FindAllSubmatch(raw, -1) {
			names = append(names, string(m[1]))
		}
	}
	return names
}

// gpuKernels names the kernels that every kind of target has.
func gpuKernels(t *testing.T) map[string]bool {
	all := map[string]int{}
	targets := []string{"gfx1100", "gfx90a", "sm_90"}
	for _, arch := range targets {
		target, err := hip.ParseTarget(arch)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range hip.Kernels(target) {
			all[k.Name]++
		}
	}
	out := map[string]bool{}
	for name, n := range all {
		out[name] = n == len(targets)
	}
	return out
}
