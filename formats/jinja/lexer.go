package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// A lexer cuts a template into tokens. Texts are trimmed on the way, by the
// rules of Jinja 3.1's lexer with trim_blocks and lstrip_blocks set, as
// transformers has them; one final newline of the template is dropped.
type lexer struct {
	src       string
	at        int
	line      int
	counted   int // bytes of src whose newlines are in line
	lineStart bool
	tokens    []token
	name      string
}

// lex returns the tokens of a template; the last is tokEOF.
func lex(name, src string) []token {
	src = strings.ReplaceAll(strings.ReplaceAll(src, "\r\n", "\n"), "\r", "\n")
	l := &lexer{src: strings.TrimSuffix(src, "\n"), line: 1, lineStart: true, name: name}
	for l.at < len(l.src) {
		l.step()
	}
	l.emit(tokEOF, "")
	return l.tokens
}

func (l *lexer) fail(format string, args ...any) { fail(l.name, l.here(), format, args...) }

// here is the line of the current position.
func (l *lexer) here() int {
	l.line += strings.Count(l.src[l.counted:l.at], "\n")
	l.counted = l.at
	return l.line
}

func (l *lexer) emit(k kind, text string) {
	l.tokens = append(l.tokens, token{kind: k, text: text, line: l.here()})
}

// step handles the text up to the next tag, and the tag.
func (l *lexer) step() {
	i := nextTag(l.src[l.at:])
	if i < 0 {
		l.emit(tokData, l.src[l.at:])
		l.at = len(l.src)
		return
	}
	text := l.src[l.at : l.at+i]
	mark := l.src[l.at+i+1]
	open := 2
	sign := signAt(l.src, l.at+i+2)
	if sign != 0 {
		open = 3
	}
	l.data(text, sign, mark == '{')
	l.at += i
	begin := l.at
	l.at += open
	switch mark {
	case '#':
		l.comment()
	case '{':
		l.at = begin
		l.emit(tokVariableBegin, "")
		l.at += open
		l.tag(tokVariableEnd)
	default:
		if n := rawBegin(l.src[l.at:]); n > 0 {
			l.raw(n)
			return
		}
		l.at = begin
		l.emit(tokBlockBegin, "")
		l.at += open
		l.tag(tokBlockEnd)
	}
}

func nextTag(s string) int {
	for from := 0; ; {
		i := strings.IndexByte(s[from:], '{')
		if i < 0 || from+i+1 >= len(s) {
			return -1
		}
		if from += i; s[from+1] == '{' || s[from+1] == '%' || s[from+1] == '#' {
			return from
		}
		from++
	}
}

func signAt(s string, i int) byte {
	if i < len(s) && (s[i] == '-' || s[i] == '+') {
		return s[i]
	}
	return 0
}

// data emits a text without what the tag behind it takes away.
func (l *lexer) data(text string, sign byte, variable bool) {
	switch {
	case sign == '-':
		text = strings.TrimRightFunc(text, isSpace)
	case sign == '+' || variable:
	default:
		line := strings.LastIndexByte(text, '\n') + 1
		if (line > 0 || l.lineStart) && strings.TrimLeftFunc(text[line:], isSpace) == "" {
			text = text[:line]
		}
	}
	if text != "" {
		l.emit(tokData, text)
	}
}

// close skips the end of a tag of n bytes and what it takes of the text
// behind: all white space with '-', of a block one newline without a sign.
func (l *lexer) close(n int, sign byte, block bool) {
	l.at += n
	from := l.at
	switch {
	case sign == '-':
		l.at = len(l.src) - len(strings.TrimLeftFunc(l.src[l.at:], isSpace))
	case sign == 0 && block && strings.HasPrefix(l.src[l.at:], "\n"):
		l.at++
	}
	l.lineStart = l.at > from && l.src[l.at-1] == '\n'
}

func (l *lexer) comment() {
	i := strings.Index(l.src[l.at:], "#}")
	if i < 0 {
		l.fail("a comment that does not end")
	}
	sign := byte(0)
	if i > 0 {
		sign = signAt(l.src, l.at+i-1)
	}
	l.close(i+2, sign, true)
}

// rawBegin returns the length of "raw %}" at the beginning of s, 0 for none.
func rawBegin(s string) int {
	rest, ok := strings.CutPrefix(strings.TrimLeftFunc(s, isSpace), "raw")
	if !ok {
		return 0
	}
	rest = strings.TrimLeftFunc(rest, isSpace)
	if rest, ok = strings.CutPrefix(strings.TrimPrefix(rest, "-"), "%}"); !ok {
		return 0
	}
	return len(s) - len(rest)
}

