package scheme

import (
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/tensor"
)

// plain is the layout of unquantized elements: one part "data" of the
// tensor's own shape. Types of fewer than 8 bits are packed without padding
// between rows.
type plain struct{}

func (plain) parts(s *Scheme, g geometry) ([]PartSpec, error) {
	if err := noParams(s, g); err != nil {
		return nil, err
	}
	size, err := tensor.Size(s.DType, g.shape)
	if err != nil {
		return nil, formats.Errorf("", "", "%v", err)
	}
	shape := append([]int64(nil), g.shape...)
	return []PartSpec{{Name: "data", DType: s.DType, Shape: shape, Bytes: size}}, nil
}

func (plain) open(s *Scheme, g geometry, data [][]byte) (rowDecoder, error) {
	size, err := plainRow(s, g.k)
	if err != nil {
		return nil, err
	}
	if err := tensor.ToFloat32(nil, nil, s.DType); err != nil {
		return nil, formats.Unsupportedf("", "", "%v", err)
	}
	return &plainRows{data: data[0], size: size, dtype: s.DType}, nil
}

// plainRow returns the bytes of a row, which must be whole ones for rows to
// be told apart.
func plainRow(s *Scheme, k int64) (int64, error) {
	bits := int64(s.DType.Bits())
	if bits%8 != 0 && k*bits%8 != 0 {
		return 0, formats.Unsupportedf("", "", "rows of %d %v elements do not start at whole bytes", k, s.DType)
	}
	return k * bits / 8, nil
}

type plainRows struct {
	data  []byte
	size  int64
	dtype tensor.DType
}

func (r *plainRows) decodeRow(dst []float32, row int64) {
	off := row * r.size
	if err := tensor.ToFloat32(dst, r.data[off:off+r.size], r.dtype); err != nil {
		panic(err) // sizes and type were checked when the tensor was opened
	}
}

func (plain) slice(t *formats.Tensor, s *Scheme, row, n int64) (pieces, error) {
	_, k := t.Rows()
	size, err := plainRow(s, k)
	if err != nil {
		return pieces{}, err
	}
	return pieces{data: []tensor.Blob{t.Parts[0].Data.Slice(row*size, n*size)}}, nil
}

func (plain) concat(ts []*formats.Tensor, s *Scheme) (pieces, error) {
	for _, t := range ts {
		if _, err := plainRow(s, t.Elements()); err != nil {
			return pieces{}, err
		}
	}
	return pieces{data: []tensor.Blob{joinPart(ts, 0)}}, nil
}

func (plain) pick(t *formats.Tensor, s *Scheme, index []int64) (pieces, error) {
	_, k := t.Rows()
	size, err := plainRow(s, k)
	if err != nil {
		return pieces{}, err
	}
	return pieces{data: []tensor.Blob{pickRows(t.Parts[0].Data, size, index)}}, nil
}
