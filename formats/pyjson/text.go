package pyjson

import (
	"bytes"
	"math"
	"unicode/utf16"
	"unicode/utf8"
)

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
