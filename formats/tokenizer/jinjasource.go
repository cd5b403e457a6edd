package tokenizer

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// The template library's own white space control looks past neighbouring
// tags, its tojson sorts keys and cannot be replaced, and its loops with two
// targets and a filter do not bind them. So a template is rewritten before it
// is compiled: texts, trimmed by Jinja's rules (trim_blocks and lstrip_blocks
// set, as transformers has them), become elements of the list textsVar, so
// that nothing is left to trim, and the two other constructs are spelled so
// that they work. Source of the rules: the behaviour of Jinja 3.1's lexer.

const textsVar = "nstf_texts"

// A jinjaRewriter walks over a template's source.
type jinjaRewriter struct {
	src       string
	at        int
	out       strings.Builder
	texts     []string
	lineStart bool // nothing but white space precedes on this line's source
}

// rewriteJinja returns the rewritten template and the texts it refers to.
func rewriteJinja(src string) (string, []string, error) {
	src = strings.ReplaceAll(strings.ReplaceAll(src, "\r\n", "\n"), "\r", "\n")
	w := &jinjaRewriter{src: strings.TrimSuffix(src, "\n"), lineStart: true}
	for w.at < len(w.src) {
		if err := w.step(); err != nil {
			return "", nil, err
		}
	}
	return w.out.String(), w.texts, nil
}

// step handles the text up to the next tag, and the tag.
func (w *jinjaRewriter) step() error {
	i := nextTag(w.src[w.at:])
	if i < 0 {
		w.text(w.src[w.at:])
		w.at = len(w.src)
		return nil
	}
	text, tag := w.src[w.at:w.at+i], w.src[w.at+i:]
	kind := tag[1]
	body := 2
	sign := byte(0)
	if len(tag) > 2 && (tag[2] == '-' || tag[2] == '+') {
		sign = tag[2]
		body = 3
	}
	w.text(w.trimmed(text, sign, kind))
	w.at += i + body
	if kind == '#' {
		return w.comment()
	}
	if kind == '%' {
		if m := rawBegin.FindString(w.src[w.at:]); m != "" {
			return w.raw(m)
		}
	}
	return w.tag(kind)
}

func nextTag(s string) int {
	for i := 0; i+1 < len(s); i++ {
		if s[i] == '{' && (s[i+1] == '{' || s[i+1] == '%' || s[i+1] == '#') {
			return i
		}
	}
	return -1
}

// trimmed applies the left side of a tag to the text before it.
func (w *jinjaRewriter) trimmed(text string, sign, kind byte) string {
	switch {
	case sign == '-':
		return strings.TrimRightFunc(text, pySpace)
	case sign == '+' || kind == '{':
		return text
	}
	line := strings.LastIndexByte(text, '\n') + 1
	if (line > 0 || w.lineStart) && strings.TrimLeftFunc(text[line:], pySpace) == "" {
		return text[:line]
	}
	return text
}

// pySpace is Python's str.isspace.
func pySpace(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f }

func (w *jinjaRewriter) text(s string) {
	if s == "" {
		return
	}
	w.out.WriteString("{{" + textsVar + "[" + strconv.Itoa(len(w.texts)) + "]}}")
	w.texts = append(w.texts, s)
}

// behind skips what the right side of a tag takes, and notes whether the next
// text begins a line.
func (w *jinjaRewriter) behind(sign byte, block bool) {
	from := w.at
	switch {
	case sign == '-':
		w.at = len(w.src) - len(strings.TrimLeftFunc(w.src[w.at:], pySpace))
	case sign == 0 && block && strings.HasPrefix(w.src[w.at:], "\n"):
		w.at++
	}
	w.lineStart = w.at > from && w.src[w.at-1] == '\n'
}

func (w *jinjaRewriter) comment() error {
	i := strings.Index(w.src[w.at:], "#}")
	if i < 0 {
		return fmt.Errorf("a comment at byte %d does not end", w.at)
	}
	sign := byte(0)
	if i > 0 && (w.src[w.at+i-1] == '-' || w.src[w.at+i-1] == '+') {
		sign = w.src[w.at+i-1]
	}
	w.at += i + 2
	w.behind(sign, true)
	return nil
}

var (
	rawBegin = regexp.MustCompile(`^\s*raw\s*-?%\}`)
	rawEnd   = regexp.MustCompile(`\{%([-+]?)\s*endraw\s*([-+]?)%\}`)
)

