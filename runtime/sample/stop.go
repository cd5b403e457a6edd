package sample

import (
	"errors"
	"strings"
)

// A Stopper watches a stream of text for stop strings and holds back what may
// turn out to be the beginning of one. What it lets through does not depend on
// how the text was cut into pieces: everything before the stop string that is
// complete first, the longest where several end at the same byte.
type Stopper struct {
	stops   []string
	pending string
	stopped bool
	found   string
}

// NewStopper watches for the given strings, of which none may be empty.
func NewStopper(stops ...string) (*Stopper, error) {
	for _, s := range stops {
		if s == "" {
			return nil, errors.New("an empty stop string would stop at once")
		}
	}
	return &Stopper{stops: stops}, nil
}

// Push takes more text and returns what is certain to lie before any stop
// string, and whether one was found. After that it returns "" and true.
func (s *Stopper) Push(text string) (out string, stopped bool) {
	if s.stopped {
		return "", true
	}
	s.pending += text
	if at, ok := s.find(); ok {
		out, s.pending, s.stopped = s.pending[:at], "", true
		return out, true
	}
	n := len(s.pending) - s.held()
	out, s.pending = s.pending[:n], s.pending[n:]
	return out, false
}

// Found returns the stop string that was found, "" before.
func (s *Stopper) Found() string { return s.found }

// Flush returns what was held back, at the end of the text.
func (s *Stopper) Flush() string {
	out := s.pending
	s.pending = ""
	return out
}

// Reset forgets the text and keeps the stop strings.
func (s *Stopper) Reset() { s.pending, s.stopped, s.found = "", false, "" }

// find returns where the stop string begins that is complete first.
func (s *Stopper) find() (at int, found bool) {
	var end int
	for _, stop := range s.stops {
		i := strings.Index(s.pending, stop)
		if i < 0 {
			continue
		}
		if e := i + len(stop); !found || e < end || e == end && i < at {
			at, end, found, s.found = i, e, true, stop
		}
	}
	return at, found
}

// held returns the length of the longest end of the pending text that a stop
// string begins with.
func (s *Stopper) held() int {
	longest := 0
	for _, stop := range s.stops {
		for n := min(len(stop)-1, len(s.pending)); n > longest; n-- {
			if strings.HasSuffix(s.pending, stop[:n]) {
				longest = n
				break
			}
		}
	}
	return longest
}
