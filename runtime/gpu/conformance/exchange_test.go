package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// A crew is devices that exchange numbers, with what each needs for it.
type crew struct {
	machines []*machine
	ranks    []*hip.Ranks
	lost     []*driver.Pinned
}

// newCrew makes so many devices ranks, or skips where there are fewer, or where they do
// not reach one another.
func newCrew(t *testing.T, n, few, many, patience int) *crew {
	t.Helper()
	all := openAll(t)
	if len(all) < n {
		t.Skipf("%d devices, %d wanted", len(all), n)
	}
	c := &crew{machines: all[:n]}
	for i, m := range c.machines {
		for _, o := range c.machines {
			if err := m.Reach(o.Device); err != nil {
				t.Skip(err)
			}
		}
		c.ranks = append(c.ranks, &hip.Ranks{Rank: i, Count: n, FewSlot: few, ManySlot: many, Patience: patience})
	}
	for i, m := range c.machines {
		zeros := func(n int64) hip.Address {
			b, err := m.AllocFine(n)
			if err == nil {
				err = m.stream.Fill(b, 0)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { m.Free(b) })
			return b.Address
		}
		r := c.ranks[i]
		r.State = zeros(8)
		pinned, err := m.Pinned(64)
		if err == nil {
			clear(pinned.Bytes())
			r.Lost, err = pinned.Address()
		}
		if err == nil {
			err = m.stream.Wait()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { pinned.Free() })
		c.lost = append(c.lost, pinned)
		fewAt, manyAt := zeros(r.FewBytes()), zeros(r.ManyBytes())
		for _, o := range c.ranks {
			o.Few[i], o.Many[i] = fewAt, manyAt
		}
		if err := m.stream.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// each runs the calls of each rank, all at once.
func (c *crew) each(t *testing.T, calls func(rank int) []hip.Call) {
	t.Helper()
	var wait sync.WaitGroup
	lists := make([][]hip.Call, len(c.machines))
	for i, m := range c.machines { // whatever is compiled is ready before somebody waits for another
		lists[i] = calls(i)
		for k := range lists[i] {
			if _, err := m.function(&lists[i][k]); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, m := range c.machines {
		wait.Go(func() {
			for _, call := range lists[i] {
				f, err := m.function(&call)
				if err == nil {
					err = m.stream.Launch(f, call)
				}
				if err != nil {
					t.Error(err)
				}
			}
			if err := m.stream.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// Sums of all ranks have the bits of additions in the order of ranks, on each of them, in
// passes of several exchanges behind one another; rows are laid side by side.
func TestExchange(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	for _, ranks := range []int{2, 3} {
		if ranks > max(2, len(openAll(t))) {
			continue
		}
		c := newCrew(t, ranks, 5000, 9000, 1<<24)
		number := 0
		for _, n := range []int{1, 2, 33, 512, 4096, 4, 1028, 9000} {
			if !taken(t) {
				continue
			}
			many := n%4 == 0
			t.Run(fmt.Sprintf("%d of %d", n, ranks), func(t *testing.T) {
				var own, out, parts []*memory
				var values [][]float32
				residual := ordinary(r, n) // the same on all ranks
				units, unit := (n+3)/4, 4
				wide := ordinary(r, units*unit)
				for i, m := range c.machines {
					values = append(values, ordinary(r, n))
					lo, hi := c.ranks[i].Columns(i, units, unit)
					own, out = append(own, m.put(t, values[i])), append(out, m.put(t, residual))
					parts = append(parts, m.put(t, append(slices.Clone(wide[lo:hi]), 0)))
				}
				gathered := make([]*memory, ranks)
				for i, m := range c.machines {
					gathered[i] = m.put(t, make([]float32, len(wide)))
				}
				want := slices.Clone(residual)
				const passes = 2
				for range passes {
					ways := []bool{false, many}
					if n > 5000 {
						ways = []bool{true, true}
					}
					for range ways {
						for k := range want {
							sum := values[0][k]
							for i := 1; i < ranks; i++ {
								sum += values[i][k]
							}
							want[k] += sum
						}
					}
					c.each(t, func(rank int) (calls []hip.Call) {
						m, g := c.machines[rank], c.ranks[rank]
						number = 0
						for _, many := range ways {
							number++
							o := hip.AllReduce{Ranks: g, Number: number, N: n, Out: out[rank].address(), Residual: out[rank].address(), Own: own[rank].address(), Many: many}
							calls = append(calls, o.Calls(m.target)...)
						}
						if n <= 4096 {
							number++
							o := hip.AllGather{Ranks: g, Number: number, T: 1, Units: units, Unit: unit, Out: gathered[rank].address(), Own: parts[rank].address()}
							calls = append(calls, o.Calls(m.target)...)
						}
						return append(calls, (&hip.EndExchanges{Ranks: g, Exchanges: number}).Calls(m.target)...)
					})
				}
				for i := range c.machines {
					got, side := make([]float32, n), make([]float32, len(wide))
					out[i].get(t, got)
					gathered[i].get(t, side)
					if !slices.Equal(got, want) {
						t.Errorf("rank %d: %v, want %v", i, head(got), head(want))
					}
					if n <= 4096 && !slices.Equal(side, wide) {
						t.Errorf("rank %d: side by side %v, want %v", i, head(side), head(wide))
					}
					if lost := c.lost[i].Bytes()[0]; lost != 0 {
						t.Errorf("rank %d gave %d up", i, lost-1)
					}
				}
			})
		}
	}
}

func head(x []float32) []float32 { return x[:min(len(x), 8)] }

// rounded is what is sent of numbers in half precision.
func rounded(x []float32) []float32 {
	out := make([]float32, len(x))
	for i := range x {
		most := 0.0
		for _, v := range x[i/32*32 : i/32*32+32] {
			most = max(most, math.Abs(float64(v)))
		}
		_, e := math.Frexp(most) // most is less than 2^e
		out[i] = float32(math.Ldexp(float64(tensor.F16ToF32(tensor.F32ToF16(float32(math.Ldexp(float64(x[i]), 15-e))))), e-15))
	}
	return out
}

// Numbers in half precision have the bits of rounded parts that are added in the order of
// ranks, whatever their size.
func TestExchangeHalf(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 10))
	for _, ranks := range []int{2, 3} {
		if ranks > max(2, len(openAll(t))) || !taken(t) {
			continue
		}
		for _, n := range []int{32, 2080, 40960} {
			c := newCrew(t, ranks, 2, n, 1<<24)
			var own, out []*memory
			residual := ordinary(r, n)
			want := make([]float32, n)
			for _, m := range c.machines {
				x := ordinary(r, n)
				for k := range x {
					x[k] *= float32(math.Ldexp(1, k/32%60-30)) // far beyond what half precision holds
				}
				own, out = append(own, m.put(t, x)), append(out, m.put(t, residual))
				for k, v := range rounded(x) {
					want[k] += v
				}
			}
			for k := range want {
				want[k] = residual[k] + want[k]
			}
			c.each(t, func(rank int) []hip.Call {
				o := hip.AllReduce{Ranks: c.ranks[rank], Number: 1, N: n, Out: out[rank].address(), Residual: out[rank].address(), Own: own[rank].address(), Many: true, Half: true}
				return o.Calls(c.machines[rank].target)
			})
			for i := range c.machines {
				got := make([]float32, n)
				if out[i].get(t, got); !slices.Equal(got, want) {
					t.Errorf("%d of %d, rank %d: %v, want %v", n, ranks, i, head(got), head(want))
				}
			}
		}
	}
}

// A rank that nobody answers says which one it waited for, and does not wait again.
func TestExchangeGivesUp(t *testing.T) {
	for _, many := range []bool{false, true} {
		c := newCrew(t, 2, 512, 512, 1000)
		m, g := c.machines[0], c.ranks[0]
		x := m.put(t, make([]float32, 512))
		var calls []hip.Call
		for i := range 3 {
			o := hip.AllReduce{Ranks: g, Number: i + 1, N: 512, Out: x.address(), Own: x.address(), Many: many}
			calls = append(calls, o.Calls(m.target)...)
		}
		m.run(t, calls)
		if lost := c.lost[0].Bytes()[0]; lost != 2 {
			t.Errorf("many %v: the host reads %d", many, lost)
		}
	}
}
