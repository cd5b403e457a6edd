package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nstf/nstf/kernels/hip"
)

// A gramCase is one hip.Gram, or one for the slots of experts.
type gramCase struct {
	t, k, tile int
	experts    int // then t counts rows of X, each with share slots
	share      int
	odd        bool // some values are not finite
}

func (c *gramCase) String() string {
	return fmt.Sprintf("T=%d K=%d tile=%d experts=%d share=%d", c.t, c.k, c.tile, c.experts, c.share)
}

// TestGram adds up products of features, of rows more and fewer than are summed in
// float32, onto sums that hold some already.
func TestGram(t *testing.T) {
	m := open(t)
	for _, c := range []gramCase{
		{t: 40, k: 200, tile: 64}, {t: 9, k: 260, tile: 128}, {t: 1031, k: 8, tile: 64}, {t: 13, k: 67, tile: 64}, {t: 1, k: 131, tile: 128},
		{t: 30, k: 132, tile: 64, odd: true}, {t: 21, k: 72, tile: 64, experts: 5, share: 2}, {t: 50, k: 30, tile: 64, experts: 3, share: 1}, {t: 17, k: 136, tile: 128, experts: 2, share: 1, odd: true},
	} {
		if !sampled(t) {
			continue
		}
		t.Run(c.String(), func(t *testing.T) { c.run(t, m, rand.New(rand.NewPCG(91, uint64(c.k)))) })
	}
}

// lists returns the slots of each expert, one of which has none.
func (c *gramCase) lists(r *rand.Rand) (first, slots []int32) {
	of := make([][]int32, c.experts)
	for s := range int32(c.t * c.share) {
		e := r.IntN(c.experts - 1)
		of[e] = append(of[e], s)
	}
	first = append(first, 0)
	for _, l := range of {
		slots = append(slots, l...)
		first = append(first, int32(len(slots)))
	}
	return first, slots
}

func (c *gramCase) run(t *testing.T, m *machine, r *rand.Rand) {
	t.Helper()
	x := make([]float32, c.t*c.k)
	for i := range x {
		x[i] = float32(r.NormFloat64()) * float32(i%c.k%7+1)
	}
	if c.odd {
		x[3*c.k+5], x[7*c.k+1], x[7*c.k+2] = float32(math.NaN()), float32(math.Inf(-1)), 1e30
	}
	stack, share := max(c.experts, 1), max(c.share, 1)
	first, slots := []int32{0, int32(c.t)}, make([]int32, c.t)
	for i := range slots {
		slots[i] = int32(i)
	}
	if c.experts > 0 {
		first, slots = c.lists(r)
	}
	n := int(hip.GramSums(c.k))
	sums, top := make([]float64, stack*n), make([]float32, stack*c.k)
	for i := range sums {
		sums[i] = float64(i % 5)
	}
	top[c.k-1] = 1000
	counts := make([]int64, stack)
	in, to, tops, odd, count := m.put(t, x), m.put(t, sums), m.put(t, top), m.put(t, make([]int32, stack)), m.put(t, counts)
	firsts, list := m.put(t, first), m.put(t, slots)
	for _, b := range []*memory{in, to, tops, odd, count, firsts, list} {
		defer b.release()
	}
	op := &hip.Gram{T: c.t, K: c.k, X: in.address(), Sums: to.address(), Top: tops.address(), Odd: odd.address(), Tile: c.tile}
	if c.experts > 0 {
		op.T, op.First, op.Slots, op.Stack, op.Share, op.Counts = c.t*share, firsts.address(), list.address(), c.experts, share, count.address()
	}
	m.run(t, op.Calls(m.target))
	got := make([]float64, len(sums))
	to.get(t, got)
	tops2, odds := make([]float32, len(top)), make([]int32, stack)
	tops.get(t, tops2)
	odd.get(t, odds)
	count.get(t, counts)
	for e := range stack {
		mine := slots[first[e]:first[e+1]]
		if c.experts > 0 && counts[e] != int64(len(mine)) {
			t.Errorf("expert %d counts %d rows, want %d", e, counts[e], len(mine))
		}
		c.compare(t, e, x, mine, sums[e*n:(e+1)*n], got[e*n:(e+1)*n], top[e*c.k:(e+1)*c.k], tops2[e*c.k:(e+1)*c.k], odds[e])
	}
	again := make([]float64, len(sums))
	for range repeats() {
		to.set(t, sums)
		m.run(t, op.Calls(m.target))
		if to.get(t, again); !slices.EqualFunc(got, again, func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }) {
			t.Fatal("another run gives other bits")
		}
	}
}

// compare holds one triangle to sums in float64.
func (c *gramCase) compare(t *testing.T, e int, x []float32, slots []int32, before, got []float64, top, gotTop []float32, gotOdd int32) {
	t.Helper()
	want, size := slices.Clone(before), make([]float64, len(before))
	most, odd := slices.Clone(top), int32(0)
	for _, s := range slots {
		row := x[int(s)/max(c.share, 1)*c.k:][:c.k]
		for i, v := range row {
			if a := float32(math.Abs(float64(v))); a <= math.MaxFloat32 {
				most[i] = max(most[i], a)
			} else {
				odd = 1
			}
			for j, w := range row[:i+1] {
				p := float64(v) * float64(w)
				want[i*(i+1)/2+j] += p
				size[i*(i+1)/2+j] += math.Abs(p)
			}
		}
	}
	if odd != gotOdd || !slices.Equal(most, gotTop) {
		t.Errorf("expert %d: not finite %d, want %d; largest %v, want %v", e, gotOdd, odd, gotTop, most)
	}
	for i, w := range want {
		if size[i] > 1e30 || w != w || math.IsInf(w, 0) {
			continue // beyond float32
		}
		if d := math.Abs(got[i] - w); !(d <= 4e-6*size[i]) {
			t.Fatalf("expert %d: sum %d is %g, want %g", e, i, got[i], w)
		}
	}
}
