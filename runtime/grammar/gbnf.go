package grammar

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nstf/nstf/formats"
)

// maxSource bounds the text of a grammar, a schema or a regular expression, in bytes.
const maxSource = 4 << 20

// ParseGBNF reads a grammar in GBNF, of which the rule root is the whole.
//
// Rules are lines NAME ::= ALTERNATIVES, names of letters, digits and dashes. There are
// "literals", [classes] and [^classes] of code points, . for any code point, (groups),
// |, and behind an item * + ? {m} {m,} {m,n}. Within literals and classes \xHH, \uHHHH,
// \UHHHHHHHH, \t, \r, \n, \\, \", \[, \] and \- are escapes. # begins a comment. A rule goes
// on in the next line behind ::= and |, and within parentheses. Rules that begin with
// themselves repeat; where they do so through others, they are refused by name.
//
// It fails with a [formats.FormatError] at a byte of the text, or with a
// [formats.UnsupportedError] for tokens (<think>), left recursion through several
// rules, and what takes more states than a grammar may.
//
// Source: grammars/README.md and src/llama-grammar.cpp of llama.cpp, as of autumn 2026.
func ParseGBNF(text string) (*Grammar, error) {
	rules, err := gbnfRules(text)
	if err != nil {
		return nil, err
	}
	return build(rules)
}

// gbnfRules returns the rules of a grammar, the first of which is the whole.
func gbnfRules(text string) ([]rule, error) {
	p := &gbnf{text: text, index: map[string]int{}}
	if len(text) > maxSource {
		return nil, formats.Errorf("", "", "a grammar of %d bytes; %d at most", len(text), maxSource)
	}
	if !utf8.ValidString(text) {
		return nil, formats.Errorf("", "", "the grammar is not UTF-8")
	}
	root := p.rule("root")
	if err := p.parse(); err != nil {
		return nil, err
	}
	for i := range p.rules {
		if p.rules[i].x == nil {
			if i == root {
				return nil, formats.Errorf("", "", "there is no rule root, which is the whole of a grammar")
			}
			return nil, p.errorAt(p.seen[i], "rule %q is not defined", p.rules[i].name)
		}
	}
	return p.rules, nil
}

// A gbnf is a grammar being read.
type gbnf struct {
	text  string
	pos   int
	depth int
	rules []rule
	seen  []int // where each rule was named first
	index map[string]int
}

func (p *gbnf) errorAt(pos int, format string, args ...any) error {
	line := 1 + strings.Count(p.text[:pos], "\n")
	column := 1 + utf8.RuneCountInString(p.text[strings.LastIndexByte(p.text[:pos], '\n')+1:pos])
	return formats.ErrorAt("", "", int64(pos), "line %d, column %d: %s", line, column, fmt.Sprintf(format, args...))
}

func (p *gbnf) error(format string, args ...any) error { return p.errorAt(p.pos, format, args...) }

// rule returns the index of a rule of a name.
func (p *gbnf) rule(name string) int {
	i, ok := p.index[name]
	if !ok {
		i = len(p.rules)
		p.index[name] = i
		p.rules, p.seen = append(p.rules, rule{name: name}), append(p.seen, p.pos)
	}
	return i
}

func (p *gbnf) peek() byte {
	if p.pos < len(p.text) {
		return p.text[p.pos]
	}
	return 0
}

// space passes blanks and comments, and the ends of lines where those are passed too.
func (p *gbnf) space(lines bool) {
	for ; p.pos < len(p.text); p.pos++ {
		switch c := p.text[p.pos]; {
		case c == '#':
			for p.pos+1 < len(p.text) && p.text[p.pos+1] != '\n' && p.text[p.pos+1] != '\r' {
				p.pos++
			}
		case c == ' ' || c == '\t' || lines && (c == '\n' || c == '\r'):
		default:
			return
		}
	}
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-'
}

