package hf

import (
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/tensor"
)

// FP8 weights, whose scales lie beside them as NAME_scale or NAME_scale_inv,
// which multiplies all the same:
//
//	w = e4m3 * scale
//
// A scale belongs to the whole tensor ([] or [1]), to a row ([N] or [N, 1]),
// or to a block of weight_block_size ([ceil(N/128), ceil(K/128)]); stacked
// experts have one more dimension in front of both. Scales of activations
// (input_scale, activation_scale) pass through as tensors.
//
// Source: transformers' integrations/finegrained_fp8.py, DeepSeek-V3's
// inference/fp8_cast_bf16.py, AutoFP8.
func (j *joiner) joinFP8() error {
	block, err := j.blockSize(j.q, "weight_block_size")
	if err != nil {
		return err
	}
	return j.joinScaledFP8(block)
}

// blockSize reads a pair of integers, nil where the key is absent.
func (j *joiner) blockSize(c *Config, key string) ([]int64, error) {
	if !c.Has(key) {
		return nil, nil
	}
	block, err := c.Ints(key)
	if err == nil && (len(block) != 2 || block[0] < 1 || block[1] < 1) {
		err = formats.Errorf(c.file, c.path+key, "%v is not two sizes", block)
	}
	return block, err
}

// joinScaledFP8 joins every tensor of an 8-bit float type with its scale.
func (j *joiner) joinScaledFP8(block []int64) error {
	for i := range j.in {
		t := &j.in[i]
		if j.used[i] || !isFP8(t.Parts[0].DType) || len(t.Shape) < 2 {
			continue
		}
		scale := j.find(t.Name + "_scale_inv")
		if other := j.find(t.Name + "_scale"); scale == nil {
			scale = other
		} else if other != nil {
			return formats.Errorf(j.dir, t.Name, "has both %q and %q", scale.Name, other.Name)
		}
		if scale == nil {
			return formats.Errorf(j.dir, t.Name, "%s without %q or %q", t.Scheme, t.Name+"_scale", t.Name+"_scale_inv")
		}
		if t.Parts[0].DType != tensor.F8E4M3 {
			return formats.Unsupportedf(j.dir, t.Name, "scaled weights of type %s (f8_e4m3 is read)", t.Scheme)
		}
		if err := j.putFP8(i, t, scale, block); err != nil {
			return err
		}
	}
	return nil
}

func isFP8(d tensor.DType) bool {
	switch d {
	case tensor.F8E4M3, tensor.F8E5M2, tensor.F8E4M3Z, tensor.F8E5M2Z:
		return true
	}
	return false
}

func (j *joiner) putFP8(i int, t, scale *formats.Tensor, block []int64) error {
	n, k := t.Rows()
	rows, cols, ok := fp8Rectangle(t.Shape, scale.Shape, block)
	if !ok || n == 0 || k == 0 {
		return j.wrongShape(scale, "a scale for the tensor, for each row, or for each block of %v, of %v,", block, t.Shape)
	}
	data, dtype := scale.Parts[0].Data, scale.Parts[0].DType
	if dtype == tensor.F8E8M0 { // DeepSeek's ue8m0: powers of two, exact as float32
		data, dtype = widened(data), tensor.F32
	}
	if !isScale(dtype) {
		return j.wrongShape(scale, "f16, bf16, f32 or f8_e8m0")
	}
	return j.put(i, formats.Tensor{Name: t.Name, Shape: t.Shape, Scheme: "fp8",
		Params: map[string]int64{"rows": rows, "cols": cols, "scale": typeID(dtype)},
		Parts: []formats.Part{
			{Name: "codes", DType: tensor.F8E4M3, Shape: []int64{n, k}, Data: t.Parts[0].Data},
			{Name: "scales", DType: dtype, Shape: []int64{ceilDiv(n, rows), ceilDiv(k, cols)}, Data: data},
		}})
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// fp8Rectangle returns the rows and columns of a tensor of that shape that
// share one of the scales.
func fp8Rectangle(shape, scale, block []int64) (rows, cols int64, ok bool) {
	n, k := (&formats.Tensor{Shape: shape}).Rows()
	scales := (&formats.Tensor{Shape: scale}).Elements()
	perExpert := shape[len(shape)-2]
	experts := n / max(perExpert, 1)
	if block != nil && len(scale) == len(shape) {
		rows, cols = min(block[0], perExpert), min(block[1], k)
		// A block must not straddle two experts, whose rows are one run here.
		whole := experts == 1 || rows > 0 && perExpert%rows == 0
		if rows > 0 && cols > 0 && whole && scale[len(scale)-1] == ceilDiv(k, cols) &&
			scales == experts*ceilDiv(perExpert, rows)*ceilDiv(k, cols) {
			return rows, cols, true
		}
	}
	column := len(scale) < len(shape) || scale[len(scale)-1] == 1
	switch {
	case scales == 1:
		return n, k, true
	case len(shape) > 2 && scales == experts:
		return perExpert, k, column
	case scales == n:
		return 1, k, column
	}
	return 0, 0, false
}

// widened turns E8M0 scales into float32.
func widened(b tensor.Blob) tensor.Blob {
	return tensor.Computed(4*b.Len(), func() ([]byte, error) {
		in, err := readAll(b)
		if err != nil {
			return nil, err
		}
		values := make([]float32, len(in))
		if err := tensor.ToFloat32(values, in, tensor.F8E8M0); err != nil {
			return nil, err
		}
		return float32Bytes(values), nil
	})
}
