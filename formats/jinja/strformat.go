package jinja

import (
	"math/big"
	"strings"
)

// A fieldFormat is the state of Python's str.format.
type fieldFormat struct {
	m     *machine
	args  *args
	named *Dict // of format_map, or nil
	auto  int   // fields numbered so far
	safe  bool
	// manual: numbers are written out. The two ways cannot be mixed.
	manual, automatic bool
}

func formatMethod(m *machine, v Value, a *args) Value {
	s, _ := isText(v)
	_, safe := v.(markup)
	f := &fieldFormat{m: m, args: a, safe: safe}
	return like(v, f.run(s, 2))
}

func formatMapMethod(m *machine, v Value, a *args) Value {
	d, ok := a.only(m, "format_map", 1, 1).values[0].(*Dict)
	if !ok {
		m.fail("format_map needs a dict")
	}
	s, _ := isText(v)
	_, safe := v.(markup)
	f := &fieldFormat{m: m, args: &args{}, named: d, safe: safe}
	return like(v, f.run(s, 2))
}

// run formats a text; a field's specification may hold fields one level down.
func (f *fieldFormat) run(s string, levels int) string {
	m := f.m
	if levels == 0 {
		m.fail("a format nested too deeply")
	}
	var b strings.Builder
	for s != "" {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			i = len(s)
		}
		m.alloc(int64(i))
		b.WriteString(s[:i])
		if s = s[i:]; s == "" {
			break
		}
		if len(s) > 1 && s[1] == s[0] {
			b.WriteByte(s[0])
			s = s[2:]
			continue
		}
		if s[0] == '}' {
			m.fail("a single } in a format")
		}
		end := fieldEnd(s)
		if end < 0 {
			m.fail("a field of a format does not end")
		}
		text := f.field(s[1:end], levels)
		m.alloc(int64(len(text)))
		b.WriteString(text)
		s = s[end+1:]
	}
	return b.String()
}

// fieldEnd is the position of the brace that closes the field at the
// beginning of s, -1 for none.
func fieldEnd(s string) int {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

func (f *fieldFormat) field(s string, levels int) string {
	m := f.m
	name, rest := s, ""
	bracket := false
	for i := range len(s) {
		c := s[i]
		bracket = c == '[' || bracket && c != ']'
		if !bracket && (c == '!' || c == ':') {
			name, rest = s[:i], s[i:]
			break
		}
	}
	v := f.value(name)
	if conv, ok := strings.CutPrefix(rest, "!"); ok {
		if len(conv) == 0 || len(conv) > 1 && conv[1] != ':' {
			m.fail("an invalid conversion in a format")
		}
		switch conv[0] {
		case 's':
			v = m.str(v)
		case 'r', 'a':
			v = m.repr(v)
		default:
			m.fail("unknown conversion %s in a format", quote(conv[:1]))
		}
		rest = conv[1:]
	}
	how := f.run(strings.TrimPrefix(rest, ":"), levels-1+btoi(rest == "" || rest == ":"))
	if x, ok := v.(markup); ok && f.safe {
		return string(x)
	}
	out := m.format(v, how)
	if f.safe {
		out = string(m.escape(out))
	}
	return out
}

// value resolves a field's name: an argument, its attributes and items.
func (f *fieldFormat) value(name string) Value {
	m := f.m
	n := strings.IndexAny(name, ".[")
	if n < 0 {
		n = len(name)
	}
	v := f.argument(name[:n])
	for s := name[n:]; s != ""; {
		if s[0] == '.' {
			n := strings.IndexAny(s[1:], ".[")
			if n < 0 {
				n = len(s) - 1
			}
			if n == 0 {
				m.fail("an empty attribute in a format")
			}
			v, s = m.attr(v, s[1:1+n]), s[1+n:]
			continue
		}
		end := strings.IndexByte(s, ']')
		if s[0] != '[' || end < 2 {
			m.fail("an invalid field %s in a format", quote(name))
		}
		v, s = m.item(v, index(s[1:end])), s[end+1:]
	}
	return v
}

// index is an item's key in a field: digits are a number.
func index(s string) Value {
	if digitsOnly(s) {
		i, _ := new(big.Int).SetString(s, 10)
		return norm(i)
	}
	return s
}

func digitsOnly(s string) bool {
	return s != "" && len(s) <= maxDigits && strings.Trim(s, "0123456789") == ""
}

func (f *fieldFormat) argument(name string) Value {
	m := f.m
	if name == "" || digitsOnly(name) {
		f.automatic = f.automatic || name == ""
		f.manual = f.manual || name != ""
		if f.automatic && f.manual {
			m.fail("numbered and unnumbered fields are mixed in a format")
		}
		at := int64(f.auto)
		if name == "" {
			f.auto++
		} else {
			at = m.clamped("format", index(name))
		}
		if at >= int64(len(f.args.pos)) {
			m.fail("the format wants argument %d of %d", at, len(f.args.pos))
		}
		return f.args.pos[at]
	}
	if f.named != nil {
		if v, ok := f.named.text(name); ok {
			return v
		}
	}
	for i, n := range f.args.names {
		if n == name {
			return f.args.named[i]
		}
	}
	m.fail("the format's argument %s is missing", quote(name))
	return nil
}
