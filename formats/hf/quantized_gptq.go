package hf

import (
	"encoding/binary"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/tensor"
)

// GPTQ, as AutoGPTQ and GPTQModel write it. For W[N][K] in groups of G:
//
//	qweight i32 [K*bits/32][N]      codes along K, the first in the lowest bits
//	qzeros  i32 [K/G][N*bits/32]    zero points along N, packed likewise
//	scales      [K/G][N]
//	g_idx   i32 [K]                 the group of each column; optional
//
//	w = scale * (code - zero)
//
// In checkpoint_format "gptq", the default, zero is the stored number plus
// one; in "gptq_v2" it is the stored number. A column's words, read along K,
// are the row's codes in our order: codes are transposed, not repacked.
//
// Source: AutoGPTQ's nn_modules/qlinear, GPTQModel's models/loader.
func (j *joiner) joinGPTQ() error {
	bits, err := j.q.Int("bits")
	if err != nil {
		return err
	}
	group, err := j.q.Int("group_size")
	if err != nil {
		return err
	}
	format, err := j.q.StringOr("checkpoint_format", "gptq")
	if err != nil {
		return err
	}
	marlin, err := j.q.BoolOr("is_marlin_format", false)
	if err != nil {
		return err
	}
	if marlin {
		format = "marlin"
	}
	if format != "gptq" && format != "gptq_v2" {
		return formats.Unsupportedf(j.q.file, j.q.path+"checkpoint_format", "GPTQ in the format %q (gptq and gptq_v2 are read)", format)
	}
	return j.each(".qweight", func(i int, base string) error {
		m := &affineMatrix{name: base + ".weight", bits: bits, group: group}
		if err := j.gptqMatrix(m, &j.in[i], base, format == "gptq"); err != nil {
			return err
		}
		return j.put(i, m.tensor())
	})
}

func (j *joiner) gptqMatrix(m *affineMatrix, q *formats.Tensor, base string, minusOne bool) error {
	index := j.find(base + ".g_idx")
	if err := j.gptqSizes(m, q, index); err != nil {
		return err
	}
	zeros, err := j.groups(m, q, base)
	if err != nil {
		return err
	}
	if index != nil {
		if m.index, err = j.groupIndex(index, m); err != nil {
			return err
		}
	}
	m.codes = transposed(q.Parts[0].Data, q.Shape[0], m.n, 4)
	plus := uint32(0)
	if minusOne {
		plus = 1
	}
	m.zeroType = tensor.U8
	if m.bits == 8 && minusOne {
		m.zeroType = tensor.I16 // up to 256
	}
	m.zeros = gptqZeros(zeros, m, plus)
	return nil
}

// gptqSizes finds N and K, and the bits and the group of a module that the
// key "dynamic" gives others than the configuration.
func (j *joiner) gptqSizes(m *affineMatrix, q, index *formats.Tensor) error {
	if q.Parts[0].DType != tensor.I32 || len(q.Shape) != 2 {
		return j.wrongShape(q, "i32 [K*bits/32, N]")
	}
	words := q.Shape[0]
	if j.q.Has("dynamic") {
		if index == nil || len(index.Shape) != 1 || index.Shape[0] == 0 || words*32%index.Shape[0] != 0 {
			return formats.Unsupportedf(j.dir, q.Name, "GPTQ with the key dynamic and no g_idx that tells the bits")
		}
		m.bits = words * 32 / index.Shape[0]
		if s := j.find(m.name[:len(m.name)-len("weight")] + "scales"); s != nil && len(s.Shape) == 2 && s.Shape[0] > 0 && index.Shape[0]%s.Shape[0] == 0 {
			m.group = index.Shape[0] / s.Shape[0]
		}
	}
	switch m.bits {
	case 2, 3, 4, 8:
	default:
		return formats.Unsupportedf(j.dir, q.Name, "GPTQ with %d bits (2, 3, 4 and 8 are read)", m.bits)
	}
	m.n, m.k = q.Shape[1], words*32/m.bits
	if words*32%m.bits != 0 || m.k == 0 || m.n*m.bits%32 != 0 {
		return j.wrongShape(q, "whole words of %d-bit codes", m.bits)
	}
	return nil
}

// groups finds the scales [K/G][N] of a GPTQ or AWQ matrix q, which it puts
// into m, and its zero points, whose words [K/G][N*bits/32] it returns. m has
// its sizes, its group perhaps as -1: the whole row.
func (j *joiner) groups(m *affineMatrix, q *formats.Tensor, base string) (zeros tensor.Blob, err error) {
	if m.group == -1 {
		m.group = m.k
	}
	if m.group < 1 || m.group > m.k {
		return zeros, formats.Errorf(j.dir, q.Name, "groups of %d in rows of %d", m.group, m.k)
	}
	s, err := j.need(base+".scales", q.Name)
	if err != nil {
		return zeros, err
	}
	z, err := j.need(base+".qzeros", q.Name)
	if err != nil {
		return zeros, err
	}
	groups, words := m.groups(), m.n*m.bits/32
	if len(s.Shape) != 2 || s.Shape[0] != groups || s.Shape[1] != m.n || !isScale(s.Parts[0].DType) {
		return zeros, j.wrongShape(s, "f16, bf16 or f32 [%d, %d]", groups, m.n)
	}
	if len(z.Shape) != 2 || z.Shape[0] != groups || z.Shape[1] != words || z.Parts[0].DType != tensor.I32 {
		return zeros, j.wrongShape(z, "i32 [%d, %d]", groups, words)
	}
	m.scaleType = s.Parts[0].DType
	m.scales = transposed(s.Parts[0].Data, groups, m.n, int64(m.scaleType.Bits()/8))
	return z.Parts[0].Data, nil
}

func isScale(d tensor.DType) bool { return d == tensor.F16 || d == tensor.BF16 || d == tensor.F32 }

// gptqZeros unpacks zero points [groups][N] along N into [N][groups].
func gptqZeros(b tensor.Blob, m *affineMatrix, plus uint32) tensor.Blob {
	width, n, bits, groups := int64(m.zeroType.Bits()/8), m.n, m.bits, m.groups()
	return tensor.Computed(n*groups*width, func() ([]byte, error) {
		in, err := readAll(b)
		if err != nil {
			return nil, err
		}
		out := make([]byte, n*groups*width)
		for g := range groups {
			row := in[g*n*bits/8:]
			for i := range n {
				z := unpackWord(row, i, bits) + plus
				if width == 1 {
					out[i*groups+g] = byte(z)
				} else {
					binary.LittleEndian.PutUint16(out[2*(i*groups+g):], uint16(z))
				}
			}
		}
		return out, nil
	})
}
