package tokenizer

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nstf/nstf/formats/jinja"
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

// A marker marks texts within ordered JSON.
type marker struct {
	marks
	how      marking
	specials *matcher
}

func (m marker) messages(list []*jinja.Dict) []any {
	out := make([]any, len(list))
	for i, message := range list {
		d := jinja.NewDict()
		for k, v := range message.All() {
			if k == "content" {
				d.Set(k, m.content(v))
			} else {
				d.Set(k, m.value(v))
			}
		}
		out[i] = d
	}
	return out
}

// content marks a message's content: a text, or a list of parts with texts.
func (m marker) content(v any) any {
	switch v := v.(type) {
	case string:
		return m.whole(v)
	case []any:
		out := make([]any, len(v))
		for i, p := range v {
			out[i] = m.part(p)
		}
		return out
	}
	return m.value(v)
}

func (m marker) part(v any) any {
	o, ok := v.(*jinja.Dict)
	if !ok {
		return m.content(v)
	}
	d := jinja.NewDict()
	for k, v := range o.All() {
		if s, ok := v.(string); ok && k == "text" {
			d.Set(k, m.whole(s))
		} else {
			d.Set(k, m.value(v))
		}
	}
	return d
}

// value marks spellings of special tokens.
func (m marker) value(v any) any {
	switch v := v.(type) {
	case string:
		return m.spelled(v)
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = m.value(x)
		}
		return out
	case *jinja.Dict:
		d := jinja.NewDict()
		for k, x := range v.All() {
			d.Set(m.spelled(k), m.value(x))
		}
		return d
	}
	return v
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
