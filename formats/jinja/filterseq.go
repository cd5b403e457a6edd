package jinja

import (
	"slices"
	"strings"
)

// sequenceFilter returns a filter that works on items.
func sequenceFilter(name string) filter {
	switch name {
	case "first":
		return plain(name, first)
	case "last":
		return plain(name, last)
	case "list":
		return plain(name, func(m *machine, v Value) Value { return m.newList(m.items(v)) })
	case "reverse":
		return plain(name, reverse)
	case "items":
		return plain(name, itemsOf)
	case "join":
		return joinFilter
	case "map":
		return mapFilter
	case "select", "reject", "selectattr", "rejectattr":
		return selectFilter(name)
	case "sort":
		return sortFilter
	case "dictsort":
		return dictSortFilter
	case "unique":
		return uniqueFilter
	case "min", "max":
		return extremeFilter(name)
	case "sum":
		return sumFilter
	case "groupby":
		return groupByFilter
	case "batch":
		return batchFilter
	case "slice":
		return sliceFilter
	}
	return nil
}

func first(m *machine, v Value) Value {
	x, ok := m.mustIter(v)()
	if !ok {
		return &undefined{msg: "there is no first item"}
	}
	return x
}

func last(m *machine, v Value) Value {
	it, ok := m.reversed(v)
	if !ok {
		m.fail("last: %s cannot be reversed", typeName(v))
	}
	x, ok := it.next()
	if !ok {
		return &undefined{msg: "there is no last item"}
	}
	return x
}

func reverse(m *machine, v Value) Value {
	if _, ok := isText(v); ok {
		return m.slice(v, nil, nil, int64(-1))
	}
	if it, ok := m.reversed(v); ok {
		return it
	}
	items := m.items(v)
	slices.Reverse(items)
	return m.newList(items)
}

func itemsOf(m *machine, v Value) Value {
	switch d := v.(type) {
	case *undefined:
		return &iterator{"generator", func() (Value, bool) { return nil, false }}
	case *Dict:
		return &iterator{"generator", (&view{d, "items"}).iter(m)}
	}
	// A generator fails at its first item only.
	return &iterator{"generator", func() (Value, bool) {
		m.fail("items: %s is not a mapping", typeName(v))
		return nil, false
	}}
}

// A getter takes from an item what a filter's attribute names: "a.b.0".
type getter func(item Value) Value

// getter makes one; attribute nil gives the item itself, def stands for what
// is undefined where it is not nil.
func (m *machine) getter(attribute, def Value) getter {
	parts := m.attributeParts(attribute)
	return func(v Value) Value {
		for _, p := range parts {
			v = m.item(v, p)
			if _, ok := v.(*undefined); ok && def != nil {
				v = def
			}
		}
		return v
	}
}

func (m *machine) attributeParts(attribute Value) []Value {
	s, ok := isText(attribute)
	if !ok {
		if attribute == nil {
			return nil
		}
		return []Value{attribute}
	}
	m.alloc(int64(len(s)) * 16)
	var parts []Value
	for p := range strings.SplitSeq(s, ".") {
		parts = append(parts, index(p))
	}
	return parts
}

// folded is a getter's value without case, unless case counts.
func (m *machine) folded(get getter, caseSensitive bool) getter {
	if caseSensitive {
		return get
	}
	return func(v Value) Value { return m.fold(get(v)) }
}

// fold is a text in lower case, anything else as it is.
func (m *machine) fold(v Value) Value {
	if s, ok := isText(v); ok {
		return m.mapped(s, lower)
	}
	return v
}

func joinFilter(m *machine, v Value, a *args) Value {
	b := a.bind(m, "join", 0, "d", "attribute")
	get := m.getter(b.or(1, nil), nil)
	var parts []string
	for next := m.mustIter(v); ; {
		x, ok := next()
		if !ok {
			return m.joined(parts, m.str(b.or(0, "")))
		}
		m.alloc(16)
		parts = append(parts, m.str(get(x)))
	}
}

// generate makes an iterator that, as a generator does, begins its work when
// the first item is wanted.
func generate(begin func() func() (Value, bool)) *iterator {
	var next func() (Value, bool)
	return &iterator{"generator", func() (Value, bool) {
		if next == nil {
			next = begin()
		}
		return next()
	}}
}

func none() (Value, bool) { return nil, false }

