package grammar

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nstf/nstf/formats"
)

// An anchor is ^ or $ of a regular expression.
type anchor int8

const (
	atBegin anchor = iota
	atEnd
)

// ParseRegex makes the grammar of the texts that a regular expression matches as a
// whole, in the syntax of ECMA-262 with its u flag: what matches a part of a text only
// is written .*part.* here. Lookaround, back references and \b are refused: they are
// not regular, or not decided at the place where they stand.
func ParseRegex(pattern string) (*Grammar, error) {
	d, err := regexDFA(pattern, false, func(s runeSet) expr { return class(s) })
	if err != nil {
		return nil, err
	}
	return build([]rule{{name: "the regular expression", x: regular{d}}})
}

// Choices makes the grammar of some texts.
func Choices(texts []string) (*Grammar, error) {
	a, err := choices(texts)
	if err != nil {
		return nil, err
	}
	return build([]rule{{name: "the choice", x: a}})
}

func choices(texts []string) (a alt, err error) {
	for _, t := range texts {
		if !utf8.ValidString(t) {
			return nil, formats.Errorf("", "", "choice %q is not UTF-8", formats.Brief(t, 80))
		}
		a = append(a, literal(t))
	}
	if len(a) == 0 {
		return nil, formats.Errorf("", "", "a choice of nothing")
	}
	return a, nil
}

// regexDFA makes an automaton of a regular expression. With search, it is that of the
// texts in which something matches. write spells a code point of a set.
func regexDFA(pattern string, search bool, write func(runeSet) expr) (*dfa, error) {
	p := &regex{text: pattern, write: write}
	if len(pattern) > maxSource {
		return nil, formats.Errorf("", "", "a regular expression of %d bytes; %d at most", len(pattern), maxSource)
	}
	if !utf8.ValidString(pattern) {
		return nil, formats.Errorf("", "", "the regular expression is not UTF-8")
	}
	x, err := p.alternatives()
	if err != nil {
		return nil, err
	}
	if p.pos < len(p.text) {
		return nil, p.error("a parenthesis that was not opened")
	}
	if search {
		all := repeat{write(anyRune), 0, -1}
		x = seq{all, x, all}
	}
	return regularOf(x)
}

// A regex is a regular expression being read.
type regex struct {
	text  string
	pos   int
	depth int
	write func(runeSet) expr
}

func (p *regex) errorAt(pos int, format string, args ...any) error {
	return formats.ErrorAt("", "", int64(pos), "regular expression %q: %s", formats.Brief(p.text, 200), fmt.Sprintf(format, args...))
}

func (p *regex) error(format string, args ...any) error { return p.errorAt(p.pos, format, args...) }

func (p *regex) unsupported(pos int, what string) error {
	return &formats.UnsupportedError{Offset: int64(pos), Feature: fmt.Sprintf("%s in the regular expression %q", what, formats.Brief(p.text, 200))}
}

func (p *regex) peek() byte {
	if p.pos < len(p.text) {
		return p.text[p.pos]
	}
	return 0
}

func (p *regex) eat(s string) bool {
	if strings.HasPrefix(p.text[p.pos:], s) {
		p.pos += len(s)
		return true
	}
	return false
}

func (p *regex) alternatives() (expr, error) {
	if p.depth++; p.depth > maxNesting {
		return nil, p.error("more than %d levels of groups", maxNesting)
	}
	defer func() { p.depth-- }()
	var out alt
	for {
		x, err := p.sequence()
		if err != nil {
			return nil, err
		}
		out = append(out, x)
		if !p.eat("|") {
			return out, nil
		}
	}
}

