package jinja

import (
	"strings"
	"unicode/utf8"
)

// wordWrapFilter wraps each line of a text by itself, as Python's textwrap
// does with its tabs and white space left alone.
func wordWrapFilter(m *machine, v Value, a *args) Value {
	b := a.bind(m, "wordwrap", 0, "width", "break_long_words", "wrapstring", "break_on_hyphens")
	s, ok := isText(v)
	if !ok {
		m.use(v)
		m.fail("wordwrap: %s is not a string", typeName(v))
	}
	between := "\n"
	if x, ok := b.given(2); ok && x != nil {
		between = b.text(2, "")
	}
	w := &wrapper{m, b.int(0, 79), b.truth(1, true)}
	if w.width <= 0 {
		m.fail("wordwrap: the width %d is not positive", w.width)
	}
	var out []string
	for _, line := range m.lines(s, false) {
		if b.truth(3, true) && strings.Contains(line, "-") {
			m.unsupported("wordwrap of a text with hyphens")
		}
		out = append(out, m.joined(w.wrap(line), between))
	}
	return m.joined(out, between)
}

type wrapper struct {
	m     *machine
	width int64
	split bool // long words
}

// wrap cuts one paragraph into lines.
func (w *wrapper) wrap(s string) []string {
	var lines []string
	var line strings.Builder
	size := int64(0)
	flush := func() {
		if t := strings.TrimRight(line.String(), wrapSpaces); t != "" {
			w.m.alloc(int64(len(t)) + 16)
			lines = append(lines, t)
		}
		line.Reset()
		size = 0
	}
	for s != "" {
		blank := strings.IndexByte(wrapSpaces, s[0]) >= 0
		end := strings.IndexFunc(s, func(r rune) bool { return strings.ContainsRune(wrapSpaces, r) != blank })
		if end < 0 {
			end = len(s)
		}
		chunk := s[:end]
		s = s[end:]
		if blank && size == 0 && len(lines) > 0 {
			continue
		}
		for {
			n := int64(utf8.RuneCountInString(chunk))
			w.m.step(1)
			if size+n <= w.width {
				line.WriteString(chunk)
				size += n
				break
			}
			if n > w.width && w.split {
				at := w.m.skip(chunk, w.width-size)
				line.WriteString(chunk[:at])
				chunk = chunk[at:]
			} else if n > w.width && size == 0 {
				line.WriteString(chunk)
				size += n
				break
			}
			flush()
			if strings.Trim(chunk, wrapSpaces) == "" {
				break
			}
		}
	}
	flush()
	return lines
}

// wrapSpaces is what textwrap takes for white space.
const wrapSpaces = " \t\n\v\f\r"
