package grammar

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/nstf/nstf/formats"
)

// What one grammar may take. Beyond it is an error, as a hang would be.
const (
	maxStates  = 1 << 17 // of automata, before and after they are made deterministic
	maxWork    = 1 << 24 // elements of sets on the way
	maxNesting = 200     // of parentheses, groups, values and schemas
	maxRules   = 1 << 15
)

// tooLarge is the error of a grammar that takes more than that.
func tooLarge(what string) error {
	return &formats.UnsupportedError{Offset: -1, Feature: "a grammar that takes more than " + what,
		Hint: "fewer or smaller repetitions, lengths and alternatives make a smaller grammar"}
}

// An nstate is a state of a nondeterministic automaton.
type nstate struct {
	eps   []int32
	edges []edge
	calls []call
	end   bool // passes where nothing follows: $ of a regular expression
	begin bool // is passed in front of the first byte alone: ^
}

// An edge reads a byte of a range.
type edge struct {
	lo, hi byte
	to     int32
}

// A call reads what a rule has, then goes on.
type call struct {
	rule, to int32
}

// A nfa is built from an expression.
type nfa struct {
	states []nstate
	inline func(ref) (expr, bool) // the expression of a rule that is not called but put in place
	err    error
	depth  int
}

func (n *nfa) add() int32 {
	if len(n.states) >= maxStates {
		n.err = cmp.Or(n.err, tooLarge("131072 states"))
		return 0
	}
	n.states = append(n.states, nstate{})
	return int32(len(n.states) - 1)
}

func (n *nfa) link(from, to int32) {
	if n.err == nil {
		n.states[from].eps = append(n.states[from].eps, to)
	}
}

// put adds x behind a state and returns the state behind x.
func (n *nfa) put(x expr, from int32) int32 {
	if n.err != nil {
		return 0
	}
	if n.depth++; n.depth > 4*maxNesting {
		n.err = tooLarge("800 levels of nesting")
	}
	defer func() { n.depth-- }()
	switch x := x.(type) {
	case nil:
	case literal:
		for i := 0; i < len(x) && n.err == nil; i++ {
			to := n.add()
			n.states[from].edges = append(n.states[from].edges, edge{x[i], x[i], to})
			from = to
		}
	case class:
		return n.putClass(x, from)
	case seq:
		for _, y := range x {
			from = n.put(y, from)
		}
	case alt:
		to := n.add()
		for _, y := range x {
			n.link(n.put(y, from), to)
		}
		return to
	case repeat:
		return n.putRepeat(x, from)
	case ref:
		if y, ok := n.inline(x); ok {
			return n.put(y, from)
		}
		to := n.add()
		if n.err == nil {
			n.states[from].calls = append(n.states[from].calls, call{int32(x), to})
		}
		return to
	case regular:
		return n.putDFA(x.d, from)
	case network:
		return n.putNetwork(x, from)
	case anchor:
		to := n.add()
		mid := n.add()
		if n.err == nil {
			n.states[mid].begin, n.states[mid].end = x == atBegin, x == atEnd
			n.link(from, mid)
			n.link(mid, to)
		}
		return to
	default:
		panic("grammar: an unknown expression")
	}
	return from
}

func (n *nfa) putClass(x class, from int32) int32 {
	to := n.add()
	tails := map[string]int32{} // what is left of a path, to its state
	runeSet(x).utf8Paths(func(path []byteRange) {
		next, key := to, []byte{}
		for i := len(path) - 1; i >= 0; i-- {
			p := path[i]
			if i == 0 {
				if n.err == nil {
					n.states[from].edges = append(n.states[from].edges, edge{p.lo, p.hi, next})
				}
				return
			}
			key = append(key, p.lo, p.hi)
			at, ok := tails[string(key)]
			if !ok {
				at = n.add()
				tails[string(key)] = at
				if n.err == nil {
					n.states[at].edges = append(n.states[at].edges, edge{p.lo, p.hi, next})
				}
			}
			next = at
		}
	})
	return to
}

func (n *nfa) putRepeat(x repeat, from int32) int32 {
	start := n.add() // nothing that came before can loop
	n.link(from, start)
	from = start
	for range x.min {
		if n.err != nil {
			return 0
		}
		from = n.put(x.x, from)
	}
	to := n.add()
	if x.max < 0 {
		loop := n.add()
		n.link(from, loop)
		n.link(n.put(x.x, loop), loop)
		n.link(loop, to)
		return to
	}
	n.link(from, to)
	for range x.max - x.min {
		if n.err != nil {
			return 0
		}
		from = n.put(x.x, from)
		n.link(from, to)
	}
	return to
}

