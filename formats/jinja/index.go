package jinja

import (
	"unicode/utf8"
)

// attr is v.name: Python's attribute, then the item of that name, then
// undefined.
func (m *machine) attr(v Value, name string) Value {
	m.use(v)
	if x, ok := m.attribute(v, name); ok {
		return x
	}
	switch v := v.(type) {
	case *Dict:
		if x, ok := v.text(name); ok {
			return x
		}
	}
	return &undefined{msg: typeName(v) + " has no attribute " + quote(name)}
}

// item is v[key]: Python's item, then for a string the attribute of that
// name, then undefined.
func (m *machine) item(v, key Value) Value {
	m.use(v)
	switch c := v.(type) {
	case *Dict:
		if m.hashable(key) {
			if x, ok := m.get(c, key); ok {
				return x
			}
		}
	case *list:
		if i, ok := small(key); ok {
			if i, ok := wrap(i, int64(len(c.items))); ok {
				return c.items[i]
			}
		}
	case *tuple:
		if i, ok := small(key); ok {
			if i, ok := wrap(i, int64(len(c.items))); ok {
				return c.items[i]
			}
		}
	case *rng:
		if i, ok := small(key); ok {
			if i, ok := wrap(i, c.n); ok {
				return c.start + i*c.step
			}
		}
	case string, markup:
		if i, ok := small(key); ok {
			s, _ := isText(v)
			if s, ok := m.char(s, i); ok {
				return like(v, s)
			}
		}
	}
	if name, ok := isText(key); ok {
		if x, ok := m.attribute(v, name); ok {
			return x
		}
	}
	return &undefined{msg: typeName(v) + " has no element " + quote(m.brief(key))}
}

// brief is a value for an error.
func (m *machine) brief(v Value) string {
	switch v := v.(type) {
	case nil, bool, int64, float64, string, markup:
		return m.str(v)
	}
	return typeName(v)
}

// hashable reports whether a value can be a key.
func (m *machine) hashable(v Value) bool {
	switch v := v.(type) {
	case *list, *Dict, *view:
		return false
	case *tuple:
		m.enter()
		defer m.leave()
		for _, x := range v.items {
			m.step(1)
			if !m.hashable(x) {
				return false
			}
		}
	}
	return true
}

// wrap makes a negative index count from the end.
func wrap(i, n int64) (int64, bool) {
	if i < 0 {
		i += n
	}
	return i, 0 <= i && i < n
}

// runes counts a string's characters.
func (m *machine) runes(s string) int64 {
	m.scan(len(s))
	return int64(utf8.RuneCountInString(s))
}

// char is the character at a position, from the end where it is negative.
func (m *machine) char(s string, i int64) (string, bool) {
	at := 0
	if i >= 0 {
		at = m.skip(s, i)
	} else if at = m.skipBack(s, -i); at < 0 {
		return "", false
	}
	if at >= len(s) {
		return "", false
	}
	_, n := utf8.DecodeRuneInString(s[at:])
	return s[at : at+n], true
}

// skip is the byte offset of the n-th character, len(s) where there is none.
func (m *machine) skip(s string, n int64) int {
	if n >= int64(len(s)) {
		return len(s)
	}
	at := 0
	for ; n > 0 && at < len(s); n-- {
		if s[at] < utf8.RuneSelf {
			at++
			continue
		}
		_, k := utf8.DecodeRuneInString(s[at:])
		at += k
	}
	m.scan(at)
	return at
}

// skipBack is the byte offset of the n-th character from the end, -1 where
// there is none.
func (m *machine) skipBack(s string, n int64) int {
	if n > int64(len(s)) || n < 0 {
		return -1
	}
	at := len(s)
	for ; n > 0; n-- {
		if at == 0 {
			return -1
		}
		_, k := utf8.DecodeLastRuneInString(s[:at])
		at -= k
	}
	m.scan(len(s) - at)
	return at
}

// slice is v[start:stop:step]; absent parts are nil.
func (m *machine) slice(v, start, stop, step Value) Value {
	m.use(v)
	by := int64(1)
	if step != nil {
		if by = m.clamped("slice", step); by == 0 {
			m.fail("a slice's step is zero")
		}
	}
	switch c := v.(type) {
	case string, markup:
		s, _ := isText(v)
		return like(v, m.sliceText(s, start, stop, by))
	case *list:
		return m.newList(m.sliceItems(c.items, start, stop, by))
	case *tuple:
		return m.newTuple(m.sliceItems(c.items, start, stop, by)...)
	case *rng:
		from, to := m.bounds(c.n, start, stop, by)
		return &rng{c.start + from*c.step, c.start + to*c.step, c.step * by, span(from, to, by)}
	}
	m.fail("%s cannot be sliced", typeName(v))
	return nil
}

// bounds resolves a slice of n items as Python does.
func (m *machine) bounds(n int64, start, stop Value, by int64) (from, to int64) {
	low, high := int64(0), n
	if by < 0 {
		low, high = -1, n-1
	}
	clip := func(v Value, otherwise int64) int64 {
		if v == nil {
			return otherwise
		}
		i := m.clamped("slice", v)
		if i < 0 {
			return max(i+n, low)
		}
		return min(i, high)
	}
	if by > 0 {
		return clip(start, 0), clip(stop, n)
	}
	return clip(start, n-1), clip(stop, -1)
}

// span is the number of steps from from to before to.
func span(from, to, by int64) int64 {
	if by > 0 && from < to {
		return (to-from-1)/by + 1
	}
	if by < 0 && from > to {
		return (from-to-1)/-max(by, -1<<62) + 1
	}
	return 0
}

func (m *machine) sliceItems(items []Value, start, stop Value, by int64) []Value {
	from, to := m.bounds(int64(len(items)), start, stop, by)
	if by == 1 {
		return items[from:max(from, to):max(from, to)]
	}
	n := span(from, to, by)
	m.allocs(n, 16)
	out := make([]Value, 0, n)
	for i := int64(0); i < n; i++ {
		out = append(out, items[from+i*by])
	}
	return out
}

func (m *machine) sliceText(s string, start, stop Value, by int64) string {
	if by != 1 {
		m.allocs(int64(len(s)), 4)
		runes := []rune(s)
		from, to := m.bounds(int64(len(runes)), start, stop, by)
		n := span(from, to, by)
		out := make([]rune, n)
		for i := range out {
			out[i] = runes[from+int64(i)*by]
		}
		return string(out)
	}
	at := func(v Value, otherwise int) int {
		if v == nil {
			return otherwise
		}
		if i := m.clamped("slice", v); i >= 0 {
			return m.skip(s, i)
		} else if i > -1<<62 {
			return max(m.skipBack(s, -i), 0)
		}
		return 0
	}
	from, to := at(start, 0), at(stop, len(s))
	m.alloc(16)
	return s[from:max(from, to)]
}
