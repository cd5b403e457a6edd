package form

import (
	"fmt"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
)

// A Matrix is an opened tensor of any form: W[N][K], decoded row by row. It
// serves one goroutine at a time and lives as long as the file behind it.
type Matrix struct {
	N, K int64
	rows decoder
}

// Open checks t and maps or reads its parts. Small factors, those that every
// row needs, are decoded at once.
func Open(t *formats.Tensor) (*Matrix, error) {
	m := &Matrix{}
	m.N, m.K = t.Rows()
	if t.Form == "" {
		w, err := scheme.Open(t)
		if err != nil {
			return nil, err
		}
		m.rows = dense{w}
		return m, nil
	}
	if err := Check(t); err != nil {
		return nil, err
	}
	factors := make([]*scheme.Matrix, len(t.Factors))
	for i := range t.Factors {
		w, err := scheme.Open(&t.Factors[i])
		if err != nil {
			return nil, within(t.Name, t.Factors[i].Name, err)
		}
		factors[i] = w
	}
	f, _ := ByName(t.Form)
	m.rows = f.layout.open(t, factors)
	return m, nil
}

// DecodeRow decodes row into the first K elements of dst: the reference
// decode. It panics where row is not in [0, N).
func (m *Matrix) DecodeRow(dst []float32, row int64) {
	if uint64(row) >= uint64(m.N) {
		panic(fmt.Sprintf("form: row %d of %d", row, m.N))
	}
	m.rows.decodeRow(dst[:m.K:m.K], row)
}

// Decode returns all numbers of t, row after row.
func Decode(t *formats.Tensor) ([]float32, error) {
	n, k := t.Rows()
	x := make([]float32, n*k)
	return x, DecodeRows(x, t, 0, n)
}

// DecodeRows decodes rows [row, row+n) of t into the first n*K elements of
// dst. A dense tensor is read without mapping it.
func DecodeRows(dst []float32, t *formats.Tensor, row, n int64) error {
	if t.Form == "" {
		return scheme.DecodeRows(dst, t, row, n)
	}
	m, err := Open(t)
	if err != nil {
		return err
	}
	for i := range n {
		m.DecodeRow(dst[i*m.K:], row+i)
	}
	return nil
}

type dense struct{ w *scheme.Matrix }

func (d dense) decodeRow(dst []float32, row int64) { d.w.DecodeRow(dst, row) }

// floats decodes a whole factor.
func floats(m *scheme.Matrix) []float32 {
	x := make([]float32, m.N*m.K)
	m.DecodeRows(x, 0, m.N)
	return x
}
