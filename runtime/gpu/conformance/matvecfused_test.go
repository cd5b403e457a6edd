package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/kernels/ops"
)

// A gatedCase is the first half of a feed-forward layer: act(gate x) * (up x),
// of one set of weights or of experts.
type gatedCase struct {
	v       *variety
	t, n, k int
	exact   bool
	norm    bool
	rounded bool
	act     ops.Activation
	experts int // 0: none
	topK    int // slots of a row
	biased  bool
	piped   bool // few blocks take tiles in turn, the next on their way
}

func (c *gatedCase) String() string {
	return fmt.Sprintf("%v T=%d N=%d K=%d exact=%v norm=%v rounded=%v %v experts=%d biased=%v piped=%v", c.v, c.t, c.n, c.k, c.exact, c.norm, c.rounded, c.act, c.experts, c.biased, c.piped)
}

func TestMatvecGated(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(21, 22))
	for _, v := range pick(t, "q4_k", "q6_k", "bf16") {
		for _, c := range []gatedCase{
			{t: 1, n: 64, k: 256, act: ops.SiLU},
			{t: 2, n: 45, k: 512, act: ops.GELUTanh, norm: true, exact: true},
			{t: 1, n: 128, k: 256, act: ops.SiLU, rounded: true, norm: true},
			{t: 3, n: 75, k: 512, act: ops.GELU, rounded: true},
			{t: 1, n: 2, k: 256, act: ops.SiLU, rounded: true},
			{t: 1, n: 40, k: 256, act: ops.ReLU, experts: 5, topK: 3},
			{t: 2, n: 64, k: 256, act: ops.SiLU, experts: 4, topK: 2, rounded: true},
			{t: 2, n: 33, k: 256, act: ops.SiLU, experts: 3, topK: 1, exact: true},
			{t: 1, n: 75, k: 768, act: ops.SiLU, experts: 3, topK: 2, biased: true, piped: true},
			{t: 2, n: 33, k: 256, act: ops.SiLU, experts: 3, topK: 2, biased: true},
		} {
			if c.v = v; taken(t) {
				c.run(t, m, r)
			}
		}
	}
}

// run compares with the formula in float64 on the activations as they are
// multiplied.
func (c *gatedCase) run(t *testing.T, m *machine, r *rand.Rand) {
	t.Helper()
	x := activations(r, c.t*c.k)
	in := m.put(t, x)
	defer in.release()
	matrices, slots, share := max(c.experts, 1), c.t, 1
	op := &hip.Matvec{T: c.t, Exact: c.exact, X: in.address(), Gated: true, Act: c.act}
	chosen := make([]int32, c.t*max(c.topK, 1))
	if c.experts > 0 {
		for i := range chosen {
			chosen[i] = int32(r.IntN(c.experts))
		}
		slots, share = len(chosen), c.topK
		ids := m.put(t, chosen)
		defer ids.release()
		op.T, op.Experts, op.Stack, op.Share = slots, ids.address(), c.experts, share
	}
	if c.norm {
		w := make([]float32, c.k)
		for i := range w {
			w[i] = float32(r.NormFloat64())
		}
		weight := m.put(t, w)
		defer weight.release()
		op.Norm, op.ExactNorm = hip.Normal{Weight: weight.address(), Eps: 1e-5}, c.exact
		for i := range c.t {
			cpu.Best().RMSNorm(x[i*c.k:(i+1)*c.k], x[i*c.k:(i+1)*c.k], w, 1e-5, 0)
		}
	}
	gate, up := c.v.make(t, r, matrices*c.n, c.k), c.v.make(t, r, matrices*c.n, c.k)
	for _, s := range []*stored{gate, up} {
		op.Products = append(op.Products, hip.Product{W: m.place(t, s, c.n)})
	}
	var biases [2][]float32
	for i := range biases {
		if biases[i] = make([]float32, matrices*c.n); c.biased {
			biases[i] = activations(r, matrices*c.n)
			bias := m.put(t, biases[i])
			defer bias.release()
			op.Products[i].Bias = bias.address()
		}
	}
	if c.piped {
		op.Shape = &hip.MatvecShape{Rows: 1, Lanes: 8, Waves: 4, Split: 1, Steps: 1, Blocks: 1, Grid: 1, Pipe: true}
	}
	integer := !c.exact && op.Products[0].W.Format.Integer()
	if integer {
		for i := range c.t {
			roundReference(x[i*c.k:(i+1)*c.k], x[i*c.k:(i+1)*c.k], op.Products[0].W.Format.Fine())
		}
	}
	got := make([]float32, slots*c.n)
	if c.rounded {
		raw := make([]byte, hip.ActsSize(slots, c.n))
		y, between := m.put(t, raw), m.put(t, got)
		defer y.release()
		defer between.release()
		op.Products[0].Y = between.address()
		op.Rounded = hip.Acts{Data: y.address(), T: slots, K: c.n}
		m.run(t, op.Calls(m.target))
		y.get(t, raw)
		got = unround(t, raw, slots, c.n, false)
	} else {
		y := m.put(t, got)
		defer y.release()
		op.Products[0].Y = y.address()
		m.run(t, op.Calls(m.target))
		y.get(t, got)
	}
	g, u := gate.floats(), up.floats()
	for s := range slots {
		in := x[s/share*c.k : (s/share+1)*c.k]
		want, allowed := make([]float64, c.n), make([]float64, c.n)
		for n := range want {
			row := int(chosen[s])*c.n + n
			want[n], allowed[n] = c.expect(g[row*c.k:(row+1)*c.k], u[row*c.k:(row+1)*c.k], in, integer, [2]float64{float64(biases[0][row]), float64(biases[1][row])})
		}
		for n := range want {
			if c.rounded { // half a step of the block, and what a largest value is off by
				for _, v := range want[n/32*32 : min(n/32*32+32, c.n)] {
					allowed[n] = max(allowed[n], math.Abs(v)/254*1.01)
				}
			}
			if e := math.Abs(float64(got[s*c.n+n]) - want[n]); !(e <= allowed[n]) {
				t.Fatalf("%v: output %d of row %d is %g, want %g within %g", c, n, s, got[s*c.n+n], want[n], allowed[n])
			}
		}
	}
}

