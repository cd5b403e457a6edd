package hf

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// MXFP4 as gpt-oss stores it. For W[..][N][K]:
//
//	NAME_blocks u8 [..][N][K/32][16]    E2M1 codes, the even weight low
//	NAME_scales u8 [..][N][K/32]        E8M0 exponents
//
//	w = 2^(exponent-127) * e2m1
//
// The codes stay as they are; scheme mxfp4 decodes code 8, the negative zero,
// to zero, as ggml does. Exponent 255, NaN, which that scheme has not, is
// refused when the weights are read.
//
// Source: transformers' integrations/mxfp4.py.
func (j *joiner) joinMXFP4() error {
	return j.each("_blocks", func(i int, base string) error {
		t := &j.in[i]
		scales, err := j.need(base+"_scales", t.Name)
		if err != nil {
			return err
		}
		d := len(t.Shape)
		if d < 3 || t.Shape[d-1] != 16 || t.Parts[0].DType != tensor.U8 {
			return j.wrongShape(t, "u8 [.., N, K/32, 16]")
		}
		shape := append([]int64(nil), t.Shape[:d-1]...)
		shape[d-2] *= 32
		return j.putMXFP4(i, base, shape, t, scales)
	})
}

// putMXFP4 interleaves codes and exponents into the blocks of scheme mxfp4.
func (j *joiner) putMXFP4(i int, name string, shape []int64, codes, scales *formats.Tensor) error {
	m := formats.Tensor{Name: name, Shape: shape, Scheme: "mxfp4"}
	n, k := m.Rows()
	if d := scales.Parts[0].DType; d != tensor.U8 && d != tensor.F8E8M0 || k%32 != 0 ||
		scales.Elements() != n*(k/32) || codes.Parts[0].Data.Len() != n*(k/32)*16 {
		return j.wrongShape(scales, "an exponent for each 32 weights of %v", shape)
	}
	blocks := k / 32
	data := repacked(n, blocks*17, 1, func(from, to int64) ([]byte, error) {
		c, err := readAll(codes.Parts[0].Data.Slice(from*blocks*16, (to-from)*blocks*16))
		if err != nil {
			return nil, err
		}
		s, err := readAll(scales.Parts[0].Data.Slice(from*blocks, (to-from)*blocks))
		if err != nil {
			return nil, err
		}
		if at := bytes.IndexByte(s, 0xFF); at >= 0 {
			return nil, formats.Errorf(j.dir, scales.Name, "exponent %d is NaN", from*blocks+int64(at))
		}
		out := make([]byte, len(s)*17)
		scheme.PackMXFP4(out, c, s)
		return out, nil
	})
	part := append([]int64(nil), shape...)
	part[len(part)-1] = blocks * 17
	m.Parts = []formats.Part{{Name: "data", DType: tensor.U8, Shape: part, Data: data}}
	return j.put(i, m)
}

func float32Bytes(values []float32) []byte {
	out := make([]byte, 0, 4*len(values))
	for _, v := range values {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}
