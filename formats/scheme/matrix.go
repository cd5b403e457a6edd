package scheme

import (
	"cmp"
	"fmt"

	"github.com/nstf/nstf/formats"
)

// A Matrix is an opened tensor: W[N][K] with its parts in memory, mapped
// where the file allows. It lives as long as the file behind it is open.
type Matrix struct {
	Scheme *Scheme
	Shape  []int64
	N, K   int64
	Params map[string]int64

	data [][]byte
	rows rowDecoder
}

// Open checks t and maps its parts, or reads those that are not one mapped
// run. Its errors are those of [Check] and of reading.
func Open(t *formats.Tensor) (*Matrix, error) {
	return open(t, func(p *formats.Part) ([]byte, error) { return p.Data.Bytes() })
}

// read is Open for passing by: bytes of files are read, never mapped, so that
// a stream over a model leaves nothing resident.
func read(t *formats.Tensor) (*Matrix, error) {
	return open(t, func(p *formats.Part) ([]byte, error) {
		buf := make([]byte, p.Data.Len())
		_, err := p.Data.ReadAt(buf, 0)
		return buf, err
	})
}

// readBeside is read for who goes on with the bytes while they are checked; wait says
// whether they are whole.
func readBeside(t *formats.Tensor) (m *Matrix, wait func() error, err error) {
	if len(t.Parts) != 1 { // the hash takes parts in their order
		m, err = read(t)
		return m, func() error { return nil }, err
	}
	m, err = open(t, func(p *formats.Part) (buf []byte, err error) {
		buf = make([]byte, p.Data.Len())
		wait, err = p.Data.ReadBeside(buf)
		return buf, err
	})
	if err != nil && wait != nil {
		err = cmp.Or(wait(), err)
	}
	return m, wait, err
}

func open(t *formats.Tensor, load func(p *formats.Part) ([]byte, error)) (*Matrix, error) {
	s, g, err := check(t)
	if err != nil {
		return nil, err
	}
	m := &Matrix{Scheme: s, Shape: t.Shape, N: g.n, K: g.k, Params: t.Params}
	for i := range t.Parts {
		p, err := load(&t.Parts[i])
		if err != nil {
			return nil, fmt.Errorf("%q: part %q: %w", t.Name, t.Parts[i].Name, err)
		}
		m.data = append(m.data, p)
	}
	if m.rows, err = s.layout.open(s, g, m.data); err != nil {
		return nil, formats.Of(t.Name, err)
	}
	return m, nil
}

// Data returns the raw bytes of a part, in the order of the scheme's page,
// for kernels. The caller must not write to them.
func (m *Matrix) Data(part int) []byte { return m.data[part] }

// DecodeRow decodes row into the first K elements of dst: the reference
// decode. It allocates nothing and panics where row is not in [0, N).
func (m *Matrix) DecodeRow(dst []float32, row int64) {
	if uint64(row) >= uint64(m.N) {
		panic(fmt.Sprintf("scheme: row %d of %d", row, m.N))
	}
	m.rows.decodeRow(dst[:m.K:m.K], row)
}

// DecodeRows decodes n rows from row on into the first n*K elements of dst.
func (m *Matrix) DecodeRows(dst []float32, row, n int64) {
	for i := range n {
		m.DecodeRow(dst[i*m.K:], row+i)
	}
}

// DecodeRows reads and decodes rows [row, row+n) of t into the first n*K
// elements of dst without mapping the file. For many passes over one tensor,
// [Open] it instead.
func DecodeRows(dst []float32, t *formats.Tensor, row, n int64) error {
	part, err := sliceRows(t, row, n)
	if err != nil {
		return err
	}
	m, err := read(&part)
	if err != nil {
		return err
	}
	m.DecodeRows(dst, 0, n)
	return nil
}
