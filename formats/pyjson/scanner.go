// Package pyjson reads the JSON that Python programs write: standard JSON
// plus the numbers NaN, Infinity and -Infinity, in order and within limits.
//
// In: bytes in memory. Out: either a walk without a tree ([Scanner]), for
// headers of many thousand entries, or an ordered tree ([Parse]), for
// configurations. Numbers stay text until somebody asks for a type, so none
// is rounded on the way.
//
// Invariants: an object with a duplicate key is refused by Parse (a Scanner's
// caller sees every key); strings must be UTF-8 and surrogates paired; depth
// is at most 64. Errors are *formats.FormatError with the byte's offset.
package pyjson

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/nstf/nstf/formats"
)

// MaxDepth is the deepest nesting that is read.
const MaxDepth = 64

// A Scanner walks one JSON text from left to right. Its methods must be
// called in the order of the text; after an error it must not be used.
type Scanner struct {
	file  string
	base  int64
	p     []byte
	pos   int
	depth int
}

// NewScanner returns a Scanner of p, which lies at byte base of file.
func NewScanner(file string, base int64, p []byte) *Scanner {
	return &Scanner{file: file, base: base, p: p}
}

// Errorf makes an error at the current place.
func (s *Scanner) Errorf(what, format string, args ...any) error {
	return formats.ErrorAt(s.file, what, s.base+int64(s.pos), format, args...)
}

