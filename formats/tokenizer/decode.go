package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// A decoder turns pieces into text, which is their concatenation. It may
// change the slice it is given. With raw, bytes come out as they are, where
// they would otherwise become U+FFFD: what a prefix of the pieces decodes to
// is then a prefix of what all decode to.
type decoder interface {
	decode(in []string, raw bool) []string
}

type decSequence []decoder

func (q decSequence) decode(in []string, raw bool) []string {
	most := 0
	for _, s := range in {
		most += grown(len(s))
	}
	for _, d := range q {
		in = d.decode(in, raw)
		n := 0
		for _, s := range in {
			n += len(s)
		}
		if n > most { // no stage behind may make more of it
			break
		}
	}
	return in
}

// eachDecoder maps pieces one by one.
type eachDecoder func(string) string

func (f eachDecoder) decode(in []string, _ bool) []string {
	for i, s := range in {
		in[i] = f(s)
	}
	return in
}

type byteLevelDecoder struct{}

func (byteLevelDecoder) decode(in []string, raw bool) []string {
	n := 0
	for _, s := range in {
		n += len(s)
	}
	b := make([]byte, 0, n)
	for _, s := range in {
		b = byteLevelBytes(b, s)
	}
	if raw {
		return []string{string(b)}
	}
	return []string{lossy(string(b))}
}

// byteFallbackDecoder reads runs of <0xAB> as bytes. A run that is not UTF-8
// becomes one U+FFFD for each of its bytes.
type byteFallbackDecoder struct{}

func (byteFallbackDecoder) decode(in []string, raw bool) []string {
	out := make([]string, 0, len(in))
	var run []byte
	flush := func() {
		switch {
		case len(run) == 0:
		case raw || utf8.Valid(run):
			out = append(out, string(run))
		default:
			for range run {
				out = append(out, "\ufffd")
			}
		}
		run = run[:0]
	}
	for _, s := range in {
		if b, ok := byteToken(s); ok {
			run = append(run, b)
			continue
		}
		flush()
		out = append(out, s)
	}
	flush()
	return out
}

type fuseDecoder struct{}

func (fuseDecoder) decode(in []string, _ bool) []string {
	return []string{strings.Join(in, "")}
}

// stripDecoder takes up to start and stop times char off each piece.
type stripDecoder struct {
	char        string
	start, stop int
}

func (d stripDecoder) decode(in []string, _ bool) []string {
	for i, s := range in {
		for n := 0; n < d.start && strings.HasPrefix(s, d.char); n++ {
			s = s[len(d.char):]
		}
		for n := 0; n < d.stop && strings.HasSuffix(s, d.char); n++ {
			s = s[:len(s)-len(d.char)]
		}
		in[i] = s
	}
	return in
}

// suffixDecoder is BPEDecoder: the end-of-word suffix is a space, but at the
// end of the text.
type suffixDecoder string

func (d suffixDecoder) decode(in []string, _ bool) []string {
	for i, s := range in {
		with := " "
		if i == len(in)-1 {
			with = ""
		}
		in[i] = strings.ReplaceAll(s, string(d), with)
	}
	return in
}

// parseDecoder builds the decoder of a tokenizer.json object.
func parseDecoder(raw []byte) (decoder, error) {
	typ, err := typeOf(raw)
	if err != nil || typ == "" {
		return nil, err
	}
	switch typ {
	case "ByteLevel": // its options concern the other stages
		return byteLevelDecoder{}, nil
	case "ByteFallback":
		return byteFallbackDecoder{}, strict(raw, &struct{ Type string }{})
	case "Fuse":
		return fuseDecoder{}, strict(raw, &struct{ Type string }{})
	case "Metaspace":
		return parseMetaspace(raw)
	case "Replace":
		f, err := parseReplace(raw)
		return eachDecoder(func(s string) string {
			// A piece beyond the limits of the step stays as it is.
			if t, err := f(s, grown(len(s))); err == nil {
				return t
			}
			return s
		}), err
	case "Strip":
		return parseStripDecoder(raw)
	case "BPEDecoder":
		c := struct{ Type, Suffix string }{Suffix: "</w>"}
		if err := strict(raw, &c); err != nil {
			return nil, err
		}
		if c.Suffix == "" {
			return nil, fmt.Errorf("BPEDecoder: empty suffix")
		}
		return suffixDecoder(c.Suffix), nil
	case "Sequence":
		var c struct {
			Type     string
			Decoders []rawJSON
		}
		if err := strict(raw, &c); err != nil {
			return nil, err
		}
		var q decSequence
		for _, r := range c.Decoders {
			d, err := parseDecoder(r)
			if err != nil {
				return nil, err
			}
			if d != nil {
				q = append(q, d)
			}
		}
		return q, nil
	}
	return nil, unsupported("decoder %q", typ)
}

func parseStripDecoder(raw []byte) (decoder, error) {
	var c struct {
		Type, Content string
		Start, Stop   int
	}
	if err := strict(raw, &c); err != nil {
		return nil, err
	}
	if utf8.RuneCountInString(c.Content) != 1 || c.Start < 0 || c.Stop < 0 {
		return nil, fmt.Errorf("Strip: content %q, start %d, stop %d", c.Content, c.Start, c.Stop)
	}
	return stripDecoder{c.Content, c.Start, c.Stop}, nil
}
