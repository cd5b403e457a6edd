package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// wordClass is Oniguruma's \w, which has more than .NET's: letters, marks, all
// numbers, connectors and the circled letters that Unicode calls alphabetic.
const wordClass = `\p{L}\p{M}\p{N}\p{Pc}\u24B6-\u24E9`

// translate rewrites a pattern of Oniguruma's Ruby syntax for regexp2:
//
//	x{n,m}+   is (?:x{n,m})+ in Ruby and possessive in regexp2
//	[a&&[^b]] intersections and nested classes become lookaheads
//	\w \h     get Oniguruma's meaning
//
// Constructs whose meaning would differ silently are refused.
func translate(pattern string) (string, error) {
	if len(pattern) > maxPattern {
		return "", unsupported("regular expression of %d bytes", len(pattern))
	}
	t := translator{in: pattern}
	if err := t.run(); err != nil {
		return "", err
	}
	return t.out.String(), nil
}

// maxPattern bounds patterns; the longest in use has under 2 KiB.
const maxPattern = 64 << 10

type translator struct {
	in     string
	at     int
	out    strings.Builder
	atom   int   // where the last atom starts in out, or -1
	groups []int // where each open group starts in out
}

func (t *translator) refuse(what string) error {
	return unsupported("%s in the regular expression %q", what, t.in)
}

