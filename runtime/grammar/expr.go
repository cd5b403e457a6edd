package grammar

// An expr is a language: what a source says, before it becomes an automaton.
type expr interface{}

type (
	literal string  // these bytes
	class   runeSet // one of these code points, in UTF-8
	seq     []expr  // one after the other; none: the empty text
	alt     []expr  // one of them; none: nothing at all
	repeat  struct {
		x        expr
		min, max int // max < 0: no bound
	}
	ref     int // a rule
	regular struct{ d *dfa }
	// A network is an automaton whose edges carry expressions, from node 0 to the
	// nodes of ends.
	network struct {
		nodes int
		edges []link
		ends  []int
	}
	// A link is an edge of a network; a nil x is the empty text.
	link struct {
		from, to int
		x        expr
	}
)

// A rule is a name for an expression, so that others, and itself, can call it.
type rule struct {
	name  string
	x     expr
	apart bool // is called, and never put in place
}

// nullable reports whether x has the empty text, where those rules do.
func nullable(x expr, rules []bool) bool {
	switch x := x.(type) {
	case literal:
		return x == ""
	case class:
		return false
	case seq:
		for _, y := range x {
			if !nullable(y, rules) {
				return false
			}
		}
		return true
	case alt:
		for _, y := range x {
			if nullable(y, rules) {
				return true
			}
		}
		return false
	case repeat:
		return x.min == 0 || nullable(x.x, rules)
	case ref:
		return rules[x]
	case regular:
		return x.d.states[0].accept
	case network:
		return x.nullable(rules)
	}
	panic("grammar: an unknown expression")
}

func (n network) nullable(rules []bool) bool {
	reached := make([]bool, n.nodes)
	reached[0] = true
	for again := true; again; {
		again = false
		for _, e := range n.edges {
			if reached[e.from] && !reached[e.to] && (e.x == nil || nullable(e.x, rules)) {
				reached[e.to], again = true, true
			}
		}
	}
	for _, e := range n.ends {
		if reached[e] {
			return true
		}
	}
	return false
}

// each calls f for every rule that x refers to.
func each(x expr, f func(ref)) {
	switch x := x.(type) {
	case seq:
		for _, y := range x {
			each(y, f)
		}
	case alt:
		for _, y := range x {
			each(y, f)
		}
	case repeat:
		each(x.x, f)
	case ref:
		f(x)
	case network:
		for _, e := range x.edges {
			each(e.x, f)
		}
	}
}

// weight estimates the states that x takes, up to a bound, with what refers to a rule
// taking what cost says. It reports in loops whether x repeats a wide class without end.
func weight(x expr, cost func(ref) int) (states int, loops bool) {
	const most = 1 << 20
	add := func(y expr) {
		n, l := weight(y, cost)
		states, loops = min(most, states+n), loops || l
	}
	switch x := x.(type) {
	case literal:
		return len(x), false
	case class:
		return 2, false
	case seq:
		for _, y := range x {
			add(y)
		}
	case alt:
		for _, y := range x {
			add(y)
		}
	case repeat:
		add(x.x)
		times := x.max
		if times < 0 {
			times = x.min + 1
			loops = loops || wide(x.x)
		}
		states = min(most, states*max(1, min(times, most)))
	case ref:
		return cost(x), false
	case regular:
		return len(x.d.states), true
	case network:
		for _, e := range x.edges {
			if e.x != nil {
				add(e.x)
			}
		}
	}
	return states, loops
}

// wide reports whether x, which is repeated, has a class of more than a few code points:
// inside such a loop most tokens are legal, and finding them costs.
func wide(x expr) bool {
	switch x := x.(type) {
	case class:
		n := 0
		for _, r := range x {
			n += int(r.hi-r.lo) + 1
		}
		return n > 12
	case seq:
		for _, y := range x {
			if wide(y) {
				return true
			}
		}
	case alt:
		for _, y := range x {
			if wide(y) {
				return true
			}
		}
	case repeat:
		return wide(x.x)
	case ref, regular, network:
		return true
	}
	return false
}
