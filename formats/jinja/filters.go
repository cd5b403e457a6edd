package jinja

import "strings"

// A filter is applied to a value with arguments.
type filter func(m *machine, v Value, a *args) Value

// filterNamed returns the filter of a name, nil for none.
func filterNamed(name string) filter {
	switch name {
	case "default", "d":
		return defaultFilter
	case "length", "count":
		return lengthFilter
	case "string":
		return plain(name, func(m *machine, v Value) Value { return m.soft(v) })
	case "safe":
		return plain(name, func(m *machine, v Value) Value { return markup(m.str(v)) })
	case "escape", "e":
		return plain(name, func(m *machine, v Value) Value { return m.escape(v) })
	case "forceescape":
		return plain(name, func(m *machine, v Value) Value { return m.escape(m.str(v)) })
	case "int":
		return intFilter
	case "float":
		return floatFilter
	case "abs":
		return plain(name, func(m *machine, v Value) Value { return m.abs(v) })
	case "round":
		return roundFilter
	case "tojson":
		return toJSON
	case "attr":
		return attrFilter
	case "filesizeformat":
		return fileSizeFilter
	case "pprint", "random", "urlize":
		return func(m *machine, _ Value, _ *args) Value {
			m.unsupported("the filter %s", name)
			return nil
		}
	}
	if f := textFilter(name); f != nil {
		return f
	}
	return sequenceFilter(name)
}

// plain is a filter without arguments.
func plain(name string, do func(m *machine, v Value) Value) filter {
	return func(m *machine, v Value, a *args) Value {
		a.only(m, name, 0, 0)
		return do(m, v)
	}
}

// soft is a string of a value that keeps whether it is safe.
func (m *machine) soft(v Value) Value {
	if _, ok := isText(v); ok {
		return v
	}
	return m.str(v)
}

func defaultFilter(m *machine, v Value, a *args) Value {
	b := a.bind(m, "default", 0, "default_value", "boolean")
	if _, ok := v.(*undefined); ok || b.truth(1, false) && !truth(m, v) {
		return b.or(0, "")
	}
	return v
}

func lengthFilter(m *machine, v Value, a *args) Value {
	a.only(m, "length", 0, 0)
	n, ok := m.length(v)
	if !ok {
		m.fail("%s has no length", typeName(v))
	}
	return n
}

// attrFilter is v.name without the item of that name.
func attrFilter(m *machine, v Value, a *args) Value {
	b := a.bind(m, "attr", 1, "name")
	name := b.text(0, "")
	m.use(v)
	if x, ok := m.attribute(v, name); ok {
		return x
	}
	return &undefined{msg: typeName(v) + " has no attribute " + quote(name)}
}

// textFilter returns a filter that makes texts of texts.
func textFilter(name string) filter {
	mapped := func(do func(string) string) filter {
		return plain(name, func(m *machine, v Value) Value {
			v = m.soft(v)
			s, _ := isText(v)
			return like(v, m.mapped(s, do))
		})
	}
	switch name {
	case "upper":
		return mapped(upper)
	case "lower":
		return mapped(lower)
	case "capitalize":
		return mapped(capitalize)
	case "title":
		return plain(name, func(m *machine, v Value) Value {
			s, _ := isText(m.soft(v))
			return m.mapped(s, titleWords)
		})
	case "trim":
		return func(m *machine, v Value, a *args) Value {
			b := a.bind(m, name, 0, "chars")
			return stripMethod("strip", true, true)(m, m.soft(v), &args{pos: b.values[:btoi(b.set[0])]})
		}
	case "replace":
		return replaceFilter
	case "center":
		return func(m *machine, v Value, a *args) Value {
			b := a.bind(m, name, 0, "width")
			return strMethod("center")(m, m.soft(v), &args{pos: []Value{b.or(0, int64(80))}})
		}
	case "indent":
		return indentFilter
	case "truncate":
		return truncateFilter
	case "wordcount":
		return plain(name, wordCount)
	case "wordwrap":
		return wordWrapFilter
	case "format":
		return func(m *machine, v Value, a *args) Value {
			if len(a.pos) > 0 && len(a.names) > 0 {
				m.fail("format takes either named arguments or others")
			}
			if len(a.names) == 0 {
				return m.binary("%", m.soft(v), m.newTuple(a.pos...))
			}
			d := NewDict()
			for i, n := range a.names {
				m.put(d, n, a.named[i])
			}
			return m.binary("%", m.soft(v), d)
		}
	case "striptags":
		return plain(name, stripTags)
	case "urlencode":
		return plain(name, urlEncode)
	case "xmlattr":
		return xmlAttrFilter
	}
	return nil
}

