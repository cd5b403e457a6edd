package grammar

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/nstf/nstf/formats"
)

// A Grammar is a language of texts, made by [ParseGBNF], [ParseRegex], [Choices],
// [Compose] or [ParseSchema]. It is immutable and safe for concurrent use.
//
// It is a pushdown automaton over bytes: a deterministic automaton for each rule, whose
// calls enter those of others.
type Grammar struct {
	states  []state // of all rules; edges and calls name states and rules of the whole
	starts  []int32 // of each rule
	order   []int32 // of each rule: callers in front of what they enter without reading
	final   []bool  // of each state: it ends a rule and goes nowhere
	classes [256]uint8
	samples []byte // a byte of each class
	keys    []stateKey
}

// A stateKey names what a state reads within keyDepth bytes, in whatever grammar it is.
type stateKey [2]uint64

// keyDepth bounds the tokens whose legality in a state follows from its key.
const keyDepth = 16

// States returns the number of states of its automata.
func (g *Grammar) States() int { return len(g.states) }

// bytes returns about what it takes in memory.
func (g *Grammar) bytes() int64 {
	n := int64(len(g.states)) * 128
	for i := range g.states {
		n += int64(12*cap(g.states[i].edges) + 8*cap(g.states[i].calls))
	}
	return n
}

// build makes a grammar of rules, of which the first is the whole.
func build(rules []rule) (*Grammar, error) {
	if len(rules) > maxRules {
		return nil, tooLarge("32768 rules")
	}
	empties := nullables(rules)
	inline := inlined(rules)
	budget, made := maxStates, 0
	machines := make([]*dfa, len(rules))
	left := make([][]int32, len(rules))
	for _, r := range reachable(rules, inline) {
		n := &nfa{inline: func(q ref) (expr, bool) { return rules[q].x, inline[q] && int(q) != r }}
		start := n.add()
		end := n.put(rules[r].x, start)
		if n.err == nil {
			start = n.unwind(int32(r), start, end, empties)
		}
		d, err := n.determine(start, end, empties, &budget)
		if err != nil {
			return nil, placed(err, rules[r].name)
		}
		if made += len(n.states); made > 4*maxStates {
			return nil, tooLarge("524288 states")
		}
		machines[r] = d
		for _, c := range d.states[0].calls {
			left[r] = append(left[r], c.rule)
		}
	}
	if err := prune(machines, rules); err != nil {
		return nil, err
	}
	for r, d := range machines {
		left[r] = left[r][:0]
		if d != nil {
			for _, c := range d.states[0].calls {
				left[r] = append(left[r], c.rule)
			}
		}
	}
	order, err := ranks(left, rules)
	if err != nil {
		return nil, err
	}
	g := &Grammar{order: order}
	g.join(machines)
	g.classify()
	g.key()
	return g, nil
}

// nullables returns which rules have the empty text.
func nullables(rules []rule) []bool {
	is := make([]bool, len(rules))
	callers := make([][]int, len(rules))
	var queue []int
	for i, r := range rules {
		each(r.x, func(q ref) { callers[q] = append(callers[q], i) })
		queue = append(queue, i)
	}
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		if !is[i] && nullable(rules[i].x, is) {
			is[i] = true
			queue = append(queue, callers[i]...)
		}
	}
	return is
}

// inlined chooses the rules that are put where they are referred to: what a token may
// be is then known without a look at who called. Rules with wide loops stay apart where
// several refer to them, for their states are what is worth sharing.
func inlined(rules []rule) []bool {
	const small, deepest = 64, 16
	n := len(rules)
	uses := make([]int, n)
	for _, r := range rules {
		each(r.x, func(q ref) { uses[q]++ })
	}
	in := make([]bool, n)
	state := make([]int8, n) // 1: being visited, 2: done
	size := make([]int, n)
	loops := make([]bool, n)
	recursive := make([]bool, n)
	level := make([]int, n) // of rules within rules
	depth := 0
	var visit func(i int)
	visit = func(i int) {
		state[i] = 1
		depth++
		each(rules[i].x, func(q ref) {
			switch {
			case state[q] == 1:
				recursive[q], recursive[i] = true, true
			case state[q] == 0 && depth < 2000:
				visit(int(q))
			}
			if in[q] {
				level[i] = max(level[i], level[q]+1)
			}
		})
		depth--
		size[i], loops[i] = weight(rules[i].x, func(q ref) int {
			if in[q] {
				return size[q]
			}
			return 1
		})
		each(rules[i].x, func(q ref) { loops[i] = loops[i] || in[q] && loops[q] })
		in[i] = i != 0 && !rules[i].apart && !recursive[i] && level[i] < deepest && !reaches(rules, in, i) &&
			(!loops[i] && size[i] <= small || uses[i] == 1 && size[i] <= 4096)
		state[i] = 2
	}
	for i := range rules {
		if state[i] == 0 {
			visit(i)
		}
	}
	return in
}

