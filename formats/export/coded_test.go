package export_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/export"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

const microDir = "../../testdata/micro"

// same fails where a model's tensors differ from another's in more than some.
func same(t *testing.T, got, want *model.Model, but ...string) {
	t.Helper()
	for _, w := range want.Tensors() {
		g := got.Tensor(w.Name)
		if g.Scheme != w.Scheme || len(g.Parts) != len(w.Parts) {
			t.Fatalf("%s is %s, not %s", w.Name, g.Scheme, w.Scheme)
		}
		for i := range w.Parts {
			a, err := g.Parts[i].Data.Bytes()
			if err != nil {
				t.Fatal(err)
			}
			b, err := w.Parts[i].Data.Bytes()
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Equal(a, b) == slices.Contains(but, w.Name) {
				t.Errorf("%s: equal is %v", w.Name, bytes.Equal(a, b))
			}
		}
	}
}

// TestReplacedIsTheInverse puts every tensor of the directory back to where it came from.
func TestReplacedIsTheInverse(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join(microDir, "*", "config.json"))
	if err != nil || len(dirs) < 50 {
		t.Fatalf("%d checkpoints, %v", len(dirs), err)
	}
	for _, path := range dirs {
		dir := filepath.Dir(path)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			m, err := checkpoint.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			x, err := export.Coded(m)
			if err != nil {
				t.Fatal(err)
			}
			var own, others []formats.Tensor
			for _, n := range x.Tensors {
				passes := slices.ContainsFunc(m.Passthrough, func(p formats.Tensor) bool { return p.Name == n.Name })
				if !passes && !strings.Contains(n.Name, ".act_fn.") { // numbers of the graph
					own = append(own, n)
				} else {
					others = append(others, n)
				}
			}
			for _, n := range others[:min(len(others), 1)] {
				var f *formats.FormatError
				if _, err := export.Replaced(m, "trained", []formats.Tensor{n}); !errors.As(err, &f) || f.Tensor != n.Name || !strings.Contains(err.Error(), "only tensors of the graph") {
					t.Errorf("%s: %v", n.Name, err)
				}
			}
			made, err := export.Replaced(m, "trained", own)
			if err != nil {
				t.Fatal(err)
			}
			same(t, made, m)
		})
	}
}

// TestCodedKeepsBytes looks at the directory of a quantized checkpoint, and changes a scale and a norm of it.
func TestCodedKeepsBytes(t *testing.T) {
	m, err := checkpoint.Open(filepath.Join(microDir, "quant-ct-int4"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	x, err := export.Coded(m)
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Quantized struct {
			Method  string `json:"quant_method"`
			Tensors []struct {
				Name, Scheme string
				Parts        []struct{ Name string }
			}
			Weights []struct {
				Names []string
				Of    []int
			}
		} `json:"quantization_config"`
	}
	for _, f := range x.Files {
		if f.Name == "config.json" {
			if err := json.Unmarshal(f.Data, &c); err != nil {
				t.Fatal(err)
			}
		}
	}
	q := c.Quantized
	if q.Method != "nstf" || len(q.Tensors) == 0 || len(q.Weights) != len(q.Tensors) {
		t.Fatalf("quantization_config of %q with %d tensors and %d weights", q.Method, len(q.Tensors), len(q.Weights))
	}
	byName := map[string]formats.Tensor{}
	for _, n := range x.Tensors {
		byName[n.Name] = n
	}
	for _, w := range q.Weights {
		if _, ok := byName[w.Names[0]]; ok || q.Tensors[w.Of[0]].Scheme != "affine" {
			t.Errorf("%s is there beside its codes in %s", w.Names[0], q.Tensors[w.Of[0]].Scheme)
		}
	}
	first := q.Tensors[0]
	stored := m.Tensor(first.Name)
	codes, err := byName["nstf.0.w.codes"].Parts[0].Data.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if want, err := stored.Parts[0].Data.Bytes(); err != nil || !bytes.Equal(codes, want) {
		t.Errorf("codes of %s differ, %v", first.Name, err)
	}
	changed := func(name string) formats.Tensor {
		n := byName[name]
		raw, err := n.Parts[0].Data.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		raw = slices.Clone(raw)
		raw[0] ^= 1
		s, _ := scheme.ByName(n.Scheme)
		out, err := scheme.New(name, s, n.Shape, nil, tensor.BytesBlob(raw))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	made, err := export.Replaced(m, "trained", []formats.Tensor{changed("nstf.0.w.scales"), changed("model.norm.weight")})
	if err != nil {
		t.Fatal(err)
	}
	if a, b := made.Tensor(first.Name).Parts[1].Data, stored.Parts[1].Data; a.Len() != b.Len() {
		t.Errorf("scales have %d bytes, not %d", a.Len(), b.Len())
	}
	same(t, made.With(map[string]formats.Tensor{first.Name: stored}), m, "norm.weight")
	for name, bad := range map[string]formats.Tensor{
		"nosuch":            {Name: "nosuch", Scheme: "f32", Shape: []int64{1}},
		"nstf.0.w.scales":   {Name: "nstf.0.w.scales", Scheme: "u8", Shape: []int64{1}},
		"model.norm.weight": {Name: "model.norm.weight", Scheme: "f32", Shape: []int64{1}},
	} {
		var f *formats.FormatError
		if _, err := export.Replaced(m, "trained", []formats.Tensor{bad}); !errors.As(err, &f) || f.Tensor != name || f.File != "trained" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
