package cpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
)

// A laneCase is what the kernels of lanes get.
type laneCase struct {
	x    []cpu.Lane
	w, m []float32
	g    cpu.LaneGrid
}

func newLaneCase(rng *rand.Rand, n int, tabled bool) *laneCase {
	c := &laneCase{x: make([]cpu.Lane, n), w: make([]float32, n), m: make([]float32, 16*(n+3))}
	for i := range c.x {
		c.w[i] = rng.Float32()
		for l := range c.x[i] {
			c.x[i][l] = float32(rng.NormFloat64())
		}
	}
	for i := range c.m {
		c.m[i] = float32(rng.NormFloat64()) / 8
	}
	for l := range c.g.Scale {
		c.g.Scale[l] = 0.1 + rng.Float32()
		c.g.Inverse[l] = 1 / c.g.Scale[l]
		c.g.Offset[l] = float32(rng.NormFloat64())
	}
	c.g.Inverse[3], c.g.Scale[3] = 0, 0
	c.g.Inverse[4], c.g.Scale[4] = 1e30, 1e-30 // far outside the levels
	c.g.Scale[5] = 1e-42                       // without an inverse
	c.g.Low, c.g.High = -4, 3
	if tabled {
		c.g.Table = new([512]float32)
		for i := range c.g.Table {
			c.g.Table[i] = float32((i-256)/2/11) * 11
		}
	}
	return c
}

// results runs every kernel and prints what came out, bit for bit.
func (c *laneCase) results(s *cpu.Set) string {
	var sums cpu.LaneSums
	var err, low, high, loss cpu.Lane
	s.LaneSums(&sums, c.x, c.w, &c.g)
	s.LaneError(&err, c.x, c.w, &c.g)
	s.LaneRange(&low, &high, c.x)
	z := [cpu.Lanes]cpu.Lane(c.x)
	s.LaneAnswer(&z, c.x, c.m, len(c.x)+3)
	target, errors, plain := [cpu.Lanes]cpu.Lane(c.x), z, [cpu.Lanes]cpu.Lane(c.x)
	var q, e [cpu.Lanes]cpu.Lane
	s.LaneRound(&q, &target, &errors, &loss, (*[cpu.Lanes]float32)(c.w), c.m, len(c.x)+3, &c.g)
	s.LaneRound(&q, &plain, &e, &loss, (*[cpu.Lanes]float32)(c.w), nil, 0, &c.g)
	reach := []float32{-5, -3.5, 4, 4.25, 0}
	var best, first [3]cpu.LaneScales
	s.LaneScales(&best[0], &high, c.x, c.w, reach, 2, &c.g)
	for i, positive := range []float32{0, 1} {
		first[1].Gain[1] = 1e6 // not to be beaten
		best[1+i] = first[1]
		s.LaneOffsets(&best[1+i], &low, &high, c.x, c.w, reach[2:], 2, 7, positive, &c.g)
	}
	near := cpu.LaneNear{Offset: c.g.Inverse, D: c.g.Scale, M: c.g.Scale, Least: -2, Most: 3}
	for l := range near.Scale {
		near.Scale[l] = float32(l%6) - 2
	}
	near.D[7] = float32(math.NaN())
	sum, scale, offset := low, high, low
	s.LaneNear(&sum, &scale, &offset, c.x, c.w, &near, [][2]float32{{0, 0}, {1, -1}, {-1, 1}}, &c.g)
	return fmt.Sprintf("%x\n%x\n%x %x %x\n%x\n%x %x\n%x\n%x\n%x\n%x\n%x\n%x\n%x", sums, best, sum, scale, offset, err, low, high, z, target, errors, plain, q, e, loss)
}

// TestLanes wants the same bits from every level.
func TestLanes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{16, 17, 32, 48} {
		for _, tabled := range []bool{false, true} {
			c := newLaneCase(rng, n, tabled)
			want := ""
			for _, l := range cpu.Levels() {
				s, err := cpu.ForLevel(l)
				if err != nil {
					t.Fatal(err)
				}
				got := c.results(s)
				if want == "" {
					want = got
				}
				if got != want {
					t.Errorf("%d columns, table %v: level %v differs\n%s\nis not\n%s", n, tabled, l, got, want)
				}
			}
		}
	}
}

// TestGemmFused wants the same bits from every level, however the work is cut.
func TestGemmFused(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 2))
	for _, c := range []struct{ t, n, k int }{{5, 1, 1}, {16, 40, 300}, {37, 33, 7}} {
		a, w, first := make([]float32, c.t*c.k), make([]float32, c.n*c.k), make([]float32, c.t*c.n)
		for _, x := range [][]float32{a, w, first} {
			for i := range x {
				x[i] = float32(rng.NormFloat64())
			}
		}
		var want []float32
		for _, l := range cpu.Levels() {
			s, err := cpu.ForLevel(l)
			if err != nil {
				t.Fatal(err)
			}
			got := append([]float32(nil), first...)
			var scratch cpu.GemmScratch
			rows := func(dst []float32, n int) { copy(dst, w[n*c.k:]) }
			for n := 0; n < c.n; n += 17 {
				s.GemmFusedAdd(got, c.n, a, c.k, c.t, n, min(n+17, c.n), c.k, rows, &scratch)
			}
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("%+v: level %v gives %x for element %d, want %x", c, l, got[i], i, want[i])
				}
			}
			want = got
		}
	}
}
