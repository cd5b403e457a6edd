package cpu

import (
	"encoding/binary"
	"math"

	"github.com/nstf/nstf/formats/scheme"
)

// A Coded is a stored matrix W[N][K] that this level multiplies as it is stored,
// with quantized [Activations]. It is immutable.
type Coded struct {
	n, k    int
	integer *Integer // of the bytes w, or else
	w       []byte
	factors []byte // float32, one for every run rows of the stored matrix; nil: none
	run     int
	affine  *Affine
	first   int // row of the stored matrix that is row 0
	bytes   int // of a row, all parts together
}

// Coded returns the kernels for an opened matrix, nil where its scheme, its
// parameters or its shape have none at this level, and plain Go is no better than
// float32.
func (s *Set) Coded(m *scheme.Matrix) *Coded {
	c := &Coded{n: int(m.N), k: int(m.K)}
	if c.n == 0 || c.k == 0 {
		return nil
	}
	if m.Scheme.Name == "affine" {
		if c.affine = s.Affine(m); c.affine == nil {
			return nil
		}
		c.bytes = c.affine.rowBytes()
		return c
	}
	c.integer = s.Integer(m.Scheme.Name)
	if c.integer == nil || !c.integer.Fits(c.k) {
		return nil
	}
	if few, _ := c.integer.Tuned(); !few {
		return nil
	}
	c.w, c.bytes = m.Data(0), c.integer.rowBytes(c.k)
	if run := m.Params["rows"]; run > 0 {
		c.factors, c.run = m.Data(1), int(min(run, m.N))
	}
	return c
}

// Group returns the groups that activations must be quantized in: 32 or 16.
func (c *Coded) Group() int {
	if c.affine != nil {
		return c.affine.product.group
	}
	return c.integer.group
}

// RowBytes returns the stored bytes of a row.
func (c *Coded) RowBytes() int { return c.bytes }

// Slice returns rows [row, row+n).
func (c *Coded) Slice(row, n int) *Coded {
	want(0 <= row && 0 <= n && row+n <= c.n, "Coded.Slice", row, n, c.n)
	part := *c
	part.first, part.n = c.first+row, n
	return &part
}

// Fold returns the same weights as a matrix of fewer, longer rows: row i is the
// rows i*rows to (i+1)*rows, one after the other. A product with activations that
// are zero but for the columns of one of them gives that row's: short rows waste
// most of a kernel's registers, long ones do not. It returns nil where the weights
// cannot be read so.
func (c *Coded) Fold(rows int) *Coded {
	if c.integer == nil || c.factors != nil || c.first != 0 || rows < 1 || c.n%rows != 0 || c.bytes*rows != c.integer.rowBytes(c.k*rows) || !c.integer.Fits(c.k*rows) {
		return nil
	}
	part := *c
	part.n, part.k, part.bytes = c.n/rows, c.k*rows, c.bytes*rows
	return &part
}

// MatMul computes C[T][n0:n1] = A[T][K] W[n0:n1][K]^T for the rows of a, as
// [Integer.MatMul] does.
func (c *Coded) MatMul(y []float32, ldy int, a *Activations, n0, n1 int, scratch *IntegerScratch) {
	want(0 <= n0 && n0 <= n1 && n1 <= c.n && a.k == c.k && rowsFit(len(y), a.t, ldy, n1), "Coded.MatMul", n0, n1, c.n, a.k, c.k, len(y), a.t, ldy)
	if c.affine != nil {
		c.affine.multiply(y, ldy, a, c.first, n0, n1, scratch)
		return
	}
	size := c.bytes
	c.integer.MatMul(y, ldy, c.w[c.first*size:(c.first+c.n)*size], a, n0, n1, scratch)
	for n := n0; n < n1 && c.factors != nil; n++ {
		f := math.Float32frombits(binary.LittleEndian.Uint32(c.factors[4*((c.first+n)/c.run):]))
		for t := range a.t {
			y[t*ldy+n] *= f
		}
	}
}
