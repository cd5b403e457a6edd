package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/kernels/ops"
)

// A matmulCase is one matrix product of random matrices.
type matmulCase struct {
	v       []*variety // of each product
	t, k    int
	n       []int
	exact   bool
	extras  bool // bias and residual
	gated   bool
	act     ops.Activation
	tile    *hip.MatmulTile
	experts int // then t counts rows, each with share slots
	share   int
	x       []float32 // nil: activations
	repeat  int       // more runs whose bits are compared
}

func (c *matmulCase) String() string {
	s := fmt.Sprintf("%v T=%d N=%v K=%d exact=%v", c.v, c.t, c.n, c.k, c.exact)
	if c.tile != nil {
		s += " " + c.tile.String()
	}
	return s
}

// slots are the rows of the output.
func (c *matmulCase) slots() int { return c.t * max(c.share, 1) }

// TestMatmul multiplies with every scheme in both modes, with sizes that no tile
// divides. One small tile serves all, since it is compiled for each.
func TestMatmul(t *testing.T) {
	m := open(t)
	tile := hip.MatmulTile{Features: 1, Tokens: 2, Waves: 2, Parts: 1, Stages: 2, Ahead: 1, Resident: 1}
	for _, v := range varieties(t) {
		t.Run(v.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(17, 18))
			run := 0
			for i, k := range []int{32, 160, 256, 301, 768} {
				if !v.fits(k) || divided() && (run > 0 || i == 0 || i == 1 && v.fits(301) && v.number%3 > 0) {
					continue
				}
				run++
				for _, exact := range []bool{false, true} {
					if !taken(t) {
						continue
					}
					c := &matmulCase{v: []*variety{v}, t: 9 + 17*i, k: k, n: []int{3 + 47*i}, exact: exact, extras: i%2 == 0, tile: &tile}
					c.run(t, m, r)
				}
			}
		})
	}
}

// pick returns the varieties of those names.
func pick(t testing.TB, names ...string) []*variety {
	t.Helper()
	var found []*variety
	for _, name := range names {
		for _, v := range everyVariety(t) {
			if v.named(name) {
				found = append(found, v)
			}
		}
	}
	if len(found) != len(names) {
		t.Fatalf("%d of %v are varieties", len(found), names)
	}
	return found
}

// TestMatmulTiles runs every tile of the target's table on sizes a little over
// one and two blocks, and expects the same bits from ten runs.
func TestMatmulTiles(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(19, 20))
	for _, exact := range []bool{false, true} {
		for i, tile := range hip.MatmulTiles(m.target, exact) {
			for j, v := range pick(t, "q4_k", "q8_0", "iq2_s", "f16") {
				if j > 0 && j != 1+i%3 || !taken(t) {
					continue // all tiles with one scheme, and each with another
				}
				tokens, features := tile.Size(m.target, exact)
				c := &matmulCase{v: []*variety{v}, t: tokens*(1+j%2) + 1, k: 512 + 256*j, n: []int{features*(2-j%2) + 5}, exact: exact, tile: &tile, repeat: repeats()}
				c.run(t, m, r)
			}
		}
	}
}

// TestMatmulTilesAgree wants one sum from all tiles that divide k alike, whatever else they share out and however many
// rows there are: prompts have tiles by their length, and a row the same bits.
func TestMatmulTilesAgree(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(37, 38))
	const rows, k, n = 70, 512, 75
	for _, exact := range []bool{false, true} {
		v, tiles := pick(t, "q4_k")[0], hip.MatmulTiles(m.target, exact)
		w, x := m.place(t, v.make(t, r, n, k), n), m.put(t, activations(r, rows*k))
		y, scratch := m.put(t, make([]float32, rows*n)), m.put(t, make([]byte, hip.MatmulScratch(rows, k)))
		var first []float32
		agreed := 0
		for _, tile := range tiles {
			if tile.Parts != tiles[0].Parts || tile.Teams != tiles[0].Teams {
				continue
			}
			agreed++
			for _, some := range []int{rows, 9} {
				op := &hip.Matmul{T: some, Exact: exact, X: x.address(), Scratch: scratch.address(), Tile: &tile, Products: []hip.Product{{W: w, Y: y.address()}}}
				m.run(t, op.Calls(m.target))
				got := make([]float32, rows*n)
				y.get(t, got)
				if first == nil {
					first = got
				}
				sameBits(t, fmt.Sprintf("%v exact=%v, %d rows", tile, exact, some), got[:some*n], first[:some*n])
			}
		}
		if agreed < 2 && m.target.API == hip.HIP {
			t.Errorf("%d tiles divide k as the first does", agreed)
		}
		for _, b := range []*memory{x, y, scratch} {
			b.release()
		}
	}
}