func (p *gbnf) name() string {
	from := p.pos
	for isWord(p.peek()) {
		p.pos++
	}
	return p.text[from:p.pos]
}

// shown is what stands at the position, for an error.
func (p *gbnf) shown() string {
	if p.pos >= len(p.text) {
		return "the end"
	}
	r, _ := utf8.DecodeRuneInString(p.text[p.pos:])
	return strconv.QuoteRune(r)
}

func (p *gbnf) parse() error {
	for p.space(true); p.pos < len(p.text); p.space(true) {
		at := p.pos
		name := p.name()
		if name == "" {
			return p.error("%s, where the name of a rule should stand", p.shown())
		}
		i := p.rule(name)
		if p.rules[i].x != nil {
			return p.errorAt(at, "rule %q is defined twice", name)
		}
		p.space(false)
		if !strings.HasPrefix(p.text[p.pos:], "::=") {
			return p.error("%s, where ::= should follow %s", p.shown(), formats.Brief(name, 80))
		}
		p.pos += 3
		p.space(true)
		x, err := p.alternatives(false)
		if err != nil {
			return err
		}
		p.rules[i].x = x
		if p.pos < len(p.text) && p.peek() != '\n' && p.peek() != '\r' {
			return p.error("%s, where the line of a rule should end", p.shown())
		}
	}
	return nil
}

func (p *gbnf) alternatives(nested bool) (expr, error) {
	if p.depth++; p.depth > maxNesting {
		return nil, p.error("more than %d levels of parentheses", maxNesting)
	}
	defer func() { p.depth-- }()
	var out alt
	for {
		x, err := p.sequence(nested)
		if err != nil {
			return nil, err
		}
		out = append(out, x)
		if p.peek() != '|' {
			return out, nil
		}
		p.pos++
		p.space(true)
	}
}

func (p *gbnf) sequence(nested bool) (expr, error) {
	out := seq{}
	for p.pos < len(p.text) {
		x, err := p.item(nested)
		if err != nil {
			return nil, err
		}
		if x != nil {
			out = append(out, x)
			p.space(nested)
			continue
		}
		low, high, ok, err := p.times(nested)
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		if len(out) == 0 {
			return nil, p.error("there is nothing to repeat")
		}
		out[len(out)-1] = repeat{out[len(out)-1], low, high}
		p.space(nested)
	}
	return out, nil
}

// item reads what may be repeated, nil where there is none.
func (p *gbnf) item(nested bool) (expr, error) {
	switch c := p.peek(); {
	case c == '"':
		return p.literal()
	case c == '[':
		return p.class()
	case c == '<' || c == '!':
		return nil, &formats.UnsupportedError{Offset: int64(p.pos), Feature: "a token in a grammar",
			Hint: "spell its text as a literal; special tokens are never part of what a grammar describes"}
	case c == '.':
		p.pos++
		return class(anyRune), nil
	case isWord(c):
		at := p.pos
		i := p.rule(p.name())
		if p.seen[i] > at {
			p.seen[i] = at
		}
		return ref(i), nil
	case c == '(':
		p.pos++
		p.space(true)
		x, err := p.alternatives(true)
		if err != nil {
			return nil, err
		}
		if p.peek() != ')' {
			return nil, p.error("%s, where a parenthesis should be closed", p.shown())
		}
		p.pos++
		return x, nil
	}
	return nil, nil
}

func (p *gbnf) literal() (expr, error) {
	var b []byte
	for p.pos++; p.peek() != '"'; {
		r, err := p.char()
		if err != nil {
			return nil, err
		}
		b = utf8.AppendRune(b, r)
	}
	p.pos++
	return literal(b), nil
}

