package calibrate

import (
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/device"
)

// Moments are the second moments of one input: the mean of x x' over tokens.
type Moments struct {
	K      int
	Tokens int64
	sums   []float64 // lower triangle of the sum, row after row
}

// Mean returns the moments as a full matrix [K][K], zeros where no token came.
func (m *Moments) Mean() []float64 {
	out := make([]float64, m.K*m.K)
	if m.Tokens == 0 {
		return out
	}
	for i := range m.K {
		for j := range i + 1 {
			v := m.sums[i*(i+1)/2+j] / float64(m.Tokens)
			out[i*m.K+j], out[j*m.K+i] = v, v
		}
	}
	return out
}

// A Gatherer sums the second moments of the inputs that its Hook sees, by
// [model.Linear.Input]: an input that several linears share counts once, and
// the experts of a mixture share one. Close ends its threads.
type Gatherer struct {
	Inputs map[string]*Moments

	set     *cpu.Set
	pool    *cpu.Pool
	scratch []gatherScratch // of each worker
	owner   map[string]string
}

type gatherScratch struct{ column, sums []float32 }

// NewGatherer makes one that works on so many threads.
func NewGatherer(threads int) *Gatherer {
	return &Gatherer{Inputs: map[string]*Moments{}, set: cpu.Best(), pool: cpu.NewPool(threads), scratch: make([]gatherScratch, threads), owner: map[string]string{}}
}

// Close ends the threads.
func (g *Gatherer) Close() { g.pool.Close() }

// Hook is a [device.Hook].
func (g *Gatherer) Hook(in device.Input) {
	l := in.Linear
	m := g.Inputs[l.Input]
	if m == nil {
		k := int(l.In)
		m = &Moments{K: k, sums: make([]float64, k*(k+1)/2)}
		g.Inputs[l.Input], g.owner[l.Input] = m, l.Weight
	}
	if g.owner[l.Input] != l.Weight {
		return // seen at another linear that reads the same
	}
	g.add(m, in.X, in.T)
}

// add sums x[t][K] in float32 over the tokens of one call, at most some
// hundreds, and the calls in float64.
func (g *Gatherer) add(m *Moments, x []float32, t int) {
	const rows = 16 // of the triangle, in one part
	k := m.K
	m.Tokens += int64(t)
	g.pool.RunWorkers((k+rows-1)/rows, func(worker, part int) {
		s := &g.scratch[worker]
		s.column, s.sums = grown(s.column, t), grown(s.sums, k)
		for i := part * rows; i < min((part+1)*rows, k); i++ {
			for r := range t {
				s.column[r] = x[r*k+i]
			}
			sums := s.sums[:i+1]
			clear(sums)
			g.set.AccumRows(sums, s.column[:t], x, k)
			row := m.sums[i*(i+1)/2:]
			for j, v := range sums {
				row[j] += float64(v)
			}
		}
	})
}

func grown(v []float32, n int) []float32 {
	if cap(v) < n {
		return make([]float32, n)
	}
	return v[:n]
}

var _ device.Hook = (*Gatherer)(nil).Hook
