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
	"strconv"

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

// At puts the current place into an error that says nothing of it: see [formats.At].
func (s *Scanner) At(what string, err error) error {
	return formats.At(s.file, what, s.Offset(), err)
}

// Offset returns the current place, counted as errors count it.
func (s *Scanner) Offset() int64 { return s.base + int64(s.pos) }

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
