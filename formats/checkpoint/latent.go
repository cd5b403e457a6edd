package checkpoint

import (
	"errors"
	"fmt"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// Checkpoints keep the two stacks of latent attention in one matrix, kv_b_proj: of each
// head NopeDim rows, which are KB turned round, then ValueDim rows, which are VB.

// latentPart takes one of the stacks out of such a matrix, part 0 for KB and 1 for VB.
// Codes that cannot be turned or cut there are decoded to float32 when they are read.
func latentPart(t formats.Tensor, part int, a *graph.Latent, w graph.Weight) (formats.Tensor, error) {
	each := a.NopeDim + a.ValueDim
	if rows, k := t.Rows(); rows != a.Heads*each || k != a.Rank {
		return t, fmt.Errorf("shape is %v, the configuration asks for %v", t.Shape, []int64{a.Heads * each, a.Rank})
	}
	stack, err := latentStack(t, part, a, w)
	var unsupported *formats.UnsupportedError
	if errors.As(err, &unsupported) {
		if t, err = decoded(t); err == nil {
			return latentStack(t, part, a, w)
		}
	}
	return stack, err
}

func latentStack(t formats.Tensor, part int, a *graph.Latent, w graph.Weight) (_ formats.Tensor, err error) {
	heads, each := make([]formats.Tensor, a.Heads), a.NopeDim+a.ValueDim
	for h := range heads {
		first, n := int64(h)*each, a.NopeDim
		if part == 1 {
			first, n = first+n, a.ValueDim
		}
		if heads[h], err = scheme.Slice(t, first, n); err != nil {
			return t, err
		}
		if part == 0 {
			if heads[h], err = Transpose(heads[h]); err != nil {
				return t, err
			}
		}
	}
	return scheme.Concat(w.Name, w.Shape, heads...)
}

// decoded is a tensor's numbers in float32, decoded when they are read.
func decoded(t formats.Tensor) (formats.Tensor, error) {
	n, k := t.Rows()
	s, ok := scheme.ByName("f32")
	if !ok || n > 0 && k > (1<<60)/n {
		return t, formats.Unsupportedf("", t.Name, "scheme %q in a matrix that is cut by heads", t.Scheme)
	}
	data := tensor.Computed(4*n*k, func() ([]byte, error) {
		values, err := form.Decode(&t)
		if err != nil {
			return nil, err
		}
		out := make([]byte, 4*len(values))
		return out, tensor.FromFloat32(out, values, tensor.F32)
	})
	return scheme.New(t.Name, s, []int64{n, k}, nil, data)
}

// JoinLatent puts the two stacks of latent attention into one matrix, as checkpoints
// have them.
func JoinLatent(name string, kb, vb formats.Tensor, a *graph.Latent) (formats.Tensor, error) {
	turned, err := TransposeEach(kb, a.Heads)
	if err != nil {
		return kb, err
	}
	var pieces []formats.Tensor
	for h := range a.Heads {
		k, err := scheme.Slice(turned, h*a.NopeDim, a.NopeDim)
		if err != nil {
			return k, err
		}
		v, err := scheme.Slice(vb, h*a.ValueDim, a.ValueDim)
		if err != nil {
			return v, err
		}
		pieces = append(pieces, k, v)
	}
	return scheme.Concat(name, []int64{a.Heads * (a.NopeDim + a.ValueDim), a.Rank}, pieces...)
}
