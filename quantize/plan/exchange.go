package plan

import (
	"cmp"
	"math"
	"slices"
)

// A change takes another option for an item: what that adds to the cost and to
// the weight.
type change struct {
	cost, weight float64
	item, to     int
}

// exchange makes the best change of one or two items that lowers the cost
// within the capacity, and reports whether there was one.
func exchange(items [][]choice, at []int, capacity float64) bool {
	room := capacity
	changes := []change{{item: -1}}
	for i, options := range items {
		now := options[at[i]]
		room -= now.weight
		for j, c := range options {
			if j != at[i] {
				changes = append(changes, change{c.cost - now.cost, c.weight - now.weight, i, j})
			}
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.weight, b.weight) })
	a, b := bestPair(changes, room)
	for _, c := range []change{a, b} {
		if c.item >= 0 {
			at[c.item] = c.to
		}
	}
	return a.item >= 0 || b.item >= 0
}

// bestPair returns the two changes, of different items, that lower the cost
// most and add at most room to the weight; those of item -1 change nothing.
// Changes come by rising weight. While the first goes through them upwards, the
// seconds that fit beside it become fewer; of the prefixes of that list the
// cheapest change, and the cheapest of another item, are known.
func bestPair(changes []change, room float64) (a, b change) {
	first, second := cheapest(changes)
	best, none := 0.0, change{item: -1}
	a, b = none, none
	end := len(changes)
	for _, c := range changes {
		for end > 0 && changes[end-1].weight > room-c.weight {
			end--
		}
		if end == 0 {
			break
		}
		other := first[end-1]
		if other >= 0 && changes[other].item == c.item && c.item >= 0 {
			other = second[end-1]
		}
		if other >= 0 && c.cost+changes[other].cost < best-1e-15*math.Abs(c.cost) {
			best, a, b = c.cost+changes[other].cost, c, changes[other]
		}
	}
	return a, b
}

// cheapest returns for each prefix the place of its cheapest change, and of the
// cheapest of another item, -1 where there is none.
func cheapest(changes []change) (first, second []int) {
	first, second = make([]int, len(changes)), make([]int, len(changes))
	one, two := -1, -1
	for i, c := range changes {
		switch {
		case one < 0 || c.cost < changes[one].cost:
			if one >= 0 && changes[one].item != c.item {
				two = one
			}
			one = i
		case c.item != changes[one].item && (two < 0 || c.cost < changes[two].cost):
			two = i
		}
		first[i], second[i] = one, two
	}
	return first, second
}
