package scheme

import (
	"math"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/tensor"
)

// blocks is the layout of ggml's family: one part "data" of bytes, row after
// row, each row K/Block blocks of BlockBytes.
type blocks struct {
	// decode decodes len(dst) weights, whole blocks.
	decode func(dst []float32, src []byte)
}

func (b blocks) parts(s *Scheme, g geometry) ([]PartSpec, error) {
	if err := noParams(s, g); err != nil {
		return nil, err
	}
	if len(g.shape) == 0 {
		return nil, formats.Errorf("", "", "a scalar cannot be %s", s.Name)
	}
	shape := append([]int64(nil), g.shape...)
	last := len(shape) - 1
	if shape[last] = s.rowBytes(g.k); shape[last] < 0 {
		return nil, formats.Errorf("", "", "rows of %d weights overflow", g.k)
	}
	size, err := tensor.Size(tensor.U8, shape)
	if err != nil {
		return nil, formats.Errorf("", "", "%v", err)
	}
	return []PartSpec{{Name: "data", DType: tensor.U8, Shape: shape, Bytes: size}}, nil
}

// rowBytes returns the bytes of k weights, -1 where they overflow.
func (s *Scheme) rowBytes(k int64) int64 {
	n := k / int64(s.Block)
	if n > math.MaxInt64/int64(s.BlockBytes) {
		return -1
	}
	return n * int64(s.BlockBytes)
}

func (b blocks) open(s *Scheme, g geometry, data [][]byte) (rowDecoder, error) {
	return &blockRows{data: data[0], size: s.rowBytes(g.k), decode: b.decode}, nil
}

type blockRows struct {
	data   []byte
	size   int64
	decode func(dst []float32, src []byte)
}

func (r *blockRows) decodeRow(dst []float32, row int64) {
	off := row * r.size
	r.decode(dst, r.data[off:off+r.size:off+r.size])
}

func (b blocks) slice(t *formats.Tensor, s *Scheme, row, n int64) (pieces, error) {
	_, k := t.Rows()
	size := s.rowBytes(k)
	return pieces{data: []tensor.Blob{t.Parts[0].Data.Slice(row*size, n*size)}}, nil
}

func (b blocks) concat(ts []*formats.Tensor, s *Scheme) (pieces, error) {
	return pieces{data: []tensor.Blob{joinPart(ts, 0)}}, nil
}

func (b blocks) pick(t *formats.Tensor, s *Scheme, index []int64) (pieces, error) {
	_, k := t.Rows()
	return pieces{data: []tensor.Blob{pickRows(t.Parts[0].Data, s.rowBytes(k), index)}}, nil
}

// joinPart joins one part of all tensors.
func joinPart(ts []*formats.Tensor, part int) tensor.Blob {
	blobs := make([]tensor.Blob, len(ts))
	for i, t := range ts {
		blobs[i] = t.Parts[part].Data
	}
	return tensor.Concat(blobs...)
}

// pickRows is Blob.PickRows that takes runs of neighbouring rows at once.
func pickRows(b tensor.Blob, size int64, index []int64) tensor.Blob {
	var runs []tensor.Blob
	for i := 0; i < len(index); {
		j := i + 1
		for j < len(index) && index[j] == index[j-1]+1 {
			j++
		}
		runs = append(runs, b.Slice(index[i]*size, int64(j-i)*size))
		i = j
	}
	return tensor.Concat(runs...)
}