func (t *translator) run() error {
	t.atom = -1
	for t.at < len(t.in) {
		var err error
		switch c := t.in[t.at]; c {
		case '\\':
			err = t.escape()
		case '[':
			t.atom = t.out.Len()
			var set string
			if set, err = t.class(0); err == nil {
				t.out.WriteString(set)
			}
		case '(':
			err = t.open()
		case ')':
			if len(t.groups) == 0 {
				return t.refuse("unbalanced )")
			}
			t.atom = t.groups[len(t.groups)-1]
			t.groups = t.groups[:len(t.groups)-1]
			t.copy(1)
		case '{':
			t.interval()
		case '|':
			t.copy(1)
			t.atom = -1
		default:
			if !strings.ContainsRune("*+?", rune(c)) {
				t.atom = t.out.Len()
			}
			_, n := utf8.DecodeRuneInString(t.in[t.at:])
			t.copy(n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *translator) copy(n int) {
	t.out.WriteString(t.in[t.at : t.at+n])
	t.at += n
}

// escape copies one escape, rewriting those whose meaning differs.
func (t *translator) escape() error {
	t.atom = t.out.Len()
	e, err := t.escapeText(false)
	t.out.WriteString(e)
	return err
}

func (t *translator) escapeText(inClass bool) (string, error) {
	rest := t.in[t.at:]
	if len(rest) < 2 {
		return "", t.refuse("trailing backslash")
	}
	c := rest[1]
	switch c {
	case 'w', 'h':
		t.at += 2
		set := wordClass
		if c == 'h' {
			set = "0-9a-fA-F"
		}
		if inClass {
			return set, nil
		}
		return "[" + set + "]", nil
	case 'W', 'H', 'X', 'R', 'K', 'G', 'g', 'N', 'O', 'y', 'Y', 'Z', 'M', 'C':
		if c == 'W' && !inClass {
			t.at += 2
			return "[^" + wordClass + "]", nil
		}
		return "", t.refuse(`\` + string(c))
	case 'p', 'P':
		end := strings.IndexByte(rest, '}')
		if len(rest) < 4 || rest[2] != '{' || end < 0 {
			return "", t.refuse(`\` + string(c) + " without braces")
		}
		name := rest[3:end]
		t.at += end + 1
		if strings.HasPrefix(name, "^") {
			name = name[1:]
			c ^= 'p' ^ 'P'
		}
		return `\` + string(c) + "{" + name + "}", nil
	}
	_, n := utf8.DecodeRuneInString(rest[1:])
	t.at += 1 + n
	return rest[:1+n], nil
}

// open copies a group's opening. Only groups that mean the same are let in.
func (t *translator) open() error {
	rest := t.in[t.at:]
	t.groups = append(t.groups, t.out.Len())
	t.atom = -1
	if !strings.HasPrefix(rest, "(?") {
		t.copy(1)
		return nil
	}
	for _, p := range []string{"(?i:", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?-i:"} {
		if strings.HasPrefix(rest, p) {
			t.copy(len(p))
			return nil
		}
	}
	if strings.HasPrefix(rest, "(?i)") {
		t.groups = t.groups[:len(t.groups)-1]
		t.copy(4)
		return nil
	}
	return t.refuse("group " + clip([]byte(rest[:min(len(rest), 6)])))
}

// interval copies {n,m}; with a + behind it the atom gets a group around it.
func (t *translator) interval() {
	end := strings.IndexByte(t.in[t.at:], '}')
	body := ""
	if end > 0 {
		body = t.in[t.at+1 : t.at+end]
	}
	if body == "" || strings.Trim(body, "0123456789,") != "" || t.atom < 0 {
		t.out.WriteByte('\\') // a brace that is no interval is a literal
		t.atom = t.out.Len() - 1
		t.copy(1)
		return
	}
	if body[0] == ',' { // {,m} is {0,m} in Ruby
		body = "0" + body
	}
	t.at += end + 1
	s := t.out.String()
	head, atom := s[:t.atom], s[t.atom:]
	atom += "{" + body + "}"
	if t.at < len(t.in) && t.in[t.at] == '+' {
		atom = "(?:" + atom + ")"
	}
	t.out.Reset()
	t.out.WriteString(head + atom)
}

// maxClassDepth bounds nested classes, so that hostile input cannot exhaust
// the stack.
const maxClassDepth = 32

// class reads a class from its [ and returns an expression for one character.
func (t *translator) class(depth int) (string, error) {
	if depth > maxClassDepth {
		return "", t.refuse("deeply nested class")
	}
	t.at++
	negated := strings.HasPrefix(t.in[t.at:], "^")
	if negated {
		t.at++
	}
	var all []string // operands of &&
	var plain strings.Builder
	var nested []string
	operand := func() {
		all = append(all, union(plain.String(), nested))
		plain.Reset()
		nested = nil
	}
	for first := true; ; first = false {
		if t.at >= len(t.in) {
			return "", t.refuse("class without an end")
		}
		rest := t.in[t.at:]
		switch {
		case rest[0] == ']' && !first:
			t.at++
			if len(all) == 0 && len(nested) == 0 {
				if negated {
					return "[^" + plain.String() + "]", nil
				}
				return "[" + plain.String() + "]", nil
			}
			operand()
			return intersect(all, negated), nil
		case strings.HasPrefix(rest, "[:"):
			return "", t.refuse("POSIX bracket")
		case rest[0] == '[':
			n, err := t.class(depth + 1)
			if err != nil {
				return "", err
			}
			nested = append(nested, n)
		case strings.HasPrefix(rest, "&&"):
			operand()
			t.at += 2
		case rest[0] == '\\':
			e, err := t.escapeText(true)
			if err != nil {
				return "", err
			}
			plain.WriteString(e)
		default:
			if rest[0] == ']' {
				plain.WriteByte('\\')
			}
			_, n := utf8.DecodeRuneInString(rest)
			plain.WriteString(rest[:n])
			t.at += n
		}
	}
}

func union(plain string, nested []string) string {
	if plain != "" {
		nested = append(nested, "["+plain+"]")
	}
	switch len(nested) {
	case 0:
		return "(?!)"
	case 1:
		return nested[0]
	}
	return "(?:" + strings.Join(nested, "|") + ")"
}

func intersect(all []string, negated bool) string {
	last := all[len(all)-1]
	var b strings.Builder
	b.WriteString("(?:")
	for _, o := range all[:len(all)-1] {
		b.WriteString("(?=" + o + ")")
	}
	b.WriteString(last + ")")
	if negated {
		return "(?:(?!" + b.String() + `)[\s\S])`
	}
	return b.String()
}
