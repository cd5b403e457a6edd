package grammar

import (
	"slices"
	"unicode/utf8"
)

// A runeRange is lo to hi, both included.
type runeRange struct{ lo, hi rune }

// A runeSet is a set of code points: sorted, disjoint, not adjacent, without
// surrogates, which no UTF-8 spells.
type runeSet []runeRange

// newRuneSet joins ranges in any order.
func newRuneSet(ranges ...runeRange) runeSet {
	var in []runeRange
	for _, r := range ranges {
		r.lo, r.hi = max(r.lo, 0), min(r.hi, utf8.MaxRune)
		const first, last = 0xd800, 0xdfff // surrogates
		if r.lo < first && r.hi > last {
			in = append(in, runeRange{r.lo, first - 1}, runeRange{last + 1, r.hi})
			continue
		}
		if r.lo >= first && r.lo <= last {
			r.lo = last + 1
		}
		if r.hi >= first && r.hi <= last {
			r.hi = first - 1
		}
		if r.lo <= r.hi {
			in = append(in, r)
		}
	}
	slices.SortFunc(in, func(a, b runeRange) int { return int(a.lo) - int(b.lo) })
	var out runeSet
	for _, r := range in {
		if n := len(out); n > 0 && r.lo <= out[n-1].hi+1 {
			out[n-1].hi = max(out[n-1].hi, r.hi)
			continue
		}
		out = append(out, r)
	}
	return out
}

var anyRune = newRuneSet(runeRange{0, utf8.MaxRune})

// not returns the code points that are not in the set.
func (s runeSet) not() runeSet {
	var out []runeRange
	next := rune(0)
	for _, r := range s {
		if r.lo > next {
			out = append(out, runeRange{next, r.lo - 1})
		}
		next = r.hi + 1
	}
	if next <= utf8.MaxRune {
		out = append(out, runeRange{next, utf8.MaxRune})
	}
	return newRuneSet(out...)
}

// and returns what both sets hold.
func (s runeSet) and(t runeSet) runeSet {
	return newRuneSet(slices.Concat(s.not(), t.not())...).not()
}

// A byteRange is a step of the UTF-8 of a range.
type byteRange struct{ lo, hi byte }

// utf8Paths gives the sequences of byte ranges that spell a set's code points in UTF-8.
func (s runeSet) utf8Paths(yield func(path []byteRange)) {
	for _, r := range s {
		for _, top := range []rune{0x7f, 0x7ff, 0xffff, utf8.MaxRune} {
			if r.lo > r.hi {
				break
			}
			if r.lo <= top {
				splitUTF8(r.lo, min(r.hi, top), yield)
				r.lo = top + 1
			}
		}
	}
}

// splitUTF8 gives the sequences of a range whose code points have the same length.
func splitUTF8(lo, hi rune, yield func([]byteRange)) {
	var a, b [4]byte
	n := utf8.EncodeRune(a[:], lo)
	for i := 1; i < n; i++ { // until all bytes behind some prefix run over their whole range
		m := rune(1)<<(6*i) - 1
		if lo&^m != hi&^m {
			if lo&m != 0 {
				splitUTF8(lo, lo|m, yield)
				splitUTF8((lo|m)+1, hi, yield)
				return
			}
			if hi&m != m {
				splitUTF8(lo, hi&^m-1, yield)
				splitUTF8(hi&^m, hi, yield)
				return
			}
		}
	}
	utf8.EncodeRune(b[:], hi)
	path := make([]byteRange, n)
	for i := range path {
		path[i] = byteRange{a[i], b[i]}
	}
	yield(path)
}