// expect is an output in float64 and the error allowed: that of two float32
// sums, through a slope of at most 1.2.
func (c *gatedCase) expect(gate, up, x []float32, integer bool, bias [2]float64) (want, allowed float64) {
	a, sizeA, b, sizeB := bias[0], math.Abs(bias[0]), bias[1], math.Abs(bias[1])
	for i, v := range x {
		a += float64(gate[i]) * float64(v)
		sizeA += math.Abs(float64(gate[i]) * float64(v))
		b += float64(up[i]) * float64(v)
		sizeB += math.Abs(float64(up[i]) * float64(v))
	}
	part := 0x1p-24 * math.Sqrt(float64(len(x))) * 4
	if c.norm && integer { // a step of a rounded input now and then
		part = 0x1p-8 / math.Sqrt(float64(len(x)))
	}
	act := []float32{float32(a)}
	cpu.Best().Activate(c.act, act, act)
	want = float64(act[0]) * b
	return want, part*(1.2*sizeA*math.Abs(b)+math.Abs(float64(act[0]))*sizeB) + 0x1p-20*math.Abs(want) + 1e-30
}

// TestMatvecExperts multiplies each slot with the matrix of its expert, each with
// an input of its own, as the second half of a feed-forward layer does.
func TestMatvecExperts(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(23, 24))
	for _, v := range varieties(t) {
		if !v.named("q4_k", "q5_1", "q8_0", "f16") {
			continue
		}
		const experts, slots, n, k = 4, 5, 37, 256
		for _, acts := range []bool{false, true} {
			if !sampled(t) {
				continue
			}
			x := activations(r, slots*k)
			in := m.put(t, x)
			chosen := []int32{3, 0, 0, 2, 3}
			ids, y := m.put(t, chosen), m.put(t, make([]float32, slots*n))
			s, bias := v.make(t, r, experts*n, k), activations(r, experts*n)
			op := &hip.Matvec{T: slots, X: in.address(), Experts: ids.address(), Stack: experts, Share: 1,
				Products: []hip.Product{{W: m.place(t, s, n), Y: y.address(), Bias: m.put(t, bias).address()}}}
			if acts {
				_, a := m.rounded(t, x, slots, k, v.fine(t, k))
				give(op, a)
			}
			m.run(t, op.Calls(m.target))
			got := make([]float32, slots*n)
			y.get(t, got)
			integer := op.Products[0].W.Format.Integer()
			for i, expert := range chosen {
				row := x[i*k : (i+1)*k]
				if integer {
					roundReference(row, row, v.fine(t, k))
				}
				c := &matvecCase{v: v, t: 1, k: k, acts: acts}
				part := s.slice(t, int(expert)*n, n)
				(&product{s: part, bias: bias[int(expert)*n:][:n]}).compare(t, c, got[i*n:(i+1)*n], row, integer)
			}
		}
	}
}

// slice is rows [from, from+n) of a tensor of blocks or plain elements.
func (s *stored) slice(t testing.TB, from, n int) *stored {
	t.Helper()
	size := len(s.matrix.Data(0)) / s.n()
	return store(t, s.scheme, []int64{int64(n), int64(s.k())}, s.Params, s.matrix.Data(0)[from*size:(from+n)*size])
}