// reaches reports whether a rule refers to itself through rules that are put in place.
func reaches(rules []rule, in []bool, i int) bool {
	seen := map[ref]bool{}
	var stack []ref
	each(rules[i].x, func(q ref) { stack = append(stack, q) })
	for len(stack) > 0 {
		q := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if int(q) == i {
			return true
		}
		if seen[q] || !in[q] {
			continue
		}
		seen[q] = true
		each(rules[q].x, func(p ref) { stack = append(stack, p) })
	}
	return false
}

// reachable returns the rules that are called from the first, those put in place left out.
func reachable(rules []rule, inline []bool) []int {
	seen := make([]bool, len(rules))
	var out []int
	stack := []int{0}
	seen[0] = true
	for len(stack) > 0 {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if !inline[i] {
			out = append(out, i)
		}
		each(rules[i].x, func(q ref) {
			if !seen[q] {
				seen[q] = true
				stack = append(stack, int(q))
			}
		})
	}
	slices.Sort(out)
	return out
}

// unwind returns a new first state of a rule, without calls of the rule itself: what
// would follow such a call follows the rule's end. A -> A x | y becomes y x x ...
func (n *nfa) unwind(r, start, end int32, empties []bool) int32 {
	s := &subset{n: n, nullable: empties, accept: end, mark: make([]int32, len(n.states))}
	set, accepts := s.closure([]int32{start}, true)
	var behind []int32
	for _, x := range set {
		for _, c := range n.states[x].calls {
			if c.rule == r {
				behind = append(behind, c.to)
			}
		}
	}
	if len(behind) == 0 {
		return start
	}
	first := n.add()
	if n.err != nil {
		return 0
	}
	for _, x := range set {
		n.states[first].edges = append(n.states[first].edges, n.states[x].edges...)
		for _, c := range n.states[x].calls {
			if c.rule != r {
				n.states[first].calls = append(n.states[first].calls, c)
			}
		}
	}
	if accepts {
		n.link(first, end)
	}
	for _, to := range behind {
		n.link(end, to)
	}
	return first
}

// prune removes what leads to no end: edges, states, and calls of rules that never end.
func prune(machines []*dfa, rules []rule) error {
	ends := make([]bool, len(machines)) // rules that end
	alive := make([][]bool, len(machines))
	for again := true; again; {
		again = false
		for r, d := range machines {
			if d == nil {
				continue
			}
			alive[r] = d.alive(ends)
			if alive[r][0] && !ends[r] {
				ends[r], again = true, true
			}
		}
	}
	if !ends[0] {
		return formats.Errorf("", "", "no text at all is legal: %s never ends", formats.Brief(rules[0].name, 80))
	}
	for r, d := range machines {
		if d == nil {
			continue
		}
		if !ends[r] {
			machines[r] = nil
			continue
		}
		for i := range d.states {
			s := &d.states[i]
			s.edges = slices.DeleteFunc(s.edges, func(e edge) bool { return !alive[r][e.to] })
			s.calls = slices.DeleteFunc(s.calls, func(c call) bool { return !alive[r][c.to] || !ends[c.rule] })
		}
		machines[r] = d.compact()
	}
	return nil
}

// alive returns which states lead to an end, where those rules do; none are called where
// ends is nil.
func (d *dfa) alive(ends []bool) []bool {
	back := make([][]int32, len(d.states))
	alive := make([]bool, len(d.states))
	var stack []int32
	for i, s := range d.states {
		for _, e := range s.edges {
			back[e.to] = append(back[e.to], int32(i))
		}
		for _, c := range s.calls {
			if ends[c.rule] {
				back[c.to] = append(back[c.to], int32(i))
			}
		}
		if s.accept {
			alive[i] = true
			stack = append(stack, int32(i))
		}
	}
	for len(stack) > 0 {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, j := range back[i] {
			if !alive[j] {
				alive[j] = true
				stack = append(stack, j)
			}
		}
	}
	return alive
}

// compact leaves the states out that are not reached.
func (d *dfa) compact() *dfa {
	index := make([]int32, len(d.states))
	for i := range index {
		index[i] = -1
	}
	index[0] = 0
	old := []int32{0}
	to := func(i int32) int32 {
		if index[i] < 0 {
			index[i] = int32(len(old))
			old = append(old, i)
		}
		return index[i]
	}
	out := &dfa{}
	for i := 0; i < len(old); i++ {
		s := d.states[old[i]]
		for k := range s.edges {
			s.edges[k].to = to(s.edges[k].to)
		}
		for k := range s.calls {
			s.calls[k].to = to(s.calls[k].to)
		}
		out.states = append(out.states, s)
	}
	return out
}