func mapFilter(m *machine, v Value, a *args) Value {
	return generate(func() func() (Value, bool) {
		if !truth(m, v) {
			return none
		}
		do := m.mapper(a)
		next := m.mustIter(v)
		return func() (Value, bool) {
			x, ok := next()
			if !ok {
				return nil, false
			}
			return do(x), true
		}
	})
}

// mapper is what map does to an item.
func (m *machine) mapper(a *args) getter {
	if attribute, ok := a.take("attribute"); ok && len(a.pos) == 0 {
		def, _ := a.take("default")
		if len(a.names) > 0 {
			m.fail("map has no parameter %s", quote(a.names[0]))
		}
		return m.getter(attribute, def)
	} else if ok {
		a.names, a.named = append(a.names, "attribute"), append(a.named, attribute)
	}
	if len(a.pos) == 0 {
		m.fail("map needs the name of a filter")
	}
	name, rest := a.pos[0], a.pos[1:]
	s, ok := isText(name)
	if !ok {
		m.fail("map: %s is not the name of a filter", typeName(name))
	}
	return func(v Value) Value { return m.filter(s, v, m.again(a, rest)) }
}

// again copies arguments for one more call.
func (m *machine) again(a *args, pos []Value) *args {
	m.step(int64(len(pos) + len(a.names)))
	return &args{pos, slices.Clone(a.names), slices.Clone(a.named)}
}

func selectFilter(name string) filter {
	want := strings.HasPrefix(name, "select")
	byAttr := strings.HasSuffix(name, "attr")
	return func(m *machine, v Value, a *args) Value {
		return generate(func() func() (Value, bool) {
			if !truth(m, v) {
				return none
			}
			next, pass := m.mustIter(v), m.selector(name, byAttr, a)
			return func() (Value, bool) {
				for {
					x, ok := next()
					if !ok || pass(x) == want {
						return x, ok
					}
				}
			}
		})
	}
}

func (m *machine) selector(name string, byAttr bool, a *args) func(Value) bool {
	pos := a.pos
	get := getter(func(v Value) Value { return v })
	if byAttr {
		if len(pos) == 0 {
			m.fail("%s needs the name of an attribute", name)
		}
		get, pos = m.getter(pos[0], nil), pos[1:]
	}
	if len(pos) == 0 {
		return func(v Value) bool { return truth(m, get(v)) }
	}
	s, ok := isText(pos[0])
	if !ok {
		m.fail("%s: %s is not the name of a test", name, typeName(pos[0]))
	}
	return func(v Value) bool { return m.test(s, get(v), m.again(a, pos[1:])) }
}

func batchFilter(m *machine, v Value, a *args) Value {
	b := a.bind(m, "batch", 1, "linecount", "fill_with")
	return generate(func() func() (Value, bool) {
		next := m.mustIter(v)
		size := b.values[0]
		var held []Value
		done := false
		return func() (Value, bool) {
			for !done {
				x, ok := next()
				if !ok {
					done = true
					break
				}
				m.alloc(16)
				if m.equal(int64(len(held)), size) {
					full := held
					held = []Value{x}
					return m.newList(full), true
				}
				held = append(held, x)
			}
			if len(held) == 0 {
				return nil, false
			}
			if fill, ok := b.given(1); ok && fill != nil {
				n := m.clamped("batch", size) - int64(len(held))
				held = append(held, m.repeatItems([]Value{fill}, max(n, 0))...)
			}
			full := held
			held = nil
			return m.newList(full), true
		}
	})
}

func sliceFilter(m *machine, v Value, a *args) Value {
	b := a.bind(m, "slice", 1, "slices", "fill_with")
	return generate(func() func() (Value, bool) {
		items := m.items(v)
		n := b.int(0, 0)
		if n == 0 {
			m.fail("slice: no slices")
		}
		size, extra := int64(len(items))/n, int64(len(items))%n
		at, i := int64(0), int64(0)
		return func() (Value, bool) {
			m.step(1)
			if i >= n {
				return nil, false
			}
			end := at + size + int64(btoi(i < extra))
			part := slices.Clone(items[at:end])
			if fill, ok := b.given(1); ok && fill != nil && i >= extra {
				part = append(part, fill)
			}
			at, i = end, i+1
			return m.newList(part), true
		}
	})
}
