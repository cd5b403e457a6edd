package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/kernels/ops"
)

// TestThin multiplies short rows of every scheme, each matrix with an input of its
// own, and adds to outputs.
func TestThin(t *testing.T) {
	m := open(t)
	for _, v := range varieties(t) {
		t.Run(v.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(41, 1))
			run := 0
			for _, c := range []*thinCase{
				{v: v, t: 1, k: []int{64, 32, 64}, n: []int{70, 33, 5}},
				{v: v, t: 1, k: []int{16}, n: []int{300}},
				{v: v, t: 3, k: []int{36, 20}, n: []int{19, 257}},
				{v: v, t: 8, k: []int{256}, n: []int{65}},
				{v: v, t: 2, k: []int{512, 256}, n: []int{7, 20}},
			} {
				fits := true
				for _, k := range c.k {
					fits = fits && v.fits(k)
				}
				if fits && !(divided() && run > 0) && taken(t) {
					c.run(t, m, r)
					run++
				}
			}
		})
	}
}

// A thinCase is one hip.Thin on random matrices.
type thinCase struct {
	v    *variety
	t    int
	k, n []int
}

func (c *thinCase) run(t *testing.T, m *machine, r *rand.Rand) {
	t.Helper()
	op := &hip.Thin{T: c.t}
	var products []product
	var inputs [][]float32
	var outs []*memory
	for i, k := range c.k {
		n, x := c.n[i], activations(r, c.t*k)
		p := product{s: c.v.make(t, r, n, k)}
		in, y := m.put(t, x), m.put(t, make([]float32, c.t*n))
		defer in.release()
		defer y.release()
		h := hip.Product{W: m.place(t, p.s, n), Y: y.address()}
		if i != 1 { // as for codes and a correction
			p.residual = activations(r, c.t*n)
			h.Residual = h.Y
		}
		if i != 2 {
			p.bias = activations(r, n)
			bias := m.put(t, p.bias)
			defer bias.release()
			h.Bias = bias.address()
		}
		op.Products = append(op.Products, hip.ThinProduct{Product: h, X: in.address()})
		products, inputs, outs = append(products, p), append(inputs, x), append(outs, y)
	}
	first := make([][]float32, len(outs))
	for again := range 2 {
		for i, y := range outs {
			if products[i].residual != nil {
				y.set(t, products[i].residual)
			}
		}
		m.run(t, op.Calls(m.target))
		for i, y := range outs {
			got := make([]float32, c.t*c.n[i])
			y.get(t, got)
			if again == 1 {
				sameBits(t, fmt.Sprintf("%v K=%v again", c.v, c.k), got, first[i])
				continue
			}
			first[i] = got
			products[i].compare(t, &matvecCase{v: c.v, t: c.t, k: c.k[i], n: c.n[i : i+1], exact: true}, got, inputs[i], false)
		}
	}
}

// TestThinGated activates what two corrections complete.
func TestThinGated(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(42, 1))
	for i, v := range pick(t, "q8_0", "f16") {
		if !taken(t) {
			continue
		}
		rows, n, k := 1+2*i, 75, 64
		var sides [2][]float64
		op := &hip.Thin{T: rows, Gated: true, Act: ops.SiLU}
		var y *memory
		for side := range 2 {
			s, x, codes := v.make(t, r, n, k), ordinary(r, rows*k), ordinary(r, rows*n)
			out := m.put(t, codes)
			if side == 0 {
				y = out
			}
			op.Products = append(op.Products, hip.ThinProduct{X: m.put(t, x).address(),
				Product: hip.Product{W: m.place(t, s, n), Y: out.address(), Residual: out.address()}})
			w := s.floats()
			for j, add := range codes {
				d, _ := (&product{}).dot(w[j%n*k:(j%n+1)*k], x[j/n*k:(j/n+1)*k])
				sides[side] = append(sides[side], d+float64(add))
			}
		}
		m.run(t, op.Calls(m.target))
		got := make([]float32, rows*n)
		y.get(t, got)
		for j := range got {
			a, b := sides[0][j], sides[1][j]
			want := a / (1 + math.Exp(-a)) * b
			if !(math.Abs(float64(got[j])-want) <= 2e-5*(1+math.Abs(a)+math.Abs(b)+math.Abs(want))) {
				t.Fatalf("%v: number %d is %g, want %g", v, j, got[j], want)
			}
		}
	}
}

// TestMix adds shared matrices' outputs to those of experts, or to nothing.
func TestMix(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(43, 1))
	const experts, slots, n, shared = 5, 6, 301, 3
	chosen := []int32{4, 0, 2, 2, 3, 1}
	c, bias := ordinary(r, experts*shared), ordinary(r, experts*n)
	coefficients, ids, biases := m.put(t, c), m.put(t, chosen), m.put(t, bias)
	for _, share := range []int{1, 2} {
		z, before := ordinary(r, slots/share*shared*n), ordinary(r, slots*n)
		in, y := m.put(t, z), m.put(t, before)
		op := &hip.Mix{T: slots, Experts: ids.address(), Share: share, B: shared, N: n, Z: in.address(), C: coefficients.address(), Add: share == 1, Y: y.address()}
		if share == 2 {
			op.Bias = biases.address()
		}
		m.run(t, op.Calls(m.target))
		got := make([]float32, slots*n)
		y.get(t, got)
		for s, e := range chosen {
			for i := range n {
				want := float64(before[s*n+i])
				if share == 2 {
					want = float64(bias[int(e)*n+i])
				}
				for b := range shared {
					want += float64(c[int(e)*shared+b]) * float64(z[(s/share*shared+b)*n+i])
				}
				if !(math.Abs(float64(got[s*n+i])-want) <= 1e-6*(4+math.Abs(want))) {
					t.Fatalf("share %d: number %d of slot %d is %g, want %g", share, i, s, got[s*n+i], want)
				}
			}
		}
	}
}

