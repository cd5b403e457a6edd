package tokenizer

import (
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// A normalizer rewrites a run of text before it is split. start says whether
// the run begins at the first byte of the input; the result's start does not
// hold once leading text has been taken away. What becomes longer than most bytes on
// the way is an error, or may be cut behind them, which the caller sees by its length.
type normalizer interface {
	normalize(s string, start bool, most int) (string, bool, error)
}

// textFunc is a normalizer that keeps where a text starts.
type textFunc func(string) string

func (f textFunc) normalize(s string, start bool, _ int) (string, bool, error) {
	return f(s), start, nil
}

// replaceNorm is a textFunc that can fail, and stops at so many bytes.
type replaceNorm func(s string, most int) (string, error)

func (f replaceNorm) normalize(s string, start bool, most int) (string, bool, error) {
	s, err := f(s, most)
	return s, start, err
}

type normSequence []normalizer

func (q normSequence) normalize(s string, start bool, most int) (string, bool, error) {
	var err error
	in := len(s)
	for _, n := range q {
		if s, start, err = n.normalize(s, start, most); err != nil {
			break
		}
		if len(s) > most {
			return "", start, &growthError{in, most}
		}
	}
	return s, start, err
}

type stripNorm struct{ left, right bool }

func (n stripNorm) normalize(s string, start bool, _ int) (string, bool, error) {
	if n.left {
		t := strings.TrimLeftFunc(s, unicode.IsSpace)
		start = start && len(t) == len(s)
		s = t
	}
	if n.right {
		s = strings.TrimRightFunc(s, unicode.IsSpace)
	}
	return s, start, nil
}

// parseNormalizer builds the normalizer of a tokenizer.json object.
func parseNormalizer(raw []byte) (normalizer, error) {
	typ, err := typeOf(raw)
	if err != nil || typ == "" {
		return nil, err
	}
	if f, ok := plainNormalizers[typ]; ok {
		return textFunc(f), strict(raw, &struct{ Type string }{})
	}
	switch typ {
	case "Sequence":
		var c struct {
			Type        string
			Normalizers []rawJSON
		}
		if err := strict(raw, &c); err != nil {
			return nil, err
		}
		var q normSequence
		for _, r := range c.Normalizers {
			n, err := parseNormalizer(r)
			if err != nil {
				return nil, err
			}
			if n != nil {
				q = append(q, n)
			}
		}
		return q, nil
	case "Strip":
		var c struct {
			Type                  string
			StripLeft, StripRight *bool
		}
		if err := strict(snake(raw), &c); err != nil {
			return nil, err
		}
		if c.StripLeft == nil || c.StripRight == nil {
			return nil, fmt.Errorf("Strip lacks strip_left or strip_right")
		}
		return stripNorm{*c.StripLeft, *c.StripRight}, nil
	case "Prepend":
		var c struct{ Type, Prepend string }
		if err := strict(raw, &c); err != nil {
			return nil, err
		}
		return textFunc(func(s string) string {
			if s == "" {
				return s
			}
			return c.Prepend + s
		}), checkInserted(c.Prepend)
	case "Replace":
		f, err := parseReplace(raw)
		return replaceNorm(f), err
	case "Precompiled":
		return parsePrecompiled(raw)
	case "BertNormalizer":
		return parseBert(raw)
	}
	return nil, unsupported("normalizer %q", typ)
}

var plainNormalizers = map[string]func(string) string{
	"NFC":          func(s string) string { return normalForm(s, norm.NFC) },
	"NFD":          func(s string) string { return normalForm(s, norm.NFD) },
	"NFKC":         func(s string) string { return normalForm(s, norm.NFKC) },
	"NFKD":         func(s string) string { return normalForm(s, norm.NFKD) },
	"Lowercase":    lower,
	"StripAccents": stripMarks,
	"Nmt":          nmt,
	"ByteLevel":    byteLevelText,
}

// lower maps every character by Unicode's full lower-case mapping without
// context, like Rust's char::to_lowercase: only U+0130 becomes two.
func lower(s string) string {
	return strings.ToLower(strings.ReplaceAll(s, "\u0130", "i\u0307"))
}

func stripMarks(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.M, r) {
			return -1
		}
		return r
	}, s)
}

// nmt removes control characters and turns odd spaces into spaces. Source:
// the table of Hugging Face's Nmt normalizer.
func nmt(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 1 && r <= 8, r == 0xb, r >= 0xe && r <= 0x1f, r == 0x7f, r == 0x8f, r == 0x9f:
			return -1
		case r == 9, r == 10, r == 12, r == 13, r == 0x1680, r >= 0x200b && r <= 0x200f,
			r == 0x2028, r == 0x2029, r == 0x2581, r == 0xfeff, r == 0xfffd:
			return ' '
		}
		return r
	}, s)
}

func parsePrecompiled(raw []byte) (normalizer, error) {
	var c struct {
		Type                string
		PrecompiledCharsmap []byte // base64, as encoding/json reads bytes
	}
	if err := strict(snake(raw), &c); err != nil {
		return nil, err
	}
	m, err := newCharsmap(c.PrecompiledCharsmap)
	if err != nil || m == nil {
		return nil, err
	}
	return replaceNorm(func(s string, most int) (string, error) { return m.graphemes(s, most), nil }), nil
}

func parseBert(raw []byte) (normalizer, error) {
	var c struct {
		Type                                     string
		CleanText, HandleChineseChars, Lowercase bool
		StripAccents                             *bool
	}
	if err := strict(snake(raw), &c); err != nil {
		return nil, err
	}
	accents := c.Lowercase
	if c.StripAccents != nil {
		accents = *c.StripAccents
	}
	return textFunc(func(s string) string {
		if c.CleanText {
			s = strings.Map(bertClean, s)
		}
		if c.HandleChineseChars {
			s = spaceHan(s)
		}
		if accents {
			s = strings.Map(func(r rune) rune {
				if unicode.Is(unicode.Mn, r) {
					return -1
				}
				return r
			}, normalForm(s, norm.NFD))
		}
		if c.Lowercase {
			s = lower(s)
		}
		return s
	}), nil
}

func bertClean(r rune) rune {
	switch {
	case r == '\t', r == '\n', r == '\r', unicode.IsSpace(r):
		return ' '
	case r == 0, r == 0xfffd, unicode.Is(unicode.C, r):
		return -1
	}
	return r
}

// spaceHan puts spaces around the CJK ideographs of the ranges that Hugging
// Face's BertNormalizer names.
func spaceHan(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.Is(bertHan, r) {
			b.WriteByte(' ')
			b.WriteRune(r)
			b.WriteByte(' ')
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

var bertHan = &unicode.RangeTable{
	R16: []unicode.Range16{{Lo: 0x3400, Hi: 0x4dbf, Stride: 1}, {Lo: 0x4e00, Hi: 0x9fff, Stride: 1}, {Lo: 0xf900, Hi: 0xfaff, Stride: 1}},
	R32: []unicode.Range32{{Lo: 0x20000, Hi: 0x2a6df, Stride: 1}, {Lo: 0x2a700, Hi: 0x2b73f, Stride: 1},
		{Lo: 0x2b740, Hi: 0x2b81f, Stride: 1}, {Lo: 0x2b920, Hi: 0x2ceaf, Stride: 1}, {Lo: 0x2f800, Hi: 0x2fa1f, Stride: 1}},
}