// raw copies a raw block, whose beginning is m.
func (w *jinjaRewriter) raw(m string) error {
	w.at += len(m)
	if strings.HasSuffix(m, "-%}") {
		w.behind('-', true)
	} else {
		w.lineStart = false
	}
	e := rawEnd.FindStringSubmatchIndex(w.src[w.at:])
	if e == nil {
		return fmt.Errorf("a raw block at byte %d does not end", w.at)
	}
	s := w.src[w.at:]
	sign := func(lo, hi int) byte {
		if lo < hi {
			return s[lo]
		}
		return 0
	}
	w.text(w.trimmed(s[:e[0]], sign(e[2], e[3]), '%'))
	w.at += e[1]
	w.behind(sign(e[4], e[5]), true)
	return nil
}

// tag copies a statement or an expression.
func (w *jinjaRewriter) tag(kind byte) error {
	end := "%}"
	if kind == '{' {
		end = "}}"
	}
	n := tagEnd(w.src[w.at:], end)
	if n < 0 {
		return fmt.Errorf("a tag at byte %d does not end", w.at)
	}
	body := w.src[w.at : w.at+n]
	w.at += n + 2
	sign := byte(0)
	if strings.HasSuffix(body, "-") || kind == '%' && strings.HasSuffix(body, "+") {
		sign = body[len(body)-1]
		body = body[:len(body)-1]
	}
	w.behind(sign, kind == '%')
	body = mapCode(body, func(code string) string { return tojsonFilter.ReplaceAllString(code, "|pytojson") })
	if kind == '%' {
		body = bindFilter(body)
	}
	w.out.WriteString("{" + string(kind) + " " + strings.TrimSpace(body) + " " + end)
	return nil
}

// tojsonFilter is the use of tojson as a filter.
var tojsonFilter = regexp.MustCompile(`\|\s*tojson\b`)

// tagEnd finds the end of a tag, which strings and brackets can hide.
func tagEnd(s, end string) int {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\'':
			n := stringEnd(s[i:])
			if n < 0 {
				return -1
			}
			i += n - 1
		case depth == 0 && strings.HasPrefix(s[i:], end):
			return i
		case strings.IndexByte("([{", c) >= 0:
			depth++
		case strings.IndexByte(")]}", c) >= 0 && depth > 0:
			depth--
		}
	}
	return -1
}

// stringEnd returns the length of the string literal that s begins with.
func stringEnd(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case s[0]:
			return i + 1
		}
	}
	return -1
}

// mapCode applies f to what is not within string literals.
func mapCode(s string, f func(string) string) string {
	var b strings.Builder
	from := 0
	for i := 0; i < len(s); i++ {
		if s[i] == '"' || s[i] == '\'' {
			n := stringEnd(s[i:])
			if n < 0 {
				break
			}
			b.WriteString(f(s[from:i]) + s[i:i+n])
			from = i + n
			i = from - 1
		}
	}
	return b.String() + f(s[from:])
}

var (
	twoTargets = regexp.MustCompile(`^\s*for\s+(\w+)\s*,\s*(\w+)\s+in\s`)
	filterWord = regexp.MustCompile(`^\sif\s`)
	// word is a name with what tells attributes and keyword arguments apart.
	word = regexp.MustCompile(`\.?\b\w+\b(\s*=\b)?`)
)

// bindFilter spells the filter of a loop with two targets, "for a, b in x if
// c", in terms of what the library binds there: b as the whole item.
func bindFilter(body string) string {
	m := twoTargets.FindStringSubmatch(body)
	if m == nil {
		return body
	}
	// The filter is the first "if" outside brackets and strings.
	at := -1
	depth := 0
	for i := len(m[0]); i < len(body) && at < 0; i++ {
		switch c := body[i]; {
		case c == '"' || c == '\'':
			n := stringEnd(body[i:])
			if n < 0 {
				return body
			}
			i += n - 1
		case strings.IndexByte("([{", c) >= 0:
			depth++
		case strings.IndexByte(")]}", c) >= 0:
			depth--
		case depth == 0:
			if loc := filterWord.FindStringIndex(body[i:]); loc != nil {
				at = i + loc[1]
			}
		}
	}
	if at < 0 {
		return body
	}
	// Both names at once, where they are neither attributes nor keywords of a
	// call.
	name := map[string]string{m[1]: m[2] + "[0]", m[2]: m[2] + "[1]"}
	return body[:at] + mapCode(body[at:], func(code string) string {
		return word.ReplaceAllStringFunc(code, func(w string) string {
			if to, ok := name[w]; ok {
				return to
			}
			return w
		})
	})
}