// titleWords begins each word with a capital; words end at white space,
// hyphens and opening brackets.
func titleWords(s string) string {
	var b strings.Builder
	start := true
	word := ""
	flush := func() {
		if word != "" {
			n := firstRune(word)
			b.WriteString(upper(word[:n]) + lower(word[n:]))
		}
		word = ""
	}
	from := 0
	for i, r := range s {
		between := isSpace(r) || strings.ContainsRune("-({[<", r)
		if between != start {
			word = s[from:i]
			if start {
				b.WriteString(word)
				word = ""
			}
			flush()
			from, start = i, between
		}
	}
	word = s[from:]
	if start {
		b.WriteString(word)
		return b.String()
	}
	flush()
	return b.String()
}

func replaceFilter(m *machine, v Value, a *args) Value {
	b := a.bind(m, "replace", 2, "old", "new", "count")
	n := int64(-1)
	if c, ok := b.given(2); ok && c != nil {
		n = b.int(2, -1)
	}
	return m.replace(m.str(v), m.str(b.values[0]), m.str(b.values[1]), n)
}

func indentFilter(m *machine, v Value, a *args) Value {
	b := a.bind(m, "indent", 0, "width", "first", "blank")
	s, ok := isText(v)
	if !ok {
		m.use(v)
		m.fail("indent: %s is not a string", typeName(v))
	}
	by, ok := isText(b.or(0, int64(4)))
	if !ok {
		by = m.repeatText(" ", b.int(0, 4))
	} else if _, safe := v.(markup); safe {
		by = string(m.escape(b.values[0]))
	}
	m.alloc(int64(len(s)))
	lines := m.lines(s+"\n", false)
	m.allocs(int64(len(lines)), int64(len(by)+1))
	var out strings.Builder
	for i, line := range lines {
		if i > 0 {
			out.WriteByte('\n')
		}
		if i == 0 && b.truth(1, false) || i > 0 && (line != "" || b.truth(2, false)) {
			out.WriteString(by)
		}
		out.WriteString(line)
	}
	return like(v, out.String())
}

func truncateFilter(m *machine, v Value, a *args) Value {
	b := a.bind(m, "truncate", 0, "length", "killwords", "end", "leeway")
	length, end := b.int(0, 255), b.text(2, "...")
	leeway := int64(5)
	if x, ok := b.given(3); ok && x != nil {
		leeway = b.int(3, 5)
	}
	n := m.runes(end)
	if length < n || leeway < 0 {
		m.fail("truncate: the length %d is less than the end's, or the leeway is negative", length)
	}
	size, ok := m.length(v)
	if !ok {
		m.fail("%s has no length", typeName(v))
	}
	if size-leeway <= length {
		return v
	}
	s, ok := isText(v)
	if !ok {
		m.use(v)
		m.fail("truncate: %s is not a string", typeName(v))
	}
	s = s[:m.skip(s, length-n)]
	if i := strings.LastIndexByte(s, ' '); i >= 0 && !b.truth(1, false) {
		s = s[:i]
	}
	m.alloc(int64(len(s) + len(end)))
	if _, safe := v.(markup); safe {
		return markup(s) + m.escape(b.or(2, "..."))
	}
	return s + end
}

func wordCount(m *machine, v Value) Value {
	s := m.str(v)
	m.step(int64(len(s)) >> 4)
	n := int64(0)
	within := false
	for _, r := range s {
		word := r == '_' || isAlnum(r)
		if word && !within {
			n++
		}
		within = word
	}
	return n
}
