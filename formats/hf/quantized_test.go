package hf

import (
	"archive/zip"
	"bytes"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/npy"
	"github.com/nstf/nstf/formats/scheme"
)

const micro = "../../testdata/micro/"

// quantized lists the checkpoints of testdata/micro/make_quant.py with the
// method and the scheme that they must be read as.
var quantized = map[string]struct{ method, scheme string }{
	"quant-awq-int4":           {"awq", "affine"},
	"quant-bnb-nf4":            {"bitsandbytes", "nf4"},
	"quant-bnb-nf4-double":     {"bitsandbytes", "nf4"},
	"quant-ct-fp8":             {"compressed-tensors", "fp8"},
	"quant-ct-int4":            {"compressed-tensors", "affine"},
	"quant-ct-int4-asym":       {"compressed-tensors", "affine"},
	"quant-ct-int8":            {"compressed-tensors", "affine"},
	"quant-ct-mxfp4":           {"compressed-tensors", "mxfp4"},
	"quant-fp8-block":          {"fp8", "fp8"},
	"quant-fp8-tensor":         {"fp8", "fp8"},
	"quant-fp8-tensor-inv":     {"fp8", "fp8"},
	"quant-gptq-int4":          {"gptq", "affine"},
	"quant-gptq-int4-actorder": {"gptq", "affine"},
	"quant-gptq-int4-v2":       {"gptq", "affine"},
	"quant-gptq-int8":          {"gptq", "affine"},
	"quant-mxfp4":              {"mxfp4", "mxfp4"},
}

// expected reads expected.npz: the float32 matrices of the quantized weights.
func expected(t *testing.T, dir string) map[string]*npy.Array {
	t.Helper()
	z, err := zip.OpenReader(filepath.Join(dir, "expected.npz"))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	out := make(map[string]*npy.Array)
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		p, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		a, err := npy.Parse(f.Name, p)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimSuffix(f.Name, ".npy")] = a
	}
	return out
}

func TestQuantizedCheckpoints(t *testing.T) {
	dirs, err := filepath.Glob(micro + "quant-*")
	if err != nil || len(dirs) < len(quantized) {
		t.Fatalf("%d directories, %v", len(dirs), err)
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			want, ok := quantized[filepath.Base(dir)]
			if !ok {
				t.Fatal("not listed")
			}
			d, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if d.Method() != want.method {
				t.Errorf("method %q", d.Method())
			}
			checkNames(t, d)
			matrices := expected(t, dir)
			for _, x := range d.Tensors() {
				a, ok := matrices[x.Name]
				if !ok {
					continue
				}
				delete(matrices, x.Name)
				if x.Scheme != want.scheme || !slices.Equal(x.Shape, a.Shape) {
					t.Errorf("%v, want %s %v", &x, want.scheme, a.Shape)
					continue
				}
				compare(t, x, a.Data)
			}
			for name := range matrices {
				t.Errorf("%s is missing", name)
			}
		})
	}
}

// checkNames checks that nothing is left of the groups but what belongs to
// activations.
func checkNames(t *testing.T, d *Dir) {
	t.Helper()
	for _, x := range d.Tensors() {
		if err := scheme.Check(&x); err != nil {
			t.Error(err)
		}
		if ok := strings.HasSuffix(x.Name, ".weight") || strings.HasSuffix(x.Name, "_proj") ||
			strings.HasSuffix(x.Name, ".input_scale") || strings.HasSuffix(x.Name, ".activation_scale"); !ok {
			t.Errorf("%v is left over", &x)
		}
	}
}

// compare decodes x, mapped and streamed, and compares the bits.
func compare(t *testing.T, x formats.Tensor, want []float32) {
	t.Helper()
	for i, p := range x.Parts {
		var streamed bytes.Buffer
		n, err := p.Data.WriteTo(&streamed)
		all, err2 := p.Data.Bytes()
		one := make([]byte, min(7, len(all)))
		m, _ := p.Data.ReadAt(one, int64(len(all)-len(one)))
		if err != nil || err2 != nil || n != p.Data.Len() || !bytes.Equal(streamed.Bytes(), all) || !bytes.HasSuffix(all, one[:m]) {
			t.Errorf("%v: part %d reads differently when streamed (%v, %v)", &x, i, err, err2)
		}
	}
	m, err := scheme.Open(&x)
	if err != nil {
		t.Error(err)
		return
	}
	row := make([]float32, m.K)
	for r := range m.N {
		m.DecodeRow(row, r)
		for k, v := range row {
			w := want[r*m.K+int64(k)]
			// ggml's table, which scheme mxfp4 follows, has no negative zero.
			if zero := x.Scheme == "mxfp4" && v == 0 && w == 0; !zero && math.Float32bits(v) != math.Float32bits(w) {
				t.Errorf("%v: weight [%d][%d] is %v, want %v", &x, r, k, v, w)
				return
			}
		}
	}
}
