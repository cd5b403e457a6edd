package jinja

import (
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// number emits an integer or float, spelled as in Python.
func (l *lexer) number() {
	s := l.src[l.at:]
	n := digitsLen(s, isDigit)
	if l.at == 0 || l.src[l.at-1] != '.' {
		m := n
		float := false
		if m+1 < len(s) && s[m] == '.' && isDigit(s[m+1]) {
			m += 1 + digitsLen(s[m+1:], isDigit)
			float = true
		}
		if k := exponentLen(s[m:]); k > 0 {
			m += k
			float = true
		}
		if float {
			f, _ := strconv.ParseFloat(strings.ReplaceAll(s[:m], "_", ""), 64) // overflow is infinity, as in Python
			l.tokens = append(l.tokens, token{kind: tokFloat, value: f, line: l.here()})
			l.at += m
			return
		}
	}
	base, skip := 10, 0
	if s[0] == '0' {
		n = digitsLen(s, func(c byte) bool { return c == '0' })
		if len(s) > 1 {
			b, digit := prefixBase(s[1])
			rest := s[2:]
			if b != 0 && len(rest) > 0 && rest[0] == '_' {
				rest = rest[1:]
			}
			if b != 0 && len(rest) > 0 && digit(rest[0]) {
				base, skip, n = b, 2, len(s)-len(rest)+digitsLen(rest, digit)
			}
		}
	}
	text := strings.ReplaceAll(s[skip:n], "_", "")
	if len(text) > maxDigits {
		l.fail("an integer of %d digits: the limit is %d", len(text), maxDigits)
	}
	i, _ := new(big.Int).SetString(text, base)
	l.tokens = append(l.tokens, token{kind: tokInteger, value: norm(i), line: l.here()})
	l.at += n
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// digitsLen is the length of digits at the beginning of s, with single
// underscores between them.
func digitsLen(s string, digit func(byte) bool) int {
	i := 0
	for i < len(s) && (digit(s[i]) || s[i] == '_' && i > 0 && s[i-1] != '_' && i+1 < len(s) && digit(s[i+1])) {
		i++
	}
	return i
}

func exponentLen(s string) int {
	if len(s) == 0 || s[0] != 'e' && s[0] != 'E' {
		return 0
	}
	i := 1
	if i < len(s) && (s[i] == '+' || s[i] == '-') {
		i++
	}
	if n := digitsLen(s[i:], isDigit); n > 0 {
		return i + n
	}
	return 0
}

func prefixBase(c byte) (int, func(byte) bool) {
	switch c {
	case 'x', 'X':
		return 16, func(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }
	case 'o', 'O':
		return 8, func(c byte) bool { return '0' <= c && c <= '7' }
	case 'b', 'B':
		return 2, func(c byte) bool { return c == '0' || c == '1' }
	}
	return 0, nil
}

// str emits a string literal.
func (l *lexer) str(q byte) {
	s := l.src[l.at:]
	end := -1
	escaped := false
	for i := 1; i < len(s) && end < 0; i++ {
		switch s[i] {
		case '\\':
			escaped = true
			i++
		case q:
			end = i
		}
	}
	if end < 0 {
		l.fail("a string that does not end")
	}
	text := s[1:end]
	if escaped {
		text = l.unescape(text)
	}
	l.emit(tokString, text)
	l.at += end + 1
}

var simpleEscapes = map[byte]string{'\n': "", '\\': "\\", '\'': "'", '"': "\"", 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v"}

// unescape resolves the escapes of Python's string literals. Unknown ones
// stay as they are written.
func (l *lexer) unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		c := s[i]
		if c != '\\' {
			b.WriteByte(c)
			i++
			continue
		}
		c = s[i+1]
		if t, ok := simpleEscapes[c]; ok {
			b.WriteString(t)
			i += 2
			continue
		}
		width := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
		switch {
		case width > 0:
			i += 2 + l.hexEscape(&b, s[i+2:], width)
		case '0' <= c && c <= '7':
			n := 1
			for n < 3 && i+1+n < len(s) && '0' <= s[i+1+n] && s[i+1+n] <= '7' {
				n++
			}
			v, _ := strconv.ParseUint(s[i+1:i+1+n], 8, 16)
			b.WriteRune(rune(v))
			i += 1 + n
		case c == 'N':
			l.fail(`\N in a string: names of characters are not implemented`)
		default:
			b.WriteByte('\\')
			i++
		}
	}
	return b.String()
}

// hexEscape writes the character of a hexadecimal escape. A pair of
// surrogates, two characters in Python, and one that no text can be written
// with, is refused.
func (l *lexer) hexEscape(b *strings.Builder, s string, width int) int {
	if len(s) < width {
		l.fail("a truncated escape in a string")
	}
	v, err := strconv.ParseUint(s[:width], 16, 32)
	if err != nil || v > utf8.MaxRune || !utf8.ValidRune(rune(v)) {
		l.fail("the escape %s in a string is no character", quote(s[:width]))
	}
	b.WriteRune(rune(v))
	return width
}
