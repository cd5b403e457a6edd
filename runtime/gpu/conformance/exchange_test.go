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
func newCrew(t *testing.T, n, few, rows, d, patience int) *crew {
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
		c.ranks = append(c.ranks, &hip.Ranks{Rank: i, Count: n, FewSlot: few, ManySlot: (rows*d + 3) &^ 3, Patience: patience})
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
		c := newCrew(t, ranks, 5000, 32, 9000, 1<<24)
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
							d := n
							if many && n == 9000 {
								d = 300
							}
							x := hip.Exchange{Ranks: g, Number: number, Many: many}
							o := hip.AllReduce{Exchange: x, T: n / d, D: d, Out: out[rank].address(), Residual: out[rank].address(), Own: own[rank].address()}
							calls = append(calls, o.Calls(m.target)...)
						}
						if n <= 4096 {
							number++
							o := hip.AllGather{Exchange: hip.Exchange{Ranks: g, Number: number}, T: 1, Units: units, Unit: unit, Out: gathered[rank].address(), Own: parts[rank].address()}
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
			c := newCrew(t, ranks, 2, n/32, 32, 1<<24)
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
				x := hip.Exchange{Ranks: c.ranks[rank], Number: 1, Many: true, Half: true}
				o := hip.AllReduce{Exchange: x, T: n / 32, D: 32, Out: out[rank].address(), Residual: out[rank].address(), Own: own[rank].address()}
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

// A sentCase is a branch of which ranks have parts: each multiplies its rows with its matrix.
type sentCase struct {
	ranks, t, n, k int
	v, reader      *variety // of the products, and of what reads the normalised sum
	exact, many    bool
	whole          bool // one of the ranks adds the hidden state to its part
	apart          bool // a launch of its own sends
}

// Products that send what they compute give who reads it, a norm or a product that normalises, the
// bits of the same operations with sums added by the host.
func TestSentProducts(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 11))
	var cases []sentCase
	var q8 *variety
	for _, v := range everyVariety(t) {
		if v.named("q8_0") {
			q8 = v
		}
	}
	for _, v := range varieties(t) {
		if !v.fits(256) || !v.named("q4_k", "q8_0", "f16", "q6_k") {
			continue
		}
		for _, exact := range []bool{false, true} {
			for _, rows := range []int{1, 2, 3, 11} {
				cases = append(cases, sentCase{2, rows, 288, 512, v, q8, exact, false, rows != 2, rows == 3})
			}
			cases = append(cases, sentCase{3, 1, 1056, 256, v, q8, exact, false, true, false}, sentCase{2, 1, 36, 256, v, q8, exact, false, true, false},
				sentCase{2, 40, 288, 512, v, q8, exact, true, false, false}, sentCase{3, 100, 160, 256, v, q8, exact, true, false, false},
				sentCase{2, 300, 544, 256, v, q8, exact, true, false, false}, sentCase{2, 33, 96, 256, v, q8, exact, true, false, true})
		}
	}
	for i := range cases {
		c := &cases[i]
		if c.ranks > max(2, len(openAll(t))) || !taken(t) {
			continue
		}
		t.Run(fmt.Sprintf("%d ranks %v %dx%dx%d exact=%t many=%t whole=%t apart=%t", c.ranks, c.v, c.t, c.n, c.k, c.exact, c.many, c.whole, c.apart), func(t *testing.T) { c.run(t, r) })
	}
}

