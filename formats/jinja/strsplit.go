package jinja

import (
	"slices"
	"strings"
	"unicode/utf8"
)

func splitMethod(name string, right bool) method {
	return func(m *machine, v Value, a *args) Value {
		b := a.bind(m, name, 0, "sep", "maxsplit")
		s, _ := isText(v)
		most := b.int(1, -1)
		m.scan(len(s))
		var parts []string
		if sep, ok := b.given(0); !ok || sep == nil {
			parts = m.fields(s, most, right)
		} else {
			sep := b.text(0, "")
			if sep == "" {
				m.fail("%s: the separator is empty", name)
			}
			parts = m.splitBy(s, sep, most, right)
		}
		return m.texts(v, parts)
	}
}

// texts makes a list of parts of a text.
func (m *machine) texts(v Value, parts []string) *list {
	m.allocs(int64(len(parts)), 16)
	items := make([]Value, len(parts))
	for i, p := range parts {
		items[i] = like(v, p)
	}
	return m.newList(items)
}

// splitBy splits at most times at a separator, from the right if so asked.
func (m *machine) splitBy(s, sep string, most int64, right bool) []string {
	n := int64(strings.Count(s, sep))
	if most >= 0 {
		n = min(n, most)
	}
	m.step(n)
	m.allocs(n+1, 16)
	if !right {
		return strings.SplitN(s, sep, int(n)+1)
	}
	var parts []string
	for ; n > 0; n-- {
		i := strings.LastIndex(s, sep)
		parts = append(parts, s[i+len(sep):])
		s = s[:i]
	}
	parts = append(parts, s)
	slices.Reverse(parts)
	return parts
}

// fields splits at white space, which is no part of any field; the rest after
// most splits keeps what is within it.
func (m *machine) fields(s string, most int64, right bool) []string {
	var parts []string
	for {
		if right {
			s = strings.TrimRightFunc(s, isSpace)
		} else {
			s = strings.TrimLeftFunc(s, isSpace)
		}
		if s == "" {
			break
		}
		m.step(1)
		m.alloc(16)
		if most >= 0 && int64(len(parts)) == most {
			if right {
				s = strings.TrimRightFunc(s, isSpace)
			}
			parts = append(parts, s)
			break
		}
		if right {
			i := strings.LastIndexFunc(s, isSpace)
			if i >= 0 {
				_, n := utf8.DecodeRuneInString(s[i:])
				i += n
			} else {
				i = 0
			}
			parts = append(parts, s[i:])
			s = s[:i]
			continue
		}
		i := strings.IndexFunc(s, isSpace)
		if i < 0 {
			i = len(s)
		}
		parts = append(parts, s[:i])
		s = s[i:]
	}
	if right {
		slices.Reverse(parts)
	}
	return parts
}

func splitLinesMethod(m *machine, v Value, a *args) Value {
	b := a.bind(m, "splitlines", 0, "keepends")
	s, _ := isText(v)
	return m.texts(v, m.lines(s, b.flag(0)))
}

func isLineEnd(r rune) bool {
	return '\n' <= r && r <= '\r' || 0x1c <= r && r <= 0x1e || r == 0x85 || r == 0x2028 || r == 0x2029
}

// lines splits a text at line ends; a last empty line does not count.
func (m *machine) lines(s string, keep bool) []string {
	m.scan(len(s))
	var parts []string
	for s != "" {
		m.step(1)
		m.alloc(16)
		i := strings.IndexFunc(s, isLineEnd)
		if i < 0 {
			return append(parts, s)
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		if strings.HasPrefix(s[i:], "\r\n") {
			n = 2
		}
		if keep {
			parts = append(parts, s[:i+n])
		} else {
			parts = append(parts, s[:i])
		}
		s = s[i+n:]
	}
	return parts
}

func partitionMethod(name string, find func(s, sub string) int) method {
	return func(m *machine, v Value, a *args) Value {
		b := a.only(m, name, 1, 1)
		s, _ := isText(v)
		sep := b.text(0, "")
		if sep == "" {
			m.fail("%s: the separator is empty", name)
		}
		m.scan(len(s))
		switch i := find(s, sep); {
		case i >= 0:
			return m.newTuple(like(v, s[:i]), like(v, sep), like(v, s[i+len(sep):]))
		case name == "partition":
			return m.newTuple(like(v, s), like(v, ""), like(v, ""))
		}
		return m.newTuple(like(v, ""), like(v, ""), like(v, s))
	}
}

func expandTabsMethod(m *machine, v Value, a *args) Value {
	b := a.bind(m, "expandtabs", 0, "tabsize")
	s, _ := isText(v)
	size := b.int(0, 8)
	var out strings.Builder
	column := int64(0)
	for _, r := range s {
		switch {
		case r == '\t' && size > 0:
			n := size - column%size
			out.WriteString(m.repeatText(" ", n))
			column += n
			continue
		case r == '\t':
			continue
		case r == '\n' || r == '\r':
			column = -1
		}
		column++
		m.alloc(4)
		out.WriteRune(r)
	}
	return like(v, out.String())
}

func padMethod(name string, sides func(n int64) (left, right int64)) method {
	return func(m *machine, v Value, a *args) Value {
		b := a.only(m, name, 1, 2)
		s, _ := isText(v)
		fill := b.text(1, " ")
		if _, safe := v.(markup); safe {
			fill = string(m.escape(fill))
		}
		if utf8.RuneCountInString(fill) != 1 {
			m.fail("%s: the fill %s is not one character", name, quote(fill))
		}
		width := b.int(0, 0)
		n := width - m.runes(s)
		if n <= 0 {
			return v
		}
		if sides == nil {
			return like(v, m.pad(s, fill, n/2+n&width&1, n-(n/2+n&width&1)))
		}
		left, right := sides(n)
		return like(v, m.pad(s, fill, left, right))
	}
}

func (m *machine) pad(s, fill string, left, right int64) string {
	m.alloc(int64(len(s)))
	return m.repeatText(fill, left) + s + m.repeatText(fill, right)
}

func zfillMethod(m *machine, v Value, a *args) Value {
	b := a.only(m, "zfill", 1, 1)
	s, _ := isText(v)
	n := b.int(0, 0) - m.runes(s)
	if n <= 0 {
		return v
	}
	sign := ""
	if len(s) > 0 && (s[0] == '-' || s[0] == '+') {
		sign, s = s[:1], s[1:]
	}
	return like(v, sign+m.pad(s, "0", n, 0))
}
