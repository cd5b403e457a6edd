package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
)

// routeRow is the processor's choice: see runtime/cpu.
func routeRow(p []float32, topK int, normalize bool) (chosen []int32, share []float32) {
	set, err := cpu.ForLevel(cpu.LevelGeneric)
	if err != nil {
		panic(err)
	}
	set.Softmax(p)
	var sum float32
	for i := range topK {
		best := -1
		for x, v := range p {
			if v >= 0 && (best < 0 || v > p[best]) {
				best = x
			}
		}
		if best < 0 {
			best = i
		}
		chosen, share = append(chosen, int32(best)), append(share, p[best])
		sum += p[best]
		p[best] = -1
	}
	for i := range share {
		if normalize {
			share[i] /= sum
		}
	}
	return chosen, share
}

func TestRoute(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(3, 9))
	inf := float32(math.Inf(-1))
	for _, c := range []struct {
		t, experts, topK int
		normalize        bool
	}{{1, 8, 2, true}, {7, 128, 8, true}, {5, 60, 4, false}, {40, 5, 5, true}, {3, 257, 32, true}, {130, 33, 1, false}} {
		if !sampled(t) {
			continue
		}
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			logits := ordinary(r, c.t*c.experts)
			for i := range logits {
				if i%5 == 0 {
					logits[i] = float32(math.Round(float64(logits[i]))) // equal ones
				}
			}
			if c.t > 3 {
				logits[c.experts+1] = float32(math.NaN())
				logits[2*c.experts] = inf
				for i := range c.experts {
					logits[3*c.experts+i] = inf
				}
			}
			n := c.t * c.topK
			chosen, share := m.put(t, make([]int32, n)), m.put(t, make([]float32, n))
			slots, first := m.put(t, make([]int32, n)), m.put(t, make([]int32, c.experts+1))
			op := hip.Route{T: c.t, Experts: c.experts, TopK: c.topK, Normalize: c.normalize, Logits: m.put(t, logits).address(),
				Chosen: chosen.address(), Share: share.address(), Slots: slots.address(), First: first.address()}
			m.run(t, op.Calls(m.target))
			gotChosen, gotShare := make([]int32, n), make([]float32, n)
			chosen.get(t, gotChosen)
			share.get(t, gotShare)
			var all []int32
			for row := range c.t {
				want, wantShare := routeRow(logits[row*c.experts:(row+1)*c.experts], c.topK, c.normalize)
				all = append(all, want...)
				for j := range want {
					if gotChosen[row*c.topK+j] != want[j] {
						t.Fatalf("row %d chose %v, want %v", row, gotChosen[row*c.topK:(row+1)*c.topK], want)
					}
				}
				same(t, fmt.Sprintf("shares of row %d", row), gotShare[row*c.topK:(row+1)*c.topK], wantShare)
			}
			gotSlots, gotFirst := make([]int32, n), make([]int32, c.experts+1)
			slots.get(t, gotSlots)
			first.get(t, gotFirst)
			at := int32(0)
			for e := range c.experts {
				if gotFirst[e] != at {
					t.Fatalf("expert %d begins at %d, want %d", e, gotFirst[e], at)
				}
				for s, x := range all {
					if int(x) == e {
						if gotSlots[at] != int32(s) {
							t.Fatalf("slot %d is %d, want %d", at, gotSlots[at], s)
						}
						at++
					}
				}
			}
			if int(gotFirst[c.experts]) != n {
				t.Fatalf("the last expert ends at %d of %d", gotFirst[c.experts], n)
			}
			testCombine(t, m, r, c.t, 100+c.experts, c.topK, gotChosen, gotShare)
		})
	}
}

// A routing is a router that has more than a softmax.
type routing struct {
	t, experts, topK int
	hip.Route        // constants
	bias             bool
}

func (c routing) String() string {
	return fmt.Sprintf("T=%d of %d score=%d bias=%v groups=%d/%d best=%d zero=%v normalize=%v", c.t, c.experts, c.Score, c.bias, c.Groups, c.Route.TopGroups, c.GroupBest, c.ZeroMasked, c.Normalize)
}

