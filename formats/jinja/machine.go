package jinja

import (
	"context"
	"fmt"
)

// A machine is one rendering: its budgets and where its output goes.
type machine struct {
	ctx    context.Context
	name   string
	limits Limits
	opts   Options
	line   int
	steps  int64
	check  int64 // the number of steps at which the context is asked next
	memory int64
	given  int64 // bytes of the variables
	depth  int
	out    *output
}

// checkEvery is the number of steps between two looks at the context: less
// than a millisecond.
const checkEvery = 4096

// An output collects text. The root's is the rendering; that of a macro or a
// set block counts as an intermediate value.
type output struct {
	text []byte
	root bool
}

// A frame holds the names assigned in a scope: the first few in place, for
// most scopes are a pass of a loop.
type frame struct {
	parent *frame
	first  [2]struct {
		name  string
		value Value
	}
	used int
	vars map[string]Value // the rest
}

func newMachine(ctx context.Context, t *Template, o Options) *machine {
	return &machine{ctx: ctx, name: t.name, limits: t.limits, opts: o, line: 1, out: &output{root: true}}
}

func (f *frame) inner() *frame { return &frame{parent: f} }

func (f *frame) set(name string, v Value) {
	for i := range f.used {
		if f.first[i].name == name {
			f.first[i].value = v
			return
		}
	}
	if f.used < len(f.first) && f.vars == nil {
		f.first[f.used].name, f.first[f.used].value = name, v
		f.used++
		return
	}
	if f.vars == nil {
		f.vars = make(map[string]Value, 2)
	}
	f.vars[name] = v
}

// root is the frame of the template's top level.
func (f *frame) root() *frame {
	for f.parent.parent != nil {
		f = f.parent
	}
	return f
}

// lookup resolves a name: scopes from the inside out, the variables given to
// Render, then globals.
func (m *machine) lookup(f *frame, name string) Value {
	for at := f; at != nil; at = at.parent {
		for i := range at.used {
			if at.first[i].name == name {
				return at.first[i].value
			}
		}
		if v, ok := at.vars[name]; ok {
			return v
		}
	}
	if g, ok := globals[name]; ok {
		return g
	}
	return &undefined{msg: quote(name) + " is undefined"}
}

func (m *machine) fail(format string, args ...any) { fail(m.name, m.line, format, args...) }

func (m *machine) unsupported(format string, args ...any) {
	failUnsupported(m.name, m.line, fmt.Sprintf(format, args...))
}

// step counts n units of work, and stops where they are used up or the
// context has ended.
func (m *machine) step(n int64) {
	m.steps += n
	if m.steps < m.check {
		return
	}
	m.check = m.steps + checkEvery
	if m.steps > m.limits.Steps {
		failBudget(m.name, m.line, "steps", "more than %d steps", m.limits.Steps)
	}
	if err := m.ctx.Err(); err != nil {
		panic(failure{err})
	}
}

// scan counts a look at n bytes.
func (m *machine) scan(n int) { m.step(int64(n) >> 6) }

// alloc counts n bytes of intermediate values before they are made.
func (m *machine) alloc(n int64) {
	if n < 0 || n > m.limits.Memory-m.memory {
		failBudget(m.name, m.line, "memory", "more than %d bytes of intermediate values", m.limits.Memory)
	}
	m.memory += n
	m.step(n >> 6)
}

// allocs is alloc for n times size bytes.
func (m *machine) allocs(n, size int64) {
	if n > 0 && size > m.limits.Memory/n {
		n, size = 1, m.limits.Memory+1
	}
	m.alloc(max(n, 0) * size)
}

// enter counts a level of depth; leave ends it. A failure needs no leave: it
// ends the rendering.
func (m *machine) enter() {
	if m.depth++; m.depth > m.limits.Depth {
		failBudget(m.name, m.line, "depth", "more than %d nested evaluations", m.limits.Depth)
	}
}

func (m *machine) leave() { m.depth-- }

// write appends to the current output.
func (m *machine) write(s string) {
	o := m.out
	if o.root {
		if int64(len(o.text)+len(s)) > m.limits.Output {
			failBudget(m.name, m.line, "output", "more than %d bytes of text", m.limits.Output)
		}
		m.scan(len(s))
	} else {
		m.alloc(int64(len(s)))
	}
	o.text = append(o.text, s...)
}

// capture runs a function and returns what it writes.
func (m *machine) capture(run func()) string {
	before := m.out
	m.out = &output{}
	run()
	s := string(m.out.text)
	m.out = before
	return s
}

// eval evaluates an expression.
func (m *machine) eval(e expr, f *frame) Value {
	m.line = e.at()
	m.step(1)
	m.enter()
	v := e.eval(m, f)
	m.depth--
	return v
}

// execAll runs statements until one breaks or continues a loop.
func (m *machine) execAll(body []stmt, f *frame) signal {
	m.enter()
	defer m.leave()
	for _, s := range body {
		m.line = s.at()
		m.step(1)
		if sig := s.exec(m, f); sig != normally {
			return sig
		}
	}
	return normally
}
