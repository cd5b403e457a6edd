package calibrate

import (
	"context"
	"maps"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/exec"
)

// Gathered is the second moments of what a span's linears read, by
// [graph.Linear.Input]: an input that several linears share counts once. What the
// experts of a mixture read is summed for all of them together, and for each alone too.
type Gathered struct {
	Inputs  map[string]*Moments
	Experts map[string][]*Moments // by input; an expert that no token came to is nil
}

// Gather has a walker sum up what its linears read while run walks all windows, the last
// time that it is called with last: see [exec.Walker.Gather]. Where a NaN or an infinity
// comes to an input it fails as [Blame] says, with the first input by its name.
func Gather(ctx context.Context, m *model.Model, walk *exec.Walker, run func(last bool) error) (*Gathered, error) {
	g := &Gathered{map[string]*Moments{}, map[string][]*Moments{}}
	if err := walk.Gather(run, g.add); err != nil {
		return nil, formats.In(m.Path, err)
	}
	for _, name := range slices.Sorted(maps.Keys(g.Inputs)) {
		if g.Inputs[name].odd {
			return nil, Blame(ctx, m, formats.Errorf(m.Path, name, "what linears read here is not finite on the calibration text: the weights are damaged, or too large for their precision"))
		}
	}
	return g, nil
}

func (g *Gathered) add(s *device.Sums) error {
	m := &Moments{K: len(s.AbsMax), Tokens: s.Tokens, AbsMax: s.AbsMax, sums: s.Squares, odd: s.Odd}
	if s.Expert < 0 {
		g.Inputs[s.Input] = m
		return nil
	}
	list := g.Experts[s.Input]
	for len(list) <= s.Expert {
		list = append(list, nil)
	}
	list[s.Expert] = m
	g.Experts[s.Input] = list
	return nil
}

// Moments returns the second moments [K][K] that errors in a linear are weighed
// by, as [stats.File.Moments] does; nil where nothing was gathered.
func (g *Gathered) Moments(input string, expert int) []float64 {
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