func (c *sentCase) run(t *testing.T, r *rand.Rand) {
	team := newCrew(t, c.ranks, c.t*c.n, c.t, c.n, 1<<24)
	weight := ordinary(r, c.n)
	type rank struct{ x, own, hidden, weight, out, scratch *memory }
	all := make([]rank, c.ranks)
	weights := make([]hip.Weight, c.ranks)
	exchange := func(i, number int) hip.Exchange {
		return hip.Exchange{Ranks: team.ranks[i], Number: number, Many: c.many, Half: c.many && !c.exact}
	}
	// product is the launches of a rank, to be sent or not.
	product := func(i int, send *hip.Exchange, residual bool) []hip.Call {
		m, k := team.machines[i], &all[i]
		p := hip.Product{W: weights[i], Y: k.own.address()}
		if c.many {
			o := &hip.Matmul{T: c.t, Exact: c.exact, X: k.x.address(), Products: []hip.Product{p}, Scratch: k.scratch.address()}
			if c.apart = c.apart || c.exact && !o.Sends(m.target); c.apart { // tiles of few rows do not hold 32 numbers
				send = nil
			}
			if send != nil && !o.Sends(m.target) {
				t.Fatalf("%v does not send its product", m.target)
			}
			o.Send = send
			return o.Calls(m.target)
		}
		o := &hip.Matvec{T: c.t, Exact: c.exact, X: k.x.address(), Products: []hip.Product{p}}
		if send != nil && !o.Sends(m.target) {
			t.Fatalf("%v does not send its product", m.target)
		}
		if o.Send = send; residual {
			o.Products[0].Residual = k.hidden.address()
		}
		return o.Calls(m.target)
	}
	for i, m := range team.machines {
		weights[i] = m.place(t, c.v.make(t, r, c.n, c.k), c.n)
		zeros := make([]float32, c.t*c.n)
		all[i] = rank{x: m.put(t, make([]float32, c.t*c.k)), own: m.put(t, zeros), hidden: m.put(t, zeros), weight: m.put(t, weight), out: m.put(t, zeros),
			scratch: m.put(t, make([]byte, hip.MatmulScratch(c.t, c.k)))}
	}
	norm := func(i int, b hip.Branch) *hip.Norm {
		k := &all[i]
		return &hip.Norm{T: c.t, D: c.n, X: k.hidden.address(), A: b, Next: hip.Normal{Weight: k.weight.address(), Eps: 1e-5}, Out: k.out.address(), Few: !c.many, Exact: c.exact}
	}
	for round := range 3 { // of both parities
		hidden := ordinary(r, c.t*c.n)
		var sum []float32
		for i, m := range team.machines {
			all[i].x.set(t, ordinary(r, c.t*c.k))
			all[i].hidden.set(t, hidden)
			part := make([]float32, c.t*c.n)
			m.run(t, product(i, nil, c.whole && i == 0))
			all[i].own.get(t, part)
			if c.many && !c.exact {
				part = rounded(part)
			}
			if i == 0 {
				sum = part
				continue
			}
			for k := range sum {
				sum[k] += part[k]
			}
		}
		m := team.machines[0]
		summed := m.put(t, sum)
		if c.whole {
			all[0].hidden.set(t, sum)
			m.run(t, norm(0, hip.Branch{}).Calls(m.target))
		} else {
			m.run(t, norm(0, hip.Branch{Rows: summed.address()}).Calls(m.target))
		}
		settled, want := make([]float32, c.t*c.n), make([]float32, c.t*c.n)
		all[0].hidden.get(t, settled)
		all[0].out.get(t, want)
		summed.release()
		all[0].hidden.set(t, hidden)
		sent := func(i int, x *hip.Exchange) (calls []hip.Call) {
			whole := c.whole && i == 0
			if !c.apart {
				return product(i, x, whole)
			}
			o := &hip.Send{Exchange: *x, T: c.t, D: c.n, Own: all[i].own.address()}
			if whole {
				o.Residual = all[i].hidden.address()
			}
			return append(product(i, nil, false), o.Calls(team.machines[i].target)...)
		}
		added := func(i int, x *hip.Exchange, exchanges int) []hip.Call {
			target := team.machines[i].target
			calls := norm(i, hip.Branch{Rows: all[i].own.address(), From: x, Whole: c.whole}).Calls(target)
			return append(calls, (&hip.EndExchanges{Ranks: x.Ranks, Exchanges: exchanges}).Calls(target)...)
		}
		check := func(how string) {
			for i := range all {
				got := make([]float32, c.t*c.n)
				all[i].out.get(t, got)
				sameBits(t, fmt.Sprintf("round %d, rank %d%s", round, i, how), got, want)
				all[i].hidden.get(t, got)
				sameBits(t, fmt.Sprintf("round %d, rank %d%s, hidden state", round, i, how), got, settled)
				if lost := team.lost[i].Bytes()[0]; lost != 0 {
					t.Fatalf("rank %d gave %d up", i, lost-1)
				}
			}
		}
		team.each(t, func(i int) []hip.Call {
			x := exchange(i, 1)
			calls := sent(i, &x)
			if c.many {
				calls = append(calls, (&hip.Mark{Exchange: x}).Calls(team.machines[i].target)...)
			}
			return append(calls, added(i, &x, 1)...)
		})
		check("")
		if c.many && !c.exact {
			for i := range all {
				all[i].hidden.set(t, hidden)
				all[i].out.set(t, make([]float32, c.t*c.n))
			}
			c.leave(t, team, 3*round+2, sent, func(i int, x *hip.Exchange) []hip.Call { return added(i, x, 2) })
			check(", left")
		}
		c.read(t, r, team, hidden, sum, func(i int, x *hip.Exchange) (own, hidden, weight *memory, calls []hip.Call) {
			return all[i].own, all[i].hidden, all[i].weight, product(i, x, x != nil && i == 0)
		})
	}
}