// want computes a row's experts and shares in float64.
func (c *routing) want(logits, bias []float32) (chosen []int32, share []float64) {
	s, sum, none := make([]float64, c.experts), 0.0, math.Inf(-1)
	for e, v := range logits {
		x := float64(v)
		if x != x || x > math.MaxFloat32 && c.Score != hip.ScoreSigmoid {
			for i := range c.topK {
				chosen, share = append(chosen, int32(i)), append(share, math.NaN())
			}
			return chosen, share
		}
		switch c.Score {
		case hip.ScoreSoftmax:
			s[e] = math.Exp(x)
			sum += s[e]
		case hip.ScoreSigmoid:
			s[e] = 1 / (1 + math.Exp(-x))
		case hip.ScoreSelected:
			s[e] = x
		case hip.ScoreRoot:
			s[e] = math.Sqrt(math.Log1p(math.Exp(x)))
		}
	}
	moved := make([]float64, c.experts)
	for e := range s {
		if c.Score == hip.ScoreSoftmax && sum > 0 {
			s[e] /= sum
		}
		moved[e] = max(float64(float32(s[e])+bias[e]), -math.MaxFloat32)
	}
	c.mask(moved, none)
	all, scale := 0.0, 1.0
	for range c.topK {
		best := 0
		for e := range moved {
			if moved[e] > moved[best] {
				best = e
			}
		}
		moved[best] = none
		value := s[best]
		if c.Score == hip.ScoreSelected {
			value = math.Exp(value)
		}
		chosen, share, all = append(chosen, int32(best)), append(share, value), all+value
	}
	if c.Score == hip.ScoreSelected {
		scale *= max(all, 1e-300)
		all = 1
	}
	if c.Normalize {
		scale *= max(all+float64(c.Epsilon), float64(c.Floor))
	}
	for i := range share {
		if share[i] /= scale; c.Scale != 0 {
			share[i] *= float64(c.Scale)
		}
	}
	return chosen, share
}

func (c *routing) mask(moved []float64, none float64) {
	if c.Groups == 0 {
		return
	}
	if c.ZeroMasked {
		none = 0
	}
	size := c.experts / c.Groups
	worth := make([]float64, c.Groups)
	for g := range worth {
		sorted := slices.Sorted(slices.Values(moved[g*size : (g+1)*size]))
		worth[g] = sorted[size-1]
		if c.GroupBest == 2 {
			worth[g] = float64(float32(worth[g]) + float32(sorted[size-2]))
		}
	}
	for g := range worth {
		better := 0
		for o := range worth {
			if worth[o] > worth[g] || worth[o] == worth[g] && o < g {
				better++
			}
		}
		for e := g * size; e < (g+1)*size && better >= c.TopGroups; e++ {
			moved[e] = none
		}
	}
}

func TestRouteGeneral(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(4, 9))
	for _, c := range []routing{
		{t: 6, experts: 256, topK: 8, bias: true, Route: hip.Route{Normalize: true, Score: hip.ScoreSigmoid, Groups: 8, TopGroups: 4, GroupBest: 2, Epsilon: 1e-20, Scale: 2.5}},
		{t: 5, experts: 60, topK: 6, Route: hip.Route{Groups: 6, TopGroups: 3, GroupBest: 1, Scale: 16}},
		{t: 5, experts: 33, topK: 4, bias: true, Route: hip.Route{Normalize: true, Score: hip.ScoreRoot, Floor: 9, Scale: 1.5}},
		{t: 5, experts: 128, topK: 4, bias: true, Route: hip.Route{Score: hip.ScoreSelected}},
		{t: 4, experts: 5, topK: 5, Route: hip.Route{Normalize: true, Score: hip.ScoreSigmoid, Epsilon: 1e-6}},
		{t: 5, experts: 40, topK: 3, bias: true, Route: hip.Route{Score: hip.ScoreSigmoid, Groups: 20, TopGroups: 2, GroupBest: 2, ZeroMasked: true, Normalize: true}},
		{t: 3, experts: 70, topK: 32, bias: true, Route: hip.Route{Normalize: true, Floor: 0.5}},
	} {
		if sampled(t) {
			t.Run(c.String(), func(t *testing.T) { c.check(t, m, r) })
		}
	}
}

