package jinja

import "unicode/utf8"

// iter returns what gives a value's items one by one, nil where the value
// cannot be iterated.
func (m *machine) iter(v Value) func() (Value, bool) {
	switch v := v.(type) {
	case *list:
		return overSlice(m, v.items)
	case *tuple:
		return overSlice(m, v.items)
	case *Dict:
		return overSlice(m, v.keys)
	case *view:
		return v.iter(m)
	case string:
		return overText(m, v)
	case markup:
		return overText(m, string(v))
	case *rng:
		i := int64(0)
		return func() (Value, bool) {
			m.step(1)
			if i++; i > v.n {
				return nil, false
			}
			return v.start + (i-1)*v.step, true
		}
	case *iterator:
		return v.next
	case *loop:
		return func() (Value, bool) {
			x, ok := v.advance(m)
			if !ok {
				return nil, false
			}
			return m.newTuple(x, v), true
		}
	case *undefined:
		return func() (Value, bool) { return nil, false }
	}
	return nil
}

func overSlice(m *machine, items []Value) func() (Value, bool) {
	i := 0
	return func() (Value, bool) {
		m.step(1)
		if i >= len(items) {
			return nil, false
		}
		i++
		return items[i-1], true
	}
}

// overText gives a text's characters; iterating a safe string, a subclass of
// str, gives plain ones.
func overText(m *machine, s string) func() (Value, bool) {
	return func() (Value, bool) {
		m.step(1)
		if s == "" {
			return nil, false
		}
		_, n := utf8.DecodeRuneInString(s)
		c := s[:n]
		s = s[n:]
		return c, true
	}
}

func (v *view) iter(m *machine) func() (Value, bool) {
	i := 0
	return func() (Value, bool) {
		m.step(1)
		if i >= len(v.of.keys) {
			return nil, false
		}
		i++
		return v.item(m, i-1), true
	}
}

func (v *view) item(m *machine, i int) Value {
	switch v.what {
	case "keys":
		return v.of.keys[i]
	case "values":
		return v.of.values[i]
	}
	return m.newTuple(v.of.keys[i], v.of.values[i])
}

// mustIter is iter that fails.
func (m *machine) mustIter(v Value) func() (Value, bool) {
	next := m.iter(v)
	if next == nil {
		m.fail("%s cannot be iterated", typeName(v))
	}
	return next
}

// items are all items of a value, which the caller owns.
func (m *machine) items(v Value) []Value {
	next := m.mustIter(v)
	var out []Value
	for {
		x, ok := next()
		if !ok {
			return out
		}
		m.alloc(16)
		out = append(out, x)
	}
}

// reversed is Python's reversed(v), false where v has no order to reverse.
func (m *machine) reversed(v Value) (*iterator, bool) {
	var n int64
	var item func(i int64) Value
	switch v := v.(type) {
	case *list:
		n, item = int64(len(v.items)), func(i int64) Value { return v.items[i] }
	case *tuple:
		n, item = int64(len(v.items)), func(i int64) Value { return v.items[i] }
	case *Dict:
		n, item = int64(len(v.keys)), func(i int64) Value { return v.keys[i] }
	case *view:
		n, item = int64(len(v.of.keys)), func(i int64) Value { return v.item(m, int(i)) }
	case *rng:
		n, item = v.n, func(i int64) Value { return v.start + i*v.step }
	case string, markup:
		s, _ := isText(v)
		return &iterator{"reversed", func() (Value, bool) {
			m.step(1)
			if s == "" {
				return nil, false
			}
			_, k := utf8.DecodeLastRuneInString(s)
			c := s[len(s)-k:]
			s = s[:len(s)-k]
			return like(v, c), true // by subscripts, which keep the type
		}}, true
	case *undefined:
		// It has a length and items, which is enough for Python.
		return &iterator{"reversed", func() (Value, bool) { return nil, false }}, true
	default:
		return nil, false
	}
	return &iterator{"reversed", func() (Value, bool) {
		m.step(1)
		if n == 0 {
			return nil, false
		}
		n--
		return item(n), true
	}}, true
}