// leave has what ranks send stay in their own inboxes, from where copies bring it, until they meet: in the
// exchange that is the next of a pass, and by the device's count of all this one.
func (c *sentCase) leave(t *testing.T, team *crew, count int, send, add func(rank int, x *hip.Exchange) []hip.Call) {
	left := func(i int) *hip.Exchange {
		return &hip.Exchange{Ranks: team.ranks[i], Number: 1, Many: true, Half: true, Left: true}
	}
	team.each(t, func(i int) []hip.Call { return send(i, left(i)) })
	for i, m := range team.machines {
		x := left(i)
		x.Number = count
		for _, move := range x.Transfers(c.t * c.n) {
			if err := m.stream.Copy(driver.Buffer{Address: move.To, Size: move.Bytes}, driver.Buffer{Address: move.From, Size: move.Bytes}, move.Bytes); err != nil {
				t.Fatal(err)
			}
		}
	}
	team.each(t, func(i int) []hip.Call {
		x := left(i)
		return append((&hip.Meet{Exchange: *x}).Calls(team.machines[i].target), add(i, x)...)
	})
}

// read has a product normalise what all ranks have of one or two rows.
func (c *sentCase) read(t *testing.T, r *rand.Rand, team *crew, before, sum []float32, product func(rank int, x *hip.Exchange) (own, hidden, weight *memory, calls []hip.Call)) {
	if c.many || !c.whole || c.t > 2 || c.apart || c.n%32 != 0 {
		return
	}
	const outputs = 96
	matrix := c.reader.make(t, r, outputs, c.n)
	op := func(i int, x, weight, y hip.Address) *hip.Matvec {
		m := team.machines[i]
		return &hip.Matvec{T: c.t, Exact: c.exact, ExactNorm: c.exact, X: x, Norm: hip.Normal{Weight: weight, Eps: 1e-5}, Products: []hip.Product{{W: m.place(t, matrix, outputs), Y: y}}}
	}
	y := make([]*memory, len(team.machines))
	for i, m := range team.machines {
		y[i] = m.put(t, make([]float32, c.t*outputs))
	}
	want, m := make([]float32, c.t*outputs), team.machines[0]
	_, hidden, weight, _ := product(0, nil)
	hidden.set(t, sum)
	m.run(t, op(0, hidden.address(), weight.address(), y[0].address()).Calls(m.target))
	y[0].get(t, want)
	for i := range team.machines {
		_, h, _, _ := product(i, nil)
		h.set(t, before)
	}
	team.each(t, func(i int) []hip.Call {
		x := hip.Exchange{Ranks: team.ranks[i], Number: 1}
		own, hidden, weight, calls := product(i, &x)
		o := op(i, own.address(), weight.address(), y[i].address())
		o.From, o.Settled = &x, hidden.address()
		calls = append(calls, o.Calls(team.machines[i].target)...)
		return append(calls, (&hip.EndExchanges{Ranks: x.Ranks, Exchanges: 1}).Calls(team.machines[i].target)...)
	})
	for i := range team.machines {
		got, settled := make([]float32, c.t*outputs), make([]float32, c.t*c.n)
		y[i].get(t, got)
		sameBits(t, fmt.Sprintf("rank %d reads", i), got, want)
		_, hidden, _, _ := product(i, nil)
		hidden.get(t, settled)
		sameBits(t, fmt.Sprintf("rank %d settles", i), settled, sum)
	}
}

// A rank that nobody answers says which one it waited for, and does not wait again.
func TestExchangeGivesUp(t *testing.T) {
	for _, many := range []bool{false, true} {
		c := newCrew(t, 2, 512, 1, 512, 1000)
		m, g := c.machines[0], c.ranks[0]
		x := m.put(t, make([]float32, 512))
		var calls []hip.Call
		for i := range 3 {
			o := hip.AllReduce{Exchange: hip.Exchange{Ranks: g, Number: i + 1, Many: many}, T: 1, D: 512, Out: x.address(), Own: x.address()}
			calls = append(calls, o.Calls(m.target)...)
		}
		m.run(t, calls)
		if lost := c.lost[0].Bytes()[0]; lost != 2 {
			t.Errorf("many %v: the host reads %d", many, lost)
		}
	}
}