func (c routing) check(t *testing.T, m *machine, r *rand.Rand) {
	logits, bias := ordinary(r, c.t*c.experts), make([]float32, c.experts)
	for i := range logits {
		if i%5 == 0 {
			logits[i] = float32(math.Round(float64(logits[i]))) // equal ones
		}
	}
	logits[0] = float32(math.Inf(-1))
	logits[c.experts+2] = float32(math.NaN())
	logits[2*c.experts+3] = float32(math.Inf(1))
	op, n := c.Route, c.t*c.topK
	if c.bias {
		for e := range bias {
			bias[e] = float32(r.NormFloat64() - 0.5)
		}
		bias[1] = float32(math.Inf(-1))
		op.Bias = m.put(t, bias).address()
	}
	chosen, share := m.put(t, make([]int32, n)), m.put(t, make([]float32, n))
	op.T, op.Experts, op.TopK, op.Logits, op.Chosen, op.Share = c.t, c.experts, c.topK, m.put(t, logits).address(), chosen.address(), share.address()
	m.run(t, op.Calls(m.target))
	gotChosen, gotShare := make([]int32, n), make([]float32, n)
	chosen.get(t, gotChosen)
	share.get(t, gotShare)
	for row := range c.t {
		want, wantShare := c.want(logits[row*c.experts:(row+1)*c.experts], bias)
		got, shares := gotChosen[row*c.topK:(row+1)*c.topK], gotShare[row*c.topK:(row+1)*c.topK]
		if !slices.Equal(got, want) {
			t.Fatalf("row %d chose %v, want %v", row, got, want)
		}
		for j, w := range wantShare {
			if d := math.Abs(float64(shares[j]) - w); !(d <= 64*0x1p-24*w) && !(w != w && shares[j] != shares[j]) {
				t.Fatalf("row %d has shares %v, want %v", row, shares, wantShare)
			}
		}
	}
	for range repeats() {
		m.run(t, op.Calls(m.target))
		again := make([]float32, n)
		share.get(t, again)
		same(t, "again", again, gotShare)
	}
}

func testCombine(t *testing.T, m *machine, r *rand.Rand, rows, d, topK int, chosen []int32, share []float32) {
	parts, shared, gate := ordinary(r, rows*topK*d), ordinary(r, rows*d), ordinary(r, rows)
	for kind := range 3 { // without a shared layer, with one, with its gate
		out := m.put(t, make([]float32, rows*d))
		op := hip.Combine{T: rows, D: d, TopK: topK, Parts: m.put(t, parts).address(), Chosen: m.put(t, chosen).address(),
			Share: m.put(t, share).address(), Out: out.address()}
		if kind > 0 {
			op.Shared = m.put(t, shared).address()
		}
		if kind > 1 {
			op.Gate = m.put(t, gate).address()
		}
		checkCombine(t, m, &op, out, func(row, i int) (want, size float64) {
			if kind > 0 {
				want = float64(shared[row*d+i])
			}
			if kind > 1 {
				want /= 1 + math.Exp(-float64(gate[row]))
			}
			size = math.Abs(want)
			for j := range topK {
				v := float64(share[row*topK+j]) * float64(parts[(row*topK+j)*d+i])
				want += v
				size += math.Abs(v)
			}
			return want, size
		})
	}
}

func checkCombine(t *testing.T, m *machine, op *hip.Combine, out *memory, exact func(row, i int) (want, size float64)) {
	rows, d := op.T, op.D
	got, again := make([]float32, rows*d), make([]float32, rows*d)
	m.run(t, op.Calls(m.target))
	out.get(t, got)
	for row := range rows {
		for i := range d {
			want, size := exact(row, i)
			if e := math.Abs(float64(got[row*d+i]) - want); e > float64(op.TopK+2)*size*0x1p-24 || math.IsNaN(want) != (got[row*d+i] != got[row*d+i]) {
				t.Fatalf("row %d number %d is %g, want %g", row, i, got[row*d+i], want)
			}
		}
	}
	for range 9 {
		m.run(t, op.Calls(m.target))
		out.get(t, again)
		same(t, "again", again, got)
	}
}

