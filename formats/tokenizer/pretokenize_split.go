package tokenizer

import (
	"fmt"
	"strings"
)

// A pattern is a literal string or a regular expression.
type pattern struct {
	literal string
	re      *splitter // nil: literal
}

type patternJSON struct {
	String *string
	Regex  *string
}

func (j patternJSON) compile() (pattern, error) {
	switch {
	case j.String != nil && j.Regex == nil:
		return pattern{literal: *j.String}, nil
	case j.Regex != nil && j.String == nil:
		re, err := compile(*j.Regex)
		return pattern{re: re}, err
	}
	return pattern{}, fmt.Errorf("a pattern needs one of String and Regex")
}

func (p pattern) matches(s string, yield func(lo, hi int)) error {
	if p.re != nil {
		return p.re.matches(s, yield)
	}
	if p.literal == "" {
		return nil
	}
	for at := 0; ; {
		i := strings.Index(s[at:], p.literal)
		if i < 0 {
			return nil
		}
		yield(at+i, at+i+len(p.literal))
		at += i + len(p.literal)
	}
}

// patternSplit is tokenizer.json's Split.
type patternSplit struct {
	pattern
	b      behavior
	invert bool
}

func (c patternSplit) split(in []piece) ([]piece, error) {
	out := make([]piece, 0, 2*len(in))
	var err error
	for _, p := range in {
		// The most common case is worth a path without the list of parts.
		if c.re != nil && c.b == isolated {
			out, err = c.isolate(out, p)
		} else {
			out, err = cut(out, p, c.b, c.invert, func(y func(lo, hi int)) error { return c.matches(p.text, y) })
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (c patternSplit) isolate(out []piece, p piece) ([]piece, error) {
	prev := 0
	add := func(lo, hi int) {
		if lo < hi {
			out = append(out, piece{p.text[lo:hi], -1, p.start && lo == 0})
		}
	}
	err := c.re.matches(p.text, func(lo, hi int) {
		add(prev, lo)
		add(lo, hi)
		prev = hi
	})
	add(prev, len(p.text))
	return out, err
}

func parseSplit(raw []byte) (preTokenizer, error) {
	var c struct {
		Type, Behavior string
		Pattern        patternJSON
		Invert         *bool
	}
	if err := strict(raw, &c); err != nil {
		return nil, err
	}
	b, ok := behaviors[c.Behavior]
	if !ok {
		return nil, unsupported("Split behavior %q", c.Behavior)
	}
	if c.Invert == nil {
		return nil, fmt.Errorf("Split lacks invert")
	}
	p, err := c.Pattern.compile()
	return patternSplit{p, b, *c.Invert}, err
}

// parseReplace builds the function of a Replace normalizer or decoder.
// The function stops at so many bytes with a growthError.
func parseReplace(raw []byte) (func(s string, most int) (string, error), error) {
	var c struct {
		Type, Content string
		Pattern       patternJSON
	}
	if err := strict(raw, &c); err != nil {
		return nil, err
	}
	p, err := c.Pattern.compile()
	if err != nil {
		return nil, err
	}
	if err := checkInserted(c.Content); err != nil {
		return nil, err
	}
	if p.re != nil {
		return func(s string, most int) (string, error) { return p.re.replace(s, c.Content, most) }, nil
	}
	return func(s string, most int) (string, error) {
		if p.literal == "" {
			return s, nil
		}
		if len(c.Content) > len(p.literal) && len(s)+strings.Count(s, p.literal)*(len(c.Content)-len(p.literal)) > most {
			return "", &growthError{len(s), most}
		}
		return strings.ReplaceAll(s, p.literal, c.Content), nil
	}, nil
}
