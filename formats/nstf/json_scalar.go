package nstf

import (
	"bytes"
	"fmt"
	"math"
	"unicode/utf16"
	"unicode/utf8"
)

// Strings, numbers and literals of the header's JSON.

// str parses a string.
func (c *cursor) str() (string, error) {
	if c.peek() != '"' {
		return "", c.unexpected("a string")
	}
	start := c.i + 1
	for i := start; i < len(c.p); i++ {
		switch b := c.p[i]; {
		case b == '"':
			c.i = i + 1
			return string(c.p[start:i]), nil
		case b == '\\':
			return c.escaped(start, i)
		case b < 0x20:
			return "", c.failAt(i, "control character %#02x in a string", b)
		}
	}
	c.i = len(c.p)
	return "", c.fail("string does not end")
}

// short parses a string that is likely to come again: a key or an id.
func (c *cursor) short() (string, error) {
	if c.peek() == '"' {
		rest := c.p[c.i+1:]
		if n := bytes.IndexByte(rest[:min(len(rest), MaxID+1)], '"'); n >= 0 {
			if s, ok := c.names[string(rest[:n])]; ok { // does not allocate
				c.i += n + 2
				return s, nil
			}
		}
	}
	s, err := c.str()
	if err == nil && len(c.names) < maxNames && isID(s) {
		if c.names == nil {
			c.names = map[string]string{}
		}
		c.names[s] = s
	}
	return s, err
}

// escaped finishes a string that has a backslash at i.
func (c *cursor) escaped(start, i int) (string, error) {
	out := append(make([]byte, 0, i-start+16), c.p[start:i]...)
	for i < len(c.p) {
		b := c.p[i]
		switch {
		case b == '"':
			c.i = i + 1
			return string(out), nil
		case b < 0x20:
			return "", c.failAt(i, "control character %#02x in a string", b)
		case b != '\\':
			out = append(out, b)
			i++
			continue
		}
		r, n := unescape(c.p[i:])
		if n == 0 {
			return "", c.failAt(i, "bad escape %q in a string", c.p[i:min(i+6, len(c.p))])
		}
		out = utf8.AppendRune(out, r)
		i += n
	}
	c.i = len(c.p)
	return "", c.fail("string does not end")
}

// unescape decodes the escape that p begins with and returns its length, 0
// where it is none or half a surrogate pair.
func unescape(p []byte) (rune, int) {
	if len(p) < 2 {
		return 0, 0
	}
	switch p[1] {
	case '"', '\\', '/':
		return rune(p[1]), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r, ok := hex4(p[2:])
		if !ok {
			return 0, 0
		}
		if !utf16.IsSurrogate(r) {
			return r, 6
		}
		if len(p) < 12 || p[6] != '\\' || p[7] != 'u' {
			return 0, 0
		}
		low, ok := hex4(p[8:])
		if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
			return 0, 0
		}
		return r, 12
	}
	return 0, 0
}

func hex4(p []byte) (rune, bool) {
	if len(p) < 4 {
		return 0, false
	}
	var r rune
	for _, b := range p[:4] {
		switch {
		case b >= '0' && b <= '9':
			b -= '0'
		case b >= 'a' && b <= 'f':
			b -= 'a' - 10
		case b >= 'A' && b <= 'F':
			b -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(b)
	}
	return r, true
}

// skipString checks and skips a string, without a copy where it has no
// escapes.
func (c *cursor) skipString() error {
	for i := c.i + 1; i < len(c.p); i++ {
		switch b := c.p[i]; {
		case b == '"':
			c.i = i + 1
			return nil
		case b == '\\', b < 0x20:
			_, err := c.str()
			return err
		}
	}
	_, err := c.str()
	return err
}

// integer parses an integer in its one spelling: an optional minus, no
// leading zero, no fraction, no exponent, within int64.
func (c *cursor) integer() (int64, error) {
	c.peek()
	start := c.i
	if err := c.number(); err != nil {
		return 0, err
	}
	text := c.p[start:c.i]
	neg := text[0] == '-'
	digits := text
	if neg {
		digits = text[1:]
	}
	limit := uint64(math.MaxInt64)
	if neg {
		limit++
	}
	var n uint64
	for _, b := range digits {
		if b < '0' || b > '9' || n > limit/10 || n*10 > limit-uint64(b-'0') {
			return 0, c.failAt(start, "%s is not an integer of 64 bits", quoteBrief(text))
		}
		n = n*10 + uint64(b-'0')
	}
	if neg {
		if n == 0 {
			return 0, c.failAt(start, "-0 is not an integer")
		}
		return -int64(n), nil // -2^63 negates to itself
	}
	return int64(n), nil
}

// size parses an integer that is not negative.
func (c *cursor) size() (int64, error) {
	c.peek()
	start := c.i
	n, err := c.integer()
	if err == nil && n < 0 {
		err = c.failAt(start, "%d is negative", n)
	}
	return n, err
}

// boolean parses true or false.
func (c *cursor) boolean() (bool, error) {
	switch c.peek() {
	case 't':
		return true, c.literal("true")
	case 'f':
		return false, c.literal("false")
	}
	return false, c.unexpected("true or false")
}

func (c *cursor) literal(word string) error {
	if len(c.p)-c.i < len(word) || string(c.p[c.i:c.i+len(word)]) != word {
		return c.unexpected(word)
	}
	c.i += len(word)
	return nil
}

// number skips a number of RFC 8259.
func (c *cursor) number() error {
	c.peek()
	start := c.i
	if c.at('-') {
		c.i++
	}
	if c.at('0') {
		c.i++
	} else if !c.digits() {
		c.i = start
		return c.unexpected("a number")
	}
	if c.at('.') {
		if c.i++; !c.digits() {
			return c.unexpected("a digit")
		}
	}
	if c.at('e') || c.at('E') {
		if c.i++; c.at('+') || c.at('-') {
			c.i++
		}
		if !c.digits() {
			return c.unexpected("a digit")
		}
	}
	return nil
}

func (c *cursor) at(b byte) bool { return c.i < len(c.p) && c.p[c.i] == b }

// digits skips digits and reports whether there was one.
func (c *cursor) digits() bool {
	start := c.i
	for c.i < len(c.p) && c.p[c.i] >= '0' && c.p[c.i] <= '9' {
		c.i++
	}
	return c.i > start
}

// quoteBrief quotes a value for a message, cut where it is long.
func quoteBrief(p []byte) string {
	if len(p) > 40 {
		return fmt.Sprintf("%q...", p[:40])
	}
	return fmt.Sprintf("%q", p)
}