// raw emits a raw block, whose opening has n more bytes.
func (l *lexer) raw(n int) {
	l.close(n, signAt(l.src, l.at+n-3), false)
	for from := l.at; ; {
		i := strings.Index(l.src[from:], "{%")
		if i < 0 {
			l.fail("a raw block that does not end")
		}
		at := from + i
		n, sign, end := rawEnd(l.src[at:])
		if n == 0 {
			from = at + 2
			continue
		}
		l.data(l.src[l.at:at], sign, false)
		l.at = at
		l.close(n, end, true)
		return
	}
}

// rawEnd reads "{% endraw %}" at the beginning of s: its length, 0 for none,
// and the signs of its beginning and end.
func rawEnd(s string) (n int, sign, end byte) {
	rest := s[2:]
	if sign = signAt(rest, 0); sign != 0 {
		rest = rest[1:]
	}
	rest, ok := strings.CutPrefix(strings.TrimLeftFunc(rest, isSpace), "endraw")
	if !ok {
		return 0, 0, 0
	}
	rest = strings.TrimLeftFunc(rest, isSpace)
	if end = signAt(rest, 0); end != 0 {
		rest = rest[1:]
	}
	if rest, ok = strings.CutPrefix(rest, "%}"); !ok {
		return 0, 0, 0
	}
	return len(s) - len(rest), sign, end
}

// tag emits the tokens up to the end of a tag, and its end. Brackets hide an
// end: "}}" within a dictionary is two braces.
func (l *lexer) tag(end kind) {
	var brackets []byte
	for {
		l.at = len(l.src) - len(strings.TrimLeftFunc(l.src[l.at:], isSpace))
		if l.at == len(l.src) {
			if len(brackets) > 0 {
				l.fail("a tag that does not end: %s is missing", quote(string(brackets[len(brackets)-1])))
			}
			l.fail("a tag that does not end")
		}
		if len(brackets) == 0 && l.tagEnd(end) {
			return
		}
		c := l.src[l.at]
		switch c {
		case '(':
			brackets = append(brackets, ')')
		case '[':
			brackets = append(brackets, ']')
		case '{':
			brackets = append(brackets, '}')
		case ')', ']', '}':
			if len(brackets) == 0 || brackets[len(brackets)-1] != c {
				l.fail("unexpected %s", quote(string(c)))
			}
			brackets = brackets[:len(brackets)-1]
		}
		l.token(c)
	}
}

func (l *lexer) tagEnd(end kind) bool {
	s := l.src[l.at:]
	sign := signAt(s, 0)
	if end == tokVariableEnd {
		if sign != '-' {
			sign = 0
		}
		if n := btoi(sign != 0); strings.HasPrefix(s[n:], "}}") {
			l.emit(end, "")
			l.close(n+2, sign, false)
			return true
		}
		return false
	}
	if n := btoi(sign != 0); strings.HasPrefix(s[n:], "%}") {
		l.emit(end, "")
		l.close(n+2, sign, true)
		return true
	}
	return false
}

// token emits one token of an expression, which begins with c.
func (l *lexer) token(c byte) {
	rest := l.src[l.at:]
	switch {
	case c >= '0' && c <= '9':
		l.number()
		return
	case c == '\'' || c == '"':
		l.str(c)
		return
	}
	if n := wordLen(rest); n > 0 {
		if r, _ := utf8.DecodeRuneInString(rest); !unicode.IsLetter(r) && r != '_' {
			l.fail("invalid character in identifier %s", quote(rest[:n]))
		}
		l.emit(tokName, rest[:n])
		l.at += n
		return
	}
	for _, op := range operators {
		if strings.HasPrefix(rest, op) {
			l.emit(kind(op), op)
			l.at += len(op)
			return
		}
	}
	r, _ := utf8.DecodeRuneInString(rest)
	l.fail("unexpected character %s", quote(string(r)))
}

// wordLen is the length of the word at the beginning of s: letters, numbers
// and underscores.
func wordLen(s string) int {
	for i, r := range s {
		if r != '_' && !unicode.IsLetter(r) && !unicode.IsNumber(r) {
			return i
		}
	}
	return len(s)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
