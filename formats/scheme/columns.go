package scheme

import (
	"fmt"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/tensor"
)

// PickColumns returns t with its columns in the order of index, a permutation; they
// are moved when it is read, so its bytes are computed.
//
// It panics where index has not one entry for each column, and fails with an
// UnsupportedError where the scheme is neither plain nor one of blocks that index
// leaves whole.
func PickColumns(t formats.Tensor, index []int64) (formats.Tensor, error) {
	s, _, err := check(&t)
	if err != nil {
		return formats.Tensor{}, err
	}
	rows, k := t.Rows()
	if int64(len(index)) != k {
		panic(fmt.Sprintf("scheme: %d entries for %d columns", len(index), k))
	}
	unit, size := s.columns(&t)
	if size == 0 {
		return formats.Tensor{}, formats.Unsupportedf("", t.Name, "columns of %s put in another order", s.Name)
	}
	pick := make([]int64, k/unit)
	for b := range pick {
		first := index[int64(b)*unit]
		for i := range unit {
			if index[int64(b)*unit+i] != first+i || first%unit != 0 {
				return formats.Tensor{}, formats.Unsupportedf("", t.Name, "columns of %s put in another order, which would split its blocks of %d", s.Name, unit)
			}
		}
		pick[b] = first / unit
	}
	data, line := t.Parts[0].Data, int64(len(pick))*size
	moved := tensor.Computed(rows*line, func() ([]byte, error) {
		src, err := data.Bytes()
		if err != nil {
			return nil, err
		}
		dst := make([]byte, 0, len(src))
		for r := range rows {
			row := src[r*line : (r+1)*line]
			for _, b := range pick {
				dst = append(dst, row[b*size:(b+1)*size]...)
			}
		}
		return dst, nil
	})
	return New(t.Name, s, t.Shape, t.Params, moved)
}

// columns returns how many neighbouring columns of a tensor lie together, and their
// bytes: 0 where a row is not made of such.
func (s *Scheme) columns(t *formats.Tensor) (unit, size int64) {
	unit, size = 1, int64(s.DType.Bits()/8)
	if !s.Plain() {
		unit, size = int64(s.Block), int64(s.BlockBytes)
	}
	if len(t.Parts) != 1 {
		size = 0
	}
	return unit, size
}

// A Run is N neighbouring rows or columns from From on.
type Run struct{ From, N int64 }

// Columns returns columns of every row of t, run by run, as a tensor of shape [N, K of all
// runs], without reading anything.
//
// It panics where the columns are not in t, and fails with an UnsupportedError where the
// scheme is neither plain nor one of blocks that the cuts leave whole.
func Columns(t formats.Tensor, runs ...Run) (formats.Tensor, error) {
	s, _, err := check(&t)
	if err != nil {
		return formats.Tensor{}, err
	}
	rows, k := t.Rows()
	unit, size := s.columns(&t)
	if size == 0 {
		return formats.Tensor{}, formats.Unsupportedf("", t.Name, "columns of %s by themselves", s.Name)
	}
	sum := int64(0)
	for _, r := range runs {
		if r.From < 0 || r.N < 0 || r.From > k-r.N {
			panic(fmt.Sprintf("scheme: columns [%d:+%d] of %d", r.From, r.N, k))
		}
		if r.From%unit != 0 || r.N%unit != 0 {
			return formats.Tensor{}, formats.Unsupportedf("", t.Name, "columns %d to %d of %s, which would split its blocks of %d", r.From, r.From+r.N, s.Name, unit)
		}
		sum += r.N
	}
	all := make([]tensor.Blob, 0, rows*int64(len(runs)))
	for row := range rows {
		for _, r := range runs {
			all = append(all, t.Parts[0].Data.Slice((row*k+r.From)/unit*size, r.N/unit*size))
		}
	}
	return New(t.Name, s, []int64{rows, sum}, t.Params, tensor.Concat(all...))
}
