package jinja

import (
	"slices"
	"strings"
)

// A parser makes statements of tokens. Its grammar is that of Jinja 3.1,
// habits included: ** joins to the left, a test takes an argument without
// parentheses.
type parser struct {
	tokens []token
	at     int
	name   string
	depth  int
	budget int
	macros []*macroScope
	loops  []*forStmt // around
	// unknown are filters and tests that do not exist, in places that may be
	// conditional. Where they are not, the template is refused.
	unknown []token
	breaks  int // loops around, up to the next macro
	inFor   int // loops around, in which "loop" cannot be assigned
}

// A macroScope watches for the special names that a body uses.
type macroScope struct {
	def      *macroDef
	declared map[string]bool
}

// parse returns the statements of a template.
func parse(name, src string, depth int) []stmt {
	p := &parser{tokens: lex(name, src), name: name, budget: depth}
	body := p.body(nil)
	p.refuseUnknown(0)
	return body
}

func (p *parser) cur() token { return p.tokens[p.at] }

// look is the token after the current one.
func (p *parser) look() token { return p.tokens[min(p.at+1, len(p.tokens)-1)] }

func (p *parser) next() token {
	t := p.tokens[p.at]
	if p.at < len(p.tokens)-1 {
		p.at++
	}
	return t
}

func (p *parser) fail(line int, format string, args ...any) { fail(p.name, line, format, args...) }

func (p *parser) expect(k kind) token {
	if p.cur().kind != k {
		p.fail(p.cur().line, "expected %s, got %s", token{kind: k}.describe(), p.cur().describe())
	}
	return p.next()
}

func (p *parser) expectName(name string) token {
	if !p.cur().is(name) {
		p.fail(p.cur().line, "expected %s, got %s", quote(name), p.cur().describe())
	}
	return p.next()
}

func (p *parser) skipIf(k kind) bool {
	if p.cur().kind != k {
		return false
	}
	p.next()
	return true
}

func (p *parser) skipName(name string) bool {
	if !p.cur().is(name) {
		return false
	}
	p.next()
	return true
}

// enter counts a level of nesting; leave ends it.
func (p *parser) enter() {
	if p.depth++; p.depth > p.budget {
		failBudget(p.name, p.cur().line, "depth", "more than %d levels of brackets, operators and blocks", p.budget)
	}
}

func (p *parser) leave() { p.depth-- }

// refuseUnknown fails for a filter or test that does not exist and that was
// named since the mark.
func (p *parser) refuseUnknown(mark int) {
	if len(p.unknown) > mark {
		t := p.unknown[mark]
		p.fail(t.line, "no filter or test named %s", quote(t.text))
	}
}

// body parses up to a tag that begins with one of the ends, nil for the end
// of the template, and leaves the parser at that name.
func (p *parser) body(ends []string) []stmt {
	p.enter()
	defer p.leave()
	var out []stmt
	for {
		switch t := p.next(); t.kind {
		case tokData:
			out = append(out, &dataStmt{pos(t.line), t.text})
		case tokVariableBegin:
			e := p.tuple(tupleOptions{})
			p.expect(tokVariableEnd)
			out = append(out, &outputStmt{pos(t.line), e})
		case tokBlockBegin:
			if p.cur().isAny(ends) {
				return out
			}
			out = append(out, p.statement()...)
			p.expect(tokBlockEnd)
		default: // the end
			if ends != nil {
				p.fail(t.line, "the template ends where %s was expected", quote(strings.Join(ends, ", ")))
			}
			return out
		}
	}
}

// block parses what follows an opening tag: its end, the body, and the
// closing name, which it consumes.
func (p *parser) block(ends ...string) []stmt {
	out := p.part(ends...)
	p.next()
	return out
}

// part is block up to the closing name.
func (p *parser) part(ends ...string) []stmt {
	p.skipIf(":")
	p.expect(tokBlockEnd)
	return p.body(ends)
}

// scoped parses a body in which names of filters must exist.
func (p *parser) scoped(parse func()) {
	mark := len(p.unknown)
	parse()
	p.refuseUnknown(mark)
}

