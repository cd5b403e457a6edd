package form

import (
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
)

// lowRank is W = A B with the factors a[..][N][R] and b[..][R][K].
type lowRank struct{}

// Rank returns R of a tensor of the forms lowrank or corrected, 0 elsewhere.
func Rank(t *formats.Tensor) int64 {
	if a, ok := Factor(t, "a"); ok {
		return a.Shape[len(a.Shape)-1]
	}
	return 0
}

func (lowRank) check(t *formats.Tensor) error {
	if err := names(t, "a", "b"); err != nil {
		return err
	}
	return checkProduct(t)
}

// checkProduct holds the factors a and b to the tensor's shape.
func checkProduct(t *formats.Tensor) error {
	if err := noParams(t); err != nil {
		return err
	}
	if err := dims(t, 2); err != nil {
		return err
	}
	last := len(t.Shape) - 1
	a, _ := Factor(t, "a")
	if len(a.Shape) != last+1 || a.Shape[last] < 1 {
		return formats.Errorf("", t.Name, "factor %q has shape %v, which is no factor of %v", "a", a.Shape, t.Shape)
	}
	r := a.Shape[last]
	wantA := append(append([]int64{}, t.Shape[:last]...), r)
	wantB := append(append([]int64{}, t.Shape[:last-1]...), r, t.Shape[last])
	if err := shaped(t, "a", wantA...); err != nil {
		return err
	}
	return shaped(t, "b", wantB...)
}

func (lowRank) rows() []string    { return []string{"a"} }
func (lowRank) columns() []string { return []string{"b"} }

func (lowRank) open(t *formats.Tensor, f []*scheme.Matrix) decoder {
	return newProduct(t, nil, f[0], f[1])
}

func (lowRank) matrix(t *formats.Tensor, i int64) (formats.Tensor, error) {
	return eachMatrix(t, LowRank, i)
}

// corrected is W = Q + A B with the factors q[..][N][K], a and b.
type corrected struct{}

func (corrected) check(t *formats.Tensor) error {
	if err := names(t, "q", "a", "b"); err != nil {
		return err
	}
	if err := checkProduct(t); err != nil {
		return err
	}
	return shaped(t, "q", t.Shape...)
}

func (corrected) rows() []string    { return []string{"q", "a"} }
func (corrected) columns() []string { return []string{"q", "b"} }

func (corrected) open(t *formats.Tensor, f []*scheme.Matrix) decoder {
	return newProduct(t, f[0], f[1], f[2])
}

func (corrected) matrix(t *formats.Tensor, i int64) (formats.Tensor, error) {
	return eachMatrix(t, Corrected, i)
}

// eachMatrix takes matrix i of each factor.
func eachMatrix(t *formats.Tensor, id ID, i int64) (formats.Tensor, error) {
	factors := make([]formats.Tensor, len(t.Factors))
	for j, f := range t.Factors {
		n := f.Shape[len(f.Shape)-2]
		x, err := scheme.Slice(f, i*n, n)
		if err != nil {
			return formats.Tensor{}, within(t.Name, f.Name, err)
		}
		x.Name = f.Name
		factors[j] = x
	}
	return New(t.Name, id, t.Shape[len(t.Shape)-2:], nil, factors...)
}

// product decodes Q + A B; q may be nil.
type product struct {
	q, a *scheme.Matrix
	b    []float32 // of all matrices
	n, k int64     // of one matrix
	r    int64
	row  []float32 // of a
}

func newProduct(t *formats.Tensor, q, a, b *scheme.Matrix) *product {
	last := len(t.Shape) - 1
	return &product{q: q, a: a, b: floats(b), n: t.Shape[last-1], k: t.Shape[last], r: a.K, row: make([]float32, a.K)}
}

func (p *product) decodeRow(dst []float32, row int64) {
	clear(dst)
	if p.q != nil {
		p.q.DecodeRow(dst, row)
	}
	p.a.DecodeRow(p.row, row)
	b := p.b[row/p.n*p.r*p.k:]
	for i, v := range p.row {
		addScaled(dst, v, b[int64(i)*p.k:])
	}
}

// addScaled adds v x to dst, each product rounded.
func addScaled(dst []float32, v float32, x []float32) {
	for j := range dst {
		dst[j] += float32(v * x[j])
	}
}
