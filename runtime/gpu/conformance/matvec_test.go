package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
)

// A product is a matrix and what its output has to be.
type product struct {
	s              *stored
	bias, residual []float32
	more, moreSize []float64 // what a correction adds to each output
}

// dots are the float64 products of a row with each row of x, and the sizes of
// their errors' scale: the sum of magnitudes.
func (p *product) dot(w, x []float32) (value, size float64) {
	for i, v := range w {
		d := float64(v) * float64(x[i])
		value += d
		size += math.Abs(d)
	}
	return value, size
}

// near fails where an output is further from float64 than rounding explains: for
// float32 sums of k products, and for sums of bytes, whose codes are summed with
// their offset so that a small weight counts like the row's largest.
func near(t testing.TB, what string, got float32, value, size float64, k int, integer bool, largest, inputs float64) {
	t.Helper()
	allowed := 0x1p-24 * (size*math.Sqrt(float64(k)) + math.Abs(value)*2)
	if integer {
		allowed = 0x1p-23*inputs*2*largest + 0x1p-23*math.Abs(value)
	}
	allowed += 0x1p-149
	if math.IsNaN(value) != (got != got) || math.Abs(float64(got)-value) > allowed {
		t.Fatalf("%s: %g, want %g within %g", what, got, value, allowed)
	}
}

// A matvecCase is one operation on random matrices.
type matvecCase struct {
	v        *variety
	t, k     int
	n        []int
	exact    bool
	acts     bool // x is rounded beforehand
	norm     bool
	extras   bool // bias and residual
	shape    *hip.MatvecShape
	repeated bool  // run again and compare bits
	ranks    []int // of the products' corrections, 0 for none; nil: none has any
}

func (c *matvecCase) String() string {
	s := fmt.Sprintf("%v T=%d N=%v K=%d exact=%v acts=%v norm=%v", c.v, c.t, c.n, c.k, c.exact, c.acts, c.norm)
	if c.shape != nil {
		s += " " + c.shape.String()
	}
	return s
}

// TestMatvec multiplies with every scheme in both modes, whole steps and tails.
func TestMatvec(t *testing.T) {
	m := open(t)
	for _, v := range varieties(t) {
		t.Run(v.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(9, 10))
			run := 0
			for _, c := range []*matvecCase{
				{v: v, t: 3, k: 96, n: []int{19}, acts: true, extras: true},
				{v: v, t: 1, k: 301, n: []int{70}, exact: true},
				{v: v, t: 1, k: 2304, n: []int{37}},
				{v: v, t: 2, k: 1280, n: []int{5}, exact: true, extras: true},
			} {
				if v.fits(c.k) && !(divided() && run > 0) && taken(t) {
					c.run(t, m, r)
					run++
				}
			}
		})
	}
}

func (v *variety) named(names ...string) bool {
	for _, n := range names {
		if v.String() == n {
			return true
		}
	}
	return false
}

// TestMatvecShapes runs a few schemes in every division of the work.
func TestMatvecShapes(t *testing.T) {
	m := open(t)
	wave := m.target.Wave
	for _, v := range pick(t, "q4_k", "q8_0", "q6_k", "f16") {
		r := rand.New(rand.NewPCG(11, 12))
		for i, s := range []hip.MatvecShape{
			{Rows: 1, Lanes: wave, Waves: 4, Split: 1, Steps: 1, Blocks: 1},
			{Rows: 3, Lanes: wave, Waves: 2, Split: 2, Steps: 3, Blocks: 1, Direct: true},
			{Rows: 2, Lanes: wave / 2, Waves: 4, Split: 4, Steps: 2, Blocks: 2, Grid: 1},
			{Rows: 4, Lanes: wave / 4, Waves: 8, Split: 2, Steps: 2, Blocks: 1, Ahead: 5},
			{Rows: 1, Lanes: wave, Waves: 4, Split: 1, Steps: 2, Blocks: 1, Grid: 1, Pipe: true, Ahead: 1000},
			{Rows: 2, Lanes: 8, Waves: 2, Split: 2, Steps: 1, Blocks: 1, Grid: 1, Pipe: true},
		} {
			for _, exact := range []bool{false, true} {
				if !taken(t) {
					continue
				}
				c := &matvecCase{v: v, t: 1 + i%4, k: 768 + 256*i, n: []int{1 + 70*i}, exact: exact, acts: i < 3, shape: &s, repeated: true}
				c.run(t, m, r)
			}
		}
	}
}

