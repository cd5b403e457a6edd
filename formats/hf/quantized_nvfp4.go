package hf

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// NVFP4 in two spellings. For W[..][N][K]:
//
//	compressed-tensors                   ModelOpt
//	NAME.weight_packed u8 [..][N][K/2]   NAME.weight                E2M1 codes, the even weight low
//	NAME.weight_scale [..][N][K/16]      NAME.weight_scale          E4M3 scales
//	NAME.weight_global_scale f32 [1]     NAME.weight_scale_2 f32    of the whole matrix: divides, or multiplies
//
//	w = e2m1 * scale / global    or    e2m1 * scale * scale_2
//
// Codes and scales stay as they are, and what divides becomes its reciprocal, the
// factor of scheme nvfp4, rounded once. Scales that are negative or NaN are refused
// when the weights are read. Scales of activations pass through as tensors.
//
// Source: compressed_tensors' compressors/nvfp4 and quantization/utils; llama.cpp's
// conversion/base.py (_generate_nvfp4_tensors).

// joinModelOpt joins the matrices of NVIDIA's ModelOpt: NVFP4, and FP8 with a scale
// for each.
func (j *joiner) joinModelOpt() error {
	algo, err := j.q.String("quant_algo")
	if err != nil {
		return err
	}
	if !slices.Contains([]string{"NVFP4", "W4A16_NVFP4", "FP8", "MIXED_PRECISION"}, algo) {
		return formats.Unsupportedf(j.q.file, j.q.path+"quant_algo", "quantized by ModelOpt as %q", algo)
	}
	err = j.each(".weight", func(i int, base string) error {
		if j.in[i].Parts[0].DType != tensor.U8 {
			return nil
		}
		factor, err := j.need(base+".weight_scale_2", j.in[i].Name)
		if err != nil {
			return err
		}
		return j.putNVFP4(i, base, factor, false)
	})
	if err != nil {
		return err
	}
	return j.joinScaledFP8(nil)
}

// putNVFP4 interleaves codes and scales into the blocks of scheme nvfp4. The factor
// multiplies, or divides.
func (j *joiner) putNVFP4(i int, base string, factor *formats.Tensor, divides bool) error {
	codes := &j.in[i]
	scales, err := j.need(base+".weight_scale", codes.Name)
	if err != nil {
		return err
	}
	if len(codes.Shape) < 2 || codes.Parts[0].DType != tensor.U8 {
		return j.wrongShape(codes, "u8 [N, K/2]")
	}
	shape := slices.Clone(codes.Shape)
	shape[len(shape)-1] *= 2
	m := formats.Tensor{Name: base + ".weight", Shape: shape, Scheme: "nvfp4"}
	n, k := m.Rows()
	if k%64 != 0 {
		return formats.Unsupportedf(j.dir, codes.Name, "NVFP4 in rows of %d weights (multiples of 64 are read)", k)
	}
	if d := scales.Parts[0].DType; d != tensor.F8E4M3 && d != tensor.U8 || scales.Elements() != n*(k/16) {
		return j.wrongShape(scales, "an f8_e4m3 for each 16 weights of %v", shape)
	}
	f, err := j.nvfp4Factor(factor, divides)
	if err != nil {
		return err
	}
	blocks := k / 64
	data := repacked(n, blocks*36, 1, func(from, to int64) ([]byte, error) {
		c, err := readAll(codes.Parts[0].Data.Slice(from*blocks*32, (to-from)*blocks*32))
		if err != nil {
			return nil, err
		}
		s, err := readAll(scales.Parts[0].Data.Slice(from*blocks*4, (to-from)*blocks*4))
		if err != nil {
			return nil, err
		}
		if at := slices.IndexFunc(s, func(x byte) bool { return x >= 0x7F }); at >= 0 {
			return nil, formats.Errorf(j.dir, scales.Name, "scale %d is negative or NaN", from*blocks*4+int64(at))
		}
		out := make([]byte, len(s)*9)
		scheme.PackNVFP4(out, c, s)
		return out, nil
	})
	part := slices.Clone(shape)
	part[len(part)-1] = blocks * 36
	m.Params = map[string]int64{"rows": max(n, 1)}
	m.Parts = []formats.Part{
		{Name: "data", DType: tensor.U8, Shape: part, Data: data},
		{Name: "scale", DType: tensor.F32, Shape: []int64{min(n, 1), min(k, 1)}, Data: tensor.BytesBlob(float32Bytes([]float32{f})[:4*min(n, k, 1)])},
	}
	return j.put(i, m)
}

// nvfp4Factor reads the factor of a matrix.
func (j *joiner) nvfp4Factor(t *formats.Tensor, divides bool) (float32, error) {
	if t.Parts[0].DType != tensor.F32 || t.Elements() != 1 {
		return 0, j.wrongShape(t, "one f32")
	}
	p, err := readAll(t.Parts[0].Data)
	if err != nil {
		return 0, err
	}
	f := math.Float32frombits(binary.LittleEndian.Uint32(p))
	if divides {
		f = 1 / f
	}
	if !(math.Abs(float64(f)) <= math.MaxFloat32) {
		return 0, formats.Errorf(j.dir, t.Name, "%g is no factor", f)
	}
	return f, nil
}
