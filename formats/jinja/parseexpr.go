package jinja

import "slices"

// targetOptions say what may be assigned to.
type targetOptions struct {
	nameOnly, namespace bool
	end                 string // a name that ends the target
}

// target parses what is assigned to: a name, an attribute of a namespace, or
// a tuple of these.
func (p *parser) target(o targetOptions) expr {
	if o.nameOnly {
		t := p.expect(tokName)
		p.assignable(t)
		return &nameExpr{pos(t.line), t.text}
	}
	mark := len(p.unknown)
	e := p.tuple(tupleOptions{simple: true, namespace: o.namespace, end: o.end})
	p.refuseUnknown(mark)
	p.checkTarget(e)
	return e
}

func (p *parser) assignable(t token) {
	if slices.Contains([]string{"true", "false", "none", "True", "False", "None"}, t.text) {
		p.fail(t.line, "%s cannot be assigned", quote(t.text))
	}
}

func (p *parser) checkTarget(e expr) {
	switch e := e.(type) {
	case *nameExpr, *nsExpr:
	case *tupleExpr:
		for _, x := range e.items {
			p.checkTarget(x)
		}
	default:
		p.fail(e.at(), "only names can be assigned")
	}
}

// tupleOptions say how a tuple without brackets is parsed.
type tupleOptions struct {
	simple    bool // of names and literals only
	noCond    bool // no conditional expressions
	explicit  bool // in brackets: it may be empty
	namespace bool
	end       string
}

// tuple parses an expression, or several with commas between.
func (p *parser) tuple(o tupleOptions) expr {
	at := pos(p.cur().line)
	var items []expr
	for comma := false; ; comma = true {
		if comma && !p.skipIf(",") {
			break
		}
		if k := p.cur(); k.kind == tokVariableEnd || k.kind == tokBlockEnd || k.kind == ")" || o.end != "" && k.is(o.end) {
			if !comma && !o.explicit {
				p.fail(k.line, "expected an expression, got %s", k.describe())
			}
			return &tupleExpr{at, items}
		}
		switch {
		case o.simple:
			items = append(items, p.simple(o.namespace))
		case o.noCond:
			items = append(items, p.or())
		default:
			items = append(items, p.expression())
		}
		if len(items) == 1 && p.cur().kind != "," {
			return items[0]
		}
	}
	return &tupleExpr{at, items}
}

// expression parses "a if b else c" and what binds more tightly.
func (p *parser) expression() expr {
	p.enter()
	defer p.leave()
	mark := len(p.unknown)
	e := p.or()
	for p.cur().is("if") {
		c := &condExpr{pos: pos(p.next().line), yes: e, test: p.or()}
		if p.skipName("else") {
			c.no = p.expression()
		}
		p.unknown = p.unknown[:mark] // they fail when they are reached
		e = c
	}
	return e
}

func (p *parser) or() expr {
	e := p.and()
	for p.cur().is("or") {
		at := pos(p.next().line)
		e = &logicExpr{at, true, e, p.and()}
	}
	return e
}

func (p *parser) and() expr {
	e := p.not()
	for p.cur().is("and") {
		at := pos(p.next().line)
		e = &logicExpr{at, false, e, p.not()}
	}
	return e
}

func (p *parser) not() expr {
	if p.cur().is("not") {
		p.enter()
		defer p.leave()
		at := pos(p.next().line)
		return &notExpr{at, p.not()}
	}
	return p.compare()
}

func (p *parser) compare() expr {
	first := p.sum()
	c := &compareExpr{pos: pos(first.at()), first: first}
	for {
		switch t := p.cur(); {
		case slices.Contains([]kind{"==", "!=", "<", "<=", ">", ">="}, t.kind):
			c.ops = append(c.ops, string(t.kind))
		case t.is("in"):
			c.ops = append(c.ops, "in")
		case t.is("not") && p.look().is("in"):
			p.next()
			c.ops = append(c.ops, "notin")
		default:
			if c.ops == nil {
				return first
			}
			return c
		}
		p.next()
		c.rest = append(c.rest, p.sum())
	}
}

