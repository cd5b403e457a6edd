package grammar

import (
	"errors"
	"fmt"
	"slices"
	"sync"
)

// A Compiled is a grammar over a vocabulary. It is safe for concurrent use: many
// matchers share what it has found out.
type Compiled struct {
	v       *Vocabulary
	m       *machine
	first   *config
	scratch sync.Pool // of []uint32
}

// configBytes bounds the places that a Compiled keeps, in bytes.
const configBytes = 16 << 20

// Compile prepares a grammar for a vocabulary. Masks are computed when they are first
// asked for, or by [Compiled.Warm].
func (v *Vocabulary) Compile(g *Grammar) *Compiled {
	c := &Compiled{v: v, m: newMachine(g, configBytes)}
	c.first = c.m.start()
	c.scratch.New = func() any { s := make([]uint32, v.Words()); return &s }
	return c
}

// Vocabulary returns the vocabulary.
func (c *Compiled) Vocabulary() *Vocabulary { return c.v }

// Warm computes what is legal in each state of the grammar's rules, so that no mask has
// to afterwards. It ends early, without an error, where stop says so or where the cache
// of the vocabulary is full.
func (c *Compiled) Warm(stop func() bool) {
	for s := range c.m.g.states {
		if _, bytes := c.v.local.size(); stop() || bytes > localBytes/2 {
			return
		}
		if len(c.m.g.states[s].edges) > 0 {
			work := maxMaskWork
			c.v.localOf(c.m, int32(s), &work)
		}
	}
}

// A Matcher follows one text through a grammar. It is used by one goroutine.
type Matcher struct {
	c    *Compiled
	now  *config
	done bool // a token that ends a text was accepted
}

// NewMatcher returns a matcher in front of a text.
func (c *Compiled) NewMatcher() *Matcher { return &Matcher{c: c, now: c.first} }

// Clone returns a matcher at the same place, which goes its own way.
func (m *Matcher) Clone() *Matcher {
	n := *m
	return &n
}

// bytesOf returns what a token stands for, nil where it is never legal.
func (v *Vocabulary) bytesOf(token int32) []byte {
	if token < 0 || int(token) >= len(v.tokens) || v.isEnd[token] || len(v.tokens[token]) > maxTokenBytes {
		return nil
	}
	return v.tokens[token]
}

// Accept goes on by a token. An error says that it is not legal; the matcher is then
// where it was.
func (m *Matcher) Accept(token int32) error {
	if m.done {
		return fmt.Errorf("token %d behind the end of the text", token)
	}
	if m.c.v.isEnd[token] {
		if !m.now.end {
			return fmt.Errorf("token %d ends the text, which the grammar does not allow here", token)
		}
		m.done = true
		return nil
	}
	b := m.c.v.bytesOf(token)
	if len(b) == 0 {
		return fmt.Errorf("token %d stands for no text, or for none of a grammar's", token)
	}
	to, err := m.after(b)
	if err != nil {
		return err
	}
	m.now = to
	return nil
}

// after returns the configuration behind some bytes.
func (m *Matcher) after(b []byte) (*config, error) {
	c := m.now
	for i := range b {
		if c = m.c.m.step(c, b[i]); c == dead {
			return nil, fmt.Errorf("%q does not go on as the grammar does: byte %d, %q", b, i, b[i])
		}
		if c.lost {
			return nil, ErrAmbiguous
		}
	}
	return c, nil
}

// AcceptBytes goes on by some bytes, as if they were one token.
func (m *Matcher) AcceptBytes(b []byte) error {
	if m.done {
		return fmt.Errorf("%q behind the end of the text", b)
	}
	to, err := m.after(b)
	if err != nil {
		return err
	}
	m.now = to
	return nil
}

// ErrNoToken says that no token of the vocabulary goes on as the grammar does.
var ErrNoToken = errors.New("no token of the vocabulary goes on as the grammar does")

// Mask sets in dst the bit of every token that [Matcher.Accept] would take, token i in
// bit i%32 of word i/32, and clears the others. Tokens that dst, of [Vocabulary.Words]
// words as a rule, is too short for are left out. It fails with
// [ErrNoToken] where there is none, and with [ErrAmbiguous] where finding them takes too
// much.
func (m *Matcher) Mask(dst []uint32) error {
	clear(dst)
	if m.done {
		return ErrNoToken
	}
	s, ok := m.c.v.masks.get(m.now)
	if !ok {
		scratch := m.c.scratch.Get().(*[]uint32)
		s = m.c.v.maskOf(m.c.m, m.now, *scratch)
		m.c.scratch.Put(scratch)
		if s == nil {
			return ErrAmbiguous
		}
		m.c.v.masks.add(m.now, s, s.bytes()+64)
	}
	if s.bits != nil {
		if copy(dst, s.bits) < len(s.bits) && !slices.ContainsFunc(dst, func(w uint32) bool { return w != 0 }) {
			return ErrNoToken
		}
		return nil
	}
	some := false
	for _, id := range s.ids {
		if w := int(id >> 5); w < len(dst) {
			dst[w] |= 1 << (id & 31)
			some = true
		}
	}
	if !some {
		return ErrNoToken
	}
	return nil
}

// Reset goes back in front of the text.
func (m *Matcher) Reset() { m.now, m.done = m.c.first, false }

// CanEnd reports whether the text may end here.
func (m *Matcher) CanEnd() bool { return m.now.end }

// IsDone reports whether nothing may follow: the text has ended, or is whole and has no
// continuation.
func (m *Matcher) IsDone() bool { return m.done || m.now.end && len(m.now.places) == 0 }

// maxJump bounds what Jump returns.
const maxJump = 1 << 12

// Jump returns the bytes that alone may follow, up to where there is a choice: between
// bytes, or between a byte and the end. They are not accepted yet, and may end within a
// character.
func (m *Matcher) Jump() []byte {
	var out []byte
	for c := m.now; !m.done && len(out) < maxJump; {
		b, ok := m.c.m.only(c)
		if !ok {
			break
		}
		out = append(out, b)
		c = m.c.m.step(c, b)
	}
	return out
}
