package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"
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

func testCombine(t *testing.T, m *machine, r *rand.Rand, rows, d, topK int, chosen []int32, share []float32) {
	parts := ordinary(r, rows*topK*d)
	out := m.put(t, make([]float32, rows*d))
	op := hip.Combine{T: rows, D: d, TopK: topK, Parts: m.put(t, parts).address(), Chosen: m.put(t, chosen).address(),
		Share: m.put(t, share).address(), Out: out.address()}
	got, again := make([]float32, rows*d), make([]float32, rows*d)
	m.run(t, op.Calls(m.target))
	out.get(t, got)
	for row := range rows {
		for i := range d {
			var want, size float64
			for j := range topK {
				v := float64(share[row*topK+j]) * float64(parts[(row*topK+j)*d+i])
				want += v
				size += math.Abs(v)
			}
			if e := math.Abs(float64(got[row*d+i]) - want); e > float64(topK)*size*0x1p-24 || math.IsNaN(want) != (got[row*d+i] != got[row*d+i]) {
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
	history, output, steps := m.put(t, make([]int32, 3*stride)), m.put(t, make([]int32, ring*4)), m.put(t, []int32{5})
	op := hip.Advance{Rows: hip.Rows{T: 4, Position: p.address(), Owner: m.put(t, owner).address()}, Token: m.put(t, token).address(), Next: next.address(),
		History: history.address(), Stride: stride, Output: output.address(), Steps: steps.address(), Ring: ring}
	m.run(t, op.Calls(m.target))
	m.run(t, op.Calls(m.target))
	gotP, gotNext, gotHistory, gotOutput, gotSteps := make([]int32, 4), make([]int32, 4), make([]int32, 3*stride), make([]int32, ring*4), make([]int32, 1)
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
		{"output", gotOutput, []int32{11, -1, 13, 14, 0, 0, 0, 0, 11, -1, 13, 14}},
		{"steps", gotSteps, []int32{7}},
	} {
		if fmt.Sprint(c.got) != fmt.Sprint(c.want) {
			t.Errorf("%s are %v, want %v", c.name, c.got, c.want)
		}
	}
}
