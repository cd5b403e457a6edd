package jinja

// globals are the names that every template sees.
var globals = map[string]Value{
	"range":           &function{"range", makeRange},
	"dict":            dictGlobal,
	"namespace":       &function{"namespace", makeNamespace},
	"cycler":          &function{"cycler", makeCycler},
	"joiner":          &function{"joiner", makeJoiner},
	"raise_exception": &function{"raise_exception", raiseException},
	"strftime_now":    &function{"strftime_now", strftimeNow},
	"lipsum": &function{"lipsum", func(m *machine, _ *args) Value {
		m.unsupported("lipsum")
		return nil
	}},
}

// dictGlobal is dict, which has one method of its own.
var dictGlobal = &function{"dict", func(m *machine, a *args) Value { return m.makeDict("dict", a) }}

// maxRange is the longest range of Jinja's sandbox.
const maxRange = 100000

func makeRange(m *machine, a *args) Value {
	b := a.only(m, "range", 1, 3)
	start, stop, step := int64(0), b.int(0, 0), b.int(2, 1)
	if b.set[1] {
		start, stop = stop, b.int(1, 0)
	}
	const far = 1 << 62
	if step == 0 {
		m.fail("range: the step is zero")
	}
	if min(start, stop, step) < -far || max(start, stop, step) > far {
		m.unsupported("a range beyond 62 bits")
	}
	n := int64(0)
	switch {
	case step > 0 && start < stop:
		n = int64((uint64(stop)-uint64(start)-1)/uint64(step)) + 1
	case step < 0 && start > stop:
		n = int64((uint64(start)-uint64(stop)-1)/uint64(-step)) + 1
	}
	if n > maxRange {
		m.fail("range: %d numbers are more than the sandbox allows, %d", n, maxRange)
	}
	return &rng{start, stop, step, n}
}

// makeDict is Python's dict: of a mapping or pairs, and of named arguments.
func (m *machine) makeDict(what string, a *args) *Dict {
	if len(a.pos) > 1 {
		m.fail("%s takes one argument, not %d", what, len(a.pos))
	}
	d := NewDict()
	for _, v := range a.pos {
		if from, ok := v.(*Dict); ok {
			d = m.copyDict(from)
			continue
		}
		for _, pair := range m.items(v) {
			kv := m.items(pair)
			if len(kv) != 2 {
				m.fail("%s needs pairs, not %d values", what, len(kv))
			}
			m.put(d, kv[0], kv[1])
		}
	}
	for i, n := range a.names {
		m.put(d, n, a.named[i])
	}
	return d
}

func makeNamespace(m *machine, a *args) Value {
	d := m.makeDict("namespace", a)
	for _, k := range d.keys {
		if s, ok := isText(k); ok && len(s) > 0 && s[0] == '_' {
			m.fail("%s: names that begin with an underscore cannot be stored in a namespace", quote(s))
		}
	}
	m.alloc(64)
	return &namespace{d}
}

func makeCycler(m *machine, a *args) Value {
	if len(a.pos) == 0 || len(a.names) > 0 {
		m.fail("cycler needs items")
	}
	return &cycler{items: a.pos}
}

func makeJoiner(m *machine, a *args) Value {
	b := a.bind(m, "joiner", 0, "sep")
	used := false
	return &function{"joiner", func(m *machine, a *args) Value {
		a.only(m, "joiner", 0, 0)
		if !used {
			used = true
			return ""
		}
		return b.or(0, ", ")
	}}
}

func raiseException(m *machine, a *args) Value {
	b := a.bind(m, "raise_exception", 1, "message")
	panic(failure{&Error{Template: m.name, Line: m.line, Raised: true,
		Reason: "the template refuses the conversation: " + quote(m.str(b.values[0]))}})
}
