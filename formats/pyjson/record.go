package pyjson

import (
	"math"

	"github.com/nstf/nstf/formats"
)

// A Member is a key of an object that [Scanner.Record] reads, with what reads
// its value.
type Member struct {
	Name     string
	Optional bool
	Read     func() error
}

// Record reads an object that has exactly these members, in any order: an
// unknown key, one that comes twice and one that is missing are refused. what
// names the object in errors.
func (s *Scanner) Record(what string, members []Member) error {
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.Name
	}
	s.Peek()
	start := s.pos
	found, err := s.Fields(what, names, func(i int) error { return members[i].Read() })
	if err != nil {
		return err
	}
	for i, m := range members {
		if found&(1<<i) == 0 && !m.Optional {
			return formats.ErrorAt(s.file, what, s.base+int64(start), "field %q is missing", m.Name)
		}
	}
	return nil
}

// Text reads a string into dst.
func (s *Scanner) Text(dst *string) func() error {
	return func() (err error) {
		*dst, err = s.String()
		return err
	}
}

// Integer reads a whole number that is not negative into dst; what names it
// in errors.
func (s *Scanner) Integer(what string, dst *int64) func() error {
	return func() (err error) {
		*dst, err = s.Uint(what)
		return err
	}
}

// Float reads a finite number into dst; what names it in errors.
func (s *Scanner) Float(what string, dst *float64) func() error {
	return func() error {
		s.Peek()
		at := s.pos
		n, err := s.Number()
		if err != nil {
			return err
		}
		v, ok := n.Float64()
		if !ok || math.IsInf(v, 0) || math.IsNaN(v) {
			return formats.ErrorAt(s.file, what, s.base+int64(at), "%s is not a finite number", n)
		}
		*dst = v
		return nil
	}
}

// Integers reads an array of whole numbers that are not negative into dst;
// what names it in errors.
func (s *Scanner) Integers(what string, dst *[]int64) func() error {
	return func() error {
		return s.Array(func() error {
			v, err := s.Uint(what)
			*dst = append(*dst, v)
			return err
		})
	}
}

// Texts reads an array of strings into dst.
func (s *Scanner) Texts(dst *[]string) func() error {
	return func() error {
		return s.Array(func() error {
			v, err := s.String()
			*dst = append(*dst, v)
			return err
		})
	}
}
