package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// metaSpace is U+2581, which SentencePiece writes for a space.
const metaSpace = "\u2581"

// spNormalizer is SentencePiece's own normalizer, for tokenizer.model and for
// GGUF's Unigram vocabularies. Source: the behaviour of sentencepiece's
// Normalizer::Normalize.
type spNormalizer struct {
	chars       *charsmap // nil: identity
	user        *trie     // user-defined pieces, which stay as they are, or nil
	dummyPrefix bool      // a space before the text
	onlyStart   bool      // ... only at the start of the input, not after special tokens
	asSuffix    bool      // the dummy space comes last
	squeeze     bool      // remove_extra_whitespaces
	escape      bool      // spaces become U+2581
}

// next returns what the longest match at the beginning of s becomes, and how
// many bytes it covers.
func (n *spNormalizer) next(s string) (string, int) {
	if n.user != nil {
		if l := n.user.longest(s); l > 0 {
			return s[:l], l
		}
	}
	if n.chars != nil {
		if _, long, l := n.chars.lookup(s); l > 0 {
			return n.chars.replacement(long), l
		}
	}
	_, l := utf8.DecodeRuneInString(s)
	return s[:l], l
}

func (n *spNormalizer) normalize(s string, start bool, most int) (string, bool, error) {
	if n.squeeze {
		for s != "" {
			r, l := n.next(s)
			if r != " " {
				break
			}
			s = s[l:]
		}
	}
	if s == "" {
		return "", start, nil
	}
	space := " "
	if n.escape {
		space = metaSpace
	}
	dummy := n.dummyPrefix && (start || !n.onlyStart)
	var b strings.Builder
	b.Grow(len(s) + len(s)/2 + len(space))
	if dummy && !n.asSuffix {
		b.WriteString(space)
	}
	n.body(&b, s, space, most)
	out := b.String()
	if n.squeeze {
		for strings.HasSuffix(out, space) {
			out = strings.TrimSuffix(out, space)
		}
	}
	if dummy && n.asSuffix {
		out += space
	}
	return out, start, nil
}

func (n *spNormalizer) body(b *strings.Builder, s, space string, most int) {
	wasSpace := n.squeeze
	for s != "" && b.Len() <= most {
		r, l := n.next(s)
		s = s[l:]
		if wasSpace {
			r = strings.TrimLeft(r, " ")
		}
		if r != "" {
			b.WriteString(strings.ReplaceAll(r, " ", space))
			wasSpace = strings.HasSuffix(r, " ")
		}
		if !n.squeeze {
			wasSpace = false
		}
	}
}
