package jinja

import (
	"slices"
	"strings"
)

// A keyed item is sorted by its key.
type keyed struct{ key, item Value }

// sorted is Python's sorted: stable, also where the order is reversed.
func (m *machine) sorted(items []keyed, reverse bool) {
	m.step(int64(len(items)))
	slices.SortStableFunc(items, func(a, b keyed) int {
		c, _ := m.order(a.key, b.key)
		if reverse {
			return -c
		}
		return c
	})
}

func sortFilter(m *machine, v Value, a *args) Value {
	b := a.bind(m, "sort", 0, "reverse", "case_sensitive", "attribute")
	attributes := []Value{b.or(2, nil)}
	if s, ok := isText(attributes[0]); ok {
		attributes = nil
		m.alloc(int64(len(s)) * 16)
		for part := range strings.SplitSeq(s, ",") {
			attributes = append(attributes, part)
		}
	}
	var getters []getter
	for _, at := range attributes {
		getters = append(getters, m.folded(m.getter(at, nil), b.truth(1, false)))
	}
	var out []keyed
	for _, x := range m.items(v) {
		keys := make([]Value, len(getters))
		for i, get := range getters {
			keys[i] = get(x)
		}
		out = append(out, keyed{m.newList(keys), x})
	}
	m.sorted(out, b.flag(0))
	return m.unkeyed(out)
}

func (m *machine) unkeyed(sorted []keyed) *list {
	items := make([]Value, len(sorted))
	for i, k := range sorted {
		items[i] = k.item
	}
	return m.newList(items)
}

func dictSortFilter(m *machine, v Value, a *args) Value {
	b := a.bind(m, "dictsort", 0, "case_sensitive", "by", "reverse")
	by := b.text(1, "key")
	if by != "key" && by != "value" {
		m.fail("dictsort: by is %s, not \"key\" or \"value\"", quote(by))
	}
	d, ok := v.(*Dict)
	if !ok {
		m.use(v)
		m.fail("dictsort: %s is not a dict", typeName(v))
	}
	var out []keyed
	for i, k := range d.keys {
		key := k
		if by == "value" {
			key = d.values[i]
		}
		if !b.truth(0, false) {
			key = m.fold(key)
		}
		out = append(out, keyed{key, m.newTuple(k, d.values[i])})
	}
	m.sorted(out, b.flag(2))
	return m.unkeyed(out)
}

func uniqueFilter(m *machine, v Value, a *args) Value {
	b := a.bind(m, "unique", 0, "case_sensitive", "attribute")
	return generate(func() func() (Value, bool) {
		get := m.folded(m.getter(b.or(1, nil), nil), b.truth(0, false))
		next := m.mustIter(v)
		seen := NewDict()
		return func() (Value, bool) {
			for {
				x, ok := next()
				if !ok {
					return nil, false
				}
				key := get(x)
				if _, ok := m.get(seen, key); !ok {
					m.put(seen, key, nil)
					return x, true
				}
			}
		}
	})
}

func extremeFilter(name string) filter {
	return func(m *machine, v Value, a *args) Value {
		b := a.bind(m, name, 0, "case_sensitive", "attribute")
		get := m.folded(m.getter(b.or(1, nil), nil), b.truth(0, false))
		next := m.mustIter(v)
		best, ok := next()
		if !ok {
			return &undefined{msg: name + " of no items"}
		}
		key := get(best)
		for {
			x, ok := next()
			if !ok {
				return best
			}
			k := get(x)
			if c, ordered := m.order(k, key); ordered && (name == "min" && c < 0 || name == "max" && c > 0) {
				best, key = x, k
			}
		}
	}
}

func sumFilter(m *machine, v Value, a *args) Value {
	b := a.bind(m, "sum", 0, "attribute", "start")
	get := m.getter(b.or(0, nil), nil)
	sum := b.or(1, int64(0))
	if _, ok := isText(sum); ok {
		m.fail("sum cannot add strings")
	}
	for next := m.mustIter(v); ; {
		x, ok := next()
		if !ok {
			return sum
		}
		sum = m.binary("+", sum, get(x))
	}
}

func groupByFilter(m *machine, v Value, a *args) Value {
	b := a.bind(m, "groupby", 1, "attribute", "default", "case_sensitive")
	get := m.getter(b.values[0], b.or(1, nil))
	key := m.folded(get, b.truth(2, false))
	var all []keyed
	for _, x := range m.items(v) {
		all = append(all, keyed{key(x), x})
	}
	m.sorted(all, false)
	var groups []Value
	for i := 0; i < len(all); {
		j := i
		for j < len(all) && m.equal(all[i].key, all[j].key) {
			j++
		}
		group := m.unkeyed(all[i:j])
		groups = append(groups, &tuple{items: []Value{get(all[i].item), group}, group: true})
		m.alloc(64)
		i = j
	}
	return m.newList(groups)
}
