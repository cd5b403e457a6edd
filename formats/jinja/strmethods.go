package jinja

import (
	"strings"
	"unicode/utf8"
)

// strMethod returns a method of str, nil for none. Those of a safe string give
// safe strings and escape what goes into it, as markupsafe's do.
func strMethod(name string) method {
	switch name {
	case "capitalize":
		return caseMethod(name, capitalize)
	case "casefold":
		return caseMethod(name, casefold)
	case "lower":
		return caseMethod(name, lower)
	case "swapcase":
		return caseMethod(name, swapcase)
	case "title":
		return caseMethod(name, title)
	case "upper":
		return caseMethod(name, upper)
	case "strip":
		return stripMethod(name, true, true)
	case "lstrip":
		return stripMethod(name, true, false)
	case "rstrip":
		return stripMethod(name, false, true)
	case "split":
		return splitMethod(name, false)
	case "rsplit":
		return splitMethod(name, true)
	case "splitlines":
		return splitLinesMethod
	case "partition":
		return partitionMethod(name, strings.Index)
	case "rpartition":
		return partitionMethod(name, strings.LastIndex)
	case "join":
		return joinMethod
	case "replace":
		return replaceMethod
	case "removeprefix":
		return cutMethod(name, strings.TrimPrefix)
	case "removesuffix":
		return cutMethod(name, strings.TrimSuffix)
	case "expandtabs":
		return expandTabsMethod
	}
	return searchMethod(name)
}

func searchMethod(name string) method {
	switch name {
	case "startswith":
		return affixMethod(name, strings.HasPrefix)
	case "endswith":
		return affixMethod(name, strings.HasSuffix)
	case "find", "index":
		return findMethod(name, strings.Index, name == "index")
	case "rfind", "rindex":
		return findMethod(name, strings.LastIndex, name == "rindex")
	case "count":
		return countMethod
	case "ljust":
		return padMethod(name, func(n int64) (int64, int64) { return 0, n })
	case "rjust":
		return padMethod(name, func(n int64) (int64, int64) { return n, 0 })
	case "center":
		return padMethod(name, nil)
	case "zfill":
		return zfillMethod
	case "format":
		return formatMethod
	case "format_map":
		return formatMapMethod
	case "encode", "translate", "maketrans":
		return func(m *machine, _ Value, _ *args) Value {
			m.unsupported("the method %s of str", name)
			return nil
		}
	}
	is, ok := strPredicates[name]
	if !ok {
		return nil
	}
	return func(m *machine, v Value, a *args) Value {
		a.only(m, name, 0, 0)
		s, _ := isText(v)
		m.step(int64(len(s)) >> 4)
		return is(s)
	}
}

func caseMethod(name string, do func(string) string) method {
	return func(m *machine, v Value, a *args) Value {
		a.only(m, name, 0, 0)
		s, _ := isText(v)
		return like(v, m.mapped(s, do))
	}
}

// mapped changes the case of a text.
func (m *machine) mapped(s string, do func(string) string) string {
	m.allocs(int64(len(s)), 2)
	if !isASCII(s) {
		m.step(int64(len(s)))
	}
	return do(s)
}

func stripMethod(name string, left, right bool) method {
	return func(m *machine, v Value, a *args) Value {
		b := a.only(m, name, 0, 1)
		s, _ := isText(v)
		cut := isSpace
		if chars, ok := b.given(0); ok && chars != nil {
			set := map[rune]bool{}
			for _, r := range b.text(0, "") {
				m.step(1)
				set[r] = true
			}
			cut = func(r rune) bool { return set[r] }
		}
		return like(v, m.strip(s, cut, left, right))
	}
}

func (m *machine) strip(s string, cut func(rune) bool, left, right bool) string {
	t := s
	if left {
		t = strings.TrimLeftFunc(t, cut)
	}
	if right {
		t = strings.TrimRightFunc(t, cut)
	}
	m.scan(16 * (len(s) - len(t)))
	m.alloc(16)
	return t
}