func (p *gbnf) class() (expr, error) {
	p.pos++
	not := p.peek() == '^'
	if not {
		p.pos++
	}
	var ranges []runeRange
	for p.peek() != ']' {
		at := p.pos
		lo, err := p.char()
		if err != nil {
			return nil, err
		}
		hi := lo
		if p.peek() == '-' && p.pos+1 < len(p.text) && p.text[p.pos+1] != ']' {
			p.pos++
			if hi, err = p.char(); err != nil {
				return nil, err
			}
		}
		if hi < lo {
			return nil, p.errorAt(at, "a range from %q down to %q", lo, hi)
		}
		ranges = append(ranges, runeRange{lo, hi})
	}
	if len(ranges) == 0 {
		return nil, p.error("a class of nothing")
	}
	p.pos++
	s := newRuneSet(ranges...)
	if not {
		s = s.not()
	}
	return class(s), nil
}

// char reads a code point of a literal or a class.
func (p *gbnf) char() (rune, error) {
	if p.pos >= len(p.text) {
		return 0, p.error("the end within a literal or a class")
	}
	r, n := utf8.DecodeRuneInString(p.text[p.pos:])
	if r != '\\' {
		p.pos += n
		return r, nil
	}
	at := p.pos
	p.pos += 2
	if p.pos > len(p.text) {
		return 0, p.errorAt(at, "the end within an escape")
	}
	digits := 0
	switch c := p.text[p.pos-1]; c {
	case 't':
		return '\t', nil
	case 'r':
		return '\r', nil
	case 'n':
		return '\n', nil
	case '\\', '"', '[', ']', '-':
		return rune(c), nil
	case 'x':
		digits = 2
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	default:
		return 0, p.errorAt(at, "an escape that GBNF does not have: \\%c", c)
	}
	v, err := uint64(0), error(nil)
	if p.pos+digits <= len(p.text) && !strings.ContainsAny(p.text[p.pos:p.pos+digits], "+-_") {
		v, err = strconv.ParseUint(p.text[p.pos:p.pos+digits], 16, 32)
	} else {
		err = strconv.ErrSyntax
	}
	if err != nil {
		return 0, p.errorAt(at, "%d hexadecimal digits should follow \\%c", digits, p.text[p.pos-1])
	}
	if v > utf8.MaxRune || v >= 0xd800 && v <= 0xdfff {
		return 0, p.errorAt(at, "%#x is no code point that a text can hold", v)
	}
	p.pos += digits
	return rune(v), nil
}

// times reads how often the item in front is repeated; high is -1 where there is no bound.
func (p *gbnf) times(nested bool) (low, high int, ok bool, err error) {
	switch p.peek() {
	case '*':
		p.pos++
		return 0, -1, true, nil
	case '+':
		p.pos++
		return 1, -1, true, nil
	case '?':
		p.pos++
		return 0, 1, true, nil
	case '{':
	default:
		return 0, 0, false, nil
	}
	at := p.pos
	p.pos++
	p.space(nested)
	if low, err = p.number(); err != nil {
		return 0, 0, false, err
	}
	p.space(nested)
	high = low
	if p.peek() == ',' {
		p.pos++
		p.space(nested)
		high = -1
		if c := p.peek(); c >= '0' && c <= '9' {
			if high, err = p.number(); err != nil {
				return 0, 0, false, err
			}
			p.space(nested)
		}
	}
	if p.peek() != '}' {
		return 0, 0, false, p.error("%s, where a repetition should be closed by }", p.shown())
	}
	p.pos++
	if high >= 0 && high < low {
		return 0, 0, false, p.errorAt(at, "a repetition of %d to %d times", low, high)
	}
	return low, high, true, nil
}

func (p *gbnf) number() (int, error) {
	from := p.pos
	for p.peek() >= '0' && p.peek() <= '9' {
		p.pos++
	}
	n, err := strconv.ParseUint(p.text[from:p.pos], 10, 64)
	if err != nil || n > math.MaxInt32 {
		return 0, p.errorAt(from, "%q is no number of times", formats.Brief(p.text[from:p.pos], 40))
	}
	return int(n), nil
}
