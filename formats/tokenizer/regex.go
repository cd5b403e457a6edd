package tokenizer

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"

	"github.com/nstf/nstf/formats"
)

// regexTimeout bounds one match of a pattern that is not in the table of known
// pre-tokenizers: a hostile tokenizer.json must not hang its reader.
const regexTimeout = 2 * time.Second

// regexStack bounds the backtracking of one match, in integers.
const regexStack = 8 << 20

// A splitter finds the matches of a pattern.
type splitter struct {
	re    *regexp2.Regexp
	scan  func(s string, yield func(lo, hi int)) // instead of re where not nil
	runes sync.Pool                              // buffers
}

// compile builds a splitter for a pattern in tokenizer.json's dialect:
// Oniguruma with Ruby's syntax. What differs from regexp2 is rewritten, or
// refused when it cannot be.
func compile(pattern string) (*splitter, error) {
	p, err := translate(pattern)
	if err != nil {
		return nil, err
	}
	// In Ruby's syntax ^ and $ match at every line.
	re, err := regexp2.Compile(p, regexp2.Multiline, regexp2.OptionMaxBacktrackingStackSize(regexStack))
	if err != nil {
		return nil, unsupported("regular expression %q: %v", pattern, err)
	}
	if !knownPattern(pattern) {
		re.MatchTimeout = regexTimeout
	}
	s := &splitter{re: re}
	if pattern == spacesAtEnd {
		s.scan = scanSpacesAtEnd
	}
	return s, nil
}

// spacesAtEnd, which DeepSeek splits by, takes a backtracking engine time
// quadratic in a run of spaces that does not end its line.
const spacesAtEnd = `\s+$`

func scanSpacesAtEnd(s string, yield func(lo, hi int)) {
	from, line := -1, -1 // where the run of spaces begins, its last newline
	for i, r := range s {
		switch {
		case !unicode.IsSpace(r):
			if line > from {
				yield(from, line)
			}
			from, line = -1, -1
			continue
		case from < 0:
			from, line = i, i
		}
		if r == '\n' {
			line = i
		}
	}
	if from >= 0 {
		yield(from, len(s))
	}
}

// matches calls yield with the byte range of each match of s, in order. Empty
// matches directly behind another match are left out.
func (p *splitter) matches(s string, yield func(lo, hi int)) error {
	if p.scan != nil {
		p.scan(s, yield)
		return nil
	}
	buf, _ := p.runes.Get().(*[]rune)
	if buf == nil {
		buf = new([]rune)
	}
	defer p.runes.Put(buf)
	runes := (*buf)[:0]
	for _, r := range s {
		runes = append(runes, r)
	}
	*buf = runes
	at, off := 0, 0 // the same place in runes and in bytes
	last := -1
	err := p.re.FindRunesMatches(runes, 0, func(m regexp2.MatchView) bool {
		i, n, _ := m.GroupRange(0)
		if n == 0 && i == last {
			return true
		}
		for ; at < i; at++ {
			off += utf8.RuneLen(runes[at])
		}
		lo := off
		for ; at < i+n; at++ {
			off += utf8.RuneLen(runes[at])
		}
		last = i + n
		yield(lo, off)
		return true
	})
	if err != nil {
		return p.failure(s, err)
	}
	return nil
}

// failure says what went wrong with a text, of which it quotes the beginning alone:
// the library's own message quotes all of it.
func (p *splitter) failure(s string, err error) error {
	what := fmt.Sprintf("takes longer than %v", regexTimeout)
	if errors.Is(err, regexp2.ErrBacktrackingStackLimit) {
		what = "backtracks too far"
	}
	return fmt.Errorf("regular expression %q %s on a text of %d bytes that begins %q",
		formats.Brief(p.re.String(), 200), what, len(s), formats.Brief(s[:min(len(s), 40)], 40))
}

// replace returns s with every match replaced by with, or a growthError where that
// is longer than most bytes.
func (p *splitter) replace(s, with string, most int) (string, error) {
	var b strings.Builder
	prev := 0
	err := p.matches(s, func(lo, hi int) {
		if b.Len() > most {
			return
		}
		b.WriteString(s[prev:lo])
		b.WriteString(with)
		prev = hi
	})
	if err == nil && b.Len()+len(s)-prev > most {
		return "", &growthError{len(s), most}
	}
	b.WriteString(s[prev:])
	return b.String(), err
}
