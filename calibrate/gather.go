package calibrate

import (
	"maps"
	"math"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/device"
)

// A Gatherer sums the second moments of the inputs that its Hook sees, by
// [model.Linear.Input]: an input that several linears share counts once. What
// the experts of a mixture read is summed for all of them together, and where
// PerExpert is set for each alone too. Close ends its threads; what was gathered
// stays.
type Gatherer struct {
	PerExpert bool // set before the first call of Hook
	Inputs    map[string]*Moments
	Experts   map[string][]*Moments // by input; an expert that no token came to is nil

	set     *cpu.Set
	pool    *cpu.Pool
	columns []float32       // [K][T] of the rows in progress
	scratch []gatherScratch // of each worker
	owner   map[string]string
	experts map[string]string // the owner of each expert's input
}

type gatherScratch struct {
	gemm cpu.GemmScratch
	tile []float32
}

const (
	// Tiles of the triangle: so many rows by so many columns, whose products of
	// a few hundred tokens stay in a core's second-level cache.
	tileRows, tileColumns = 384, 256
	// tokensAtOnce is how many rows are worth a walk over the sums: products are
	// summed in float32 over at most twice as many, and in float64 beyond.
	tokensAtOnce = 256
)

// NewGatherer makes one that works on so many threads.
func NewGatherer(threads int) *Gatherer {
	return &Gatherer{Inputs: map[string]*Moments{}, Experts: map[string][]*Moments{}, set: cpu.Best(), pool: cpu.NewPool(threads),
		scratch: make([]gatherScratch, max(threads, 1)), owner: map[string]string{}, experts: map[string]string{}}
}

// Close ends the threads.
func (g *Gatherer) Close() {
	for _, m := range g.all() {
		m.settle()
	}
	g.pool.Close()
}

// Level names the instruction set that it computes with.
func (g *Gatherer) Level() string { return g.set.Level().String() }

// Err returns a FormatError that names the first input, by its name, that a NaN
// or an infinity came to.
func (g *Gatherer) Err() error {
	for _, name := range slices.Sorted(maps.Keys(g.Inputs)) {
		if g.Inputs[name].invalid {
			return formats.Errorf("", name, "what linears read here is not finite on the calibration text: the weights are damaged, or too large for their precision")
		}
	}
	return nil
}

// Moments returns the second moments [K][K] that errors in a linear are weighed
// by, as [stats.File.Moments] does; nil where nothing was gathered.
func (g *Gatherer) Moments(input string, expert int) []float64 {
	all := g.Inputs[input]
	if all == nil || all.Tokens == 0 {
		return nil
	}
	var own *Moments
	if list := g.Experts[input]; expert >= 0 && expert < len(list) {
		own = list[expert]
	}
	if own == nil || own.Tokens == 0 {
		return all.Mean()
	}
	h := own.Mean()
	if own.Tokens < stats.Enough(own.K) {
		stats.ShrinkTowards(h, all.Mean(), own.Tokens)
	}
	return h
}

func (g *Gatherer) all() []*Moments {
	out := slices.Collect(maps.Values(g.Inputs))
	for _, list := range g.Experts {
		for _, m := range list {
			if m != nil {
				out = append(out, m)
			}
		}
	}
	return out
}

// Hook is a [device.Hook].
func (g *Gatherer) Hook(in device.Input) {
	l := in.Linear
	if owns(g.owner, l.Input, l.Weight) {
		m := g.Inputs[l.Input]
		if m == nil {
			m = g.newMoments(int(l.In))
			g.Inputs[l.Input] = m
		}
		g.gather(m, in.X, in.T)
	}
	if !g.PerExpert || in.Expert < 0 || !owns(g.experts, l.Input, l.Weight) {
		return
	}
	list := g.Experts[l.Input]
	for len(list) <= in.Expert {
		list = append(list, nil)
	}
	if list[in.Expert] == nil {
		list[in.Expert] = g.newMoments(int(l.In))
	}
	g.Experts[l.Input] = list
	g.gather(list[in.Expert], in.X, in.T)
}

