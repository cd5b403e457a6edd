package formats

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Printable returns s for people to read, whoever wrote it: on one line, with
// every character that a terminal would obey, or that would change how its
// neighbours are read, spelled as in a Go string. That is C0 with newline and tab,
// DEL, C1, line and paragraph separators, the marks of bidirectional text, tags
// and the byte order mark; bytes that are not UTF-8 too. Everything else stays as it is, a
// backslash too, so that doing it twice changes nothing.
func Printable(s string) string { return escape(s, false) }

// PrintableText is [Printable] for a text of lines: newlines and tabs stay.
func PrintableText(s string) string { return escape(s, true) }

func escape(s string, text bool) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r == utf8.RuneError || Controls(r) && !(text && (r == '\n' || r == '\t')) }) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case text && (r == '\n' || r == '\t'), !Controls(r):
			b.WriteString(s[i : i+n])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		i += n
	}
	return b.String()
}

// Controls reports whether a character acts on what shows it instead of being shown:
// C0, DEL, C1, and what reorders, breaks or hides text around it. Sources: ECMA-48
// for the controls, UAX #9 for the marks of direction. The joiners of words and
// emoji (U+200C, U+200D) are none.
func Controls(r rune) bool {
	switch {
	case r < 0x20, 0x7f <= r && r <= 0x9f:
		return true
	case r == 0x061c, r == 0x200e, r == 0x200f, 0x2028 <= r && r <= 0x202e, 0x2066 <= r && r <= 0x2069:
		return true
	}
	return r == 0xfeff || 0xe0000 <= r && r <= 0xe007f
}

// Brief cuts the middle out of a string of more than so many bytes and says how much
// that was. The result may be longer than most by the few bytes that say so.
func Brief(s string, most int) string {
	if len(s) <= most {
		return s
	}
	head, tail := most*2/3, len(s)-most/3
	for head > 0 && !utf8.RuneStart(s[head]) {
		head--
	}
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	return fmt.Sprintf("%s … %d bytes … %s", s[:head], tail-head, s[tail:])
}