func joinMethod(m *machine, v Value, a *args) Value {
	b := a.only(m, "join", 1, 1)
	sep, _ := isText(v)
	var parts []string
	_, safe := v.(markup)
	for i, x := range m.items(b.values[0]) {
		s, ok := isText(x)
		if safe {
			s, ok = string(m.escape(x)), true
		}
		if !ok {
			m.fail("join: item %d is %s, not a string", i, typeName(x))
		}
		parts = append(parts, s)
	}
	return like(v, m.joined(parts, sep))
}

func (m *machine) joined(parts []string, sep string) string {
	n := int64(0)
	for _, p := range parts {
		n += int64(len(p))
	}
	m.alloc(n)
	if len(parts) > 1 {
		m.allocs(int64(len(parts)-1), int64(len(sep)))
	}
	return strings.Join(parts, sep)
}

func replaceMethod(m *machine, v Value, a *args) Value {
	b := a.only(m, "replace", 2, 3)
	s, _ := isText(v)
	with := b.text(1, "")
	if _, safe := v.(markup); safe {
		with = string(m.escape(b.values[1]))
	}
	return like(v, m.replace(s, b.text(0, ""), with, b.int(2, -1)))
}

// replace replaces the first n occurrences, all where n is negative.
func (m *machine) replace(s, old, with string, n int64) string {
	m.scan(len(s))
	found := int64(strings.Count(s, old)) // of "", one more than there are characters
	if n >= 0 {
		found = min(found, n)
	}
	if found == 0 {
		return s
	}
	m.step(found)
	m.allocs(found, int64(len(with)))
	m.alloc(int64(len(s)))
	return strings.Replace(s, old, with, int(found))
}

func cutMethod(name string, cut func(s, affix string) string) method {
	return func(m *machine, v Value, a *args) Value {
		b := a.only(m, name, 1, 1)
		s, _ := isText(v)
		m.alloc(16)
		return like(v, cut(s, b.text(0, "")))
	}
}

// window cuts a text as the arguments start and end of a search do, false
// where they leave nothing, not even an empty text. It returns the number of
// characters before it as well.
func (m *machine) window(s string, b *bound, at int) (string, int64, bool) {
	if (!b.set[at] || b.values[at] == nil) && (!b.set[at+1] || b.values[at+1] == nil) {
		return s, 0, true
	}
	n := m.runes(s)
	edge := func(i int, otherwise int64) int64 {
		if !b.set[i] || b.values[i] == nil {
			return otherwise
		}
		e := m.clamped(b.what, b.values[i])
		if e < 0 {
			e = max(e+n, 0)
		}
		return e
	}
	from, to := edge(at, 0), min(edge(at+1, n), n)
	if from > to {
		return "", 0, false
	}
	i := m.skip(s, from)
	return s[i : i+m.skip(s[i:], to-from)], from, true
}

func affixMethod(name string, has func(s, affix string) bool) method {
	return func(m *machine, v Value, a *args) Value {
		b := a.only(m, name, 1, 3)
		s, _ := isText(v)
		s, _, ok := m.window(s, b, 1)
		if t, isTuple := b.values[0].(*tuple); isTuple {
			for _, x := range t.items {
				m.step(1)
				affix, isStr := isText(x)
				if !isStr {
					m.fail("%s: %s is not a string", name, typeName(x))
				}
				if ok && has(s, affix) {
					return true
				}
			}
			return false
		}
		affix := b.text(0, "")
		m.scan(len(affix))
		return ok && has(s, affix)
	}
}

func findMethod(name string, find func(s, sub string) int, must bool) method {
	return func(m *machine, v Value, a *args) Value {
		b := a.only(m, name, 1, 3)
		s, _ := isText(v)
		sub := b.text(0, "")
		s, before, ok := m.window(s, b, 1)
		m.scan(len(s))
		if i := find(s, sub); ok && i >= 0 {
			return before + int64(utf8.RuneCountInString(s[:i]))
		}
		if must {
			m.fail("%s: the text is not found", name)
		}
		return int64(-1)
	}
}

func countMethod(m *machine, v Value, a *args) Value {
	b := a.only(m, "count", 1, 3)
	s, _ := isText(v)
	sub := b.text(0, "")
	s, _, ok := m.window(s, b, 1)
	m.scan(len(s))
	if !ok {
		return int64(0)
	}
	return int64(strings.Count(s, sub))
}
