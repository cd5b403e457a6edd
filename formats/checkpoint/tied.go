package checkpoint

import (
	"bytes"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/arch"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/tensor"
)

// Untie gives the graph a head of its own where the configuration ties it to
// the embedding table and the checkpoint has both, with different numbers: so
// does transformers since version 5 (tie_weights in its modeling_utils.py). A
// head that is a copy of the table is read as the table. Errors name file.
func Untie(file string, g *graph.Graph, links []arch.Link, tensors []formats.Tensor) error {
	return newBinder(file, g, links, nil, tensors).untie()
}

func (b *binder) untie() error {
	if !b.g.Tied() {
		return nil
	}
	head, ok := b.whole("head.weight")
	if !ok {
		return nil
	}
	table, ok := b.whole(b.g.Embed.Table)
	if !ok {
		return nil // bind names what is missing
	}
	same, err := sameBytes(head, table)
	if err != nil {
		return b.wrap(head.Name, err)
	}
	if same {
		b.used[head.Name] = true
		return nil
	}
	b.g.Head.Weight = "head.weight"
	for _, w := range b.g.Weights() {
		b.shapes[w.Name] = w.Shape
	}
	return nil
}

// whole returns the checkpoint's tensor of a weight that has one to itself.
func (b *binder) whole(weight string) (formats.Tensor, bool) {
	pattern, block, suffix := arch.Split(weight)
	for i := range b.links {
		if l := &b.links[i]; slices.Equal(l.Parts, []string{pattern}) && l.Holds(b.g) {
			if t, ok := b.find(l.Name(block, 0, suffix)); ok {
				return t, true
			}
		}
	}
	return formats.Tensor{}, false
}

// sameBytes reports whether two tensors are stored alike, byte for byte. It
// reads no further than the first difference.
func sameBytes(a, b formats.Tensor) (bool, error) {
	if a.Scheme != b.Scheme || !slices.Equal(a.Shape, b.Shape) || len(a.Parts) != len(b.Parts) {
		return false, nil
	}
	for i := range a.Parts {
		same, err := sameBlob(a.Parts[i].Data, b.Parts[i].Data)
		if !same || err != nil {
			return false, err
		}
	}
	return true, nil
}

func sameBlob(a, b tensor.Blob) (bool, error) {
	if a.Len() != b.Len() {
		return false, nil
	}
	const chunk = 16 << 20
	p, q := make([]byte, min(chunk, a.Len())), make([]byte, min(chunk, a.Len()))
	for off := int64(0); off < a.Len(); off += chunk {
		n := min(chunk, a.Len()-off)
		if _, err := a.ReadAt(p[:n], off); err != nil {
			return false, err
		}
		if _, err := b.ReadAt(q[:n], off); err != nil {
			return false, err
		}
		if !bytes.Equal(p[:n], q[:n]) {
			return false, nil
		}
	}
	return true, nil
}