func (n *nfa) putDFA(d *dfa, from int32) int32 {
	at := make([]int32, len(d.states))
	for i := range at {
		at[i] = n.add()
	}
	to := n.add()
	if n.err != nil {
		return 0
	}
	n.link(from, at[0])
	for i, s := range d.states {
		for _, e := range s.edges {
			n.states[at[i]].edges = append(n.states[at[i]].edges, edge{e.lo, e.hi, at[e.to]})
		}
		if s.accept {
			n.link(at[i], to)
		}
	}
	return to
}

func (n *nfa) putNetwork(x network, from int32) int32 {
	at := make([]int32, x.nodes)
	for i := range at {
		at[i] = n.add()
	}
	to := n.add()
	n.link(from, at[0])
	for _, e := range x.edges {
		n.link(n.put(e.x, at[e.from]), at[e.to])
	}
	for _, e := range x.ends {
		n.link(at[e], to)
	}
	return to
}

// A dfa is a deterministic automaton over bytes and calls: from a state one edge at
// most reads a byte, and one call at most enters a rule. State 0 begins; nothing leads
// back to it.
type dfa struct {
	states []state
}

type state struct {
	accept bool
	edges  []edge // sorted, disjoint
	calls  []call // sorted by rule
}

// A subset makes an automaton deterministic.
type subset struct {
	n        *nfa
	nullable []bool
	accept   int32
	index    map[string]int32
	sets     [][]int32
	out      *dfa
	work     int
	mark     []int32 // of states of n: the closure that saw it last
	round    int32
}

// determine returns the deterministic automaton from a state of n to another.
func (n *nfa) determine(start, accept int32, nullable []bool, budget *int) (*dfa, error) {
	if n.err != nil {
		return nil, n.err
	}
	s := &subset{n: n, nullable: nullable, accept: accept, index: map[string]int32{}, out: &dfa{}, mark: make([]int32, len(n.states))}
	first, ends := s.closure([]int32{start}, true)
	s.sets, s.out.states = append(s.sets, first), append(s.out.states, state{accept: ends})
	for i := 0; i < len(s.sets); i++ {
		if err := s.expand(i); err != nil {
			return nil, err
		}
		if *budget--; *budget < 0 {
			return nil, tooLarge("131072 states")
		}
	}
	return s.out, nil
}

// closure returns the states that read something and can be had from some without
// reading, and whether the accepting one is among them.
func (s *subset) closure(from []int32, begin bool) ([]int32, bool) {
	s.round++
	var out []int32
	accepts := false
	type item struct {
		at  int32
		end bool // $ was passed: only the end counts
	}
	var stack []item
	for _, at := range from {
		stack = append(stack, item{at, false})
	}
	var ended map[int32]bool
	for len(stack) > 0 {
		it := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if it.end {
			if ended[it.at] {
				continue
			}
			if ended == nil {
				ended = map[int32]bool{}
			}
			ended[it.at] = true
		} else {
			if s.mark[it.at] == s.round {
				continue
			}
			s.mark[it.at] = s.round
		}
		s.work++
		n := &s.n.states[it.at]
		if n.begin && !begin {
			continue
		}
		end := it.end || n.end
		accepts = accepts || it.at == s.accept
		if !end && (len(n.edges) > 0 || len(n.calls) > 0) {
			out = append(out, it.at)
		}
		for _, to := range n.eps {
			stack = append(stack, item{to, end})
		}
		for _, c := range n.calls {
			if s.nullable[c.rule] {
				stack = append(stack, item{c.to, end})
			}
		}
	}
	slices.Sort(out)
	return out, accepts
}

// to returns the state of what can be had from some states.
func (s *subset) to(from []int32) int32 {
	set, accepts := s.closure(from, false)
	key := make([]byte, 0, 4*len(set)+1)
	for _, x := range set {
		key = binary.LittleEndian.AppendUint32(key, uint32(x))
	}
	if accepts {
		key = append(key, 1)
	}
	if i, ok := s.index[string(key)]; ok {
		return i
	}
	i := int32(len(s.sets))
	s.index[string(key)] = i
	s.sets = append(s.sets, set)
	s.out.states = append(s.out.states, state{accept: accepts})
	return i
}

