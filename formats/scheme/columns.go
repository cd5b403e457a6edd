package scheme

import (
	"fmt"
	"slices"

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

// A layout that is cut by columns has parts of which some have a run of bytes for each
// unit of columns, in every line.
type columnLayout interface {
	columnUnit(t *formats.Tensor) int64
	// columns returns the parts of runs of columns, which are whole units.
	columns(t *formats.Tensor, runs []Run) pieces
}

// Unit returns how many neighbouring rows and columns of a tensor lie together: where
// [Slice], [Each] and [Columns] cut.
func Unit(t *formats.Tensor) (rows, columns int64) {
	s, ok := ByName(t.Scheme)
	if !ok {
		return 1, 1
	}
	if _, ok := s.layout.(tcq); ok {
		return max(TCQTile, t.Params["rotate_out"]), max(TCQTile, t.Params["rotate_in"])
	}
	if l, ok := s.layout.(columnLayout); ok {
		return 1, l.columnUnit(t)
	}
	return 1, int64(max(s.Block, 1))
}

// A Run is N neighbouring rows or columns from From on.
type Run struct{ From, N int64 }

// Columns returns columns of every row of t, run by run, as a tensor whose last dimension is
// that of all runs, without reading anything.
//
// It panics where the columns are not in t, and fails with an UnsupportedError where the
// scheme has no columns by themselves, or the cuts would split its blocks.
func Columns(t formats.Tensor, runs ...Run) (formats.Tensor, error) {
	s, _, err := check(&t)
	if err != nil {
		return formats.Tensor{}, err
	}
	_, k := t.Rows()
	unit, size := s.columns(&t)
	l, ok := s.layout.(columnLayout)
	if ok {
		unit = l.columnUnit(&t)
	}
	if !ok && size == 0 || unit == 0 {
		return formats.Tensor{}, formats.Unsupportedf("", t.Name, "columns of %s by themselves", s.Name)
	}
	sum := int64(0)
	for _, r := range runs {
		if r.From < 0 || r.N < 0 || r.From > k-r.N {
			panic(fmt.Sprintf("scheme: columns [%d:+%d] of %d", r.From, r.N, k))
		}
		if r.From%unit != 0 || r.N%unit != 0 && r.From+r.N != k { // the last block may be short
			return formats.Tensor{}, formats.Unsupportedf("", t.Name, "columns %d to %d of %s, which would split its blocks of %d", r.From, r.From+r.N, s.Name, unit)
		}
		sum += r.N
	}
	p := pieces{params: t.Params}
	if ok {
		p = l.columns(&t, runs)
	} else {
		p.data = []tensor.Blob{picked(t.Parts[0].Data, k, unit, size, runs)}
	}
	return assemble(t.Name, s, append(slices.Clone(t.Shape[:len(t.Shape)-1]), sum), p)
}

// picked returns runs of every k columns, of which each unit has size bytes.
func picked(b tensor.Blob, k, unit, size int64, runs []Run) tensor.Blob {
	line := ceilDiv(k, unit) * size
	if len(runs) == 1 {
		return b.Strided(line, runs[0].From/unit*size, ceilDiv(runs[0].N, unit)*size)
	}
	var all []tensor.Blob
	for off := int64(0); off < b.Len(); off += line {
		for _, r := range runs {
			all = append(all, b.Slice(off+r.From/unit*size, ceilDiv(r.N, unit)*size))
		}
	}
	return tensor.Concat(all...)
}

// Each returns rows [row, row+n) of every matrix of a stack [E][N][K], as a stack [E][n][K],
// without reading anything.
//
// It panics where t is no stack or has no such rows, and fails with an UnsupportedError where
// the scheme cannot be cut there.
func Each(t formats.Tensor, row, n int64) (formats.Tensor, error) {
	s, _, err := check(&t)
	if err != nil {
		return formats.Tensor{}, err
	}
	if len(t.Shape) != 3 || row < 0 || n < 0 || row > t.Shape[1]-n {
		panic(fmt.Sprintf("scheme: rows [%d:+%d] of each of %v", row, n, t.Shape))
	}
	count, rows := t.Shape[0], t.Shape[1]
	shape := []int64{count, n, t.Shape[2]}
	unit, _ := Unit(&t)
	switch {
	case row%unit != 0 || n%unit != 0:
		return formats.Tensor{}, formats.Unsupportedf("", t.Name, "rows %d to %d of each of %d matrices of %s, which would split its blocks of %d", row, row+n, count, s.Name, unit)
	case len(t.Parts) == 1 && count*rows > 0:
		size := t.Parts[0].Data.Len() / (count * rows)
		return assemble(t.Name, s, shape, pieces{params: t.Params, data: []tensor.Blob{t.Parts[0].Data.Strided(rows*size, row*size, n*size)}})
	}
	if l, ok := s.layout.(tcq); ok {
		return assemble(t.Name, s, shape, l.each(&t, func(b tensor.Blob, size, of int64) tensor.Blob {
			return b.Strided(rows/of*size, row/of*size, n/of*size)
		}))
	}
	all := make([]formats.Tensor, count)
	for e := range all {
		if all[e], err = Slice(t, int64(e)*rows+row, n); err != nil {
			return formats.Tensor{}, err
		}
	}
	return Concat(t.Name, shape, all...)
}
