package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// A scheme says when Metaspace puts its character before a text.
type scheme int

const (
	schemeAlways scheme = iota
	schemeFirst         // only where the input starts
	schemeNever
)

// metaspace is tokenizer.json's Metaspace, pre-tokenizer and decoder alike.
type metaspace struct {
	char   string
	scheme scheme
	cut    bool // split before each char
}

func (m metaspace) split(in []piece) ([]piece, error) {
	out := in
	if m.cut {
		out = make([]piece, 0, 2*len(in))
	}
	for i, p := range in {
		p.text = strings.ReplaceAll(p.text, " ", m.char)
		if !strings.HasPrefix(p.text, m.char) && (m.scheme == schemeAlways || m.scheme == schemeFirst && p.start) {
			p.text = m.char + p.text
		}
		if !m.cut {
			out[i] = p
			continue
		}
		out, _ = cut(out, p, mergedWithNext, false, func(yield func(lo, hi int)) error {
			return pattern{literal: m.char}.matches(p.text, yield)
		})
	}
	return out, nil
}

func (m metaspace) decode(in []string, raw bool) []string {
	for i, s := range in {
		with := " "
		if i == 0 && m.scheme != schemeNever {
			with = ""
		}
		in[i] = strings.ReplaceAll(s, m.char, with)
	}
	return in
}

func errMissing(what, key string) error { return fmt.Errorf("%s lacks %s", what, key) }

// parseMetaspace reads every version of Metaspace: add_prefix_space of old,
// prepend_scheme, split, and str_rep, which repeats the replacement.
func parseMetaspace(raw []byte) (metaspace, error) {
	c := struct {
		Type, Replacement, StrRep string
		AddPrefixSpace, Split     *bool
		PrependScheme             string
	}{PrependScheme: "always"}
	if err := strict(snake(raw), &c); err != nil {
		return metaspace{}, err
	}
	m := metaspace{char: c.Replacement, cut: c.Split == nil || *c.Split}
	if utf8.RuneCountInString(c.Replacement) != 1 {
		return m, fmt.Errorf("Metaspace: replacement %q is not one character", c.Replacement)
	}
	switch c.PrependScheme {
	case "always":
		m.scheme = schemeAlways
	case "first":
		m.scheme = schemeFirst
	case "never":
		m.scheme = schemeNever
	default:
		return m, unsupported("Metaspace prepend_scheme %q", c.PrependScheme)
	}
	if c.AddPrefixSpace != nil && !*c.AddPrefixSpace {
		m.scheme = schemeNever
	}
	return m, nil
}

func parseMetaspacePre(raw []byte) (preTokenizer, error) { return parseMetaspace(raw) }