func (s *subset) expand(i int) error {
	var edges []edge
	var calls []call
	for _, x := range s.sets[i] {
		edges = append(edges, s.n.states[x].edges...)
		calls = append(calls, s.n.states[x].calls...)
	}
	if s.work += len(edges) + len(calls); s.work > maxWork {
		return tooLarge("16777216 steps to be made deterministic")
	}
	var at []edge
	for _, cut := range cuts(edges) {
		var to []int32
		for _, e := range edges {
			if e.lo <= cut.lo && cut.hi <= e.hi {
				to = append(to, e.to)
			}
		}
		if len(to) == 0 {
			continue
		}
		s.work += len(edges)
		t := s.to(to)
		if k := len(at); k > 0 && at[k-1].to == t && at[k-1].hi+1 == cut.lo {
			at[k-1].hi = cut.hi
			continue
		}
		at = append(at, edge{cut.lo, cut.hi, t})
	}
	slices.SortFunc(calls, func(a, b call) int { return cmp.Or(cmp.Compare(a.rule, b.rule), cmp.Compare(a.to, b.to)) })
	var entered []call
	for k := 0; k < len(calls); {
		var to []int32
		r := calls[k].rule
		for ; k < len(calls) && calls[k].rule == r; k++ {
			to = append(to, calls[k].to)
		}
		entered = append(entered, call{r, s.to(to)})
	}
	s.out.states[i].edges, s.out.states[i].calls = at, entered
	return nil
}

// cuts returns the ranges between the borders of edges.
func cuts(edges []edge) []byteRange {
	var border [257]bool
	for _, e := range edges {
		border[e.lo], border[int(e.hi)+1] = true, true
	}
	var out []byteRange
	last := -1
	for b := 0; b <= 256; b++ {
		if !border[b] {
			continue
		}
		if last >= 0 {
			out = append(out, byteRange{byte(last), byte(b - 1)})
		}
		last = b
	}
	return out
}

// next returns the state behind a byte, -1 for none.
func (s *state) next(b byte) int32 {
	for _, e := range s.edges {
		if b >= e.lo && b <= e.hi {
			return e.to
		}
	}
	return -1
}

// product joins two automata without calls: keep says which ends of both are ends.
// A state of -1 is where an automaton is lost.
func product(a, b *dfa, keep func(a, b bool) bool) (*dfa, error) {
	type pair struct{ a, b int32 }
	at := func(d *dfa, i int32) *state {
		if i < 0 {
			return &state{}
		}
		return &d.states[i]
	}
	out := &dfa{}
	index := map[pair]int32{}
	var pairs []pair
	add := func(p pair) int32 {
		i, ok := index[p]
		if !ok {
			i = int32(len(pairs))
			index[p] = i
			pairs = append(pairs, p)
			out.states = append(out.states, state{accept: keep(at(a, p.a).accept, at(b, p.b).accept)})
		}
		return i
	}
	add(pair{0, 0})
	for i := 0; i < len(pairs); i++ {
		if len(pairs) > maxStates {
			return nil, tooLarge("131072 states")
		}
		x, y := at(a, pairs[i].a), at(b, pairs[i].b)
		var edges []edge
		for _, c := range cuts(slices.Concat(x.edges, y.edges)) {
			p := pair{x.next(c.lo), y.next(c.lo)}
			if p.a < 0 && p.b < 0 {
				continue
			}
			t := add(p)
			if k := len(edges); k > 0 && edges[k-1].to == t && edges[k-1].hi+1 == c.lo {
				edges[k-1].hi = c.hi
				continue
			}
			edges = append(edges, edge{c.lo, c.hi, t})
		}
		out.states[i].edges = edges
	}
	return out.trim(), nil
}

func both(a, b *dfa) (*dfa, error) { return product(a, b, func(x, y bool) bool { return x && y }) }

func without(a, b *dfa) (*dfa, error) { return product(a, b, func(x, y bool) bool { return x && !y }) }

// trim removes the states from which no end can be had, but for the first.
func (d *dfa) trim() *dfa {
	alive := d.alive(nil)
	alive[0] = true
	out, index := &dfa{}, make([]int32, len(d.states))
	for i := range d.states {
		if alive[i] {
			index[i] = int32(len(out.states))
			out.states = append(out.states, d.states[i])
		}
	}
	for i := range out.states {
		var edges []edge
		for _, e := range out.states[i].edges {
			if alive[e.to] {
				edges = append(edges, edge{e.lo, e.hi, index[e.to]})
			}
		}
		out.states[i].edges = edges
	}
	return out
}

// empty reports whether no text at all is accepted.
func (d *dfa) empty() bool {
	for _, s := range d.states {
		if s.accept {
			return false
		}
	}
	return true
}

// matches reports whether a text is accepted.
func (d *dfa) matches(text string) bool {
	at := int32(0)
	for i := range len(text) {
		if at = d.states[at].next(text[i]); at < 0 {
			return false
		}
	}
	return d.states[at].accept
}

// regularOf makes an automaton of an expression that refers to no rule.
func regularOf(x expr) (*dfa, error) {
	n := &nfa{inline: func(ref) (expr, bool) { panic("grammar: a rule in a regular expression") }}
	start := n.add()
	end := n.put(x, start)
	budget := maxStates
	d, err := n.determine(start, end, nil, &budget)
	if err != nil {
		return nil, err
	}
	return d.trim(), nil
}
