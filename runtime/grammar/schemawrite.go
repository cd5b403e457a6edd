package grammar

import (
	"encoding/json"
	"errors"
	"math/big"
	"slices"

	"github.com/nstf/nstf/formats"
)

// write returns the expression of the texts that satisfy a conjunction.
func (s *schema) write(c *conj) (expr, error) {
	if c.enum != nil {
		out := alt{}
		for _, v := range c.enum {
			ok, err := s.holds(c, v)
			if err != nil {
				return nil, err
			}
			if ok {
				out = append(out, valueExpr(v))
			}
		}
		return out, nil
	}
	out := alt{}
	if c.kinds&isNull != 0 {
		out = append(out, literal("null"))
	}
	if c.kinds&isBool != 0 {
		out = append(out, literal("true"), literal("false"))
	}
	for _, w := range []struct {
		of    kind
		write func(*conj) (expr, error)
	}{{isInteger | isFraction, s.writeNumber}, {isString, s.writeString}, {isArray, s.writeArray}, {isObject, s.writeObject}} {
		if c.kinds&w.of == 0 {
			continue
		}
		x, err := w.write(c)
		if err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	return out, nil
}

// valueExpr is one value, with spaces where there may be.
func valueExpr(v value) expr {
	switch v := v.(type) {
	case nil:
		return literal("null")
	case bool:
		if v {
			return literal("true")
		}
		return literal("false")
	case json.Number:
		if r, err := number(v); err == nil && r.IsInt() && len(r.Num().String()) <= wholeDigits {
			return literal(r.Num().String()) // 1 for 1.0
		}
		return literal(v)
	case string:
		return literal(quote(v))
	case []value:
		out := seq{literal("["), jsonSpace}
		for i, x := range v {
			if i > 0 {
				out = append(out, literal(","), jsonSpace)
			}
			out = append(out, valueExpr(x))
		}
		if len(v) > 0 {
			out = append(out, jsonSpace)
		}
		return append(out, literal("]"))
	case *object:
		out := seq{literal("{"), jsonSpace}
		for i, name := range v.names {
			if i > 0 {
				out = append(out, literal(","), jsonSpace)
			}
			out = append(out, literal(quote(name)+":"), jsonSpace, valueExpr(v.values[name]))
		}
		if len(v.names) > 0 {
			out = append(out, jsonSpace)
		}
		return append(out, literal("}"))
	}
	panic("grammar: a value of no type")
}

// writeString returns strings with the lengths, patterns and formats that are demanded.
func (s *schema) writeString(c *conj) (expr, error) {
	if len(c.strings) == 0 {
		switch {
		case c.minLen == 0 && c.maxLen < 0:
			return jsonString, nil
		case c.maxLen >= 0 && c.maxLen < c.minLen:
			return alt{}, nil
		}
		return seq{literal(`"`), repeat{charIn(s.rules), c.minLen, c.maxLen}, literal(`"`)}, nil
	}
	d, err := s.stringDFA(c)
	if err != nil {
		return nil, err
	}
	return seq{literal(`"`), regular{d}, literal(`"`)}, nil
}

// stringDFA returns what may stand between the quotes of a string.
func (s *schema) stringDFA(c *conj) (*dfa, error) {
	all := c.strings
	if c.minLen > 0 || c.maxLen >= 0 || len(all) == 0 {
		if c.maxLen >= 0 && c.maxLen < c.minLen {
			return regularOf(alt{})
		}
		d, err := regularOf(repeat{spelling(anyRune), c.minLen, c.maxLen})
		if err != nil {
			return nil, err
		}
		all = append(slices.Clip(all), d)
	}
	d := all[0]
	for _, e := range all[1:] {
		var err error
		if d, err = both(d, e); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// pattern returns the automaton of the strings, as spelled between quotes, in which a
// regular expression matches.
func (s *schema) pattern(text, p string) (*dfa, error) {
	d, err := regexDFA(text, true, spelling)
	return d, placed(err, p)
}

// placed names the place of a schema in an error that has none.
func placed(err error, p string) error {
	var f *formats.FormatError
	var u *formats.UnsupportedError
	switch {
	case errors.As(err, &f) && f.Tensor == "":
		f.Tensor, f.Offset = p, -1
	case errors.As(err, &u) && u.Tensor == "":
		u.Tensor, u.Offset = p, -1
	}
	return err
}

// maxElements bounds the elements that a schema counts.
const maxElements = 1 << 14

func (s *schema) writeArray(c *conj) (expr, error) {
	if c.unique != "" && (c.maxItems < 0 || c.maxItems > 1) {
		return nil, refused(c.unique, "the keyword \"uniqueItems\"")
	}
	prefix := 0
	for _, a := range c.arrays {
		prefix = max(prefix, len(a.prefix))
	}
	if len(c.arrays) == 0 && c.minItems == 0 && c.maxItems < 0 {
		return jsonArray, nil
	}
	if c.maxItems >= 0 && c.maxItems < c.minItems {
		return alt{}, nil
	}
	last := max(prefix, c.minItems, 1) // behind it elements are alike, and as many as one likes
	if c.maxItems >= 0 {
		last = c.maxItems
	}
	if last > maxElements {
		return nil, placed(tooLarge("16384 elements that are counted"), c.where)
	}
	x := network{nodes: last + 2} // node i: behind i elements; the last: behind the bracket
	shut := last + 1
	for i := 0; i <= last; i++ {
		if i >= c.minItems {
			x.edges = append(x.edges, link{i, shut, closing(i > 0, "]")})
		}
		to := i + 1
		if i == last {
			if c.maxItems >= 0 {
				break
			}
			to = i
		}
		r, err := s.rule(c.element(i))
		if err != nil {
			return nil, err
		}
		x.edges = append(x.edges, link{i, to, behindComma(i > 0, r)})
	}
	x.ends = []int{shut}
	return seq{literal("["), jsonSpace, x}, nil
}

// element returns what element i of an array has to satisfy.
func (c *conj) element(i int) (out []*node) {
	for _, a := range c.arrays {
		switch {
		case i < len(a.prefix):
			out = append(out, a.prefix[i])
		case a.items != nil:
			out = append(out, a.items)
		}
	}
	return out
}

func behindComma(comma bool, x expr) expr {
	if !comma {
		return x
	}
	return seq{literal(","), jsonSpace, x}
}

func closing(some bool, bracket string) expr {
	if !some {
		return literal(bracket)
	}
	return seq{jsonSpace, literal(bracket)}
}

// writeNumber returns the numbers within bounds.
func (s *schema) writeNumber(c *conj) (expr, error) {
	whole := c.kinds&isFraction == 0
	if c.low == nil && c.high == nil && len(c.steps) == 0 {
		switch {
		case whole:
			return jsonInteger, nil
		case c.kinds&isInteger != 0:
			return jsonNumber, nil
		}
		panic("grammar: numbers that are not whole alone")
	}
	d, err := numberDFA(c.low, c.high, whole)
	if err != nil {
		return nil, placed(err, c.where)
	}
	for _, step := range c.steps {
		m, err := multiplesDFA(step)
		if err != nil {
			return nil, placed(err, c.where)
		}
		if d, err = both(d, m); err != nil {
			return nil, placed(err, c.where)
		}
	}
	return regular{d}, nil
}

// holds reports whether a value satisfies a conjunction.
func (s *schema) holds(c *conj, v value) (bool, error) {
	if c.enum != nil && !slices.ContainsFunc(c.enum, func(w value) bool { return same(v, w) }) {
		return false, nil
	}
	switch v := v.(type) {
	case nil:
		return c.kinds&isNull != 0, nil
	case bool:
		return c.kinds&isBool != 0, nil
	case json.Number:
		return c.holdsNumber(v)
	case string:
		if c.kinds&isString == 0 {
			return false, nil
		}
		d, err := s.stringDFA(c)
		if err != nil {
			return false, err
		}
		q := quote(v)
		return d.matches(q[1 : len(q)-1]), nil
	case []value:
		return s.holdsArray(c, v)
	case *object:
		return s.holdsObject(c, v)
	}
	return false, nil
}

func (c *conj) holdsNumber(v json.Number) (bool, error) {
	r, err := number(v)
	if err != nil {
		return false, wrong(c.where, "%v", err)
	}
	if r.IsInt() && c.kinds&isInteger == 0 || !r.IsInt() && c.kinds&isFraction == 0 {
		return false, nil
	}
	if b := c.low; b != nil && (r.Cmp(b.v) < 0 || r.Cmp(b.v) == 0 && b.strict) {
		return false, nil
	}
	if b := c.high; b != nil && (r.Cmp(b.v) > 0 || r.Cmp(b.v) == 0 && b.strict) {
		return false, nil
	}
	for _, step := range c.steps {
		if !new(big.Rat).Quo(r, step).IsInt() {
			return false, nil
		}
	}
	return true, nil
}

// satisfies reports whether a value satisfies all of some nodes.
func (s *schema) satisfies(nodes []*node, v value) (bool, error) {
	all, err := s.expand(nodes)
	if err != nil {
		return false, err
	}
	for _, c := range all {
		if ok, err := s.holds(c, v); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

func (s *schema) holdsArray(c *conj, v []value) (bool, error) {
	if c.kinds&isArray == 0 || len(v) < c.minItems || c.maxItems >= 0 && len(v) > c.maxItems {
		return false, nil
	}
	for i, x := range v {
		if c.unique != "" && slices.ContainsFunc(v[:i], func(w value) bool { return same(w, x) }) {
			return false, nil
		}
		if ok, err := s.satisfies(c.element(i), x); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (s *schema) holdsObject(c *conj, v *object) (bool, error) {
	if c.kinds&isObject == 0 || len(v.names) < c.minProps || c.maxProps >= 0 && len(v.names) > c.maxProps {
		return false, nil
	}
	for _, name := range c.required {
		if _, ok := v.get(name); !ok {
			return false, nil
		}
	}
	for _, name := range v.names {
		nodes, err := s.property(c, name)
		if err != nil {
			return false, err
		}
		if ok, err := s.satisfies(nodes, v.values[name]); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// apart reports whether no value satisfies both of two conjunctions, as far as types,
// listed values, bounds and properties that both require tell.
func (s *schema) apart(a, b *conj, depth int) (bool, error) {
	k := a.kinds & b.kinds
	for _, e := range []struct{ list, other *conj }{{a, b}, {b, a}} {
		if e.list.enum == nil {
			continue
		}
		for _, v := range e.list.enum {
			in, err := s.holds(e.list, v)
			if err != nil {
				return false, err
			}
			if !in {
				continue
			}
			if in, err = s.holds(e.other, v); in || err != nil {
				return false, err
			}
		}
		return true, nil
	}
	if k&(isNull|isBool) != 0 {
		return false, nil
	}
	if k&(isInteger|isFraction) != 0 && !above(a.low, b.high) && !above(b.low, a.high) {
		return false, nil
	}
	if k&isString != 0 {
		x, err := s.stringDFA(a)
		if err != nil {
			return false, err
		}
		y, err := s.stringDFA(b)
		if err != nil {
			return false, err
		}
		d, err := both(x, y)
		if err != nil || !d.empty() {
			return false, err
		}
	}
	if k&isArray != 0 && !beyond(a.minItems, b.maxItems) && !beyond(b.minItems, a.maxItems) {
		return false, nil
	}
	if k&isObject != 0 {
		return s.objectsApart(a, b, depth)
	}
	return true, nil
}

func above(low, high *bound) bool {
	if low == nil || high == nil {
		return false
	}
	d := low.v.Cmp(high.v)
	return d > 0 || d == 0 && (low.strict || high.strict)
}

func beyond(low, high int) bool { return high >= 0 && low > high }

func (s *schema) objectsApart(a, b *conj, depth int) (bool, error) {
	if beyond(a.minProps, b.maxProps) || beyond(b.minProps, a.maxProps) {
		return true, nil
	}
	if depth > 8 {
		return false, nil
	}
	for _, name := range slices.Concat(a.required, b.required) {
		x, err := s.propertyOf(a, name)
		if err != nil {
			return false, err
		}
		y, err := s.propertyOf(b, name)
		if err != nil {
			return false, err
		}
		apart := true
		for _, p := range x {
			for _, q := range y {
				one, err := s.apart(p, q, depth+1)
				if err != nil {
					return false, err
				}
				apart = apart && one
			}
		}
		if apart {
			return true, nil
		}
	}
	return false, nil
}

// propertyOf returns the alternatives of a property's value, none where it is forbidden.
func (s *schema) propertyOf(c *conj, name string) ([]*conj, error) {
	nodes, err := s.property(c, name)
	if err != nil {
		return nil, err
	}
	return s.expand(nodes)
}
