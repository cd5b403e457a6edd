package jinja

import "strings"

func (e *constExpr) eval(*machine, *frame) Value { return e.value }

func (e *nameExpr) eval(m *machine, f *frame) Value { return m.lookup(f, e.name) }

func (e *nsExpr) eval(*machine, *frame) Value { panic("jinja: a target is not evaluated") }

func (e *sliceExpr) eval(m *machine, _ *frame) Value {
	m.unsupported("a slice within a tuple")
	return nil
}

func (m *machine) evalAll(items []expr, f *frame) []Value {
	out := make([]Value, len(items))
	for i, x := range items {
		out[i] = m.eval(x, f)
	}
	return out
}

func (e *listExpr) eval(m *machine, f *frame) Value { return m.newList(m.evalAll(e.items, f)) }

func (e *tupleExpr) eval(m *machine, f *frame) Value { return m.newTuple(m.evalAll(e.items, f)...) }

func (e *dictExpr) eval(m *machine, f *frame) Value {
	d := NewDict()
	m.alloc(64)
	for i := range e.keys {
		k := m.eval(e.keys[i], f)
		m.put(d, k, m.eval(e.values[i], f))
	}
	return d
}

func (e *attrExpr) eval(m *machine, f *frame) Value {
	v := m.eval(e.of, f)
	m.line = e.at()
	return m.attr(v, e.name)
}

func (e *itemExpr) eval(m *machine, f *frame) Value {
	v := m.eval(e.of, f)
	if s, ok := e.key.(*sliceExpr); ok {
		part := func(x expr) Value {
			if x == nil {
				return nil
			}
			return m.eval(x, f)
		}
		return m.slice(v, part(s.start), part(s.stop), part(s.step))
	}
	k := m.eval(e.key, f)
	m.line = e.at()
	return m.item(v, k)
}

func (e *callExpr) eval(m *machine, f *frame) Value {
	callee := m.eval(e.of, f)
	a := m.arguments(&e.args, f)
	m.line = e.at()
	v := m.call(callee, a)
	m.line = e.at()
	return v
}

func (e *filterExpr) eval(m *machine, f *frame) Value {
	return e.apply(m, f, m.eval(e.of, f))
}

func (e *filterExpr) apply(m *machine, f *frame, v Value) Value {
	a := m.arguments(&e.args, f)
	m.line = e.at()
	return m.filter(e.name, v, a)
}

// filter applies the filter of a name.
func (m *machine) filter(name string, v Value, a *args) Value {
	do := filterNamed(name)
	if do == nil {
		m.fail("no filter named %s", quote(name))
	}
	return do(m, v, a)
}

func (e *testExpr) eval(m *machine, f *frame) Value {
	v := m.eval(e.of, f)
	a := m.arguments(&e.args, f)
	m.line = e.at()
	return m.test(e.name, v, a)
}

// test applies the test of a name.
func (m *machine) test(name string, v Value, a *args) bool {
	do := testNamed(name)
	if do == nil {
		m.fail("no test named %s", quote(name))
	}
	return do(m, v, a)
}

func (e *notExpr) eval(m *machine, f *frame) Value { return !truth(m, m.eval(e.of, f)) }

func (e *signExpr) eval(m *machine, f *frame) Value {
	v := m.eval(e.of, f)
	return m.sign(e.op, v)
}

func (e *logicExpr) eval(m *machine, f *frame) Value {
	v := m.eval(e.left, f)
	if truth(m, v) == e.or {
		return v
	}
	return m.eval(e.right, f)
}

func (e *binaryExpr) eval(m *machine, f *frame) Value {
	a := m.eval(e.left, f)
	b := m.eval(e.right, f)
	m.line = e.at()
	return m.binary(e.op, a, b)
}

func (e *concatExpr) eval(m *machine, f *frame) Value {
	parts := make([]string, len(e.parts))
	n := 0
	for i, x := range e.parts {
		parts[i] = m.str(m.eval(x, f))
		n += len(parts[i])
	}
	m.alloc(int64(n))
	return strings.Join(parts, "")
}

func (e *compareExpr) eval(m *machine, f *frame) Value {
	a := m.eval(e.first, f)
	for i, op := range e.ops {
		b := m.eval(e.rest[i], f)
		m.line = e.at()
		if !m.compare(op, a, b) {
			return false
		}
		a = b
	}
	return true
}

func (e *condExpr) eval(m *machine, f *frame) Value {
	if truth(m, m.eval(e.test, f)) {
		return m.eval(e.yes, f)
	}
	if e.no == nil {
		return &undefined{msg: "the inline if was false and has no else"}
	}
	return m.eval(e.no, f)
}