// chain parses operands with operators between that join to the left.
func (p *parser) chain(operand func() expr, ops ...kind) expr {
	e := operand()
	for slices.Contains(ops, p.cur().kind) {
		t := p.next()
		e = &binaryExpr{pos(t.line), string(t.kind), e, operand()}
	}
	return e
}

func (p *parser) sum() expr { return p.chain(p.concat, "+", "-") }

func (p *parser) concat() expr {
	first := p.product()
	if p.cur().kind != "~" {
		return first
	}
	c := &concatExpr{pos(first.at()), []expr{first}}
	for p.skipIf("~") {
		c.parts = append(c.parts, p.product())
	}
	return c
}

func (p *parser) product() expr { return p.chain(p.power, "*", "/", "//", "%") }

func (p *parser) power() expr {
	return p.chain(func() expr { return p.unary(true) }, "**")
}

func (p *parser) unary(filters bool) expr {
	p.enter()
	defer p.leave()
	var e expr
	if t := p.cur(); t.kind == "-" || t.kind == "+" {
		p.next()
		e = &signExpr{pos(t.line), t.text[0], p.unary(false)}
	} else {
		e = p.primary()
	}
	e = p.postfix(e)
	if filters {
		e = p.pipes(e)
	}
	return e
}

// simple parses one element of a target.
func (p *parser) simple(namespace bool) expr {
	if p.cur().kind != tokName {
		return p.primary()
	}
	return p.variable(p.next(), true, namespace)
}

func (p *parser) primary() expr {
	p.enter()
	defer p.leave()
	t := p.next()
	at := pos(t.line)
	switch t.kind {
	case tokName:
		return p.variable(t, false, false)
	case tokString:
		text := []byte(t.text)
		for p.cur().kind == tokString {
			text = append(text, p.next().text...)
		}
		return &constExpr{at, string(text)}
	case tokInteger, tokFloat:
		return &constExpr{at, t.value}
	case "(":
		e := p.tuple(tupleOptions{explicit: true})
		p.expect(")")
		return e
	case "[":
		l := &listExpr{pos: at}
		p.items("]", func() { l.items = append(l.items, p.expression()) })
		return l
	case "{":
		d := &dictExpr{pos: at}
		p.items("}", func() {
			d.keys = append(d.keys, p.expression())
			p.expect(":")
			d.values = append(d.values, p.expression())
		})
		return d
	}
	p.fail(t.line, "unexpected %s", t.describe())
	return nil
}

// items parses comma-separated items and the end; a last comma may be there.
func (p *parser) items(end kind, item func()) {
	for first := true; p.cur().kind != end; first = false {
		if !first {
			p.expect(",")
			if p.cur().kind == end {
				break
			}
		}
		item()
	}
	p.expect(end)
}

func (p *parser) variable(t token, target, namespace bool) expr {
	at := pos(t.line)
	switch t.text {
	case "true", "True":
		return &constExpr{at, true}
	case "false", "False":
		return &constExpr{at, false}
	case "none", "None":
		return &constExpr{at, nil}
	case "self", "super":
		failUnsupported(p.name, t.line, "the name "+t.text)
	}
	if namespace && p.cur().kind == "." {
		p.next()
		return &nsExpr{at, t.text, p.expect(tokName).text}
	}
	if !target {
		p.load(t.text)
	}
	return &nameExpr{at, t.text}
}

// postfix parses attributes, subscripts and calls.
func (p *parser) postfix(e expr) expr {
	for {
		t := p.cur()
		at := pos(t.line)
		switch t.kind {
		case ".":
			p.next()
			switch k := p.next(); k.kind {
			case tokName:
				e = &attrExpr{at, e, k.text}
			case tokInteger:
				e = &itemExpr{at, e, &constExpr{at, k.value}}
			default:
				p.fail(k.line, "expected a name or a number after the dot, got %s", k.describe())
			}
		case "[":
			p.next()
			e = p.subscript(e, at)
		case "(":
			e = &callExpr{at, e, p.callArgs()}
		default:
			return e
		}
	}
}

