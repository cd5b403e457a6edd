package grammar

import (
	"slices"
)

// maxCells bounds the sets of names that patterns tell apart in one object.
const maxCells = 64

// property returns what the value of a property has to satisfy.
func (s *schema) property(c *conj, name string) ([]*node, error) {
	var out []*node
	q := quote(name)
	for _, o := range c.objects {
		known := false
		if n, ok := o.values[name]; ok {
			out, known = append(out, n), true
		}
		for _, p := range o.patterns {
			if p.keys.matches(q[1 : len(q)-1]) {
				out, known = append(out, p.n), true
			}
		}
		if !known && o.others != nil {
			out = append(out, o.others)
		}
	}
	if len(c.names) > 0 {
		ok, err := s.satisfies(c.names, name)
		if err != nil {
			return nil, err
		}
		if !ok {
			out = append(out, never)
		}
	}
	return out, nil
}

// A cell is a set of names whose values have to satisfy the same.
type cell struct {
	keys  *dfa
	nodes []*node
}

// cells returns the properties that no schema declares, by what their values satisfy.
func (s *schema) cells(c *conj, declared []string) ([]cell, error) {
	keys, err := regularOf(repeat{spelling(anyRune), 0, -1})
	if err != nil {
		return nil, err
	}
	if len(c.names) > 0 {
		all, err := s.expand(c.names)
		if err != nil {
			return nil, err
		}
		allowed := alt{}
		for _, d := range all {
			if d.kinds&isString == 0 {
				continue
			}
			x := expr(nil)
			if d.enum != nil {
				list := alt{}
				for _, v := range d.enum {
					if text, ok := v.(string); ok {
						if ok, err = s.holds(d, v); err != nil {
							return nil, err
						} else if ok {
							q := quote(text)
							list = append(list, literal(q[1:len(q)-1]))
						}
					}
				}
				x = list
			} else {
				m, err := s.stringDFA(d)
				if err != nil {
					return nil, err
				}
				x = regular{m}
			}
			allowed = append(allowed, x)
		}
		if keys, err = regularOf(allowed); err != nil {
			return nil, err
		}
	}
	if len(declared) > 0 {
		taken := alt{}
		for _, name := range declared {
			q := quote(name)
			taken = append(taken, literal(q[1:len(q)-1]))
		}
		d, err := regularOf(taken)
		if err != nil {
			return nil, err
		}
		if keys, err = without(keys, d); err != nil {
			return nil, err
		}
	}
	out := []cell{{keys, nil}}
	for _, o := range c.objects {
		if out, err = split(out, &o); err != nil {
			return nil, placed(err, c.where)
		}
	}
	return slices.DeleteFunc(out, func(x cell) bool {
		return x.keys.empty() || slices.ContainsFunc(x.nodes, func(n *node) bool { return n.never })
	}), nil
}

// split tells names apart by the patterns of one schema.
func split(in []cell, o *objectPart) (out []cell, err error) {
	type part struct {
		cell
		known bool
	}
	var parts []part
	for _, c := range in {
		parts = append(parts, part{c, false})
	}
	for _, p := range o.patterns {
		var next []part
		for _, c := range parts {
			inside, err := both(c.keys, p.keys)
			if err != nil {
				return nil, err
			}
			outside, err := without(c.keys, p.keys)
			if err != nil {
				return nil, err
			}
			if !inside.empty() {
				next = append(next, part{cell{inside, append(slices.Clip(c.nodes), p.n)}, true})
			}
			if !outside.empty() {
				next = append(next, part{cell{outside, c.nodes}, c.known})
			}
		}
		if parts = next; len(parts) > maxCells {
			return nil, tooLarge("64 sets of names that patterns tell apart")
		}
	}
	for _, c := range parts {
		if !c.known && o.others != nil {
			c.nodes = append(slices.Clip(c.nodes), o.others)
		}
		out = append(out, c.cell)
	}
	return out, nil
}

// maxInPlace is how many properties an object may have whose automaton holds their names:
// of more, each is a rule of its own, for which of them may follow depends on which came.
const maxInPlace = 8