// TestMatmulGroups multiplies several matrices, of one format or several, with
// one input.
func TestMatmulGroups(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(21, 22))
	for _, exact := range []bool{false, true} {
		if !sampled(t) {
			continue
		}
		q := pick(t, "q4_k", "q4_k", "q6_k")
		(&matmulCase{v: q, t: 50, k: 512, n: []int{130, 20, 33}, exact: exact, extras: true}).run(t, m, r)
		(&matmulCase{v: q[:2], t: 20, k: 256, n: []int{1, 300}, exact: exact}).run(t, m, r)
		p := pick(t, "q4_k", "f32", "i16") // halves, halves of floats, exact in any case
		(&matmulCase{v: p, t: 33, k: 256, n: []int{64, 64, 64}, exact: exact}).run(t, m, r)
		for _, v := range pick(t, "q5_0", "bf16") {
			(&matmulCase{v: []*variety{v, v, v}, t: 11, k: 96, n: []int{40, 8, 8}, exact: exact}).run(t, m, r)
		}
	}
}

// TestMatmulGated multiplies gate and up at once.
func TestMatmulGated(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(23, 24))
	for i, act := range []ops.Activation{ops.SiLU, ops.GELUTanh, ops.GELU} {
		for _, exact := range []bool{false, true} {
			for _, v := range pick(t, "q4_k", "q8_0", "f16") {
				if !taken(t) {
					continue
				}
				(&matmulCase{v: []*variety{v, v}, t: 10 + 60*i, k: 256, n: []int{70, 70}, exact: exact, gated: true, act: act, extras: i == 1}).run(t, m, r)
			}
		}
	}
}

// TestMatmulExperts multiplies slots with the matrices of their experts, some of
// which nobody chose.
func TestMatmulExperts(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(25, 26))
	for i, share := range []int{1, 2, 4} {
		for _, exact := range []bool{false, true} {
			for _, v := range pick(t, "q4_k", "q8_0") {
				if !sampled(t) {
					continue
				}
				c := &matmulCase{v: []*variety{v}, t: 30 + 50*i, k: 256, n: []int{20 + 33*i}, exact: exact, experts: 5 + 3*i, share: share}
				c.run(t, m, r)
				c.gated, c.v, c.n = true, []*variety{v, v}, []int{24, 24}
				c.run(t, m, r)
			}
		}
	}
}

// TestMatmulRange gives rows that halves do not hold as they are: outliers, tiny
// rows, NaN and infinities.
func TestMatmulRange(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(27, 28))
	rows, k := 24, 256
	x := make([]float32, rows*k)
	for i := range x {
		x[i] = float32(r.NormFloat64() * math.Ldexp(1, (i/k-12)*8))
	}
	x[5*k+7] = 3e38
	for i := range k {
		x[6*k+i] = 0
		x[7*k+i] = float32(math.Copysign(1e-45, float64(x[7*k+i])))
	}
	x[8*k+1], x[9*k+2], x[10*k+3] = float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))
	for _, exact := range []bool{false, true} {
		for _, v := range pick(t, "q4_k", "q8_0", "f16") {
			if sampled(t) {
				(&matmulCase{v: []*variety{v}, t: rows, k: k, n: []int{40}, exact: exact, x: x}).run(t, m, r)
			}
		}
	}
}

// run carries the case out and compares.
func (c *matmulCase) run(t *testing.T, m *machine, r *rand.Rand) {
	t.Helper()
	x := c.x
	if x == nil {
		x = activations(r, c.t*c.k)
	}
	in, scratch := m.put(t, x), m.put(t, make([]byte, hip.MatmulScratch(c.t, c.k)))
	defer in.release()
	defer scratch.release()
	op := &hip.Matmul{T: c.slots(), Exact: c.exact, X: in.address(), Scratch: scratch.address(), Gated: c.gated, Act: c.act, Tile: c.tile}
	chosen := make([]int, c.slots())
	if c.experts > 0 {
		op.Stack, op.Share = c.experts, c.share
		first, slots := group(r, chosen, c.experts)
		op.First, op.Slots = m.put(t, first).address(), m.put(t, slots).address()
	}
	var products []product
	var outs []*memory
	for i, n := range c.n {
		p := product{s: c.v[i].make(t, r, n*max(c.experts, 1), c.k)}
		h := hip.Product{W: m.place(t, p.s, n)}
		y := m.put(t, make([]float32, c.slots()*n))
		defer y.release()
		h.Y = y.address()
		if c.extras {
			p.bias = activations(r, n*max(c.experts, 1))
			bias := m.put(t, p.bias)
			defer bias.release()
			h.Bias = bias.address()
			if !c.gated {
				p.residual = activations(r, c.slots()*n)
				h.Residual = h.Y
			}
		}
		products, outs = append(products, p), append(outs, y)
		op.Products = append(op.Products, h)
	}
	if c.gated {
		outs = outs[:1]
	}
	first := make([][]float32, len(outs))
	for turn := range c.repeat + 1 {
		for i, y := range outs {
			if products[i].residual != nil {
				y.set(t, products[i].residual)
			}
		}
		m.run(t, op.Calls(m.target))
		for i, y := range outs {
			got := make([]float32, c.slots()*c.n[i])
			y.get(t, got)
			if turn > 0 {
				sameBits(t, c.String()+" again", got, first[i])
				continue
			}
			first[i] = got
			c.compare(t, products[i:], chosen, got, x)
		}
	}
}

