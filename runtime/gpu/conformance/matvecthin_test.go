package conformance

import (
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/kernels/hip"
)

// correct gives a product a correction of q8_0.
func (c *matvecCase) correct(t testing.TB, m *machine, r *rand.Rand, p *product, h *hip.Product, rank int) {
	t.Helper()
	n := h.W.N
	a, z := pick(t, "q8_0")[0].make(t, r, n, rank), activations(r, c.t*rank)
	h.A, h.Z = m.place(t, a, n), m.put(t, z).address()
	w := a.floats()
	for i := range c.t * n {
		value, size := p.dot(w[i%n*rank:(i%n+1)*rank], z[i/n*rank:(i/n+1)*rank])
		p.more, p.moreSize = append(p.more, value), append(p.moreSize, size)
	}
}

// TestMatvecCorrected adds corrections of several ranks on the way, also where waves
// share rows.
func TestMatvecCorrected(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(47, 1))
	wave := m.target.Wave
	for _, v := range pick(t, "q4_k", "q8_0", "bf16") {
		for _, c := range []*matvecCase{
			{v: v, t: 1, k: 512, n: []int{40, 8, 70}, ranks: []int{64, 0, 32}, norm: true},
			{v: v, t: 3, k: 768, n: []int{33}, ranks: []int{288}, acts: true, extras: true, repeated: true},
			{v: v, t: 1, k: 256, n: []int{65, 129}, ranks: []int{32, 96}, exact: true, extras: true},
			{v: v, t: 8, k: 512, n: []int{19}, ranks: []int{512}},
			{v: v, t: 2, k: 1024, n: []int{50}, ranks: []int{64}, shape: &hip.MatvecShape{Rows: 2, Lanes: wave / 2, Waves: 4, Split: 4, Steps: 2, Blocks: 2, Grid: 1}},
			{v: v, t: 1, k: 1024, n: []int{70}, ranks: []int{64}, shape: &hip.MatvecShape{Rows: 1, Lanes: 8, Waves: 4, Split: 1, Steps: 2, Blocks: 1, Grid: 1, Pipe: true}},
		} {
			if taken(t) {
				c.run(t, m, r)
			}
		}
	}
}