func (p *parser) statement() []stmt {
	t := p.cur()
	if t.kind != tokName {
		p.fail(t.line, "expected the name of a tag, got %s", t.describe())
	}
	at := pos(t.line)
	p.next()
	switch t.text {
	case "for":
		return []stmt{p.parseFor(at)}
	case "if":
		return []stmt{p.parseIf(at)}
	case "set":
		return []stmt{p.parseSet(at)}
	case "macro":
		name := p.target(targetOptions{nameOnly: true}).(*nameExpr).name
		def := &macroDef{name: name}
		p.parseMacro(def, at, "endmacro")
		return []stmt{&macroStmt{at, def}}
	case "call":
		return []stmt{p.parseCall(at)}
	case "generation":
		def := &macroDef{name: "caller"}
		p.macroBody(def, at, "endgeneration")
		return []stmt{&callStmt{at, nil, def}}
	case "filter":
		f := p.filters(nil, true)
		s := &filterStmt{pos: at, filter: f}
		p.scoped(func() { s.body = p.block("endfilter") })
		return []stmt{s}
	case "with":
		return []stmt{p.parseWith(at)}
	case "print":
		return p.parsePrint()
	case "block":
		return []stmt{p.parseBlock(at)}
	case "break", "continue":
		if p.breaks == 0 {
			p.fail(t.line, "%s outside of a loop", quote(t.text))
		}
		return []stmt{&breakStmt{at, map[string]signal{"break": breaking, "continue": continuing}[t.text]}}
	case "include", "import", "from", "extends":
		return []stmt{p.parseLoader(at, t.text)}
	case "autoescape":
		failUnsupported(p.name, t.line, "the tag autoescape")
	}
	p.fail(t.line, "unknown tag %s", quote(t.text))
	return nil
}

// parseLoader skips a statement that loads another template. There is none:
// it fails when it is reached, as it does where Jinja has no loader.
func (p *parser) parseLoader(at pos, tag string) stmt {
	for p.cur().kind != tokBlockEnd && p.cur().kind != tokEOF {
		p.next()
	}
	return &refusedStmt{at, tag + ": there are no other templates to load"}
}

func (p *parser) parsePrint() (out []stmt) {
	for p.cur().kind != tokBlockEnd {
		if len(out) > 0 {
			p.expect(",")
		}
		at := pos(p.cur().line)
		out = append(out, &outputStmt{at, p.expression()})
	}
	return out
}

func (p *parser) parseFor(at pos) stmt {
	s := &forStmt{pos: at}
	s.target = p.target(targetOptions{end: "in"})
	p.inFor++
	p.declare(s.target)
	p.inFor--
	p.expectName("in")
	s.iter = p.tuple(tupleOptions{noCond: true, end: "recursive"})
	if p.skipName("if") {
		p.scoped(func() { s.test = p.expression() })
	}
	s.recursive = p.skipName("recursive")
	p.loops = append(p.loops, s)
	p.breaks++
	p.inFor++
	p.scoped(func() { s.body = p.part("endfor", "else") })
	p.inFor--
	p.breaks--
	p.loops = p.loops[:len(p.loops)-1]
	s.extended = s.extended || s.recursive
	if p.next().text == "else" {
		p.inFor++
		p.scoped(func() { s.els = p.block("endfor") })
		p.inFor--
	}
	return s
}

func (p *parser) parseIf(at pos) stmt {
	s := &ifStmt{pos: at}
	mark := len(p.unknown)
	for {
		s.tests = append(s.tests, p.tuple(tupleOptions{noCond: true}))
		s.bodies = append(s.bodies, p.part("elif", "else", "endif"))
		switch p.next().text {
		case "elif":
			continue
		case "else":
			s.bodies = append(s.bodies, p.block("endif"))
		}
		p.unknown = p.unknown[:mark] // they fail when they are reached
		return s
	}
}

func (p *parser) parseSet(at pos) stmt {
	target := p.target(targetOptions{namespace: true})
	if p.skipIf("=") {
		s := &setStmt{at, target, p.tuple(tupleOptions{})}
		p.declare(target)
		return s
	}
	s := &setBlockStmt{pos: at, target: target}
	if p.cur().kind == "|" {
		s.filter = p.filters(nil, false)
	}
	p.declare(target)
	p.scoped(func() { s.body = p.block("endset") })
	return s
}

