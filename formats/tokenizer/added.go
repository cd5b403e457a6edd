package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// An addedToken is recognised in the text before the model sees it.
type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"` // only where no word character touches it
	LStrip     bool   `json:"lstrip"`      // takes the white space on its left
	RStrip     bool   `json:"rstrip"`      // takes the white space on its right
	Normalized bool   `json:"normalized"`  // is looked for, normalized, in the normalized text
	Special    bool   `json:"special"`

	decoded string // what is looked for in a text
	spelled string // what the decoder sees
}

// addedVocab finds added tokens: the leftmost first, of those the longest.
type addedVocab struct {
	byID   map[int32]*addedToken
	byText map[string]*addedToken
	maxID  int32 // -1: none
	raw    matcher
	normed matcher
}

// A matcher finds strings of a set. Lengths are kept per first byte, so that
// most places of a text cost one look.
type matcher struct {
	tokens map[string]*addedToken
	sizes  [256][]int // lengths of the strings by first byte, longest first
}

func (m *matcher) add(s string, t *addedToken) {
	if s == "" {
		return
	}
	if m.tokens == nil {
		m.tokens = map[string]*addedToken{}
	}
	m.tokens[s] = t
	z := &m.sizes[s[0]]
	if i, ok := slices.BinarySearchFunc(*z, len(s), func(a, b int) int { return b - a }); !ok {
		*z = slices.Insert(*z, i, len(s))
	}
}

// at returns the longest string of the set that begins at s[i:].
func (m *matcher) at(s string, i int) (*addedToken, int) {
	for _, n := range m.sizes[s[i]] {
		if i+n <= len(s) {
			if t := m.tokens[s[i:i+n]]; t != nil {
				return t, n
			}
		}
	}
	return nil, 0
}

func newAddedVocab(tokens []addedToken, n normalizer) (*addedVocab, error) {
	v := &addedVocab{byID: map[int32]*addedToken{}, byText: map[string]*addedToken{}, maxID: -1}
	sum := 0
	for i := range tokens {
		t := tokens[i]
		t.decoded = t.Content
		if t.Normalized && n != nil {
			var err error
			if t.decoded, _, err = normalized(n, t.Content, true); err != nil {
				return nil, err
			}
			if sum += len(t.decoded); sum > maxAddedText {
				return nil, fmt.Errorf("added tokens take more than %d bytes when they are normalized", maxAddedText)
			}
		}
		t.spelled = t.decoded
		v.byID[t.ID] = &t
		v.byText[t.Content] = &t
		v.maxID = max(v.maxID, t.ID)
		if t.Normalized {
			v.normed.add(t.decoded, &t)
		} else {
			v.raw.add(t.Content, &t)
		}
	}
	return v, nil
}

// spell makes a decoder that reads the byte alphabet give the text of every added
// token as it is: one that lies in the alphabet by chance, such as deepseek-llm's ü,
// would be read as bytes, and be no text. llama.cpp prints it, Hugging Face's library
// U+FFFD.
func (v *addedVocab) spell(d decoder) {
	if q, ok := d.(decSequence); ok && len(q) > 0 {
		d = q[0]
	}
	if _, ok := d.(byteLevelDecoder); !ok {
		return
	}
	for _, t := range v.byID {
		if t.decoded == t.Content { // else the normalizer spelled it
			t.spelled = byteLevelText(t.Content)
		}
	}
}

// specials returns the ids of the special tokens.
func (v *addedVocab) specials() map[int32]bool {
	out := map[int32]bool{}
	for id, t := range v.byID {
		if t.Special {
			out[id] = true
		}
	}
	return out
}

// A Span is a range of bytes.
type Span struct{ Start, End int }

// A guard says where special tokens are not recognised.
type guard struct {
	all   bool   // nowhere are they
	plain []Span // not where they would overlap one of these, which are in order
}

// blocks reports whether a special token must not match [lo, hi).
func (g guard) blocks(lo, hi int) bool {
	if g.all {
		return true
	}
	i, _ := slices.BinarySearchFunc(g.plain, lo, func(s Span, at int) int {
		if s.End <= at {
			return -1
		}
		return 1
	})
	return i < len(g.plain) && g.plain[i].Start < hi
}

// within returns the guard for a part of the text that may have changed.
func (g guard) within(lo, hi int, same bool) guard {
	switch {
	case g.all || len(g.plain) == 0:
		return guard{all: g.all}
	case !same: // offsets mean nothing any more: err on the safe side
		return guard{all: g.blocks(lo, hi)}
	}
	var out []Span
	for _, s := range g.plain {
		if s.End > lo && s.Start < hi {
			out = append(out, Span{s.Start - lo, s.End - lo})
		}
	}
	return guard{plain: out}
}

// ends lists the spans' bounds in order; moved puts new ones in their place.
func (g guard) ends() []int {
	out := make([]int, 0, 2*len(g.plain))
	for _, s := range g.plain {
		out = append(out, s.Start, s.End)
	}
	return out
}

func (g guard) moved(at []int) guard {
	out := guard{all: g.all}
	for i := 0; i+1 < len(at); i += 2 {
		out.plain = append(out.plain, Span{at[i], at[i+1]})
	}
	return out
}

// split cuts text into added tokens and normalized runs between them.
func (v *addedVocab) split(text string, n normalizer, g guard) ([]piece, error) {
	var out []piece
	var failed error
	v.raw.cut(text, g, func(t *addedToken, lo, hi int) {
		if t != nil {
			out = append(out, piece{text[lo:hi], t.ID, lo == 0})
			return
		}
		if failed != nil {
			return
		}
		s, start, err := normalized(n, text[lo:hi], lo == 0)
		if err != nil {
			failed = err
			return
		}
		if v.normed.tokens == nil {
			if s != "" {
				out = append(out, piece{s, -1, start})
			}
			return
		}
		in := g.within(lo, hi, s == text[lo:hi])
		v.normed.cut(s, in, func(t *addedToken, lo, hi int) {
			id := int32(-1)
			if t != nil {
				id = t.ID
			}
			if lo < hi {
				out = append(out, piece{s[lo:hi], id, start && lo == 0})
			}
		})
	})
	return out, failed
}

// cut calls yield for the runs of text in order: tokens found, and what lies
// between them with a nil token.
func (m *matcher) cut(text string, g guard, yield func(t *addedToken, lo, hi int)) {
	done := 0 // end of what has been yielded
	for i := 0; i < len(text) && m.tokens != nil; {
		if len(m.sizes[text[i]]) == 0 {
			i++
			continue
		}
		t, n := m.at(text, i)
		if t == nil {
			i++
			continue
		}
		lo, hi := i, i+n
		// Also a match that is turned down hides what overlaps it.
		i = hi
		if t.Special && g.blocks(lo, hi) || t.SingleWord && !alone(text, lo, hi) {
			continue
		}
		if t.LStrip {
			lo = max(len(strings.TrimRightFunc(text[:lo], unicode.IsSpace)), done)
		}
		if t.RStrip {
			hi = len(text) - len(strings.TrimLeftFunc(text[hi:], unicode.IsSpace))
		}
		if done < lo {
			yield(nil, done, lo)
		}
		yield(t, lo, hi)
		done = hi
	}
	if done < len(text) {
		yield(nil, done, len(text))
	}
}

// alone reports whether no word character touches text[lo:hi].
func alone(text string, lo, hi int) bool {
	if r, n := utf8.DecodeLastRuneInString(text[:lo]); n > 0 && isWord(r) {
		return false
	}
	r, n := utf8.DecodeRuneInString(text[hi:])
	return n == 0 || !isWord(r)
}
