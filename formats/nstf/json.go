package nstf

import (
	"fmt"
	"slices"
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

// maxNames is how many short strings are kept for use again.
const maxNames = 1024

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
