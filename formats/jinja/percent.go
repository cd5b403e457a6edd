package jinja

import (
	"math/big"
	"strings"
	"unicode/utf8"
)

// A percentFormat is the state of Python's text % values.
type percentFormat struct {
	m     *machine
	s     string
	b     strings.Builder
	of    Value   // the right side
	items []Value // its values in order
	used  int
	named bool // a mapping key was used
	safe  bool
}

// percent is text % v; with safe, what is put into the text is escaped.
func (m *machine) percent(text string, v Value, safe bool) string {
	p := &percentFormat{m: m, s: text, of: v, items: []Value{v}, safe: safe}
	if t, ok := v.(*tuple); ok {
		p.items = t.items
	}
	m.alloc(int64(len(text)))
	for p.s != "" {
		i := strings.IndexByte(p.s, '%')
		if i < 0 {
			i = len(p.s)
		}
		p.b.WriteString(p.s[:i])
		if p.s = p.s[i:]; p.s != "" {
			p.s = p.s[1:]
			p.one()
		}
	}
	_, isTuple := v.(*tuple)
	if p.used < len(p.items) && (isTuple || !isMapping(v)) {
		m.fail("not all arguments are used by the format %s", quote(text))
	}
	return p.b.String()
}

// isMapping reports what Python takes for a mapping here: what has items and
// is no string and no tuple.
func isMapping(v Value) bool {
	switch v.(type) {
	case *Dict, *list, *rng, *undefined:
		return true
	}
	return false
}

func (p *percentFormat) next() Value {
	if p.named || p.used >= len(p.items) {
		p.m.fail("not enough arguments for the format")
	}
	p.used++
	return p.items[p.used-1]
}

// peek is the next character of the format, 0 at its end.
func (p *percentFormat) peek() byte {
	if p.s == "" {
		return 0
	}
	return p.s[0]
}

func (p *percentFormat) number() int64 {
	if p.peek() == '*' {
		p.s = p.s[1:]
		i, ok := small(p.next())
		if !ok {
			p.m.fail("* wants an integer")
		}
		return i
	}
	n := int64(0)
	for isDigit(p.peek()) {
		n = min(n*10+int64(p.s[0]-'0'), 1<<31)
		p.s = p.s[1:]
	}
	return n
}

// one formats one conversion, whose % was read.
func (p *percentFormat) one() {
	m := p.m
	if p.peek() == '(' {
		p.key()
	}
	f := spec{fill: " ", align: '>', precision: -1}
	left := false
	for ; p.s != "" && strings.IndexByte("-+ #0", p.s[0]) >= 0; p.s = p.s[1:] {
		switch c := p.s[0]; c {
		case '-':
			left = true
		case '+':
			f.sign = '+'
		case ' ':
			if f.sign == 0 {
				f.sign = ' '
			}
		case '#':
			f.alt = true
		case '0':
			f.fill, f.align = "0", '='
		}
	}
	if f.width = p.number(); f.width < 0 {
		left, f.width = true, -f.width
	}
	if p.peek() == '.' {
		p.s = p.s[1:]
		f.precision = max(p.number(), 0)
	}
	for p.s != "" && strings.IndexByte("hlL", p.s[0]) >= 0 {
		p.s = p.s[1:]
	}
	if p.s == "" {
		m.fail("an incomplete format")
	}
	c := p.s[0]
	p.s = p.s[1:]
	if left {
		f.align, f.fill = '<', " "
	}
	if c == '%' {
		p.b.WriteByte('%')
		return
	}
	v := p.value()
	s := p.convert(c, v, f)
	m.alloc(int64(len(s)))
	p.b.WriteString(s)
}

func (p *percentFormat) value() Value {
	if p.named && p.used == 0 {
		return p.items[0]
	}
	return p.next()
}

// key reads "(name)" and makes its value the only one.
func (p *percentFormat) key() {
	d, ok := p.of.(*Dict)
	if !ok {
		p.m.fail("the format needs a dict")
	}
	depth, i := 1, 1
	for ; i < len(p.s) && depth > 0; i++ {
		switch p.s[i] {
		case '(':
			depth++
		case ')':
			depth--
		}
	}
	if depth > 0 {
		p.m.fail("an incomplete key in a format")
	}
	name := p.s[1 : i-1]
	p.s = p.s[i:]
	v, ok := d.text(name)
	if !ok {
		p.m.fail("the format's key %s is not in the dict", quote(name))
	}
	p.named, p.used, p.items = true, 0, []Value{v}
}

func (p *percentFormat) convert(c byte, v Value, f spec) string {
	m := p.m
	switch c {
	case 's', 'r', 'a':
		s := m.str(v)
		if c != 's' {
			s = m.repr(v)
		}
		if c == 'a' && !isASCII(s) {
			m.unsupported("%%a of a text that is not ASCII")
		}
		if _, safe := v.(markup); p.safe && !(safe && c == 's') {
			s = string(m.escape(s))
		}
		if f.fill == "0" {
			f.fill, f.align = " ", '>'
		}
		return f.pad(m, f.cut(m, s))
	case 'c':
		s, ok := isText(v)
		if i, isNum := small(v); isNum {
			if i < 0 || i > utf8.MaxRune || !utf8.ValidRune(rune(i)) {
				m.fail("%%c: %d is no character", i)
			}
			s, ok = string(rune(i)), true
		}
		if !ok || utf8.RuneCountInString(s) != 1 {
			m.fail("%%c needs a character")
		}
		if f.fill == "0" {
			f.fill, f.align = " ", '>'
		}
		return f.pad(m, s)
	case 'd', 'i', 'u':
		return f.integer(m, p.integer(v), 'd')
	case 'x', 'X', 'o':
		i, ok := isInt(v)
		if !ok {
			m.use(v)
			m.fail("%%%c needs an integer, not %s", c, typeName(v))
		}
		return f.integer(m, i, c)
	case 'e', 'E', 'f', 'F', 'g', 'G':
		if !isNumber(v) {
			m.use(v)
			m.fail("%%%c needs a number, not %s", c, typeName(v))
		}
		return f.float(m, m.toFloat(v), c)
	}
	m.fail("unknown conversion %%%s in a format", quote(string(rune(c))))
	return ""
}

func (p *percentFormat) integer(v Value) *big.Int {
	if f, ok := v.(float64); ok {
		return p.m.truncated(f)
	}
	i, ok := isInt(v)
	if !ok {
		p.m.use(v)
		p.m.fail("%%d needs a number, not %s", typeName(v))
	}
	return i
}
