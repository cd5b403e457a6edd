package jinja

func (s *dataStmt) exec(m *machine, _ *frame) signal {
	m.write(s.text)
	return normally
}

func (s *outputStmt) exec(m *machine, f *frame) signal {
	m.write(m.str(m.eval(s.of, f)))
	return normally
}

func (s *ifStmt) exec(m *machine, f *frame) signal {
	for i, t := range s.tests {
		if truth(m, m.eval(t, f)) {
			return m.execAll(s.bodies[i], f)
		}
	}
	if len(s.bodies) > len(s.tests) {
		return m.execAll(s.bodies[len(s.tests)], f)
	}
	return normally
}

func (s *setStmt) exec(m *machine, f *frame) signal {
	m.assign(s.target, m.eval(s.value, f), f)
	return normally
}

func (s *setBlockStmt) exec(m *machine, f *frame) signal {
	inner := f.inner()
	var v Value = m.capture(func() { m.execAll(s.body, inner) })
	if s.filter != nil {
		v = m.pipe(s.filter.(*filterExpr), inner, v)
	}
	m.assign(s.target, v, f)
	return normally
}

// pipe sends a value through filters that were parsed without one.
func (m *machine) pipe(e *filterExpr, f *frame, v Value) Value {
	m.enter()
	defer m.leave()
	if e.of != nil {
		v = m.pipe(e.of.(*filterExpr), f, v)
	}
	return e.apply(m, f, v)
}

func (s *filterStmt) exec(m *machine, f *frame) signal {
	inner := f.inner()
	text := m.capture(func() { m.execAll(s.body, inner) })
	m.write(m.str(m.pipe(s.filter.(*filterExpr), inner, text)))
	return normally
}

func (s *withStmt) exec(m *machine, f *frame) signal {
	inner := f.inner()
	for i, t := range s.targets {
		m.assign(t, m.eval(s.values[i], f), inner)
	}
	return m.execAll(s.body, inner)
}

func (s *scopeStmt) exec(m *machine, f *frame) signal {
	return m.execAll(s.body, f.root().inner())
}

func (s *macroStmt) exec(m *machine, f *frame) signal {
	f.set(s.def.name, &macro{s.def, f})
	return normally
}

func (s *callStmt) exec(m *machine, f *frame) signal {
	caller := &macro{s.def, f}
	if s.of == nil {
		m.write(m.str(caller.call(m, &args{})))
		return normally
	}
	callee := m.eval(s.of.of, f)
	a := m.arguments(&s.of.args, f)
	for _, n := range a.names {
		if n == "caller" {
			m.fail("argument \"caller\" is given twice")
		}
	}
	a.names, a.named = append(a.names, "caller"), append(a.named, caller)
	m.line = s.at()
	m.write(m.str(m.call(callee, a)))
	return normally
}

func (s *breakStmt) exec(*machine, *frame) signal { return s.signal }

func (s *refusedStmt) exec(m *machine, _ *frame) signal {
	m.fail("%s", s.reason)
	return normally
}

// assign gives a value to a target.
func (m *machine) assign(target expr, v Value, f *frame) {
	switch t := target.(type) {
	case *nameExpr:
		f.set(t.name, v)
	case *nsExpr:
		ns, ok := m.lookup(f, t.name).(*namespace)
		if !ok {
			m.fail("%s is not a namespace: its attributes cannot be assigned", quote(t.name))
		}
		m.setNamespace(ns, t.attr, v)
	case *tupleExpr:
		m.unpack(t, v, f)
	}
}

func (m *machine) unpack(t *tupleExpr, v Value, f *frame) {
	next := m.mustIter(v)
	for i, x := range t.items {
		item, ok := next()
		if !ok {
			m.fail("not enough values to unpack: %d for %d names", i, len(t.items))
		}
		m.assign(x, item, f)
	}
	if _, more := next(); more {
		m.fail("too many values to unpack: more than %d", len(t.items))
	}
}

func (m *machine) setNamespace(ns *namespace, name string, v Value) {
	if len(name) > 0 && name[0] == '_' {
		m.fail("%s: names that begin with an underscore cannot be stored in a namespace", quote(name))
	}
	if _, ok := ns.attrs.text(name); !ok {
		m.alloc(96)
	}
	ns.attrs.Set(name, v)
}
