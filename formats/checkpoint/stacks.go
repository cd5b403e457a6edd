package checkpoint

import (
	"fmt"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// Stacks of experts whose rows or columns lie in another order than a graph's are
// put right expert by expert, when they are read: as spans of single rows a model of
// a hundred experts a layer would take a gigabyte to open.

// TransposeEach turns a stack of plain [experts][K][N] matrices into
// [experts*N][K], or back, when it is read.
func TransposeEach(t formats.Tensor, experts int64) (formats.Tensor, error) {
	rows, n := t.Rows()
	k := rows / experts
	turned := make([]formats.Tensor, experts)
	for e := range turned {
		x, err := scheme.Slice(t, int64(e)*k, k)
		if err != nil {
			return t, err
		}
		if turned[e], err = Transpose(x); err != nil {
			return t, err
		}
	}
	return scheme.Concat(t.Name, []int64{experts * n, k}, turned...)
}

// everyOther takes the rows of one of several parts that take turns, in groups of
// that many rows, out of the rows of t.
func everyOther(t formats.Tensor, part, parts int, group int64) (formats.Tensor, error) {
	index := make([]int64, 0, group/int64(parts))
	for i := int64(part); i < group; i += int64(parts) {
		index = append(index, i)
	}
	return regrouped([]formats.Tensor{t}, []int64{group}, index)
}

// Alternate is the inverse of what a binder does by [arch.Link.Alternating]: rows of
// the parts, of which each group has so many, take turns.
func Alternate(parts []formats.Tensor, group int64) (formats.Tensor, error) {
	groups, index := make([]int64, len(parts)), make([]int64, 0, group*int64(len(parts)))
	for i := range group {
		for p := range parts {
			groups[p], index = group, append(index, int64(p)*group+i)
		}
	}
	return regrouped(parts, groups, index)
}

// regrouped joins one group of rows of each of several tensors after another, and
// gives the rows of each such join the order of index.
func regrouped(ts []formats.Tensor, groups, index []int64) (formats.Tensor, error) {
	s, _ := scheme.ByName(ts[0].Scheme)
	vector := len(ts[0].Shape) == 1
	rows, k := ts[0].Rows()
	if vector {
		rows, k = k, 1
	}
	var pieces []tensor.Blob
	for g := range rows / groups[0] {
		var of []formats.Tensor
		all := int64(0)
		for i := range ts {
			if ts[i].Scheme != s.Name || len(ts[i].Parts) != 1 {
				return ts[i], formats.Unsupportedf("", ts[i].Name, "rows of stacked experts in scheme %q put in another order", ts[i].Scheme)
			}
			x, err := scheme.Slice(ts[i], g*groups[i], groups[i])
			if err != nil {
				return x, err
			}
			of, all = append(of, x), all+x.Parts[0].Data.Len()
		}
		size, joined := all/sum(groups)*int64(len(index)), shaped(vector, sum(groups), k)
		pieces = append(pieces, tensor.Computed(size, func() ([]byte, error) {
			x, err := scheme.Concat(ts[0].Name, joined, of...)
			if err == nil {
				x, err = scheme.PickRows(x, index)
			}
			if err != nil {
				return nil, err
			}
			return x.Parts[0].Data.Bytes()
		}))
	}
	return scheme.New(ts[0].Name, s, shaped(vector, rows/groups[0]*int64(len(index)), k), ts[0].Params, tensor.Concat(pieces...))
}

func shaped(vector bool, rows, k int64) []int64 {
	if vector {
		return []int64{rows}
	}
	return []int64{rows, k}
}

func sum(list []int64) (n int64) {
	for _, v := range list {
		n += v
	}
	return n
}

// turnedStack reports whether a stack [experts][rows/experts][k] lies transposed.
func turnedStack(t formats.Tensor, w graph.Weight, rows, k int64) bool {
	return len(w.Shape) == 3 && len(t.Shape) == 3 && t.Shape[1] == k && t.Shape[2] == rows/w.Shape[0] && t.Shape[1] != t.Shape[2]
}

// stackedRows checks a transposed stack of plain matrices and makes it
// [experts*N][K]. A stack in codes is never transposed.
func stackedRows(t formats.Tensor, experts, rows, k int64) (formats.Tensor, error) {
	if s, ok := scheme.ByName(t.Scheme); !ok || !s.Plain() {
		return asRows(t, rows, k, false)
	}
	if len(t.Shape) != 3 || t.Shape[0] != experts || t.Shape[1] != k || t.Shape[2] != rows/experts {
		return t, fmt.Errorf("shape is %v, the configuration asks for %v", t.Shape, []int64{experts, k, rows / experts})
	}
	return TransposeEach(t, experts)
}
