package jinja

import (
	"math/big"
	"strings"
)

// binary is an arithmetic operator on values of any type.
func (m *machine) binary(op string, a, b Value) Value {
	if isNumber(a) && isNumber(b) {
		_, af := a.(float64)
		_, bf := b.(float64)
		if op == "**" && !af && !bf {
			x, _ := isInt(a)
			y, _ := isInt(b)
			return m.bigOp("**", x, y)
		}
		return m.arith(op, a, b)
	}
	if s, ok := isText(a); ok && op == "%" {
		if safe, ok := a.(markup); ok {
			return markup(m.percent(string(safe), b, true))
		}
		return m.percent(s, b, false)
	}
	m.use(a)
	m.use(b)
	switch op {
	case "+":
		if v, ok := m.join2(a, b); ok {
			return v
		}
	case "*":
		if v, ok := m.repeat(a, b); ok {
			return v
		}
		if v, ok := m.repeat(b, a); ok {
			return v
		}
	case "-":
		if x, ok := a.(*view); ok {
			if _, ok := b.(*view); ok && x.what != "values" {
				m.unsupported("the difference of two dictionary views")
			}
		}
	}
	m.fail("%s %s %s is not defined", typeName(a), op, typeName(b))
	return nil
}

// join2 is a + b of two sequences of one kind.
func (m *machine) join2(a, b Value) (Value, bool) {
	if x, ok := isText(a); ok {
		y, ok := isText(b)
		if !ok {
			return nil, false
		}
		_, xs := a.(markup)
		_, ys := b.(markup)
		if xs || ys {
			return m.escape(a) + m.escape(b), true
		}
		m.alloc(int64(len(x) + len(y)))
		return x + y, true
	}
	switch x := a.(type) {
	case *list:
		if y, ok := b.(*list); ok {
			m.allocs(int64(len(x.items)+len(y.items)), 16)
			return &list{append(x.items[:len(x.items):len(x.items)], y.items...)}, true
		}
	case *tuple:
		if y, ok := b.(*tuple); ok {
			m.allocs(int64(len(x.items)+len(y.items)), 16)
			return &tuple{items: append(x.items[:len(x.items):len(x.items)], y.items...)}, true
		}
	}
	return nil, false
}

// repeat is a sequence times an integer.
func (m *machine) repeat(a, n Value) (Value, bool) {
	if _, ok := isInt(n); !ok {
		return nil, false
	}
	if _, large := n.(*big.Int); large {
		switch a.(type) {
		case string, markup, *list, *tuple:
			m.fail("a sequence cannot be repeated so often")
		}
	}
	times := max(m.clamped("*", n), 0)
	switch x := a.(type) {
	case string:
		return m.repeatText(x, times), true
	case markup:
		return markup(m.repeatText(string(x), times)), true
	case *list:
		return &list{m.repeatItems(x.items, times)}, true
	case *tuple:
		return &tuple{items: m.repeatItems(x.items, times)}, true
	}
	return nil, false
}

func (m *machine) repeatText(s string, n int64) string {
	if s == "" || n <= 0 {
		return ""
	}
	m.allocs(n, int64(len(s)))
	return strings.Repeat(s, int(n))
}

func (m *machine) repeatItems(items []Value, n int64) []Value {
	if len(items) == 0 {
		return nil
	}
	m.allocs(n, 16*int64(len(items)))
	out := make([]Value, 0, int(n)*len(items))
	for range n {
		out = append(out, items...)
	}
	return out
}

// sign is +v and -v.
func (m *machine) sign(op byte, v Value) Value {
	m.use(v)
	switch x := v.(type) {
	case float64:
		if op == '-' {
			return -x
		}
		return x
	case bool, int64, *big.Int:
		i, _ := isInt(v)
		if op == '-' {
			i = new(big.Int).Neg(i)
		}
		return norm(i)
	}
	m.fail("%c%s is not defined", op, typeName(v))
	return nil
}

// escape is markupsafe's escape: HTML's special characters are spelled out,
// unless the text is marked as safe.
func (m *machine) escape(v Value) markup {
	if s, ok := v.(markup); ok {
		return s
	}
	s := m.str(v)
	extra := int64(0)
	m.scan(len(s))
	for i := range len(s) {
		switch s[i] {
		case '&', '\'', '"':
			extra += 4
		case '<', '>':
			extra += 3
		}
	}
	if extra == 0 {
		return markup(s)
	}
	m.alloc(int64(len(s)) + extra)
	return markup(htmlEscaper.Replace(s))
}

var htmlEscaper = strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;")