func (s *schema) writeObject(c *conj) (expr, error) {
	if len(c.objects) == 0 && len(c.required) == 0 && len(c.names) == 0 && c.minProps == 0 && c.maxProps < 0 {
		return jsonObject, nil
	}
	var names []string
	known := map[string]bool{}
	for _, list := range append(objectNames(c), c.required) {
		for _, name := range list {
			if !known[name] {
				known[name], names = true, append(names, name)
			}
		}
	}
	members, err := s.members(c, names)
	if err != nil {
		return nil, err
	}
	cells, err := s.cells(c, names)
	if err != nil {
		return nil, err
	}
	if len(cells) > 0 && c.minProps > len(c.required)+1 {
		return nil, refused(c.where, "minProperties %d, where %d are required and others may have any name: whether names differ is not decided",
			c.minProps, len(c.required))
	}
	var others alt
	for _, cell := range cells {
		r, err := s.rule(cell.nodes)
		if err != nil {
			return nil, err
		}
		key := seq{literal(`"`), regular{cell.keys}, literal(`":`), jsonSpace, r}
		if len(cell.keys.states) > 16 {
			if r, err = s.own("a property", key); err != nil {
				return nil, err
			}
			others = append(others, r)
			continue
		}
		others = append(others, key)
	}
	return s.orderedMembers(c, members, others)
}

func objectNames(c *conj) (out [][]string) {
	for _, o := range c.objects {
		out = append(out, o.names)
	}
	return out
}

// A member is a declared property.
type member struct {
	x        expr
	required bool
}

func (s *schema) members(c *conj, names []string) (out []member, err error) {
	for _, name := range names {
		nodes, err := s.property(c, name)
		if err != nil {
			return nil, err
		}
		required := slices.Contains(c.required, name)
		if slices.ContainsFunc(nodes, func(n *node) bool { return n.never }) {
			if required {
				out = append(out, member{alt{}, true})
			}
			continue
		}
		r, err := s.rule(nodes)
		if err != nil {
			return nil, err
		}
		x := expr(seq{literal(quote(name) + ":"), jsonSpace, r})
		if len(names) > maxInPlace {
			if x, err = s.own("the property "+name, x); err != nil {
				return nil, err
			}
		}
		out = append(out, member{x, required})
	}
	return out, nil
}

// own makes a rule that stays one.
func (s *schema) own(name string, x expr) (ref, error) {
	if len(s.rules) >= maxRules {
		return 0, tooLarge("32768 rules")
	}
	s.rules = append(s.rules, rule{name, x, true})
	return ref(len(s.rules) - 1), nil
}

// orderedMembers returns the members in their order, then others: node (i, k) of the
// network is in front of member i, behind k that were written, where so many are counted.
func (s *schema) orderedMembers(c *conj, members []member, others alt) (expr, error) {
	if c.maxProps >= 0 && c.maxProps < c.minProps {
		return alt{}, nil
	}
	n := len(members)
	levels := max(1, c.minProps, min(c.maxProps, maxElements)) // as many as matter, then more are alike
	if c.maxProps > n && len(others) == 0 {
		levels = max(1, min(c.minProps, n+1))
	}
	if (n+1)*(levels+1) > maxElements*4 {
		return nil, placed(tooLarge("65536 properties that are counted"), c.where)
	}
	counted := c.maxProps >= 0 && c.maxProps <= levels
	id := func(i, k int) int { return i*(levels+1) + k }
	shut := (n + 1) * (levels + 1)
	x := network{nodes: shut + 1, ends: []int{shut}}
	for i, m := range members {
		for k := 0; k <= levels; k++ {
			if !m.required {
				x.edges = append(x.edges, link{id(i, k), id(i+1, k), nil})
			}
			if !counted || k < c.maxProps {
				x.edges = append(x.edges, link{id(i, k), id(i+1, min(k+1, levels)), behindComma(k > 0, m.x)})
			}
		}
	}
	for k := 0; k <= levels; k++ {
		if len(others) > 0 && (!counted || k < c.maxProps) {
			x.edges = append(x.edges, link{id(n, k), id(n, min(k+1, levels)), behindComma(k > 0, others)})
		}
		if k >= c.minProps {
			x.edges = append(x.edges, link{id(n, k), shut, closing(k > 0, "}")})
		}
	}
	return seq{literal("{"), jsonSpace, x}, nil
}
