package jinja

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"strings"
)

// Hash keys of values that are not their own: two values have one key where
// Python calls them equal.
type (
	noneKey      struct{}
	undefinedKey struct{}
	bigKey       string
	tupleKey     string
)

// hash returns what a value is found by in a dictionary. Lists, dictionaries
// and what holds them fail, as in Python.
func (m *machine) hash(v Value) any {
	switch v := v.(type) {
	case string:
		return v
	case markup:
		return string(v)
	case nil:
		return noneKey{}
	case bool:
		return int64(btoi(v))
	case int64:
		return v
	case *big.Int:
		return bigKey(v.Text(62))
	case float64:
		if v == math.Trunc(v) && !math.IsInf(v, 0) {
			i, _ := big.NewFloat(v).Int(nil)
			return m.hash(norm(i))
		}
		return v
	case *tuple:
		m.enter()
		defer m.leave()
		var b strings.Builder
		for _, x := range v.items {
			m.step(1)
			k := m.hash(x)
			s := fmt.Sprintf("%T:%v", k, k)
			m.alloc(int64(len(s)))
			fmt.Fprintf(&b, "%d:%s", len(s), s)
		}
		return tupleKey(b.String())
	case *undefined:
		return undefinedKey{}
	case *list, *Dict, *view:
		m.fail("unhashable type: %s", typeName(v))
	}
	return v // by identity
}

// equal is Python's a == b.
func (m *machine) equal(a, b Value) bool {
	m.step(1)
	if x, ok := isText(a); ok {
		y, ok := isText(b)
		m.scan(len(x))
		return ok && x == y
	}
	if isNumber(a) && isNumber(b) {
		c, ordered := compareNumbers(a, b)
		return ordered && c == 0
	}
	switch a := a.(type) {
	case nil:
		return b == nil
	case *list:
		b, ok := b.(*list)
		return ok && m.equalItems(a.items, b.items)
	case *tuple:
		b, ok := b.(*tuple)
		return ok && m.equalItems(a.items, b.items)
	case *Dict:
		b, ok := b.(*Dict)
		return ok && m.equalDicts(a, b)
	case *undefined:
		_, ok := b.(*undefined)
		return ok
	case *rng:
		b, ok := b.(*rng)
		return ok && a.n == b.n && (a.n == 0 || a.start == b.start && (a.n == 1 || a.step == b.step))
	case *view:
		b, ok := b.(*view)
		if ok && a != b && a.what != "values" && b.what != "values" {
			return a.what == b.what && m.equalViews(a, b)
		}
		return ok && a == b
	}
	return a == b // by identity
}

// same is equal with what containers add: an item equals itself, even NaN.
func (m *machine) same(a, b Value) bool {
	if x, ok := a.(float64); ok && math.IsNaN(x) {
		y, ok := b.(float64)
		return ok && math.IsNaN(y)
	}
	return m.equal(a, b)
}

func (m *machine) equalItems(a, b []Value) bool {
	if len(a) != len(b) {
		return false
	}
	m.enter()
	defer m.leave()
	for i := range a {
		if !m.same(a[i], b[i]) {
			return false
		}
	}
	return true
}

func (m *machine) equalDicts(a, b *Dict) bool {
	if len(a.keys) != len(b.keys) {
		return false
	}
	m.enter()
	defer m.leave()
	for i, k := range a.keys {
		v, ok := m.get(b, k)
		if !ok || !m.same(a.values[i], v) {
			return false
		}
	}
	return true
}

// equalViews compares keys or items as sets.
func (m *machine) equalViews(a, b *view) bool {
	if a.what == "items" {
		return m.equalDicts(a.of, b.of)
	}
	if len(a.of.keys) != len(b.of.keys) {
		return false
	}
	for _, k := range a.of.keys {
		m.step(1)
		if _, ok := m.get(b.of, k); !ok {
			return false
		}
	}
	return true
}

// order compares two values that have an order; it fails where they have
// none. ordered is false for NaN.
func (m *machine) order(a, b Value) (c int, ordered bool) {
	m.step(1)
	if x, ok := isText(a); ok {
		if y, ok := isText(b); ok {
			m.scan(min(len(x), len(y)))
			return cmp.Compare(x, y), true // UTF-8 sorts as its code points do
		}
	}
	if isNumber(a) && isNumber(b) {
		return compareNumbers(a, b)
	}
	switch x := a.(type) {
	case *list:
		if y, ok := b.(*list); ok {
			return m.orderItems(x.items, y.items)
		}
	case *tuple:
		if y, ok := b.(*tuple); ok {
			return m.orderItems(x.items, y.items)
		}
	}
	m.use(a)
	m.use(b)
	m.fail("%s and %s have no order", typeName(a), typeName(b))
	return 0, false
}

func (m *machine) orderItems(a, b []Value) (int, bool) {
	m.enter()
	defer m.leave()
	for i := range min(len(a), len(b)) {
		if !m.same(a[i], b[i]) {
			return m.order(a[i], b[i])
		}
	}
	return cmp.Compare(len(a), len(b)), true
}

// use fails for an undefined value, which cannot be worked with.
func (m *machine) use(v Value) {
	if u, ok := v.(*undefined); ok {
		m.fail("%s", u.msg)
	}
}

// compare is one of Python's comparisons.
func (m *machine) compare(op string, a, b Value) bool {
	switch op {
	case "==":
		return m.equal(a, b)
	case "!=":
		return !m.equal(a, b)
	case "in":
		return m.contains(b, a)
	case "notin":
		return !m.contains(b, a)
	}
	c, ordered := m.order(a, b)
	if !ordered {
		return false
	}
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	}
	return c >= 0
}

// contains is Python's v in in.
func (m *machine) contains(in, v Value) bool {
	if s, ok := isText(in); ok {
		t, ok := isText(v)
		if !ok {
			m.fail("a string cannot contain %s", typeName(v))
		}
		m.scan(len(s))
		return strings.Contains(s, t)
	}
	switch in := in.(type) {
	case *Dict:
		_, ok := m.get(in, v)
		return ok
	case *view:
		if in.what == "keys" {
			_, ok := m.get(in.of, v)
			return ok
		}
	}
	next := m.mustIter(in)
	for {
		x, ok := next()
		if !ok {
			return false
		}
		if m.same(x, v) {
			return true
		}
	}
}