func (p *parser) subscript(of expr, at pos) expr {
	var keys []expr
	for p.cur().kind != "]" {
		if len(keys) > 0 {
			p.expect(",")
		}
		keys = append(keys, p.subscribed())
	}
	p.expect("]")
	if len(keys) == 1 {
		return &itemExpr{at, of, keys[0]}
	}
	for _, k := range keys {
		if _, ok := k.(*sliceExpr); ok {
			p.fail(int(at), "a slice within a tuple")
		}
	}
	return &itemExpr{at, of, &tupleExpr{at, keys}}
}

// subscribed parses an index or a slice.
func (p *parser) subscribed() expr {
	s := &sliceExpr{pos: pos(p.cur().line)}
	if p.cur().kind != ":" {
		e := p.expression()
		if p.cur().kind != ":" {
			return e
		}
		s.start = e
	}
	p.next()
	open := func() bool { k := p.cur().kind; return k != ":" && k != "]" && k != "," }
	if open() {
		s.stop = p.expression()
	}
	if p.skipIf(":") && open() {
		s.step = p.expression()
	}
	return s
}

// pipes parses filters, tests and calls of what they give.
func (p *parser) pipes(e expr) expr {
	for {
		switch t := p.cur(); {
		case t.kind == "|":
			e = p.filters(e, false)
		case t.is("is"):
			e = p.test(e)
		case t.kind == "(":
			e = &callExpr{pos(t.line), e, p.callArgs()}
		default:
			return e
		}
	}
}

// dotted parses a name of a filter or test.
func (p *parser) dotted() token {
	t := p.expect(tokName)
	for p.skipIf(".") {
		t.text += "." + p.expect(tokName).text
	}
	return t
}

// filters parses filters; inline, the first has no bar before it.
func (p *parser) filters(e expr, inline bool) expr {
	for inline || p.cur().kind == "|" {
		if !inline {
			p.next()
		}
		inline = false
		t := p.dotted()
		if filterNamed(t.text) == nil {
			p.unknown = append(p.unknown, t)
		}
		f := &filterExpr{pos: pos(t.line), of: e, name: t.text}
		if p.cur().kind == "(" {
			f.args = p.callArgs()
		}
		e = f
	}
	return e
}

func (p *parser) test(of expr) expr {
	at := pos(p.next().line)
	not := p.skipName("not")
	t := p.dotted()
	if testNamed(t.text) == nil {
		p.unknown = append(p.unknown, t)
	}
	x := &testExpr{pos: at, of: of, name: t.text}
	switch k := p.cur(); k.kind {
	case "(":
		x.args = p.callArgs()
	case tokName, tokString, tokInteger, tokFloat, "[", "{":
		if k.isAny([]string{"else", "or", "and"}) {
			break
		}
		if k.is("is") {
			p.fail(k.line, "tests cannot be chained with is")
		}
		x.args.pos = []expr{p.postfix(p.primary())}
	}
	if not {
		return &notExpr{at, x}
	}
	return x
}

func (p *parser) callArgs() (a callArgs) {
	open := p.expect("(")
	p.items(")", func() {
		ok := a.starstar == nil
		switch {
		case p.cur().kind == "*":
			p.next()
			ok = ok && a.star == nil
			a.star = p.expression()
		case p.skipIf("**"):
			a.starstar = p.expression()
		case p.cur().kind == tokName && p.look().kind == "=":
			name := p.next().text
			p.next()
			ok = ok && !slices.Contains(a.names, name)
			a.names = append(a.names, name)
			a.values = append(a.values, p.expression())
		default:
			ok = ok && a.star == nil && a.names == nil
			a.pos = append(a.pos, p.expression())
		}
		if !ok {
			p.fail(open.line, "invalid arguments of a call")
		}
	})
	return a
}