// TestMatvecRows multiplies every number of rows.
func TestMatvecRows(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(13, 14))
	for _, v := range pick(t, "q4_k", "q4_0", "bf16") {
		for rows := 1; rows <= hip.MaxRows; rows++ {
			if rows > 17 && rows%15 != 2 {
				continue
			}
			for _, exact := range []bool{false, true} {
				if !taken(t) {
					continue
				}
				(&matvecCase{v: v, t: rows, k: 1024, n: []int{33}, exact: exact, acts: rows%2 == 0}).run(t, m, r)
			}
		}
	}
}

// TestMatvecGroups multiplies several matrices with one input, normalised on the
// way or not.
func TestMatvecGroups(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(15, 16))
	for _, v := range pick(t, "q4_k", "q5_0", "f32") {
		for _, exact := range []bool{false, true} {
			for i, n := range [][]int{{40, 8, 8, 19}, {1, 70}, {33, 129, 2}, {5, 33, 70, 2}} {
				for _, norm := range []bool{false, true} {
					if !taken(t) {
						continue
					}
					(&matvecCase{v: v, t: 1 + i%3, k: 512, n: n, exact: exact, norm: norm, extras: i%2 == 1}).run(t, m, r)
				}
			}
		}
	}
}

// run carries the case out and compares.
func (c *matvecCase) run(t *testing.T, m *machine, r *rand.Rand) {
	t.Helper()
	x := activations(r, c.t*c.k)
	op := &hip.Matvec{T: c.t, Exact: c.exact, Shape: c.shape}
	in := m.put(t, x)
	defer in.release()
	op.X = in.address()
	if c.norm {
		w := activations(r, c.k)
		weight := m.put(t, w)
		defer weight.release()
		op.Norm, op.ExactNorm = hip.Normal{Weight: weight.address(), Eps: 1e-5}, c.exact
		if !hip.NormFits(m.target, c.t, c.k, c.exact) {
			t.Fatalf("%v: the norm does not fit", c)
		}
		for i := range c.t {
			cpu.Best().RMSNorm(x[i*c.k:(i+1)*c.k], x[i*c.k:(i+1)*c.k], w, 1e-5, 0)
		}
	}
	fine := c.v.fine(t, c.k)
	if c.acts {
		acts, a := m.rounded(t, x, c.t, c.k, fine)
		defer acts.release()
		give(op, a)
	}
	var products []product
	var outs []*memory
	for _, n := range c.n {
		p := product{s: c.v.make(t, r, n, c.k)}
		w := m.place(t, p.s, n)
		h := hip.Product{W: w}
		y := m.put(t, make([]float32, c.t*n))
		defer y.release()
		h.Y = y.address()
		if i := len(products); i < len(c.ranks) && c.ranks[i] > 0 {
			c.correct(t, m, r, &p, &h, c.ranks[i])
		}
		if c.extras {
			p.bias, p.residual = activations(r, n), activations(r, c.t*n)
			bias := m.put(t, p.bias)
			defer bias.release()
			h.Bias, h.Residual = bias.address(), h.Y
		}
		products, outs = append(products, p), append(outs, y)
		op.Products = append(op.Products, h)
	}
	integer := !c.exact && op.Products[0].W.Format.Integer()
	if integer {
		for i := range c.t {
			roundReference(x[i*c.k:(i+1)*c.k], x[i*c.k:(i+1)*c.k], fine)
		}
	}
	first := make([][]float32, len(outs))
	for again := range 2 {
		for i, y := range outs {
			if c.extras {
				y.set(t, products[i].residual)
			}
		}
		m.run(t, op.Calls(m.target))
		for i, y := range outs {
			got := make([]float32, c.t*c.n[i])
			y.get(t, got)
			if again == 1 {
				sameBits(t, c.String()+" again", got, first[i])
				continue
			}
			first[i] = got
			products[i].compare(t, c, got, x, integer)
		}
		if !c.repeated {
			break
		}
	}
	if c.shape != nil && c.shape.Features == 0 && c.shape.Depth == 0 {
		return
	}
	for row := c.t - 1; row > 0; row -= 7 {
		c.alone(t, m, op, products, first, row)
	}
}