func (p *parser) parseWith(at pos) stmt {
	s := &withStmt{pos: at}
	for p.cur().kind != tokBlockEnd {
		if len(s.targets) > 0 {
			p.expect(",")
		}
		s.targets = append(s.targets, p.target(targetOptions{}))
		p.expect("=")
		s.values = append(s.values, p.expression())
	}
	p.scoped(func() { s.body = p.block("endwith") })
	return s
}

// parseBlock parses a block, which is printed where it stands, for no other
// template extends this one.
func (p *parser) parseBlock(at pos) stmt {
	name := p.expect(tokName).text
	for p.cur().is("scoped") || p.cur().is("required") {
		failUnsupported(p.name, p.cur().line, "a block that is "+p.cur().text)
	}
	s := &scopeStmt{pos: at}
	macros, loops, breaks := p.macros, p.loops, p.breaks
	p.macros, p.loops, p.breaks = nil, nil, 0
	p.scoped(func() { s.body = p.block("endblock") })
	p.macros, p.loops, p.breaks = macros, loops, breaks
	p.skipName(name)
	return s
}

func (p *parser) parseCall(at pos) stmt {
	def := &macroDef{name: "caller"}
	if p.cur().kind == "(" {
		p.signature(def)
	}
	call, ok := p.expression().(*callExpr)
	if !ok {
		p.fail(int(at), "expected a call")
	}
	p.macroBody(def, at, "endcall")
	return &callStmt{at, call, def}
}

func (p *parser) signature(def *macroDef) {
	p.expect("(")
	for p.cur().kind != ")" {
		if len(def.params) > 0 {
			p.expect(",")
		}
		name := p.target(targetOptions{nameOnly: true}).(*nameExpr).name
		if slices.Contains(def.params, name) {
			p.fail(p.cur().line, "parameter %s comes twice", quote(name))
		}
		if p.skipIf("=") {
			def.defaults = append(def.defaults, p.expression())
		} else if len(def.defaults) > 0 {
			p.fail(p.cur().line, "a parameter without a default follows one with a default")
		}
		def.params = append(def.params, name)
	}
	p.expect(")")
}

func (p *parser) parseMacro(def *macroDef, at pos, end string) {
	p.signature(def)
	p.macroBody(def, at, end)
}

// macroBody parses the body of a macro and notes which special names it uses.
func (p *parser) macroBody(def *macroDef, at pos, end string) {
	p.macros = append(p.macros, &macroScope{def, map[string]bool{}})
	breaks := p.breaks
	p.breaks = 0
	p.scoped(func() { def.body = p.block(end) })
	p.breaks = breaks
	p.macros = p.macros[:len(p.macros)-1]
	if i := slices.Index(def.params, "caller"); i >= 0 {
		if def.caller && i < len(def.params)-len(def.defaults) {
			p.fail(int(at), "a parameter \"caller\" needs a default")
		}
	}
	def.kwargs = def.kwargs && !slices.Contains(def.params, "kwargs")
	def.varargs = def.varargs && !slices.Contains(def.params, "varargs")
}

// load notes that a name is used, declare that it is assigned.
func (p *parser) load(name string) {
	if name == "loop" {
		for _, l := range p.loops {
			l.extended = true
		}
	}
	for _, m := range p.macros {
		if m.declared[name] {
			continue
		}
		switch name {
		case "caller":
			m.def.caller = true
		case "varargs":
			m.def.varargs = true
		case "kwargs":
			m.def.kwargs = true
		}
	}
}

func (p *parser) declare(target expr) {
	switch t := target.(type) {
	case *tupleExpr:
		for _, e := range t.items {
			p.declare(e)
		}
	case *nameExpr:
		switch t.name {
		case "loop":
			if p.inFor > 0 {
				p.fail(t.at(), "loop cannot be assigned in a loop")
			}
		case "caller", "varargs", "kwargs":
			for _, m := range p.macros {
				m.declared[t.name] = true
			}
		}
	}
}
