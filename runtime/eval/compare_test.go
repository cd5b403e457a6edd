package eval_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/runtime/eval"
)

// A model compared with itself in the same arithmetic has no distance; with
// rounded tensors it has some; windows of two lengths are refused.
func TestCompare(t *testing.T) {
	m, err := checkpoint.Open(filepath.Join("..", "..", "testdata", "micro", "llama-31"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	list := [][]int32{{1, 9, 17, 4, 33, 7, 21, 8}, {1, 3, 5, 70, 9, 11, 13, 2}}
	same, err := eval.Compare(t.Context(), m, m, list, eval.CompareOptions{Exact: true})
	if err != nil {
		t.Fatal(err)
	}
	if kl := same.Ref.KL.Value; kl > 1e-12 || same.Ref.Top1.Value != 1 || same.Scored != 14 {
		t.Errorf("%+v of %d rows", same.Ref, same.Scored)
	}
	name := m.Graph.Blocks[0].Attn.O.Weight
	zero := m.Tensor(name)
	f32, _ := scheme.ByName("f32")
	if zero, err = scheme.Cast(zero, f32); err != nil {
		t.Fatal(err)
	}
	p, err := zero.Parts[0].Data.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	clear(p)
	changed, err := eval.Compare(t.Context(), m.With(map[string]formats.Tensor{name: blank(t, zero, p)}), m, list, eval.CompareOptions{})
	if err != nil || changed.Ref.KL.Value < 1e-6 {
		t.Errorf("%+v, %v", changed, err)
	}
	var f *formats.FormatError
	if _, err := eval.Compare(t.Context(), m, m, [][]int32{{1, 2}, {1, 2, 3}}, eval.CompareOptions{}); !errors.As(err, &f) {
		t.Errorf("%v", err)
	}
}

// blank returns a tensor with other bytes.
func blank(t *testing.T, x formats.Tensor, p []byte) formats.Tensor {
	t.Helper()
	s, _ := scheme.ByName(x.Scheme)
	out, err := scheme.New(x.Name, s, x.Shape, nil, tensor.BytesBlob(p))
	if err != nil {
		t.Fatal(err)
	}
	return out
}
