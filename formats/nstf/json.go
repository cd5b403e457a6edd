package nstf

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/nstf/nstf/formats"
)

// A cursor parses the header's JSON strictly, in one pass and without an
// intermediate tree: encoding/json would take doubled keys, keys in another
// case, broken UTF-8 and lone surrogates. p is known to be valid UTF-8.
//
// Sets of keys and short names are kept and used again, so that a header of
// many tensors costs little more memory than what is kept of it.
type cursor struct {
	p     []byte
	i     int
	depth int
	file  string
	where string // tensor or file being read, for messages
	base  int64  // file offset of p[0]
	names map[string]string
	sets  [MaxDepth + 1]keySet // keys of the open object at each depth
	keys  *keySet              // keys of the object that ended last
}

// fail makes a FormatError at the cursor.
func (c *cursor) fail(format string, args ...any) error {
	return c.failAt(c.i, format, args...)
}

func (c *cursor) failAt(i int, format string, args ...any) error {
	return formats.ErrorAt(c.file, c.where, c.base+int64(i), "header: "+format, args...)
}

// unsupported makes an UnsupportedError at i.
func (c *cursor) unsupported(i int, format string, args ...any) error {
	return &formats.UnsupportedError{File: c.file, Tensor: c.where, Offset: c.base + int64(i), Feature: fmt.Sprintf(format, args...)}
}

// peek skips white space and returns the next byte, 0 at the end.
func (c *cursor) peek() byte {
	for c.i < len(c.p) {
		switch c.p[c.i] {
		case ' ', '\t', '\n', '\r':
			c.i++
		default:
			return c.p[c.i]
		}
	}
	return 0
}

// expect consumes one byte of punctuation.
func (c *cursor) expect(b byte) error {
	if got := c.peek(); got != b || c.i == len(c.p) {
		return c.unexpected(fmt.Sprintf("%q", b))
	}
	c.i++
	return nil
}

func (c *cursor) unexpected(want string) error {
	if c.peek() == 0 && c.i == len(c.p) {
		return c.fail("ends where %s should stand", want)
	}
	r, _ := utf8.DecodeRune(c.p[c.i:])
	return c.fail("%q where %s should stand", r, want)
}

// enter and leave bound the nesting.
func (c *cursor) enter() error {
	if c.depth++; c.depth > MaxDepth {
		return c.fail("nested deeper than %d levels", MaxDepth)
	}
	return nil
}

func (c *cursor) leave() { c.depth-- }

// object calls each once per key, in order, with the cursor on the value,
// which each must consume. A key that comes twice is refused.
func (c *cursor) object(each func(key string) error) error {
	if err := c.expect('{'); err != nil {
		return err
	}
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	seen := &c.sets[c.depth]
	seen.reset()
	defer func() { c.keys = seen }()
	if c.peek() == '}' {
		c.i++
		return nil
	}
	for {
		at := c.i
		key, err := c.short()
		if err != nil {
			return err
		}
		if !seen.add(key) {
			return c.failAt(at, "key %q twice in one object", key)
		}
		if len(seen.many) > MaxKeys {
			return c.failAt(at, "more than %d keys in one object", MaxKeys)
		}
		if err := c.expect(':'); err != nil {
			return err
		}
		if err := each(key); err != nil {
			return err
		}
		if done, err := c.next('}'); done || err != nil {
			return err
		}
	}
}

// array calls each once per element with the cursor on it.
func (c *cursor) array(each func(i int) error) error {
	if err := c.expect('['); err != nil {
		return err
	}
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	if c.peek() == ']' {
		c.i++
		return nil
	}
	for i := 0; ; i++ {
		if err := each(i); err != nil {
			return err
		}
		if done, err := c.next(']'); done || err != nil {
			return err
		}
	}
}

// next consumes a comma, or the closing byte and reports done.
func (c *cursor) next(closing byte) (done bool, err error) {
	switch c.peek() {
	case closing:
		c.i++
		return true, nil
	case ',':
		c.i++
		c.peek()
		return false, nil
	}
	return false, c.unexpected(fmt.Sprintf("',' or %q", closing))
}

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

// maxNames is how many short strings are kept for use again.
const maxNames = 1024

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

// skip checks and skips any value.
func (c *cursor) skip() error {
	switch c.peek() {
	case '{':
		return c.object(func(string) error { return c.skip() })
	case '[':
		return c.array(func(int) error { return c.skip() })
	case '"':
		return c.skipString()
	case 't':
		return c.literal("true")
	case 'f':
		return c.literal("false")
	case 'n':
		return c.literal("null")
	}
	return c.number()
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

// A keySet holds the keys of one object: a few in an array, more in a map.
type keySet struct {
	few  []string
	many map[string]struct{}
}

// reset empties the set and keeps the array.
func (s *keySet) reset() {
	s.few, s.many = s.few[:0], nil
}

// has reports whether key is in the set.
func (s *keySet) has(key string) bool {
	if s.many != nil {
		_, ok := s.many[key]
		return ok
	}
	return slices.Contains(s.few, key)
}

// add reports whether key is new.
func (s *keySet) add(key string) bool {
	if s.many != nil {
		n := len(s.many)
		s.many[key] = struct{}{}
		return len(s.many) > n
	}
	if slices.Contains(s.few, key) {
		return false
	}
	s.few = append(s.few, key)
	if len(s.few) == 16 {
		s.many = make(map[string]struct{}, 64)
		for _, k := range s.few {
			s.many[k] = struct{}{}
		}
	}
	return true
}

// quoteBrief quotes a value for a message, cut where it is long.
func quoteBrief(p []byte) string {
	if len(p) > 40 {
		return fmt.Sprintf("%q...", p[:40])
	}
	return fmt.Sprintf("%q", p)
}