// Peek skips white space and returns the next byte, 0 at the end.
func (s *Scanner) Peek() byte {
	for s.pos < len(s.p) {
		switch c := s.p[s.pos]; c {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

// near quotes what stands at the current place.
func (s *Scanner) near() string {
	if s.pos >= len(s.p) {
		return "the end"
	}
	return strconv.Quote(string(s.p[s.pos:min(len(s.p), s.pos+16)]))
}

func (s *Scanner) expect(c byte) error {
	if s.Peek() != c {
		return s.Errorf("", "%q expected, found %s", string(c), s.near())
	}
	s.pos++
	return nil
}

// End checks that only white space is left.
func (s *Scanner) End() error {
	if s.Peek() != 0 || s.pos < len(s.p) {
		return s.Errorf("", "text behind the JSON value: %s", s.near())
	}
	return nil
}

// Object walks an object: member is called with each key and must consume its
// value.
func (s *Scanner) Object(member func(key string) error) error {
	return s.list('{', '}', func() error {
		key, err := s.String()
		if err == nil {
			err = s.expect(':')
		}
		if err == nil {
			err = member(key)
		}
		return err
	})
}

// Array walks an array: element must consume one value per call.
func (s *Scanner) Array(element func() error) error { return s.list('[', ']', element) }

func (s *Scanner) list(left, right byte, item func() error) error {
	if err := s.expect(left); err != nil {
		return err
	}
	if s.depth++; s.depth > MaxDepth {
		return s.Errorf("", "nested more than %d deep", MaxDepth)
	}
	if s.Peek() == right {
		s.pos++
		s.depth--
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		switch s.Peek() {
		case ',':
			s.pos++
		case right:
			s.pos++
			s.depth--
			return nil
		default:
			return s.Errorf("", "',' or %q expected, found %s", string(right), s.near())
		}
	}
}

// Fields walks an object whose keys are among names, each at most once, and
// calls member with a key's place in names. It returns the keys found as bits.
// what names the object in errors.
func (s *Scanner) Fields(what string, names []string, member func(i int) error) (found uint64, err error) {
	err = s.list('{', '}', func() error {
		key, err := s.Bytes()
		if err != nil {
			return err
		}
		for i, name := range names {
			if string(key) != name {
				continue
			}
			if found&(1<<i) != 0 {
				return s.Errorf(what, "duplicate field %q", name)
			}
			found |= 1 << i
			if err := s.expect(':'); err != nil {
				return err
			}
			return member(i)
		}
		return s.Errorf(what, "unknown field %q", key)
	})
	return found, err
}

// String reads a string.
func (s *Scanner) String() (string, error) {
	p, err := s.Bytes()
	return string(p), err
}

// Bytes reads a string without making one: what it returns must not be
// changed.
func (s *Scanner) Bytes() ([]byte, error) {
	if err := s.expect('"'); err != nil {
		return nil, err
	}
	end := s.pos
	for end < len(s.p) && s.p[end] != '"' && s.p[end] != '\\' && s.p[end] >= 0x20 {
		end++
	}
	if end < len(s.p) && s.p[end] == '"' {
		out := s.p[s.pos:end:end]
		if !utf8.Valid(out) {
			return nil, s.Errorf("", "string is not UTF-8: %s", s.near())
		}
		s.pos = end + 1
		return out, nil
	}
	return s.escaped()
}

// escaped reads the rest of a string that has escapes.
func (s *Scanner) escaped() ([]byte, error) {
	var out []byte
	for s.pos < len(s.p) {
		switch c := s.p[s.pos]; {
		case c == '"':
			s.pos++
			if !utf8.Valid(out) {
				return nil, s.Errorf("", "string before is not UTF-8")
			}
			return out, nil
		case c < 0x20:
			return nil, s.Errorf("", "control byte %#02x in a string", c)
		case c == '\\':
			r, err := s.escape()
			if err != nil {
				return nil, err
			}
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, c)
			s.pos++
		}
	}
	return nil, s.Errorf("", "string without an end")
}

const escapes = `""\\//b` + "\b" + `f` + "\f" + `n` + "\n" + `r` + "\r" + `t` + "\t"

// escape reads a backslash and what it stands for.
func (s *Scanner) escape() (rune, error) {
	if s.pos+1 >= len(s.p) {
		return 0, s.Errorf("", "string without an end")
	}
	c := s.p[s.pos+1]
	for i := 0; i < len(escapes); i += 2 {
		if escapes[i] == c {
			s.pos += 2
			return rune(escapes[i+1]), nil
		}
	}
	r, ok := s.hex()
	if ok && utf16.IsSurrogate(r) {
		s.pos += 6
		low, ok2 := s.hex()
		s.pos -= 6
		if pair := utf16.DecodeRune(r, low); ok2 && pair != utf8.RuneError {
			s.pos += 12
			return pair, nil
		}
		return 0, s.Errorf("", "half a surrogate pair: %s", s.near())
	}
	if !ok {
		return 0, s.Errorf("", "no escape: %s", s.near())
	}
	s.pos += 6
	return r, nil
}

// hex returns the number of a \uXXXX at the current place.
func (s *Scanner) hex() (rune, bool) {
	if s.pos+6 > len(s.p) || s.p[s.pos] != '\\' || s.p[s.pos+1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range s.p[s.pos+2 : s.pos+6] {
		d := bytes.IndexByte([]byte("0123456789abcdef"), c|0x20)
		if d < 0 || c < '0' {
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	return r, true
}

// Number reads a number as it is spelled.
func (s *Scanner) Number() (Number, error) {
	s.Peek()
	for _, word := range []string{"NaN", "Infinity", "-Infinity"} {
		if bytes.HasPrefix(s.p[s.pos:], []byte(word)) {
			s.pos += len(word)
			return Number(word), nil
		}
	}
	n := numberLen(s.p[s.pos:])
	if n == 0 {
		return "", s.Errorf("", "number expected, found %s", s.near())
	}
	out := Number(s.p[s.pos : s.pos+n])
	s.pos += n
	return out, nil
}

// Uint reads a number that is spelled as a non-negative integer within int64.
// what names it in errors.
func (s *Scanner) Uint(what string) (int64, error) {
	s.Peek()
	n := numberLen(s.p[s.pos:])
	var v int64
	for _, c := range s.p[s.pos : s.pos+n] {
		if c < '0' || c > '9' || v > (math.MaxInt64-int64(c-'0'))/10 {
			return 0, s.Errorf(what, "%s is no size", s.p[s.pos:s.pos+n])
		}
		v = v*10 + int64(c-'0')
	}
	if n == 0 {
		return 0, s.Errorf(what, "number expected, found %s", s.near())
	}
	s.pos += n
	return v, nil
}

// numberLen returns the length of the JSON number that p starts with.
func numberLen(p []byte) int {
	i := 0
	digits := func() bool {
		from := i
		for i < len(p) && p[i] >= '0' && p[i] <= '9' {
			i++
		}
		return i > from
	}
	if i < len(p) && p[i] == '-' {
		i++
	}
	zero := i < len(p) && p[i] == '0'
	from := i
	if !digits() || zero && i > from+1 {
		return 0
	}
	if i < len(p) && p[i] == '.' {
		if i++; !digits() {
			return 0
		}
	}
	if i < len(p) && p[i]|0x20 == 'e' {
		i++
		if i < len(p) && (p[i] == '+' || p[i] == '-') {
			i++
		}
		if !digits() {
			return 0
		}
	}
	return i
}

// literal reads one of JSON's three words.
func (s *Scanner) literal() (Value, error) {
	for _, l := range []struct {
		word  string
		value Value
	}{{"true", true}, {"false", false}, {"null", nil}} {
		if bytes.HasPrefix(s.p[s.pos:], []byte(l.word)) {
			s.pos += len(l.word)
			return l.value, nil
		}
	}
	return nil, s.Errorf("", "value expected, found %s", s.near())
}

// Skip walks over one value of any kind.
func (s *Scanner) Skip() error {
	var err error
	switch s.Peek() {
	case '{':
		return s.Object(func(string) error { return s.Skip() })
	case '[':
		return s.Array(s.Skip)
	case '"':
		_, err = s.String()
	case 't', 'f', 'n':
		_, err = s.literal()
	default:
		_, err = s.Number()
	}
	return err
}
