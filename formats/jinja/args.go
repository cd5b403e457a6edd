package jinja

// args are the arguments of a call.
type args struct {
	pos   []Value
	names []string
	named []Value // of names
}

// take removes a named argument.
func (a *args) take(name string) (Value, bool) {
	for i, n := range a.names {
		if n == name {
			v := a.named[i]
			a.names = append(a.names[:i:i], a.names[i+1:]...)
			a.named = append(a.named[:i:i], a.named[i+1:]...)
			return v, true
		}
	}
	return nil, false
}

// bound are arguments by the position of their parameter.
type bound struct {
	m      *machine
	what   string
	names  []string
	values []Value
	set    []bool
}

// bind gives arguments to parameters, by position and by name. The first
// required ones must be there, and nothing else may be.
func (a *args) bind(m *machine, what string, required int, names ...string) *bound {
	b := &bound{m, what, names, make([]Value, len(names)), make([]bool, len(names))}
	if len(a.pos) > len(names) {
		m.fail("%s takes %d arguments, not %d", what, len(names), len(a.pos))
	}
	for i, v := range a.pos {
		b.values[i], b.set[i] = v, true
	}
next:
	for i, name := range a.names {
		for j, n := range names {
			if n == name {
				if b.set[j] {
					m.fail("%s: %s is given twice", what, quote(name))
				}
				b.values[j], b.set[j] = a.named[i], true
				continue next
			}
		}
		m.fail("%s has no parameter %s", what, quote(name))
	}
	for i := range required {
		if !b.set[i] {
			m.fail("%s needs %s", what, quote(names[i]))
		}
	}
	return b
}

// only gives arguments by position to parameters that have no name.
func (a *args) only(m *machine, what string, required, most int) *bound {
	if len(a.names) > 0 {
		m.fail("%s takes no named arguments", what)
	}
	if len(a.pos) < required || len(a.pos) > most {
		m.fail("%s takes %d to %d arguments, not %d", what, required, most, len(a.pos))
	}
	b := &bound{m, what, nil, make([]Value, most), make([]bool, most)}
	for i, v := range a.pos {
		b.values[i], b.set[i] = v, true
	}
	return b
}

// given returns an argument and whether it is there.
func (b *bound) given(i int) (Value, bool) { return b.values[i], b.set[i] }

// or returns an argument or what stands for it.
func (b *bound) or(i int, v Value) Value {
	if b.set[i] {
		return b.values[i]
	}
	return v
}

func (b *bound) truth(i int, otherwise bool) bool {
	if !b.set[i] {
		return otherwise
	}
	return truth(b.m, b.values[i])
}

// flag is an argument that C code takes as a truth: it must be an integer.
func (b *bound) flag(i int) bool {
	if !b.set[i] {
		return false
	}
	n, ok := isInt(b.values[i])
	if !ok {
		b.m.use(b.values[i])
		b.m.fail("%s: %s is not an integer", b.what, typeName(b.values[i]))
	}
	return n.Sign() != 0
}

// text is an argument that must be a string.
func (b *bound) text(i int, otherwise string) string {
	if !b.set[i] {
		return otherwise
	}
	s, ok := isText(b.values[i])
	if !ok {
		b.m.use(b.values[i])
		b.m.fail("%s: %s is not a string", b.what, typeName(b.values[i]))
	}
	return s
}

// int is an argument that must be an integer.
func (b *bound) int(i int, otherwise int64) int64 {
	if !b.set[i] {
		return otherwise
	}
	return b.m.clamped(b.what, b.values[i])
}

// arguments evaluates the arguments of a call.
func (m *machine) arguments(c *callArgs, f *frame) *args {
	a := &args{}
	if len(c.pos) > 0 {
		a.pos = make([]Value, 0, len(c.pos))
		for _, e := range c.pos {
			a.pos = append(a.pos, m.eval(e, f))
		}
	}
	if len(c.names) > 0 {
		a.names = append([]string(nil), c.names...)
		for _, e := range c.values {
			a.named = append(a.named, m.eval(e, f))
		}
	}
	if c.star != nil {
		a.pos = append(a.pos, m.items(m.eval(c.star, f))...)
	}
	if c.starstar != nil {
		d, ok := m.eval(c.starstar, f).(*Dict)
		if !ok {
			m.fail("** needs a dict")
		}
		m.allocs(int64(len(d.keys)), 32)
		for i, k := range d.keys {
			name, ok := isText(k)
			if !ok {
				m.fail("** needs strings as keys")
			}
			for _, n := range c.names {
				if n == name {
					m.fail("argument %s is given twice", quote(name))
				}
			}
			a.names, a.named = append(a.names, name), append(a.named, d.values[i])
		}
	}
	return a
}

// call calls a value.
func (m *machine) call(callee Value, a *args) Value {
	switch c := callee.(type) {
	case *function:
		return c.call(m, a)
	case *macro:
		return c.call(m, a)
	case *loop:
		return c.recurse(m, a)
	}
	m.use(callee)
	m.fail("%s cannot be called", typeName(callee))
	return nil
}