// ranks orders rules so that each stands in front of those that it enters before it has
// read a byte. Where there is no such order, a rule is left-recursive.
func ranks(left [][]int32, rules []rule) ([]int32, error) {
	state := make([]int8, len(rules))
	order := make([]int32, len(rules))
	next := int32(len(rules))
	type frame struct{ rule, call int }
	for root := range rules {
		if state[root] != 0 {
			continue
		}
		stack := []frame{{root, 0}}
		state[root] = 1
		for len(stack) > 0 {
			f := &stack[len(stack)-1]
			if f.call == len(left[f.rule]) {
				next--
				order[f.rule], state[f.rule] = next, 2
				stack = stack[:len(stack)-1]
				continue
			}
			q := int(left[f.rule][f.call])
			f.call++
			switch state[q] {
			case 0:
				state[q] = 1
				stack = append(stack, frame{q, 0})
			case 1:
				name := rules[q].name
				return nil, &formats.UnsupportedError{Offset: -1, Tensor: name, Feature: "left recursion: this rule begins with itself, through another",
					Hint: fmt.Sprintf("let %s begin with something that is not %s, and repeat what follows", formats.Brief(name, 80), formats.Brief(name, 80))}
			}
		}
	}
	return order, nil
}

// join lays the states of all rules into one array.
func (g *Grammar) join(machines []*dfa) {
	g.starts = make([]int32, len(machines))
	for r, d := range machines {
		g.starts[r] = -1
		if d == nil {
			continue
		}
		base := int32(len(g.states))
		g.starts[r] = base
		for _, s := range d.states {
			for k := range s.edges {
				s.edges[k].to += base
			}
			for k := range s.calls {
				s.calls[k].to += base
			}
			g.states = append(g.states, s)
		}
	}
	g.final = make([]bool, len(g.states))
	for i, s := range g.states {
		g.final[i] = s.accept && len(s.edges) == 0 && len(s.calls) == 0
	}
}

// classify finds the bytes that no state tells apart.
func (g *Grammar) classify() {
	var border [257]bool
	for _, s := range g.states {
		for _, e := range s.edges {
			border[e.lo], border[int(e.hi)+1] = true, true
		}
	}
	for b := range 256 {
		if b == 0 || border[b] {
			g.samples = append(g.samples, byte(b))
		}
		g.classes[b] = uint8(len(g.samples) - 1)
	}
}

// The seeds of keys: two, for a collision would give one state the tokens of another.
var keySeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// key names every state by what it reads within keyDepth bytes. States of rules that
// are entered without a byte read come first in each round: order says which.
func (g *Grammar) key() {
	n := len(g.states)
	was, now := make([]stateKey, n), make([]stateKey, n)
	rules := make([]int, 0, len(g.starts))
	isStart := make([]bool, n)
	for r, s := range g.starts {
		if s >= 0 {
			rules = append(rules, r)
			isStart[s] = true
		}
	}
	slices.SortFunc(rules, func(a, b int) int { return cmp.Compare(g.order[b], g.order[a]) })
	var buf []byte
	add := func(k stateKey) {
		buf = binary.LittleEndian.AppendUint64(buf, k[0])
		buf = binary.LittleEndian.AppendUint64(buf, k[1])
	}
	var calls []stateKey
	keyOf := func(i int32) stateKey {
		s := &g.states[i]
		buf = append(buf[:0], 0, byte(len(s.edges)), byte(len(s.edges)>>8))
		if s.accept {
			buf[0] = 1
		}
		for _, e := range s.edges {
			buf = append(buf, e.lo, e.hi)
			add(was[e.to])
		}
		calls = calls[:0]
		for _, c := range s.calls { // the order of rules is that of a grammar: sort by keys
			calls = append(calls, now[g.starts[c.rule]], was[c.to])
			for k := len(calls) - 2; k > 0 && slices.Compare(calls[k][:], calls[k-2][:]) < 0; k -= 2 {
				calls[k], calls[k-2] = calls[k-2], calls[k]
				calls[k+1], calls[k-1] = calls[k-1], calls[k+1]
			}
		}
		for _, k := range calls {
			add(k)
		}
		return stateKey{maphash.Bytes(keySeeds[0], buf), maphash.Bytes(keySeeds[1], buf)}
	}
	for range keyDepth + 1 {
		for _, r := range rules {
			now[g.starts[r]] = keyOf(g.starts[r])
		}
		for i := range n {
			if !isStart[i] {
				now[i] = keyOf(int32(i))
			}
		}
		was, now = now, was
	}
	g.keys = was
}
