package jinja

// A loop is what a loop's body sees as "loop".
type loop struct {
	stmt    *forStmt
	frame   *frame // around the loop
	source  Value
	next    func() (Value, bool)
	counted int64 // the length, -1 while it is not known
	index0  int64 // -1 before the first item
	depth0  int64
	after   *Value // the next item, where somebody asked for it
	current Value
	before  Value
	changed []Value // what loop.changed saw last, nil before
}

func (s *forStmt) exec(m *machine, f *frame) signal {
	v := m.eval(s.iter, f)
	if s.recursive {
		m.write(m.capture(func() { s.run(m, f, v, 0) }))
		return normally
	}
	s.run(m, f, v, 0)
	return normally
}

// run is one pass through the items of v.
func (s *forStmt) run(m *machine, f *frame, v Value, depth int64) {
	next := m.mustIter(v)
	if s.test != nil {
		v = &iterator{"generator", s.filtered(m, f, next)}
		next = v.(*iterator).next
	}
	l := &loop{stmt: s, frame: f, source: v, next: next, counted: -1, index0: -1, depth0: depth}
	completed := false
	for {
		item, ok := l.advance(m)
		if !ok {
			break
		}
		m.step(4) // a scope costs more than a node
		inner := f.inner()
		if s.extended {
			inner.set("loop", l)
		}
		m.assign(s.target, item, inner)
		sig := m.execAll(s.body, inner)
		if sig == breaking {
			break
		}
		completed = completed || sig == normally
	}
	// Jinja runs the else branch unless one pass came to its end.
	if s.els != nil && !completed {
		m.execAll(s.els, f.inner())
	}
}

// filtered gives the items that pass the loop's test.
func (s *forStmt) filtered(m *machine, f *frame, next func() (Value, bool)) func() (Value, bool) {
	return func() (Value, bool) {
		for {
			item, ok := next()
			if !ok {
				return nil, false
			}
			inner := f.inner()
			m.assign(s.target, item, inner)
			if truth(m, m.eval(s.test, inner)) {
				return item, true
			}
		}
	}
}

// advance goes to the next item.
func (l *loop) advance(m *machine) (Value, bool) {
	var item Value
	if l.after != nil {
		item, l.after = *l.after, nil
	} else {
		var ok bool
		if item, ok = l.next(); !ok {
			return nil, false
		}
	}
	l.index0++
	l.before, l.current = l.current, item
	return item, true
}

func (l *loop) peek() (Value, bool) {
	if l.after == nil {
		v, ok := l.next()
		if !ok {
			return nil, false
		}
		l.after = &v
	}
	return *l.after, true
}

// length counts the items; those of a generator are made for it.
func (l *loop) length(m *machine) int64 {
	if l.counted >= 0 {
		return l.counted
	}
	n, ok := m.length(l.source)
	if !ok {
		rest := m.items(&iterator{"generator", l.next})
		l.next = overSlice(m, rest)
		n = int64(len(rest)) + l.index0 + 1 + int64(btoi(l.after != nil))
	}
	l.counted = n
	return n
}

// attr is an attribute of loop.
func (l *loop) attr(m *machine, name string) (Value, bool) {
	switch name {
	case "index":
		return l.index0 + 1, true
	case "index0":
		return l.index0, true
	case "revindex":
		return l.length(m) - l.index0, true
	case "revindex0":
		return l.length(m) - l.index0 - 1, true
	case "first":
		return l.index0 == 0, true
	case "last":
		_, more := l.peek()
		return !more, true
	case "length":
		return l.length(m), true
	case "depth":
		return l.depth0 + 1, true
	case "depth0":
		return l.depth0, true
	case "previtem":
		if l.index0 == 0 {
			return &undefined{msg: "there is no previous item"}, true
		}
		return l.before, true
	case "nextitem":
		v, ok := l.peek()
		if !ok {
			return &undefined{msg: "there is no next item"}, true
		}
		return v, true
	case "cycle":
		return &function{"cycle", func(m *machine, a *args) Value {
			if len(a.pos) == 0 || len(a.names) > 0 {
				m.fail("loop.cycle needs items")
			}
			return a.pos[l.index0%int64(len(a.pos))]
		}}, true
	case "changed":
		return &function{"changed", func(m *machine, a *args) Value {
			if len(a.names) > 0 {
				m.fail("loop.changed takes no named arguments")
			}
			if l.changed != nil && m.equalItems(l.changed, a.pos) {
				return false
			}
			l.changed = append([]Value{}, a.pos...)
			return true
		}}, true
	}
	return nil, false
}

// recurse is a call of loop within a recursive loop.
func (l *loop) recurse(m *machine, a *args) Value {
	if !l.stmt.recursive {
		m.fail("a loop must be recursive to be called")
	}
	v, _ := a.bind(m, "loop", 1, "iterable").given(0)
	return m.capture(func() { l.stmt.run(m, l.frame, v, l.depth0+1) })
}

// A macro is callable and remembers the scope it was defined in.
type macro struct {
	def   *macroDef
	frame *frame
}

func (c *macro) call(m *machine, a *args) Value {
	m.enter()
	defer m.leave()
	d := c.def
	f := c.frame.inner()
	if len(a.pos) > len(d.params) && !d.varargs {
		m.fail("macro %s takes %d arguments, not %d", quote(d.name), len(d.params), len(a.pos))
	}
	gotCaller := false
	var open []int // parameters without an argument
	for i, name := range d.params {
		if i < len(a.pos) {
			f.set(name, a.pos[i])
			gotCaller = gotCaller || name == "caller" && len(a.pos) >= len(d.params)
			continue
		}
		gotCaller = gotCaller || name == "caller"
		if v, ok := a.take(name); ok {
			f.set(name, v)
		} else {
			open = append(open, i)
		}
	}
	if d.caller && !gotCaller {
		v, ok := a.take("caller")
		if !ok || v == nil {
			v = &undefined{msg: "no caller is defined"}
		}
		f.set("caller", v)
	}
	if d.kwargs {
		kw := NewDict()
		for i, n := range a.names {
			m.put(kw, n, a.named[i])
		}
		f.set("kwargs", kw)
	} else if len(a.names) > 0 {
		m.fail("macro %s has no parameter %s", quote(d.name), quote(a.names[0]))
	}
	if d.varargs {
		f.set("varargs", m.newTuple(a.pos[min(len(d.params), len(a.pos)):]...))
	}
	for _, i := range open {
		f.set(d.params[i], &undefined{msg: "parameter " + quote(d.params[i]) + " was not provided"})
	}
	for _, i := range open {
		if k := i - (len(d.params) - len(d.defaults)); k >= 0 {
			f.set(d.params[i], m.eval(d.defaults[k], f))
		}
	}
	return m.capture(func() { m.execAll(d.body, f) })
}

func (c *macro) attr(m *machine, name string) (Value, bool) {
	switch name {
	case "name":
		return c.def.name, true
	case "arguments":
		items := make([]Value, len(c.def.params))
		for i, p := range c.def.params {
			items[i] = p
		}
		return m.newTuple(items...), true
	case "catch_kwargs":
		return c.def.kwargs, true
	case "catch_varargs":
		return c.def.varargs, true
	case "caller":
		return c.def.caller, true
	}
	return nil, false
}
