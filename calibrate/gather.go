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
	squares cpu.Squares
	owner   map[string]string
	experts map[string]string // the owner of each expert's input
}

const (
	// tokensAtOnce is how many rows are worth a walk over the sums: products are
	// summed in float32 over at most twice as many, and in float64 beyond.
	tokensAtOnce = 256
)

// NewGatherer makes one that works on so many threads.
func NewGatherer(threads int) *Gatherer {
	return &Gatherer{Inputs: map[string]*Moments{}, Experts: map[string][]*Moments{}, set: cpu.Best(), pool: cpu.NewPool(threads),
		owner: map[string]string{}, experts: map[string]string{}}
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

// add sums x[t][K], and looks at each value.
func (g *Gatherer) add(m *Moments, x []float32) {
	g.look(m, x)
	g.set.AddSquares(g.pool, m.sums, x, m.K, &g.squares)
}

// look finds the largest values, and those that are none.
func (g *Gatherer) look(m *Moments, x []float32) {
	const features = 512
	k, bad := m.K, make([]bool, g.pool.Threads())
	g.pool.RunWorkers((k+features-1)/features, func(worker, part int) {
		lo, hi := part*features, min((part+1)*features, k)
		top := m.AbsMax[lo:hi]
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
	m.invalid = m.invalid || slices.Contains(bad, true)
}

var _ device.Hook = (*Gatherer)(nil).Hook