func (p *regex) sequence() (expr, error) {
	out := seq{}
	for p.pos < len(p.text) && p.peek() != '|' && p.peek() != ')' {
		x, err := p.atom()
		if err != nil {
			return nil, err
		}
		if x, err = p.times(x); err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	return out, nil
}

func (p *regex) atom() (expr, error) {
	at := p.pos
	r, n := utf8.DecodeRuneInString(p.text[p.pos:])
	p.pos += n
	switch r {
	case '^':
		return atBegin, nil
	case '$':
		return atEnd, nil
	case '.':
		return p.write(newRuneSet(runeRange{'\n', '\n'}, runeRange{'\r', '\r'}, runeRange{0x2028, 0x2029}).not()), nil
	case '[':
		s, err := p.class()
		return p.write(s), err
	case '(':
		return p.group(at)
	case '\\':
		s, err := p.escape(false)
		return p.write(s), err
	case '*', '+', '?':
		return nil, p.errorAt(at, "there is nothing to repeat at %c", r)
	}
	return p.write(newRuneSet(runeRange{r, r})), nil
}

func (p *regex) group(at int) (expr, error) {
	switch {
	case p.eat("?:"):
	case p.eat("?="), p.eat("?!"):
		return nil, p.unsupported(at, "lookahead")
	case p.eat("?<="), p.eat("?<!"):
		return nil, p.unsupported(at, "lookbehind")
	case p.eat("?<"):
		i := strings.IndexByte(p.text[p.pos:], '>')
		if i <= 0 {
			return nil, p.errorAt(at, "a group without a name")
		}
		p.pos += i + 1
	case p.peek() == '?':
		return nil, p.unsupported(at, "a group with flags")
	}
	x, err := p.alternatives()
	if err != nil {
		return nil, err
	}
	if !p.eat(")") {
		return nil, p.errorAt(at, "a parenthesis that is not closed")
	}
	return x, nil
}

// times reads how often x is repeated, if it is. Whether as often or as seldom as
// possible is the same for what is matched as a whole.
func (p *regex) times(x expr) (expr, error) {
	low, high, at := 0, -1, p.pos
	switch {
	case p.eat("*"):
	case p.eat("+"):
		low = 1
	case p.eat("?"):
		high = 1
	case p.peek() == '{':
		var ok bool
		if low, high, ok = p.braces(); !ok {
			return x, nil
		}
	default:
		return x, nil
	}
	p.eat("?")
	if _, ok := x.(anchor); ok {
		return nil, p.errorAt(at, "a repetition of ^ or $")
	}
	if high >= 0 && high < low {
		return nil, p.errorAt(at, "a repetition of %d to %d times", low, high)
	}
	if c := p.peek(); c == '*' || c == '+' || c == '?' {
		return nil, p.error("a repetition of a repetition")
	}
	return repeat{x, low, high}, nil
}

// braces reads {m}, {m,} or {m,n}; what is none of them is text.
func (p *regex) braces() (low, high int, ok bool) {
	end := strings.IndexByte(p.text[p.pos:], '}')
	if end < 0 {
		return 0, 0, false
	}
	number := func(s string) int {
		v, err := strconv.ParseUint(s, 10, 31)
		if err != nil {
			return -1
		}
		return int(v)
	}
	from, to, several := strings.Cut(p.text[p.pos+1:p.pos+end], ",")
	low, high = number(from), -1
	if !several {
		high = low
	} else if to != "" {
		if high = number(to); high < 0 {
			return 0, 0, false
		}
	}
	if low < 0 {
		return 0, 0, false
	}
	p.pos += end + 1
	return low, high, true
}

var (
	digits = newRuneSet(runeRange{'0', '9'})
	words  = newRuneSet(runeRange{'0', '9'}, runeRange{'A', 'Z'}, runeRange{'_', '_'}, runeRange{'a', 'z'})
	// ECMA-262, WhiteSpace and LineTerminator.
	spaces = newRuneSet(runeRange{'\t', '\r'}, runeRange{' ', ' '}, runeRange{0xa0, 0xa0}, runeRange{0x1680, 0x1680},
		runeRange{0x2000, 0x200a}, runeRange{0x2028, 0x2029}, runeRange{0x202f, 0x202f}, runeRange{0x205f, 0x205f},
		runeRange{0x3000, 0x3000}, runeRange{0xfeff, 0xfeff})
)

// escape reads what follows a backslash.
func (p *regex) escape(inClass bool) (runeSet, error) {
	at := p.pos - 1
	if p.pos >= len(p.text) {
		return nil, p.errorAt(at, "a backslash at the end")
	}
	r, n := utf8.DecodeRuneInString(p.text[p.pos:])
	p.pos += n
	one := func(r rune) (runeSet, error) { return newRuneSet(runeRange{r, r}), nil }
	switch r {
	case 'd':
		return digits, nil
	case 'D':
		return digits.not(), nil
	case 'w':
		return words, nil
	case 'W':
		return words.not(), nil
	case 's':
		return spaces, nil
	case 'S':
		return spaces.not(), nil
	case 't':
		return one('\t')
	case 'n':
		return one('\n')
	case 'r':
		return one('\r')
	case 'v':
		return one('\v')
	case 'f':
		return one('\f')
	case 'b', 'B':
		if r == 'b' && inClass {
			return one('\b')
		}
		return nil, p.unsupported(at, "a word boundary (\\"+string(r)+")")
	case 'k':
		return nil, p.unsupported(at, "a back reference")
	case 'c':
		c := p.peek()
		if c|0x20 < 'a' || c|0x20 > 'z' {
			return nil, p.errorAt(at, "a letter should follow \\c")
		}
		p.pos++
		return one(rune(c & 31))
	case 'x':
		return p.hex(at, 2)
	case 'u':
		return p.unicode(at)
	case 'p', 'P':
		return p.property(at, r == 'P')
	}
	switch {
	case r == '0' && (p.peek() < '0' || p.peek() > '9'):
		return one(0)
	case r >= '0' && r <= '9':
		return nil, p.unsupported(at, "a back reference")
	case r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z':
		return nil, p.errorAt(at, "an escape that ECMA-262 does not have: \\%c", r)
	}
	return one(r)
}

func (p *regex) hex(at, n int) (runeSet, error) {
	if p.pos+n > len(p.text) || strings.ContainsAny(p.text[p.pos:p.pos+n], "+-_") {
		return nil, p.errorAt(at, "%d hexadecimal digits should follow", n)
	}
	v, err := strconv.ParseUint(p.text[p.pos:p.pos+n], 16, 32)
	if err != nil {
		return nil, p.errorAt(at, "%d hexadecimal digits should follow", n)
	}
	p.pos += n
	return newRuneSet(runeRange{rune(v), rune(v)}), nil
}

// unicode reads \uHHHH, a pair of surrogates spelled so, or \u{H...}.
func (p *regex) unicode(at int) (runeSet, error) {
	if p.eat("{") {
		end := strings.IndexByte(p.text[p.pos:], '}')
		if end < 1 || strings.ContainsAny(p.text[p.pos:p.pos+end], "+-_") {
			return nil, p.errorAt(at, "\\u{ that is not closed")
		}
		v, err := strconv.ParseUint(p.text[p.pos:p.pos+end], 16, 32)
		if err != nil || v > utf8.MaxRune {
			return nil, p.errorAt(at, "\\u{%s} is no code point", formats.Brief(p.text[p.pos:p.pos+end], 20))
		}
		p.pos += end + 1
		return newRuneSet(runeRange{rune(v), rune(v)}), nil
	}
	if p.pos+4 > len(p.text) {
		return nil, p.errorAt(at, "4 hexadecimal digits should follow")
	}
	high, err := strconv.ParseUint(p.text[p.pos:p.pos+4], 16, 32)
	if err == nil && high >= 0xd800 && high < 0xdc00 && strings.HasPrefix(p.text[p.pos+4:], `\u`) && p.pos+10 <= len(p.text) {
		low, err := strconv.ParseUint(p.text[p.pos+6:p.pos+10], 16, 32)
		if err == nil && low >= 0xdc00 && low < 0xe000 {
			p.pos += 10
			r := rune(0x10000 + (high-0xd800)<<10 + low - 0xdc00)
			return newRuneSet(runeRange{r, r}), nil
		}
	}
	return p.hex(at, 4)
}

// property reads \p{...}: a general category, or Script=NAME. The tables are Go's.
func (p *regex) property(at int, not bool) (runeSet, error) {
	end := strings.IndexByte(p.text[p.pos:], '}')
	if p.peek() != '{' || end < 0 {
		return nil, p.errorAt(at, "{ should follow \\p")
	}
	name := p.text[p.pos+1 : p.pos+end]
	p.pos += end + 1
	var t *unicode.RangeTable
	key, value, pair := strings.Cut(name, "=")
	switch {
	case pair && (key == "Script" || key == "sc"):
		t = unicode.Scripts[value]
	case pair && (key == "General_Category" || key == "gc"):
		t = unicode.Categories[value]
		key = value
	case !pair:
		t = unicode.Categories[name]
	}
	if long, ok := unicode.CategoryAliases[key]; ok && t == nil && (!pair || key == value) {
		t = unicode.Categories[long]
	}
	if t == nil && !pair {
		t = unicode.Properties[name]
	}
	var s runeSet
	switch {
	case t != nil:
		s = tableSet(t)
	case name == "Any":
		s = anyRune
	case name == "ASCII":
		s = newRuneSet(runeRange{0, 0x7f})
	default:
		return nil, p.unsupported(at, "\\p{"+formats.Brief(name, 40)+"}")
	}
	if not {
		s = s.not()
	}
	return s, nil
}

func tableSet(t *unicode.RangeTable) runeSet {
	var in []runeRange
	for _, r := range t.R16 {
		for c := rune(r.Lo); c <= rune(r.Hi); c += rune(r.Stride) {
			if r.Stride == 1 {
				in = append(in, runeRange{c, rune(r.Hi)})
				break
			}
			in = append(in, runeRange{c, c})
		}
	}
	for _, r := range t.R32 {
		for c := rune(r.Lo); c <= rune(r.Hi); c += rune(r.Stride) {
			if r.Stride == 1 {
				in = append(in, runeRange{c, rune(r.Hi)})
				break
			}
			in = append(in, runeRange{c, c})
		}
	}
	return newRuneSet(in...)
}

// class reads what follows [.
func (p *regex) class() (runeSet, error) {
	at := p.pos - 1
	not := p.eat("^")
	var in []runeRange
	for !p.eat("]") {
		lo, err := p.member(at)
		if err != nil {
			return nil, err
		}
		if p.peek() == '-' && p.pos+1 < len(p.text) && p.text[p.pos+1] != ']' {
			dash := p.pos
			p.pos++
			hi, err := p.member(at)
			if err != nil {
				return nil, err
			}
			a, okA := single(lo)
			b, okB := single(hi)
			if !okA || !okB { // [\w-x] is \w, - and x, as Annex B has it
				in = append(append(in, hi...), runeRange{'-', '-'})
			} else if a > b {
				return nil, p.errorAt(dash, "a range from %q down to %q", a, b)
			} else {
				lo = newRuneSet(runeRange{a, b})
			}
		}
		in = append(in, lo...)
	}
	s := newRuneSet(in...)
	if not {
		s = s.not()
	}
	return s, nil
}

func single(s runeSet) (rune, bool) {
	if len(s) != 1 || s[0].lo != s[0].hi {
		return 0, false
	}
	return s[0].lo, true
}

func (p *regex) member(at int) (runeSet, error) {
	if p.pos >= len(p.text) {
		return nil, p.errorAt(at, "a class that is not closed")
	}
	r, n := utf8.DecodeRuneInString(p.text[p.pos:])
	p.pos += n
	if r == '\\' {
		return p.escape(true)
	}
	return newRuneSet(runeRange{r, r}), nil
}
