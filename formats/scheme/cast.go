package scheme

import (
	"fmt"
	"math"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/tensor"
)

// castChunk is the number of weights that Cast decodes at a time, so that
// streaming a cast tensor of any size takes a few MiB.
const castChunk = 1 << 20

// Cast returns t as plain elements: f32, f16 or bf16, rounded to nearest,
// ties to even. Nothing is computed before the parts are read, and then in
// chunks of rows. Reading fails with an UnsupportedError that names the
// weight where a finite value becomes infinite.
func Cast(t formats.Tensor, to *Scheme) (formats.Tensor, error) {
	s, _, err := check(&t)
	if err != nil {
		return formats.Tensor{}, err
	}
	switch to.DType {
	case tensor.F32, tensor.F16, tensor.BF16:
	default:
		return formats.Tensor{}, formats.Unsupportedf("", t.Name, "casting to %s", to.Name)
	}
	if s == to {
		return t, nil
	}
	if s.DType == tensor.C64 {
		return formats.Tensor{}, formats.Unsupportedf("", t.Name, "casting complex numbers to %s", to.Name)
	}
	n, k := t.Rows()
	step := max(1, castChunk/max(k, 1))
	for _, p := range t.Parts {
		// A part that is itself computed is made whole for every chunk.
		if c := p.Data.LargestComputed(); c > 0 {
			step = max(step, ceilDiv(c, max(p.Data.Len()/max(n, 1), 1)))
		}
	}
	// Some schemes can only be cut at certain rows: then it is one piece.
	if n > step {
		if _, err := Slice(t, step, 0); err != nil || t.Elements() == 0 {
			step = n
		}
	}
	var blobs []tensor.Blob
	for row := int64(0); row < n && k > 0; row += step {
		rows := min(step, n-row)
		size := rows * k * int64(to.DType.Bits()) / 8
		blobs = append(blobs, tensor.Computed(size, func() ([]byte, error) {
			return castRows(&t, to, row, rows, size)
		}))
	}
	return New(t.Name, to, t.Shape, nil, tensor.Concat(blobs...))
}

// castRows decodes and converts one chunk, while another core checks that it is whole.
func castRows(t *formats.Tensor, to *Scheme, row, n, size int64) ([]byte, error) {
	v, err := sliceRows(t, row, n)
	if err != nil {
		return nil, err
	}
	m, wait, err := readBeside(&v)
	if err != nil {
		return nil, err
	}
	dst, err := castRead(t, m, to, row, n, size)
	if damage := wait(); damage != nil { // which may be why a cast failed
		return nil, fmt.Errorf("%q: %w", t.Name, damage)
	}
	return dst, err
}

// castRead is castRows of what was read.
func castRead(t *formats.Tensor, m *Matrix, to *Scheme, row, n, size int64) ([]byte, error) {
	_, k := t.Rows()
	dst := make([]byte, size)
	buf := make([]float32, k)
	rowSize := size / n
	for r := range n {
		m.DecodeRow(buf, r)
		if to.DType != tensor.F32 {
			if c := overflow(buf, to.DType); c >= 0 {
				e := formats.Unsupportedf("", t.Name, "weight %g at row %d, column %d is too large for %s", buf[c], row+r, c, to.Name)
				e.Hint = "keep the tensor as it is, or cast to f32 or bf16"
				return nil, e
			}
		}
		if err := tensor.FromFloat32(dst[r*rowSize:(r+1)*rowSize], buf, to.DType); err != nil {
			return nil, fmt.Errorf("%q: %w", t.Name, err)
		}
	}
	return dst, nil
}

// sliceRows is Slice for rows in the sense of [formats.Tensor.Rows]: a vector
// is one row, and all rows are the tensor itself.
func sliceRows(t *formats.Tensor, row, n int64) (formats.Tensor, error) {
	if rows, _ := t.Rows(); row == 0 && n == rows {
		return *t, nil
	}
	return Slice(*t, row, n)
}

// overflow returns the index of the first finite value that d would make
// infinite, or -1.
func overflow(x []float32, d tensor.DType) int {
	limit := float32(65520)
	if d == tensor.BF16 {
		limit = math.Float32frombits(0x7F7F8000)
	}
	for i, v := range x {
		if a := float32(math.Abs(float64(v))); a >= limit && a <= math.MaxFloat32 {
			return i
		}
	}
	return -1
}
