package tokenizer

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

// Messages are rendered with private-use characters as marks around what must
// stay plain text; afterwards the marks are taken out again and their places
// remembered. Whether they had an influence shows in the comparison with a
// rendering without marks.

type marking int

const (
	unmarked       marking = iota
	aroundContent          // around each content, inside its outer white space
	withinSpecials         // only inside spellings of special tokens
)

type marks struct{ open, close string }

// chooseMarks picks two characters that do not occur in s.
func chooseMarks(s string) (marks, bool) {
	var found []string
	for r := rune(0xf0000); r < 0xf0000+0xfffe && len(found) < 2; r++ {
		if !strings.ContainsRune(s, r) {
			found = append(found, string(r))
		}
	}
	if len(found) < 2 {
		return marks{}, false
	}
	return marks{found[0], found[1]}, true
}

// strip takes the marks out of s and returns what they enclosed. It reports
// false when they do not pair up, which happens when a template cuts a text.
func (m marks) strip(s string) (string, []Span, bool) {
	var b strings.Builder
	b.Grow(len(s))
	var plain []Span
	depth := 0
	for len(s) > 0 {
		_, n := utf8.DecodeRuneInString(s)
		switch c := s[:n]; c {
		case m.open:
			if depth++; depth == 1 {
				plain = append(plain, Span{b.Len(), b.Len()})
			}
		case m.close:
			if depth--; depth < 0 {
				return "", nil, false
			}
			plain[len(plain)-1].End = b.Len()
		default:
			b.WriteString(c)
		}
		s = s[n:]
	}
	plain = slices.DeleteFunc(plain, func(p Span) bool { return p.Start == p.End })
	return b.String(), plain, depth == 0
}

// A marker turns ordered JSON into template values, marking texts on the way.
type marker struct {
	marks
	how      marking
	specials *matcher
}

// trusted is the marker for what the template's side provides.
func (m marker) trusted() marker {
	m.how = unmarked
	return m
}

func (m marker) messages(list []any) jinja.Value {
	items := make([]jinja.Value, len(list))
	for i, v := range list {
		items[i] = m.message(v.(*object))
	}
	return jinja.NewList(items)
}

func (m marker) message(o *object) jinja.Value {
	d := jinja.NewDict()
	for i, k := range o.keys {
		if k == "content" {
			d.AsDict().Set(k, m.content(o.values[i]))
		} else {
			d.AsDict().Set(k, m.value(o.values[i]))
		}
	}
	return d
}

// content marks a message's content: a text, or a list of parts with texts.
func (m marker) content(v any) jinja.Value {
	switch v := v.(type) {
	case string:
		return jinja.NewString(m.whole(v))
	case []any:
		items := make([]jinja.Value, len(v))
		for i, p := range v {
			items[i] = m.part(p)
		}
		return jinja.NewList(items)
	}
	return m.value(v)
}

func (m marker) part(v any) jinja.Value {
	o, ok := v.(*object)
	if !ok {
		return m.content(v)
	}
	d := jinja.NewDict()
	for i, k := range o.keys {
		if s, ok := o.values[i].(string); ok && k == "text" {
			d.AsDict().Set(k, jinja.NewString(m.whole(s)))
		} else {
			d.AsDict().Set(k, m.value(o.values[i]))
		}
	}
	return d
}

// value converts ordered JSON; texts in it get marks within special tokens.
func (m marker) value(v any) jinja.Value {
	switch v := v.(type) {
	case nil:
		return jinja.None()
	case bool:
		return jinja.NewBool(v)
	case int64:
		return jinja.NewInt(v)
	case float64:
		return jinja.NewFloat(v)
	case string:
		return jinja.NewString(m.spelled(v))
	case []any:
		items := make([]jinja.Value, len(v))
		for i, x := range v {
			items[i] = m.value(x)
		}
		return jinja.NewList(items)
	case *object:
		d := jinja.NewDict()
		for i, k := range v.keys {
			d.AsDict().Set(m.spelled(k), m.value(v.values[i]))
		}
		return d
	}
	panic("tokenizer: not a value of ordered JSON")
}

// whole marks a content from its first to its last visible character.
func (m marker) whole(s string) string {
	if m.how != aroundContent {
		return m.spelled(s)
	}
	left := strings.TrimLeftFunc(s, unicode.IsSpace)
	core := strings.TrimRightFunc(left, unicode.IsSpace)
	if core == "" {
		return m.spelled(s)
	}
	at := len(s) - len(left)
	return s[:at] + m.open + core + m.close + left[len(core):]
}

// spelled marks each spelling of a special token from its second character
// on, so that neither its beginning nor its end, by which templates recognise
// things, are disturbed more than needed.
func (m marker) spelled(s string) string {
	if m.how == unmarked {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		_, first := utf8.DecodeRuneInString(s[i:])
		_, n := m.specials.at(s, i)
		switch {
		case n == 0:
			b.WriteString(s[i : i+first])
			i += first
		case n == first:
			b.WriteString(m.open + s[i:i+first] + m.close)
			i += first
		default:
			// One character at a time: special tokens may overlap.
			b.WriteString(s[i:i+first] + m.open)
			_, second := utf8.DecodeRuneInString(s[i+first:])
			b.WriteString(s[i+first:i+first+second] + m.close)
			i += first + second
		}
	}
	return b.String()
}
