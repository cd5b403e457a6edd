package scheme

import (
	"fmt"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/tensor"
)

// Slice returns rows [row, row+n) of t as a tensor of shape [n, K], without
// reading anything. The rows of a one-dimensional plain tensor are its
// elements, so a fused bias splits like its weight; the shape is then [n].
//
// It panics where the rows are not in t, and fails with an UnsupportedError
// where the scheme cannot be cut there.
func Slice(t formats.Tensor, row, n int64) (formats.Tensor, error) {
	v, s, err := asRows(&t)
	if err != nil {
		return formats.Tensor{}, err
	}
	if rows, _ := v.Rows(); row < 0 || n < 0 || row > rows-n {
		panic(fmt.Sprintf("scheme: rows [%d:+%d] of %d", row, n, rows))
	}
	p, err := s.layout.slice(v, s, row, n)
	if err != nil {
		return formats.Tensor{}, formats.Of(t.Name, err)
	}
	return assemble(t.Name, s, rowShape(v, &t, n), p)
}

// PickRows returns the rows of t in the order of index, as a tensor of the
// shape [len(index), K], without reading anything; a row may occur any number
// of times. One-dimensional plain tensors and errors are as in [Slice].
func PickRows(t formats.Tensor, index []int64) (formats.Tensor, error) {
	v, s, err := asRows(&t)
	if err != nil {
		return formats.Tensor{}, err
	}
	rows, _ := v.Rows()
	for _, r := range index {
		if r < 0 || r >= rows {
			panic(fmt.Sprintf("scheme: row %d of %d", r, rows))
		}
	}
	p, err := s.layout.pick(v, s, index)
	if err != nil {
		return formats.Tensor{}, formats.Of(t.Name, err)
	}
	return assemble(t.Name, s, rowShape(v, &t, int64(len(index))), p)
}

// Concat stacks the rows of tensors of one scheme and one K, without reading
// their weights: experts into [E, N, K], or q, k and v into one. Where shape
// has one dimension, plain vectors are joined end to end.
//
// It fails with an UnsupportedError where the scheme has no way to say what
// came out, and with a FormatError where the tensors do not fill shape.
func Concat(name string, shape []int64, ts ...formats.Tensor) (formats.Tensor, error) {
	if len(ts) == 0 {
		panic("scheme: nothing to concatenate")
	}
	s, views, rows, k, err := stack(name, shape, ts)
	if err != nil {
		return formats.Tensor{}, err
	}
	if n, err := tensor.Elements(shape); err != nil || n != rows*k {
		return formats.Tensor{}, formats.Errorf("", name, "%d rows of %d weights do not fill shape %v", rows, k, shape)
	}
	p, err := s.layout.concat(views, s)
	if err != nil {
		return formats.Tensor{}, formats.Of(name, err)
	}
	return assemble(name, s, shape, p)
}

// stack checks that tensors have one scheme and rows of one length, and
// returns them as rows: of elements where shape has one dimension.
func stack(name string, shape []int64, ts []formats.Tensor) (s *Scheme, views []*formats.Tensor, rows, k int64, err error) {
	_, k = (&formats.Tensor{Shape: shape}).Rows()
	if len(shape) == 1 {
		k = 1
	}
	for i := range ts {
		view := &ts[i]
		s1, _, err := check(view)
		if err == nil && len(shape) == 1 {
			view, _, err = asRows(view)
		}
		if err != nil {
			return nil, nil, 0, 0, err
		}
		if s != nil && s1 != s {
			return nil, nil, 0, 0, formats.Unsupportedf("", name, "joining %s and %s", s.Name, s1.Name)
		}
		n1, k1 := view.Rows()
		if k1 != k {
			return nil, nil, 0, 0, formats.Errorf("", name, "%q has rows of %d weights instead of %d", ts[i].Name, k1, k)
		}
		s, views, rows = s1, append(views, view), rows+n1
	}
	return s, views, rows, k, nil
}

// asRows checks t and views a plain vector as rows of one element.
func asRows(t *formats.Tensor) (*formats.Tensor, *Scheme, error) {
	s, _, err := check(t)
	if err != nil || !s.Plain() || len(t.Shape) != 1 {
		return t, s, err
	}
	v := *t
	v.Shape = []int64{t.Shape[0], 1}
	return &v, s, nil
}

func rowShape(v, t *formats.Tensor, n int64) []int64 {
	if len(v.Shape) != len(t.Shape) {
		return []int64{n}
	}
	_, k := v.Rows()
	return []int64{n, k}
}

// assemble makes the tensor that pieces belong to.
func assemble(name string, s *Scheme, shape []int64, p pieces) (formats.Tensor, error) {
	specs, err := s.Parts(shape, p.params)
	if err != nil {
		return formats.Tensor{}, formats.Of(name, err)
	}
	t := formats.Tensor{Name: name, Shape: append([]int64(nil), shape...), Scheme: s.Name, Params: p.params}
	for i, spec := range specs {
		t.Parts = append(t.Parts, formats.Part{Name: spec.Name, DType: spec.DType, Shape: spec.Shape, Data: p.data[i]})
	}
	return t, Check(&t)
}

// New makes a tensor from the bytes of its parts, in order, and checks it.
func New(name string, s *Scheme, shape []int64, params map[string]int64, parts ...tensor.Blob) (formats.Tensor, error) {
	specs, err := s.Parts(shape, params)
	if err != nil {
		return formats.Tensor{}, formats.Of(name, err)
	}
	if len(parts) != len(specs) {
		return formats.Tensor{}, formats.Errorf("", name, "%d parts, but %s has %d here", len(parts), s.Name, len(specs))
	}
	return assemble(name, s, shape, pieces{params: params, data: parts})
}