// owns says whether a linear is the first of those that read an input.
func owns(owner map[string]string, input, weight string) bool {
	first, ok := owner[input]
	if !ok {
		owner[input] = weight
	}
	return !ok || first == weight
}

func (g *Gatherer) newMoments(k int) *Moments {
	return &Moments{K: k, AbsMax: make([]float32, k), sums: make([]float64, k*(k+1)/2), add: g.add}
}

// gather counts rows, and adds them when enough have come: where they come a few
// at a time, as to an expert, walking over the sums for each would cost more
// than the products.
func (g *Gatherer) gather(m *Moments, x []float32, t int) {
	m.Tokens += int64(t)
	for t > 0 {
		if len(m.waiting) == 0 && t >= tokensAtOnce {
			n := min(t, 2*tokensAtOnce)
			g.add(m, x[:n*m.K])
			x, t = x[n*m.K:], t-n
			continue
		}
		n := min(t, tokensAtOnce-len(m.waiting)/m.K)
		m.waiting = append(m.waiting, x[:n*m.K]...)
		x, t = x[n*m.K:], t-n
		if len(m.waiting) == tokensAtOnce*m.K {
			m.settle()
		}
	}
}

// add sums x[t][K] in float32 over its tokens, tile by tile, and the tiles in
// float64: each element in one order, whatever the number of threads.
func (g *Gatherer) add(m *Moments, x []float32) {
	k, t := m.K, len(x)/m.K
	g.columns = grown(g.columns, k*t)
	g.transpose(m, x, t)
	tiles := tilesOf(k)
	g.pool.RunWorkers(len(tiles), func(worker, part int) {
		s, at := &g.scratch[worker], tiles[part]
		i0, i1 := at.row, min(at.row+tileRows, k)
		j0, j1 := at.column, min(at.column+tileColumns, i1)
		s.tile = grown(s.tile, (i1-i0)*(j1-j0))
		g.set.Gemm(s.tile, j1-j0, g.columns[i0*t:], t, i1-i0, 0, j1-j0, t, func(dst []float32, row int) {
			copy(dst, g.columns[(j0+row)*t:(j0+row+1)*t])
		}, &s.gemm)
		for i := i0; i < i1; i++ {
			row := m.sums[i*(i+1)/2:]
			for j, v := range s.tile[(i-i0)*(j1-j0):][:max(min(j1, i+1)-j0, 0)] {
				row[j0+j] += float64(v)
			}
		}
	})
}

type tile struct{ row, column int }

// tilesOf covers a triangle, the tiles with most below them last.
func tilesOf(k int) []tile {
	var out []tile
	for i := 0; i < k; i += tileRows {
		for j := 0; j < min(i+tileRows, k); j += tileColumns {
			out = append(out, tile{i, j})
		}
	}
	return out
}

// transpose writes x[t][K] as columns [K][t], and looks at each value.
func (g *Gatherer) transpose(m *Moments, x []float32, t int) {
	const features = 16 // a cache line of floats
	k, bad := m.K, make([]bool, len(g.scratch))
	g.pool.RunWorkers((k+features-1)/features, func(worker, part int) {
		lo, hi := part*features, min((part+1)*features, k)
		for r := range t {
			for i, v := range x[r*k+lo : r*k+hi] {
				g.columns[(lo+i)*t+r] = v
				if a := float32(math.Abs(float64(v))); a > m.AbsMax[lo+i] {
					m.AbsMax[lo+i] = a
				} else if v != v {
					bad[worker] = true
				}
			}
		}
		for _, v := range m.AbsMax[lo:hi] {
			if v > math.MaxFloat32 {
				bad[worker] = true
			}
		}
	})
	m.invalid = m.invalid || slices.Contains(bad, true)
}

func grown(v []float32, n int) []float32 {
	if cap(v) < n {
		return make([]float32, n)
	}
	return v[:n]
}

var _ device.Hook = (*Gatherer)(nil).Hook
