package attention

import (
	"cmp"
	"slices"
)

// A level is one way to have something: what it costs, and what is lost with it.
type level struct {
	of         int // whatever the caller counts levels by
	cost, loss float64
}

// A rise is a step of one curve from a level to a dearer one, and what each unit of its cost
// gains.
type rise struct {
	curve      int
	to         level
	cost, gain float64
}

// hull returns the lower convex hull of some levels, at least one, from the cheapest to that
// of the least loss, and sorts them. What was measured is noisy: a dearer level never counts
// as worse.
func hull(levels []level) []level {
	slices.SortStableFunc(levels, func(a, b level) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.loss, b.loss))
	})
	levels = slices.CompactFunc(levels, func(a, b level) bool { return a.cost == b.cost })
	for i := len(levels) - 2; i >= 0; i-- {
		levels[i].loss = max(levels[i].loss, levels[i+1].loss)
	}
	out := levels[:1:1]
	for i := 0; i < len(levels)-1; {
		best, gain := i+1, -1.
		for j := i + 1; j < len(levels); j++ {
			if g := (levels[i].loss - levels[j].loss) / (levels[j].cost - levels[i].cost); g >= gain {
				best, gain = j, g
			}
		}
		out = append(out, levels[best])
		i = best
	}
	return out
}

// rises returns the steps up the hulls of curves, those that gain most first, and of one
// curve from its cheapest level on.
func rises(hulls [][]level) (out []rise) {
	for i, h := range hulls {
		least := 0.
		for j := 1; j < len(h); j++ {
			r := rise{curve: i, to: h[j], cost: h[j].cost - h[j-1].cost}
			r.gain = (h[j-1].loss - h[j].loss) / r.cost
			if j > 1 {
				r.gain = min(r.gain, least)
			}
			least = r.gain
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(a, b rise) int { return cmp.Compare(b.gain, a.gain) })
	return out
}
