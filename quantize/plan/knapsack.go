package plan

import (
	"cmp"
	"math"
	"slices"
)

// A choice is one option of an item of a knapsack: minimise the sum of cost
// while the sum of weight stays within a capacity.
type choice struct {
	cost, weight float64
	index        int // of the caller's
}

// A solution is what a knapsack came to.
type solution struct {
	picked []int   // of each item, the index of its choice
	cost   float64 // of what was picked
	bound  float64 // no choice within the capacity costs less
	price  float64 // of a unit of weight, in cost, where the capacity binds
}

// open reports whether something better than the tolerance may exist.
func (s *solution) open() bool { return s.cost-s.bound > tolerance*s.cost }

// tolerance is how far from the optimum a solution may lie.
const tolerance = 0.001

// pack solves the multiple-choice knapsack: of each item's options one is
// picked, so that costs are least and weights within the capacity. The result
// is within [tolerance] of the optimum, and the same on every machine. False:
// even the lightest options are too heavy.
//
// The relaxation that mixes two options of one item is solved on the lower
// hulls (Sinha and Zoltners, 1979); it gives a price of weight and a bound.
// Rounding it, and exchanging options of two items at a time, mostly closes the
// gap to within the tolerance. Where it does not, partial solutions are
// enumerated: see [enumerate].
func pack(items [][]choice, capacity float64) (solution, bool) {
	reduced := make([][]choice, len(items))
	lightest := 0.0
	for i, options := range items {
		reduced[i] = undominated(options)
		lightest += reduced[i][0].weight
	}
	if !(lightest <= capacity) {
		return solution{}, false
	}
	s, at := relax(reduced, capacity)
	for s.open() && exchange(reduced, at, capacity) {
		s.cost = s.take(reduced, at)
	}
	if s.open() {
		enumerate(reduced, capacity, &s)
	}
	return s, true
}

// undominated returns options by rising weight and falling cost.
func undominated(options []choice) []choice {
	sorted := slices.Clone(options)
	slices.SortFunc(sorted, func(a, b choice) int {
		return cmp.Or(cmp.Compare(a.weight, b.weight), cmp.Compare(a.cost, b.cost), cmp.Compare(a.index, b.index))
	})
	out := sorted[:0]
	for _, c := range sorted {
		if len(out) == 0 || c.cost < out[len(out)-1].cost {
			out = append(out, c)
		}
	}
	return out
}

// hull returns the places of the options on the lower hull of cost over weight.
func hull(options []choice) []int {
	var out []int
	for i, c := range options {
		for len(out) >= 2 {
			a, b := options[out[len(out)-2]], options[out[len(out)-1]]
			if (b.cost-a.cost)*(c.weight-a.weight) < (c.cost-a.cost)*(b.weight-a.weight) {
				break
			}
			out = out[:len(out)-1]
		}
		out = append(out, i)
	}
	return out
}

// A step exchanges an option on an item's hull for the next heavier.
type step struct {
	item, to     int
	gain, weight float64 // of cost, and for how much weight
}

func (s *step) rate() float64 { return s.gain / s.weight }

// relax takes steps by falling rate while the capacity lasts. The step that no
// longer fits gives the price and the bound; later ones that do fit are taken.
func relax(items [][]choice, capacity float64) (solution, []int) {
	var steps []step
	at := make([]int, len(items))
	s := solution{picked: make([]int, len(items))}
	weight := 0.0
	for i, options := range items {
		s.cost += options[0].cost
		weight += options[0].weight
		h := hull(options)
		for j := 1; j < len(h); j++ {
			a, b := options[h[j-1]], options[h[j]]
			steps = append(steps, step{i, h[j], a.cost - b.cost, b.weight - a.weight})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(b.rate(), a.rate()) })
	s.bound = math.Inf(-1)
	stuck := make([]bool, len(items))
	for _, t := range steps {
		if stuck[t.item] {
			continue
		}
		if weight+t.weight > capacity {
			if math.IsInf(s.bound, -1) {
				s.bound, s.price = s.cost-t.rate()*(capacity-weight), t.rate()
			}
			stuck[t.item] = true
			continue
		}
		at[t.item] = t.to
		weight += t.weight
		s.cost -= t.gain
	}
	s.cost = s.take(items, at)
	if math.IsInf(s.bound, -1) {
		s.bound = s.cost // everything is at its best
	}
	s.bound = min(s.bound, s.cost)
	return s, at
}

// take records a choice and returns its cost.
func (s *solution) take(items [][]choice, at []int) (cost float64) {
	for i, j := range at {
		s.picked[i] = items[i][j].index
		cost += items[i][j].cost
	}
	return cost
}