// alone wants a row's bits from a launch of its own.
func (c *matvecCase) alone(t *testing.T, m *machine, op *hip.Matvec, products []product, all [][]float32, row int) {
	t.Helper()
	one := *op
	one.T, one.Products, one.Shape = 1, nil, nil
	one.X += hip.Address(4 * row * c.k)
	if one.Acts.Data != 0 {
		one.Acts.Data += hip.Address(hip.ActsSize(row, c.k))
	}
	if one.Fine.Data != 0 {
		one.Fine.Data += hip.Address(hip.FineActsSize(row, c.k))
	}
	var outs []*memory
	for i, p := range op.Products {
		n := p.W.N
		y := m.put(t, make([]float32, n))
		defer y.release()
		if outs = append(outs, y); p.Residual != 0 {
			y.set(t, products[i].residual[row*n:(row+1)*n])
			p.Residual = y.address()
		}
		if p.Y = y.address(); p.Z != 0 {
			p.Z += hip.Address(4 * row * p.A.K)
		}
		one.Products = append(one.Products, p)
	}
	m.run(t, one.Calls(m.target))
	for i, y := range outs {
		got := make([]float32, c.n[i])
		y.get(t, got)
		sameBits(t, fmt.Sprintf("%v, row %d alone", c, row), got, all[i][row*c.n[i]:(row+1)*c.n[i]])
	}
}

// give gives an operation its input rounded.
func give(op *hip.Matvec, a hip.Acts) {
	if a.Fine {
		op.Fine = a
	} else {
		op.Acts = a
	}
}

// fine reports which rounded activations products with rows of k weights take.
func (v *variety) fine(t testing.TB, k int) bool {
	t.Helper()
	f, err := hip.FormatOf(v.scheme, v.params, int64(k))
	if err != nil {
		t.Fatal(err)
	}
	return f.Fine()
}

// compare holds outputs to float64.
func (p *product) compare(t testing.TB, c *matvecCase, got, x []float32, integer bool) {
	t.Helper()
	w, n := p.s.floats(), p.s.n()
	for i, y := range got {
		row := w[i%n*c.k : (i%n+1)*c.k]
		in := x[i/n*c.k : (i/n+1)*c.k]
		value, size := p.dot(row, in)
		largest, inputs := 0.0, 0.0
		for j, v := range row {
			largest = max(largest, math.Abs(float64(v)))
			inputs += math.Abs(float64(in[j]))
		}
		if c.norm {
			// A last digit of the normalised input, or where it is rounded, a last
			// step of it now and then.
			size *= 8
			if integer {
				inputs += inputs * 0x1p12 / float64(c.k)
			}
		}
		if p.bias != nil {
			value += float64(p.bias[i%n])
			size += math.Abs(float64(p.bias[i%n]))
		}
		if p.more != nil {
			value += p.more[i]
			size += p.moreSize[i]
			inputs += p.moreSize[i] / max(largest, 1e-30)
		}
		if p.residual != nil {
			value += float64(p.residual[i])
			size += math.Abs(float64(p.residual[i]))
			inputs += math.Abs(float64(p.residual[i])) / max(largest, 1e-30)
		}
		near(t, fmt.Sprintf("%v: row %d of token %d", c, i%n, i/n), y, value, size, c.k, integer, largest, inputs)
	}
}
