package hf

import (
	"encoding/binary"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// chunkBytes bounds what repacking holds at a time, besides the piece read
// for it, and what picking a single row has to compute.
const chunkBytes = 4 << 20

// tile is the side of the squares in which tables are transposed: a cache
// line of words.
const tile = 16

// readAll reads a Blob without mapping its file.
func readAll(b tensor.Blob) ([]byte, error) {
	p := make([]byte, b.Len())
	if n, err := b.ReadAt(p, 0); n < len(p) {
		return nil, err
	}
	return p, nil
}

// repacked returns n rows of rowBytes bytes that make produces for rows
// [from, to) at a time; from is a multiple of align.
func repacked(n, rowBytes, align int64, make func(from, to int64) ([]byte, error)) tensor.Blob {
	step := max(chunkBytes/max(rowBytes, 1)/align, 1) * align
	var pieces []tensor.Blob
	for from := int64(0); from < n; from += step {
		to := min(from+step, n)
		pieces = append(pieces, tensor.Computed((to-from)*rowBytes, func() ([]byte, error) { return make(from, to) }))
	}
	return tensor.Concat(pieces...)
}

// readColumns reads columns [from, to) of a table of rows rows, its columns
// being width bytes wide.
func readColumns(b tensor.Blob, rows, width, from, to int64) ([]byte, error) {
	if rows == 0 {
		return nil, nil
	}
	rowBytes, size := b.Len()/rows, (to-from)*width
	out := make([]byte, rows*size)
	for r := range rows {
		if n, err := b.ReadAt(out[r*size:(r+1)*size], r*rowBytes+from*width); int64(n) < size {
			return nil, err
		}
	}
	return out, nil
}

// transposed returns the transpose of a table [rows][cols] of elements of
// width bytes.
func transposed(b tensor.Blob, rows, cols, width int64) tensor.Blob {
	return repacked(cols, rows*width, 1, func(from, to int64) ([]byte, error) {
		in, err := readColumns(b, rows, width, from, to)
		if err != nil {
			return nil, err
		}
		n := to - from
		out := make([]byte, len(in))
		for r0 := int64(0); r0 < rows; r0 += tile {
			for c := range n {
				for r := r0; r < min(r0+tile, rows); r++ {
					copy(out[(c*rows+r)*width:][:width], in[(r*n+c)*width:][:width])
				}
			}
		}
		return out, nil
	})
}

// unpackWord returns code i of the stream of words that starts at p, of bits
// bits each, the first in the lowest bits; a code may straddle two words.
func unpackWord(p []byte, i, bits int64) uint32 {
	at, shift := i*bits/32, i*bits%32
	v := uint64(binary.LittleEndian.Uint32(p[4*at:]))
	if shift+bits > 32 {
		v |= uint64(binary.LittleEndian.Uint32(p[4*at+4:])) << 32
	}
	return uint32(v>>shift) & (1<<bits - 1)
}

// An affineMatrix is a matrix of scheme affine in the making. Zeros and index
// are empty where there are none.
type affineMatrix struct {
	name              string
	n, k, bits, group int64
	codes, scales     tensor.Blob
	scaleType         tensor.DType
	zeros             tensor.Blob
	zeroType          tensor.DType
	index             tensor.Blob
}

func (m *affineMatrix) groups() int64 { return (m.k + m.group - 1) / m.group }

// tensor assembles the matrix.
func (m *affineMatrix) tensor() formats.Tensor {
	groups := []int64{m.n, m.groups()}
	t := formats.Tensor{Name: m.name, Shape: []int64{m.n, m.k}, Scheme: "affine",
		Params: map[string]int64{"bits": m.bits, "group": m.group, "scale": typeID(m.scaleType)},
		Parts: []formats.Part{
			{Name: "codes", DType: tensor.U8, Shape: []int64{m.n, (m.k*m.bits + 7) / 8}, Data: m.codes},
			{Name: "scales", DType: m.scaleType, Shape: groups, Data: m.scales},
		}}
	if m.zeroType != tensor.Invalid {
		t.Params["zero"] = typeID(m.zeroType)
		t.Parts = append(t.Parts, formats.Part{Name: "zeros", DType: m.zeroType, Shape: slices.Clone(groups), Data: m.zeros})
	}
	if m.index.Len() > 0 {
		t.Params["index"] = m.n // one row of it for all rows
		t.Parts = append(t.Parts, formats.Part{Name: "index", DType: tensor.I32, Shape: []int64{1, m.k}, Data: m.index})
	}
	return t
}

// typeID is how parameters name an element type; 0 for one without a scheme.
func typeID(d tensor.DType) int64 {
	if s := scheme.ByDType(d); s != nil {
		return int64(s.ID)
	}
	return 0
}

// groupIndex reads which group each column belongs to. It returns an empty
// Blob where that is column/group, as it is unless columns were reordered by
// their activations, or where all are -1 (compressed-tensors: not set).
func (j *joiner) groupIndex(t *formats.Tensor, m *affineMatrix) (tensor.Blob, error) {
	if t.Parts[0].DType != tensor.I32 || len(t.Shape) != 1 || t.Shape[0] != m.k {
		return tensor.Blob{}, j.wrongShape(t, "i32 [%d]", m.k)
	}
	p, err := readAll(t.Parts[0].Data)
	if err != nil {
		return tensor.Blob{}, err
	}
	plain, unset := true, true
	for i := range m.k {
		g := int32(binary.LittleEndian.Uint32(p[4*i:]))
		plain = plain && int64(g) == i/m.group
		unset = unset && g == -1
		if g != -1 && (g < 0 || int64(g) >= m.groups()) || g == -1 && !unset {
			return tensor.Blob{}, formats.Errorf(j.dir, t.Name, "column %d is in group %d of %d", i, g, m.groups())
		}
	}
	if plain || unset {
		return tensor.Blob{}, nil
	}
	return t.Parts[0].Data, nil
}