// group chooses an expert for every slot, never the second, and lists the slots
// by expert.
func group(r *rand.Rand, chosen []int, experts int) (first, slots []int32) {
	lists := make([][]int32, experts)
	for s := range chosen {
		e := r.IntN(experts)
		if e == 1 {
			e = 0
		}
		chosen[s], lists[e] = e, append(lists[e], int32(s))
	}
	for _, l := range lists {
		first, slots = append(first, int32(len(slots))), append(slots, l...)
	}
	return append(first, int32(len(slots))), slots
}

// compare holds an output to float64.
func (c *matmulCase) compare(t testing.TB, p []product, chosen []int, got, x []float32) {
	t.Helper()
	n := p[0].s.n() / max(c.experts, 1)
	weights := [][]float32{p[0].s.floats()}
	if c.gated {
		weights = append(weights, p[1].s.floats())
	}
	for i, y := range got {
		slot, feature := i/n, i%n
		row := chosen[slot]*n + feature
		in := x[slot/max(c.share, 1)*c.k:][:c.k]
		value, allowed := c.dot(weights[0][row*c.k:][:c.k], in)
		if p[0].bias != nil {
			value += float64(p[0].bias[row])
			allowed += 0x1p-23 * math.Abs(float64(p[0].bias[row]))
		}
		if c.gated {
			up, more := c.dot(weights[1][row*c.k:][:c.k], in)
			if p[1].bias != nil {
				up += float64(p[1].bias[row])
				more += 0x1p-23 * math.Abs(float64(p[1].bias[row]))
			}
			// The activation's slope is 1.13 at most.
			gate := activated(c.act, value)
			allowed = 1.13*allowed*(math.Abs(up)+more) + math.Abs(gate)*more
			value = gate * up
		}
		if p[0].residual != nil {
			value += float64(p[0].residual[i])
			allowed += 0x1p-23 * math.Abs(float64(p[0].residual[i]))
		}
		allowed += 0x1p-22*math.Abs(value) + 0x1p-140
		if wild := math.IsNaN(value) || math.Abs(value) > math.MaxFloat32; wild != (got[i]-got[i] != 0) || !wild && math.Abs(float64(y)-value) > allowed {
			t.Fatalf("%v: feature %d of slot %d: %g, want %g within %g", c, feature, slot, y, value, allowed)
		}
	}
}

// dot returns the float64 product and what rounding may do to it: of float32
// sums, or of halves. There an activation is off by 2^-12 of itself (2^-38 of the
// row's largest), and a weight by up to three times 2^-12 of numbers that may be
// larger than it, as the scaled code of a small weight with a minimum.
func (c *matmulCase) dot(w, x []float32) (value, allowed float64) {
	var size, squares, largest, top float64
	for i, v := range w {
		d := float64(v) * float64(x[i])
		value += d
		size += math.Abs(d)
		largest, top = max(largest, math.Abs(float64(v))), max(top, math.Abs(float64(x[i])))
	}
	for _, v := range x {
		squares += float64(v) * float64(v)
	}
	allowed = 0x1p-23 * size * math.Sqrt(float64(c.k))
	if !c.exact {
		allowed += 0x1p-9*largest*math.Sqrt(squares) + 0x1p-37*top*largest*float64(c.k)
	}
	return value, allowed
}

// activated is the activation in float64.
func activated(a ops.Activation, x float64) float64 {
	switch a {
	case ops.SiLU:
		return x / (1 + math.Exp(-x))
	case ops.GELU:
		return x * (1 + math.Erf(x/math.Sqrt2)) / 2
	case ops.GELUTanh:
		return x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))) / 2
	}
	panic("activation")
}
