package plan

import (
	"cmp"
	"math"
	"slices"
)

// A partial is a choice for the items up to some one.
type partial struct {
	weight, cost float64
	excess       float64 // how much more it costs, at the price, than the best options
	from         int32   // place in the list before
	option       int32   // of the last item
}

// maxPartials bounds the work of an enumeration: longer lists are thinned.
const maxPartials = 1 << 13

// An enumeration looks for solutions whose excess is below goal: all others
// are no improvement by more than half the tolerance. Items whose other options
// exceed it alone are decided; the others are taken by falling weight of what
// is undecided in them.
type enumeration struct {
	items    [][]choice // what is left of each
	order    []int
	least    []float64 // cost at the price of an item's best option
	lightest []float64 // weight, at least, of the items from a place in order on
	heaviest []float64
	price    float64
	goal     float64
	capacity float64
	lost     float64 // what thinning lists may have cost
}

// enumerate improves s where something better exists, and raises the bound by
// what it has seen not to exist. Partial solutions that another dominates in
// both sums are left out, and those that at the price, or with what must stay
// unused, cannot come below the goal (Dyer, Riha and Walker, 1995).
func enumerate(items [][]choice, capacity float64, s *solution) {
	e := newEnumeration(items, capacity, s)
	lists := [][]partial{{{}}}
	for place, i := range e.order {
		next := e.extend(lists[place], place, i)
		if len(next) == 0 {
			s.bound = max(s.bound, s.cost*(1-tolerance/2)-e.lost)
			return
		}
		lists = append(lists, e.thinned(next))
	}
	before, last := s.cost, lists[len(e.order)]
	best := len(last) - 1 // the heaviest costs least
	if last[best].cost < s.cost {
		at := make([]int, len(items))
		for place, j := len(e.order), best; place > 0; place-- {
			p := lists[place][j]
			at[e.order[place-1]] = int(p.option)
			j = int(p.from)
		}
		s.cost = s.take(e.items, at)
	}
	s.bound = max(s.bound, min(s.cost, before*(1-tolerance/2))-e.lost)
}

func newEnumeration(items [][]choice, capacity float64, s *solution) *enumeration {
	e := &enumeration{items: make([][]choice, len(items)), least: make([]float64, len(items)), price: s.price, capacity: capacity}
	e.goal = s.cost*(1-tolerance/2) + s.price*capacity
	for i, options := range items {
		e.least[i] = math.Inf(1)
		for _, c := range options {
			e.least[i] = min(e.least[i], c.cost+s.price*c.weight)
		}
		e.goal -= e.least[i]
		e.order = append(e.order, i)
	}
	span := make([]float64, len(items))
	for i, options := range items {
		for _, c := range options {
			if c.cost+s.price*c.weight-e.least[i] < e.goal || len(options) == 1 {
				e.items[i] = append(e.items[i], c)
			}
		}
		if left := e.items[i]; len(left) > 0 {
			span[i] = left[len(left)-1].weight - left[0].weight
		}
	}
	slices.SortStableFunc(e.order, func(a, b int) int { return cmp.Compare(span[b], span[a]) })
	n := len(items)
	e.lightest, e.heaviest = make([]float64, n+1), make([]float64, n+1)
	for place := n - 1; place >= 0; place-- {
		left := e.items[e.order[place]]
		if len(left) == 0 {
			continue
		}
		e.lightest[place] = e.lightest[place+1] + left[0].weight
		e.heaviest[place] = e.heaviest[place+1] + left[len(left)-1].weight
	}
	return e
}

// extend adds each option of an item to each partial solution.
func (e *enumeration) extend(list []partial, place, item int) []partial {
	var out []partial
	for j, c := range e.items[item] {
		excess := c.cost + e.price*c.weight - e.least[item]
		for k, p := range list {
			q := partial{p.weight + c.weight, p.cost + c.cost, p.excess + excess, int32(k), int32(j)}
			unused := max(0, e.capacity-q.weight-e.heaviest[place+1])
			if q.weight+e.lightest[place+1] <= e.capacity && q.excess+e.price*unused < e.goal {
				out = append(out, q)
			}
		}
	}
	slices.SortFunc(out, func(a, b partial) int {
		return cmp.Or(cmp.Compare(a.weight, b.weight), cmp.Compare(a.cost, b.cost), cmp.Compare(a.from, b.from), cmp.Compare(a.option, b.option))
	})
	kept := out[:0]
	for _, q := range out {
		if len(kept) == 0 || q.cost < kept[len(kept)-1].cost {
			kept = append(kept, q)
		}
	}
	return kept
}

// thinned shortens a list that is too long: of neighbours with nearly one cost
// the lighter stays.
func (e *enumeration) thinned(list []partial) []partial {
	if len(list) <= maxPartials {
		return list
	}
	width := (list[0].cost - list[len(list)-1].cost) / maxPartials
	e.lost += width
	out := list[:1]
	for _, p := range list[1:] {
		if out[len(out)-1].cost-p.cost >= width {
			out = append(out, p)
		}
	}
	return out
}
