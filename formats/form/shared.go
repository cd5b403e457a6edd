package form

import (
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
)

// shared is W_e = Q_e + sum over b of C[e][b] U_b with the factors c[E][B],
// u[B][N][K] and, where there is a remainder, q[E][N][K].
type shared struct{}

func (shared) check(t *formats.Tensor) error {
	want := []string{"c", "u", "q"}
	if len(t.Factors) == 2 {
		want = want[:2]
	}
	if err := names(t, want...); err != nil {
		return err
	}
	if err := noParams(t); err != nil {
		return err
	}
	if err := dims(t, 3); err != nil {
		return err
	}
	c := t.Factors[0]
	if len(t.Shape) != 3 || len(c.Shape) != 2 || c.Shape[1] < 1 || c.Shape[1] > t.Shape[0] {
		return formats.Errorf("", t.Name, "factor %q has shape %v, which shares nothing of %v", "c", c.Shape, t.Shape)
	}
	if err := shaped(t, "c", t.Shape[0], c.Shape[1]); err != nil {
		return err
	}
	if err := shaped(t, "u", c.Shape[1], t.Shape[1], t.Shape[2]); err != nil {
		return err
	}
	if len(want) == 2 {
		return nil
	}
	return shaped(t, "q", t.Shape...)
}

func (shared) matrix(t *formats.Tensor, i int64) (formats.Tensor, error) {
	return formats.Tensor{}, formats.Unsupportedf("", t.Name, "matrix %d alone out of the form %q", i, t.Form)
}

// mixed decodes rows of shared matrices.
type mixed struct {
	q, u *scheme.Matrix // q may be nil
	c    []float32
	b, n int64
	row  []float32
}

func (shared) rows() []string    { return []string{"u", "q"} }
func (shared) columns() []string { return []string{"u", "q"} }

func (shared) open(t *formats.Tensor, f []*scheme.Matrix) decoder {
	m := &mixed{u: f[1], c: floats(f[0]), b: f[0].K, n: t.Shape[1], row: make([]float32, t.Shape[2])}
	if len(f) > 2 {
		m.q = f[2]
	}
	return m
}

func (m *mixed) decodeRow(dst []float32, row int64) {
	clear(dst)
	if m.q != nil {
		m.q.DecodeRow(dst, row)
	}
	e, n := row/m.n, row%m.n
	for b, v := range m.c[e*m.b : (e+1)*m.b] {
		m.u.DecodeRow(m.row, int64(b)*m.n+n)
		addScaled(dst, v, m.row)
	}
}
