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

// Groups says where windows are cut into groups, the first of each and the end of the last:
// sums are those of the groups, which are added in their order. Who sums up which group then
// leaves no trace in the bits. At most mostGroups, as a group's sums are as large as those
// of all, and none of fewer than leastTokens. What computes on a device has one group.
func (k Keep) Groups(windows [][]int32) []int {
	tokens := 0
	for _, w := range windows {
		tokens += len(w)
	}
	n := max(1, min(mostGroups, len(windows), tokens/leastTokens))
	if k.On != nil {
		n = 1
	}
	out := make([]int, n+1)
	for i := range out {
		out[i] = i * len(windows) / n
	}
	return out
}

const mostGroups, leastTokens = 16, 1024

// Gather has a walker sum up what its linears read while run walks windows lo to hi, group
// by group (see [Keep.Groups]), the last time that it is called for a group with last: see
// [exec.Walker.Gather]. Where a NaN or an infinity comes to an input it fails as [Blame]
// says, with the first input by its name.
func Gather(ctx context.Context, m *model.Model, walk *exec.Walker, groups []int, run func(lo, hi int, last bool) error) (*Gathered, error) {
	g := NewGathered()
	for i, hi := range groups[1:] {
		err := walk.Gather(func(last bool) error { return run(groups[i], hi, last) }, func(s *device.Sums) error {
			g.Add(s)
			return nil
		})
		if err != nil {
			return nil, formats.In(m.Path, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(g.Inputs)) {
		if g.Inputs[name].odd {
			return nil, Blame(ctx, m, formats.Errorf(m.Path, name, "what linears read here is not finite on the calibration text: the weights are damaged, or too large for their precision"))
		}
	}
	return g, nil
}

// NewGathered returns sums of nothing.
func NewGathered() *Gathered { return &Gathered{map[string]*Moments{}, map[string][]*Moments{}} }

// Add adds the sums of a group, of an input or of an expert: the first are taken as they are.
func (g *Gathered) Add(s *device.Sums) {
	m := &Moments{K: len(s.AbsMax), Tokens: s.Tokens, AbsMax: s.AbsMax, sums: s.Squares, odd: s.Odd}
	if s.Expert < 0 {
		g.Inputs[s.Input] = g.Inputs[s.Input].plus(m)
		return
	}
	list := g.Experts[s.Input]
	for len(list) <= s.Expert {
		list = append(list, nil)
	}
	list[s.Expert] = list[s.Expert].plus(m)
	g.Experts[s.Input] = list
}

// Sums lists what was gathered by name and expert; it shares the numbers.
func (g *Gathered) Sums() (out []device.Sums) {
	for _, name := range slices.Sorted(maps.Keys(g.Inputs)) {
		for i, m := range append([]*Moments{g.Inputs[name]}, g.Experts[name]...) {
			if m != nil {
				out = append(out, device.Sums{Input: name, Expert: i - 1, Tokens: m.Tokens, Squares: m.sums, AbsMax: m.AbsMax, Odd: m.odd})
			}
		}
	}
	return out
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
