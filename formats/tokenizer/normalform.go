package tokenizer

import (
	"slices"

	"golang.org/x/text/unicode/norm"
)

// maxMarks is how many combining characters in a row x/text leaves together;
// behind them it inserts U+034F, which Unicode's plain forms do not.
const maxMarks = 30

// normalForm returns s in a Unicode normal form, without x/text's changes to
// long runs of combining characters.
func normalForm(s string, f norm.Form) string {
	run := 0
	for _, r := range s {
		if r < 0x300 {
			run = 0
			continue
		}
		if p := f.PropertiesString(string(r)); p.CCC() == 0 && len(p.Decomposition()) == 0 {
			run = 0
		} else if run++; run >= maxMarks/4 { // a character may decompose to several
			return longForm(s, f)
		}
	}
	return f.String(s)
}

// longForm is the algorithm of Unicode's UAX 15: decompose, order marks by
// class, compose.
func longForm(s string, f norm.Form) string {
	d := norm.NFD
	if f == norm.NFKC || f == norm.NFKD {
		d = norm.NFKD
	}
	type mark struct {
		r     rune
		class uint8
	}
	var all []mark
	for _, r := range s {
		for _, x := range d.String(string(r)) {
			all = append(all, mark{x, norm.NFD.PropertiesString(string(x)).CCC()})
		}
	}
	for i := 0; i < len(all); {
		j := i + 1
		for j < len(all) && all[j].class != 0 {
			j++
		}
		run := all[i:j]
		if run[0].class == 0 {
			run = run[1:]
		}
		slices.SortStableFunc(run, func(a, b mark) int { return int(a.class) - int(b.class) })
		i = j
	}
	out, class := make([]rune, len(all)), make([]uint8, len(all))
	for i, m := range all {
		out[i], class[i] = m.r, m.class
	}
	if f == norm.NFD || f == norm.NFKD {
		return string(out)
	}
	return string(compose(out, class))
}

// compose joins each character with the last starter before it, where nothing
// of the same or a higher class stands between them.
func compose(in []rune, class []uint8) []rune {
	out := in[:0]
	starter := -1
	last := uint8(0) // class of the last character kept behind the starter
	for i, r := range in {
		c := class[i]
		adjacent := starter == len(out)-1
		if starter >= 0 && (adjacent || last != 0 && last < c) {
			if j := []rune(norm.NFC.String(string([]rune{out[starter], r}))); len(j) == 1 {
				out[starter] = j[0]
				continue
			}
		}
		if c == 0 {
			starter = len(out)
		}
		last = c
		out = append(out, r)
	}
	return out
}
