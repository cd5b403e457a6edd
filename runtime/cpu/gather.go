package cpu

import (
	"math"
	"slices"

	"github.com/nstf/nstf/formats/graph"
	kernels "github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/device"
)

var _ device.Gatherer = (*Engine)(nil)

// A gathering sums up what linears read. An input that several linears share counts
// once, as the first of them reads it.
type gathering struct {
	e       *Engine
	inputs  []*gathered
	squares kernels.Squares
}

// A gathered is the sums of one input.
type gathered struct {
	device.Input
	all           *sums
	experts       []*sums
	owner, expert string // the weights of the linears that are looked at; "": not known yet
}

// sums are those of one input, of all rows or of an expert's.
type sums struct {
	device.Sums
	k       int
	waiting []float32 // [..][K]: rows that are counted and not yet added
}

// tokensAtOnce is how many rows are worth a walk over the sums: products are summed in
// float32 over at most twice as many, and in float64 beyond.
const tokensAtOnce = 256

// Gather implements device.Gatherer.
func (e *Engine) Gather(inputs []device.Input) error {
	g := &gathering{e: e}
	for _, in := range inputs {
		g.inputs = append(g.inputs, &gathered{Input: in, all: newSums(&in, -1), experts: make([]*sums, in.Experts)})
	}
	e.gathering = g
	return nil
}

// Sums implements device.Gatherer.
func (e *Engine) Sums(f func(*device.Sums) error) error {
	g := e.gathering
	e.gathering = nil
	for _, in := range g.inputs {
		for _, s := range append([]*sums{in.all}, in.experts...) {
			if s == nil {
				continue
			}
			g.settle(s)
			if err := f(&s.Sums); err != nil {
				return err
			}
		}
	}
	return nil
}

func newSums(in *device.Input, expert int) *sums {
	return &sums{Sums: device.Sums{Input: in.Name, Expert: expert, Squares: make([]float64, device.Triangle(int64(in.K))), AbsMax: make([]float32, in.K)}, k: in.K}
}

// see counts t rows that a linear reads, an expert's (-1: no expert's).
func (g *gathering) see(l *graph.Linear, expert int, x []float32, t int) {
	at := slices.IndexFunc(g.inputs, func(in *gathered) bool { return in.Name == l.Input })
	if at < 0 {
		return
	}
	in := g.inputs[at]
	if owns(&in.owner, l.Weight) {
		g.gather(in.all, x, t)
	}
	if expert < 0 || !owns(&in.expert, l.Weight) {
		return
	}
	if in.experts[expert] == nil {
		in.experts[expert] = newSums(&in.Input, expert)
	}
	g.gather(in.experts[expert], x, t)
}

// owns says whether a linear is the first of those that read an input.
func owns(owner *string, weight string) bool {
	if *owner == "" {
		*owner = weight
	}
	return *owner == weight
}

// gather counts rows, and adds them when enough have come: where they come a few
// at a time, as to an expert, walking over the sums for each would cost more
// than the products.
func (g *gathering) gather(s *sums, x []float32, t int) {
	s.Tokens += int64(t)
	for t > 0 {
		if len(s.waiting) == 0 && t >= tokensAtOnce {
			n := min(t, 2*tokensAtOnce)
			g.add(s, x[:n*s.k])
			x, t = x[n*s.k:], t-n
			continue
		}
		n := min(t, tokensAtOnce-len(s.waiting)/s.k)
		s.waiting = append(s.waiting, x[:n*s.k]...)
		x, t = x[n*s.k:], t-n
		if len(s.waiting) == tokensAtOnce*s.k {
			g.settle(s)
		}
	}
}

// settle adds the rows that wait.
func (g *gathering) settle(s *sums) {
	if len(s.waiting) > 0 {
		g.add(s, s.waiting)
		s.waiting = s.waiting[:0]
	}
}

// add sums x[t][K], and looks at each value.
func (g *gathering) add(s *sums, x []float32) {
	g.look(s, x)
	g.e.set.AddSquares(g.e.pool, s.Squares, x, s.k, &g.squares)
}

// look finds the largest values, and those that are none.
func (g *gathering) look(s *sums, x []float32) {
	const features = 512
	k, bad := s.k, make([]bool, g.e.pool.Threads())
	g.e.pool.RunWorkers((k+features-1)/features, func(worker, part int) {
		lo, hi := part*features, min((part+1)*features, k)
		top := s.AbsMax[lo:hi]
		for at := 0; at < len(x); at += k {
			for i, v := range x[at+lo : at+hi] {
				if a := math.Float32frombits(math.Float32bits(v) &^ (1 << 31)); !(a <= top[i]) {
					if a > math.MaxFloat32 || a != a {
						bad[worker] = true
					} else {
						top[i] = a
					}
				}
			}
		}
	})
	s.Odd = s.Odd || slices.Contains(bad, true)
}
