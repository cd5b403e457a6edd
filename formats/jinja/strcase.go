package jinja

import (
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// isSpace is Python's str.isspace of a character.
func isSpace(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f }

// The full case mappings of Unicode, those that change a text's length
// included, as Python has them.

func upper(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	return cases.Upper(language.Und).String(s)
}

func lower(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	return cases.Lower(language.Und).String(s)
}

func casefold(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	return cases.Fold().String(s)
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// titleRune is the title case of a character.
func titleRune(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	return cases.Title(language.Und, cases.NoLower).String(s)
}

func firstRune(s string) int {
	for i := range s {
		if i > 0 {
			return i
		}
	}
	return len(s)
}

func capitalize(s string) string {
	n := firstRune(s)
	return titleRune(s[:n]) + lower(s[n:])
}

func isCased(r rune) bool {
	return unicode.IsUpper(r) || unicode.IsLower(r) || unicode.IsTitle(r) || unicode.Is(unicode.Other_Lowercase, r) || unicode.Is(unicode.Other_Uppercase, r)
}

// title begins each run of letters in title case.
func title(s string) string {
	var b strings.Builder
	within := false
	for s != "" {
		n := firstRune(s)
		r := []rune(s[:n])[0]
		if within {
			b.WriteString(lower(s[:n]))
		} else {
			b.WriteString(titleRune(s[:n]))
		}
		within = isCased(r)
		s = s[n:]
	}
	return b.String()
}

func swapcase(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case unicode.IsUpper(r):
			b.WriteString(lower(string(r)))
		case unicode.IsLower(r):
			b.WriteString(upper(string(r)))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// strPredicates are Python's tests of a text.
var strPredicates = map[string]func(string) bool{
	"isalpha":     func(s string) bool { return s != "" && all(s, unicode.IsLetter) },
	"isalnum":     func(s string) bool { return s != "" && all(s, isAlnum) },
	"isascii":     isASCII,
	"isdecimal":   func(s string) bool { return s != "" && all(s, func(r rune) bool { return unicode.Is(unicode.Nd, r) }) },
	"isdigit":     func(s string) bool { return s != "" && all(s, isDigitRune) },
	"isnumeric":   func(s string) bool { return s != "" && all(s, unicode.IsNumber) },
	"isspace":     func(s string) bool { return s != "" && all(s, isSpace) },
	"isprintable": func(s string) bool { return all(s, unicode.IsPrint) },
	"isidentifier": func(s string) bool {
		return s != "" && wordLen(s) == len(s) && (s[0] == '_' || unicode.IsLetter([]rune(s)[0]))
	},
	"islower": func(s string) bool { return cased(s, unicode.IsLower, unicode.Other_Lowercase) },
	"isupper": func(s string) bool { return cased(s, unicode.IsUpper, unicode.Other_Uppercase) },
	"istitle": isTitle,
}

func all(s string, is func(rune) bool) bool {
	for _, r := range s {
		if !is(r) {
			return false
		}
	}
	return true
}

func isAlnum(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }

// isDigitRune: decimal digits, and superscripts and subscripts.
func isDigitRune(r rune) bool {
	return unicode.Is(unicode.Nd, r) || r == 0xb2 || r == 0xb3 || r == 0xb9 || r == 0x2070 || 0x2074 <= r && r <= 0x2079 || 0x2080 <= r && r <= 0x2089 ||
		0x2460 <= r && r <= 0x2468 || 0x2474 <= r && r <= 0x247c || 0x2488 <= r && r <= 0x2490 || 0x2776 <= r && r <= 0x277e
}

// cased reports whether a text has letters with case and all of them have
// this one.
func cased(s string, is func(rune) bool, other *unicode.RangeTable) bool {
	some := false
	for _, r := range s {
		switch {
		case is(r) || unicode.Is(other, r):
			some = true
		case isCased(r):
			return false
		}
	}
	return some
}

func isTitle(s string) bool {
	some, within := false, false
	for _, r := range s {
		switch {
		case unicode.IsUpper(r) || unicode.IsTitle(r):
			if within {
				return false
			}
			some, within = true, true
		case isCased(r):
			if !within {
				return false
			}
			some, within = true, true
		default:
			within = false
		}
	}
	return some
}