// TestDigits divides tokens for two, three and four cores.
func TestDigits(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(44, 1))
	for _, rows := range [][]int{{40, 25}, {10, 10, 10}, {5, 7, 9, 11}} {
		tokens := make([]int32, 300)
		all := int32(1)
		for _, n := range rows {
			all *= int32(n)
		}
		for i := range tokens {
			tokens[i] = r.Int32N(all)
		}
		got := make([]int32, 4*len(tokens))
		in, out := m.put(t, tokens), m.put(t, got)
		m.run(t, (&hip.Digits{T: len(tokens), Rows: rows, Token: in.address(), Digits: out.address()}).Calls(m.target))
		out.get(t, got)
		for i, token := range tokens {
			made := int32(0)
			for j, n := range rows {
				d := got[j*len(tokens)+i]
				if d < 0 || d >= int32(n) {
					t.Fatalf("digit %d of %d is %d of %d", j, token, d, n)
				}
				made = made*int32(n) + d
			}
			if made != token {
				t.Fatalf("token %d has the digits of %d", token, made)
			}
		}
	}
}

// TestContract multiplies parts of tensors: cores in the middle, in parts, the last,
// and lookups, which have the reference's bits.
func TestContract(t *testing.T) {
	m := open(t)
	for i, o := range []hip.Contract{
		{T: 2, I: 3, L: 7, Q: 20, V: 5, S: 6, Same: true, First: 2, Of: 9},
		{T: 1, I: 70, L: 1, Q: 33, V: 65, S: 1, Same: true, Limit: 70*65 - 11},
		{T: 3, I: 1, L: 130, Q: 4, V: 10, S: 8, Same: true},
		{T: 4, I: 9, L: 1, Q: 18, V: 1, S: 75, Rounded: true, Scale: 1},
		{T: 3, I: 1, L: 1, Q: 48, V: 1, S: 100, Same: true, Rounded: true, Scale: 2.5},
	} {
		if !sampled(t) {
			continue
		}
		checkContract(t, m, &o, i)
	}
}

// checkContract runs one contraction; the number says what is added.
func checkContract(t *testing.T, m *machine, o *hip.Contract, number int) {
	t.Helper()
	r := rand.New(rand.NewPCG(45, uint64(number)))
	of := max(o.Of, o.V)
	limit := o.Limit
	if limit == 0 {
		limit = o.I * of
	}
	each := limit * o.S * o.L
	matrices := o.T
	if o.Same {
		matrices = 1
	}
	a, b, before := ordinary(r, o.T*o.I*o.Q*o.L), ordinary(r, matrices*o.V*o.Q*o.S), ordinary(r, o.T*each)
	bias, positions, position := ordinary(r, limit), ordinary(r, 5*each), []int32{4, 0, 2, 1}[:o.T]
	c := m.put(t, before)
	o.A, o.B, o.C = m.put(t, a).address(), m.put(t, b).address(), c.address()
	if number%2 == 0 {
		o.Start = o.C
	}
	if number == 1 {
		o.Bias = m.put(t, bias).address()
	}
	if number == 4 {
		o.Positions, o.Position = m.put(t, positions).address(), m.put(t, position).address()
	}
	m.run(t, o.Calls(m.target))
	got, want := make([]float32, o.T*each), append([]float32(nil), before...)
	c.get(t, got)
	at := func(t, i, v, s, l int) int { return t*each + ((i*of+o.First+v)*o.S+s)*o.L + l }
	for n := range o.T * o.I * o.V * o.S * o.L {
		l, s, v, i, row := n%o.L, n/o.L%o.S, n/o.L/o.S%o.V, n/o.L/o.S/o.V%o.I, n/o.L/o.S/o.V/o.I
		if i*of+o.First+v >= limit {
			continue
		}
		to := &want[at(row, i, v, s, l)]
		sum, exact := float32(0), 0.0
		if o.Start != 0 {
			sum, exact = *to, float64(*to)
		}
		for q := range o.Q {
			x, w := a[((row*o.I+i)*o.Q+q)*o.L+l], b[((row%matrices*o.V+v)*o.Q+q)*o.S+s]
			sum += float32(x * w)
			exact += float64(x) * float64(w)
		}
		if o.Bias != 0 {
			exact += float64(bias[i*of+o.First+v])
		}
		if *to = float32(exact); o.Rounded {
			*to = float32(sum * o.Scale)
			if o.Positions != 0 {
				*to += positions[int(position[row])*each+n%each]
			}
		}
	}
	for i := range want {
		if o.Rounded && got[i] != want[i] || !(math.Abs(float64(got[i]-want[i])) <= 1e-6*(10+math.Abs(float64(want[i])))) {
			t.Fatalf("contraction %d: number %d is %v, want %v", number, i, got[i], want[i])
		}
	}
}