func TestAdvance(t *testing.T) {
	m := open(t)
	const ring, stride = 3, 8
	position, owner, token := []int32{4, -1, 7, 2}, []int32{1, 0, 0, 2}, []int32{11, 12, 13, 14}
	p, next := m.put(t, position), m.put(t, []int32{-5, -5, -5, -5})
	history, output, steps := m.put(t, make([]int32, 3*stride)), m.put(t, make([]int32, ring*3)), m.put(t, []int32{5})
	op := hip.Advance{Rows: hip.Rows{T: 4, Position: p.address(), Owner: m.put(t, owner).address()}, Token: m.put(t, token).address(), Next: next.address(),
		History: history.address(), Stride: stride, Output: output.address(), Outputs: 3, Steps: steps.address(), Ring: ring}
	m.run(t, op.Calls(m.target))
	m.run(t, op.Calls(m.target))
	gotP, gotNext, gotHistory, gotOutput, gotSteps := make([]int32, 4), make([]int32, 4), make([]int32, 3*stride), make([]int32, ring*3), make([]int32, 1)
	p.get(t, gotP)
	next.get(t, gotNext)
	history.get(t, gotHistory)
	output.get(t, gotOutput)
	steps.get(t, gotSteps)
	wantHistory := make([]int32, 3*stride)
	wantHistory[stride+5], wantHistory[stride+6], wantHistory[2*stride+3], wantHistory[2*stride+4] = 11, 11, 14, 14
	for _, c := range []struct {
		name      string
		got, want []int32
	}{
		{"positions", gotP, []int32{6, -1, 9, 4}},
		{"next", gotNext, []int32{11, -5, 13, 14}},
		{"history", gotHistory, wantHistory},
		{"output", gotOutput, []int32{13, 11, 14, 0, 0, 0, 13, 11, 14}},
		{"steps", gotSteps, []int32{7}},
	} {
		if fmt.Sprint(c.got) != fmt.Sprint(c.want) {
			t.Errorf("%s are %v, want %v", c.name, c.got, c.want)
		}
	}
}

func TestResume(t *testing.T) {
	m := open(t)
	const stride = 5
	history := make([]int32, 3*stride)
	for i := range history {
		history[i] = int32(100 + i)
	}
	token := m.put(t, []int32{-1, 7, -1, 0})
	op := hip.Resume{Rows: hip.Rows{T: 4, Position: m.put(t, []int32{4, 1, 0, 2}).address(), Owner: m.put(t, []int32{1, 0, 2, 0}).address()},
		Token: token.address(), History: m.put(t, history).address(), Stride: stride}
	m.run(t, op.Calls(m.target))
	got := make([]int32, 4)
	token.get(t, got)
	if want := []int32{109, 7, 110, 0}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("tokens %v, want %v", got, want)
	}
}

// Slots whose experts are elsewhere multiply with the first that is here, and sums leave them out, whatever it gave.
func TestHere(t *testing.T) {
	m := open(t)
	const rows, topK, experts, d = 70, 4, 9, 33
	r := rand.New(rand.NewPCG(8, 1))
	place := []int32{-1, 0, -1, 1, 2, -1, -1, 3, -1}
	chosen, wantLocal, wantOrder := make([]int32, rows*topK), make([]int32, rows*topK), make([]int32, rows*topK)
	share, parts, shared := ordinary(r, rows*topK), ordinary(r, rows*topK*d), ordinary(r, rows*d)
	for row := range rows {
		for j, e := range r.Perm(experts)[:topK] {
			s := row*topK + j
			chosen[s], wantLocal[s], wantOrder[s] = int32(e), max(place[e], 0), int32(e)
			if place[e] < 0 {
				wantOrder[s] = math.MaxInt32
				parts[s*d] = float32(math.NaN()) // nobody asked
			}
		}
	}
	local, order, out := m.put(t, make([]int32, rows*topK)), m.put(t, make([]int32, rows*topK)), m.put(t, make([]float32, rows*d))
	op := hip.Here{N: rows * topK, Chosen: m.put(t, chosen).address(), Place: m.put(t, place).address(), Local: local.address(), Order: order.address()}
	m.run(t, op.Calls(m.target))
	gotLocal, gotOrder := make([]int32, rows*topK), make([]int32, rows*topK)
	local.get(t, gotLocal)
	order.get(t, gotOrder)
	if !slices.Equal(gotLocal, wantLocal) || !slices.Equal(gotOrder, wantOrder) {
		t.Fatalf("slots %v in the order %v, want %v in %v", gotLocal, gotOrder, wantLocal, wantOrder)
	}
	sum := hip.Combine{T: rows, D: d, TopK: topK, Parts: m.put(t, parts).address(), Chosen: order.address(), Share: m.put(t, share).address(),
		Shared: m.put(t, shared).address(), Out: out.address(), Some: true}
	checkCombine(t, m, &sum, out, func(row, i int) (want, size float64) {
		want = float64(shared[row*d+i])
		size = math.Abs(want)
		for j := range topK {
			if s := row*topK + j; place[chosen[s]] >= 0 {
				v := float64(share[s]) * float64(parts[s*d+i])
				want += v
				size += math.Abs(v)
			}
		}
		return want, size
	})
}
