package checkpoint

import (
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/arch"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/scheme"
)

// Numbers gives a graph the numbers that a checkpoint keeps as tensors. Errors name
// file.
func Numbers(file string, g *graph.Graph, a *arch.Architecture, tensors []formats.Tensor) error {
	return newBinder(file, g, a.HF(), nil, tensors).numbers(a)
}

func (b *binder) numbers(a *arch.Architecture) error {
	for _, n := range a.Numbers(b.g) {
		t, ok := b.find(n.Tensor)
		if !ok {
			return formats.Errorf(b.file, n.Tensor, "tensor is missing")
		}
		if t.Elements() != 1 {
			return formats.Errorf(b.file, t.Name, "shape is %v, not one number", t.Shape)
		}
		b.used[t.Name] = true
		x, err := Reshape(t, t.Name, []int64{1})
		if err != nil {
			return b.wrap(t.Name, err)
		}
		var v [1]float32
		if err := scheme.DecodeRows(v[:], &x, 0, 1); err != nil {
			return b.wrap(t.Name, err)
		}
		*n.Value = v[0]
	}
	return nil
}
