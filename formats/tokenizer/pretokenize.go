package tokenizer

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// A preTokenizer splits runs of text into words, which the model sees one by
// one. It may reuse the slice it is given.
type preTokenizer interface {
	split(in []piece) ([]piece, error)
}

type preSequence []preTokenizer

func (q preSequence) split(in []piece) ([]piece, error) {
	var err error
	for _, p := range q {
		if in, err = p.split(in); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// A behavior says what becomes of the delimiters that split a text.
type behavior int

const (
	isolated behavior = iota
	removed
	mergedWithPrevious
	mergedWithNext
	contiguous
)

var behaviors = map[string]behavior{
	"Isolated": isolated, "Removed": removed, "MergedWithPrevious": mergedWithPrevious,
	"MergedWithNext": mergedWithNext, "Contiguous": contiguous,
}

// cut splits p by the delimiters that delims yields in order, and appends the
// parts to dst.
func cut(dst []piece, p piece, b behavior, invert bool, delims func(yield func(lo, hi int)) error) ([]piece, error) {
	var parts []part
	prev := 0
	err := delims(func(lo, hi int) {
		if prev < lo {
			parts = append(parts, part{prev, lo, invert})
		}
		if lo < hi {
			parts = append(parts, part{lo, hi, !invert})
		}
		prev = hi
	})
	if err != nil {
		return nil, err
	}
	if prev < len(p.text) {
		parts = append(parts, part{prev, len(p.text), invert})
	}
	for _, q := range arrange(parts, b) {
		dst = append(dst, piece{p.text[q.lo:q.hi], -1, p.start && q.lo == 0})
	}
	return dst, nil
}

type part struct {
	lo, hi int
	delim  bool
}

// arrange applies a behavior to parts in place.
func arrange(parts []part, b behavior) []part {
	switch b {
	case isolated:
		return parts
	case mergedWithNext:
		return mergeNext(parts)
	}
	out := parts[:0]
	was := false
	for _, p := range parts {
		n := len(out)
		join := n > 0 && (b == mergedWithPrevious && p.delim && !was || b == contiguous && p.delim == was)
		switch {
		case b == removed && p.delim:
		case join:
			out[n-1].hi = p.hi
		default:
			out = append(out, p)
		}
		was = p.delim
	}
	return out
}

// mergeNext glues each delimiter to the text behind it. Of neighbouring
// delimiters only the last one does.
func mergeNext(parts []part) []part {
	w := len(parts)
	was := false
	for i := len(parts) - 1; i >= 0; i-- {
		p := parts[i]
		if p.delim && !was && w < len(parts) {
			parts[w].lo = p.lo
		} else {
			w--
			parts[w] = p
		}
		was = p.delim
	}
	return parts[w:]
}

// classSplit splits at characters.
type classSplit struct {
	is func(rune) bool
	b  behavior
}

func (c classSplit) split(in []piece) ([]piece, error) {
	out := make([]piece, 0, 2*len(in))
	for _, p := range in {
		out, _ = cut(out, p, c.b, false, func(yield func(lo, hi int)) error {
			for i, r := range p.text {
				if c.is(r) {
					yield(i, i+utf8.RuneLen(r))
				}
			}
			return nil
		})
	}
	return out, nil
}

// isWord is \w of Rust's regex crate: alphabetic, mark, decimal number,
// connector punctuation and the joiners.
func isWord(r rune) bool {
	if r < utf8.RuneSelf {
		return r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic) ||
		r == 0x200c || r == 0x200d
}

// isPunct is ASCII punctuation, symbols included, and Unicode's punctuation.
func isPunct(r rune) bool {
	if r < utf8.RuneSelf {
		return '!' <= r && r <= '/' || ':' <= r && r <= '@' || '[' <= r && r <= '`' || '{' <= r && r <= '~'
	}
	return unicode.Is(unicode.P, r)
}

func isNumeric(r rune) bool { return unicode.Is(unicode.N, r) }

// wordSplit is tokenizer.json's Whitespace: runs of word characters and runs
// of what is neither word nor space.
type wordSplit struct{}

func (wordSplit) split(in []piece) ([]piece, error) {
	out := make([]piece, 0, 2*len(in))
	for _, p := range in {
		lo, kind := 0, 0
		emit := func(hi int) {
			if kind != 0 && lo < hi {
				out = append(out, piece{p.text[lo:hi], -1, p.start && lo == 0})
			}
		}
		for i, r := range p.text {
			k := 2
			if isWord(r) {
				k = 1
			} else if unicode.IsSpace(r) {
				k = 0
			}
			if k != kind {
				emit(i)
				lo, kind = i, k
			}
		}
		emit(len(p.text))
	}
	return out, nil
}

// fixedLength cuts a text into runs of n characters.
type fixedLength int

func (n fixedLength) split(in []piece) ([]piece, error) {
	var out []piece
	for _, p := range in {
		lo, count := 0, 0
		for i := range p.text {
			if count == int(n) {
				out = append(out, piece{p.text[lo:i], -1, p.start && lo == 0})
				lo, count = i, 0
			}
			count++
		}
		if lo < len(p.text) {
			out = append(out, piece{p.text[lo:], -1, p.start && lo == 0})
		}
	}
	return out, nil
}

// parsePre builds the pre-tokenizer of a tokenizer.json object.
func parsePre(raw []byte) (preTokenizer, error) {
	typ, err := typeOf(raw)
	if err != nil || typ == "" {
		return nil, err
	}
	switch typ {
	case "Sequence":
		return parsePreSequence(raw)
	case "ByteLevel":
		return parseByteLevelPre(raw)
	case "Split":
		return parseSplit(raw)
	case "Metaspace":
		return parseMetaspacePre(raw)
	case "Digits":
		var c struct {
			Type             string
			IndividualDigits bool
		}
		b := contiguous
		if err := strict(snake(raw), &c); err != nil {
			return nil, err
		}
		if c.IndividualDigits {
			b = isolated
		}
		return classSplit{isNumeric, b}, nil
	case "Punctuation":
		c := struct{ Type, Behavior string }{Behavior: "Isolated"}
		if err := strict(raw, &c); err != nil {
			return nil, err
		}
		b, ok := behaviors[c.Behavior]
		if !ok {
			return nil, unsupported("Punctuation behavior %q", c.Behavior)
		}
		return classSplit{isPunct, b}, nil
	case "Whitespace":
		return wordSplit{}, strict(raw, &struct{ Type string }{})
	case "WhitespaceSplit":
		return classSplit{unicode.IsSpace, removed}, strict(raw, &struct{ Type string }{})
	case "BertPreTokenizer":
		return preSequence{classSplit{unicode.IsSpace, removed}, classSplit{isPunct, isolated}}, strict(raw, &struct{ Type string }{})
	case "CharDelimiterSplit":
		var c struct{ Type, Delimiter string }
		if err := strict(raw, &c); err != nil {
			return nil, err
		}
		r, n := utf8.DecodeRuneInString(c.Delimiter)
		if n == 0 || n != len(c.Delimiter) {
			return nil, fmt.Errorf("CharDelimiterSplit: delimiter %q is not one character", c.Delimiter)
		}
		return classSplit{func(x rune) bool { return x == r }, removed}, nil
	case "FixedLength":
		c := struct {
			Type   string
			Length int
		}{Length: 5}
		if err := strict(raw, &c); err != nil {
			return nil, err
		}
		if c.Length < 1 {
			return nil, fmt.Errorf("FixedLength: length %d", c.Length)
		}
		return fixedLength(c.Length), nil
	}
	return nil, unsupported("pre_tokenizer %q", typ)
}

func parsePreSequence(raw []byte) (preTokenizer, error) {
	var c struct {
		Type          string
		Pretokenizers []rawJSON
	}
	if err := strict(raw, &c); err != nil {
		return nil, err
	}
	var q preSequence
	for _, r := range c.Pretokenizers {
		p, err := parsePre(r)
		if err != nil {
			return nil, err
		}
		if p != nil {
			q = append(q, p)
		}
	}
	return q, nil
}
