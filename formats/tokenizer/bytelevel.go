package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Byte-level BPE spells bytes as printable characters: those that are
// printable in Latin-1 stand for themselves, the others follow from U+0100 in
// order. Source: bytes_to_unicode of GPT-2.
var byteRunes, runeBytes = byteAlphabet()

func byteAlphabet() (fwd [256]rune, back map[rune]byte) {
	back = make(map[rune]byte, 256)
	next := rune(256)
	for b := range fwd {
		r := rune(b)
		if !('!' <= r && r <= '~' || 0xa1 <= r && r <= 0xac || 0xae <= r) {
			r = next
			next++
		}
		fwd[b] = r
		back[r] = byte(b)
	}
	return fwd, back
}

// byteLevelText spells the bytes of s.
func byteLevelText(s string) string {
	var b strings.Builder
	b.Grow(len(s) + len(s)/4)
	for i := range len(s) {
		b.WriteRune(byteRunes[s[i]])
	}
	return b.String()
}

// byteLevelBytes reads bytes back; a piece that is not wholly spelled in the
// alphabet stands for itself.
func byteLevelBytes(dst []byte, s string) []byte {
	n := len(dst)
	for _, r := range s {
		b, ok := runeBytes[r]
		if !ok {
			return append(dst[:n], s...)
		}
		dst = append(dst, b)
	}
	return dst
}

// gpt2Pattern is the regular expression that ByteLevel splits by.
const gpt2Pattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// byteLevelPre is tokenizer.json's ByteLevel pre-tokenizer.
type byteLevelPre struct {
	prefixSpace bool
	words       *patternSplit // nil: no splitting of its own
}

func (c byteLevelPre) split(in []piece) ([]piece, error) {
	if c.prefixSpace {
		for i, p := range in {
			if !strings.HasPrefix(p.text, " ") {
				in[i].text = " " + p.text
			}
		}
	}
	if c.words != nil {
		var err error
		if in, err = c.words.split(in); err != nil {
			return nil, err
		}
	}
	spellAll(in)
	return in, nil
}

// spellAll spells every piece in the byte alphabet, out of one allocation.
func spellAll(in []piece) {
	n := 0
	for _, p := range in {
		n += len(p.text)
	}
	var b strings.Builder
	b.Grow(n + n/4)
	for i := range in {
		s := in[i].text
		plain := true
		for j := 0; j < len(s) && plain; j++ {
			plain = '!' <= s[j] && s[j] <= '~'
		}
		if plain {
			continue
		}
		lo := b.Len()
		for j := range len(s) {
			b.WriteRune(byteRunes[s[j]])
		}
		// String shares the builder's memory; what is written later only
		// appends, so earlier slices stay valid.
		in[i].text = b.String()[lo:]
	}
}

func parseByteLevelPre(raw []byte) (preTokenizer, error) {
	c := struct {
		Type           string
		AddPrefixSpace *bool
		TrimOffsets    bool // concerns offsets only
		UseRegex       bool
	}{UseRegex: true}
	if err := strict(snake(raw), &c); err != nil {
		return nil, err
	}
	// add_prefix_space is required, as in Hugging Face's library.
	p := byteLevelPre{}
	if c.AddPrefixSpace == nil {
		return nil, errMissing("ByteLevel", "add_prefix_space")
	}
	p.prefixSpace = *c.AddPrefixSpace
	if c.UseRegex {
		re, err := compile(gpt2Pattern)
		if err != nil {
			return nil, err
		}
		p.words = &patternSplit{pattern{re: re}, isolated, false}
	}
	return p, nil
}

// lossy returns s with each maximal run of bytes that begin no UTF-8 sequence
// replaced by U+FFFD, by the rule of WHATWG and of Rust's from_utf8_lossy: a
// truncated sequence is one replacement.
func lossy(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 8)
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n <= 1 {
			n = max(1, partialRune(s[i:]))
			b.WriteRune(utf8.RuneError)
		} else {
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// partialRune returns how many bytes at the beginning of s are the beginning
// of a UTF-8 sequence that s does not complete; 0 when they are none.
func partialRune(s string) int {
	if s == "" {
		return 0
	}
	c := s[0]
	lo, hi := byte(0x80), byte(0xbf) // bounds of the second byte (RFC 3629)
	want := 0
	switch {
	case 0xc2 <= c && c <= 0xdf:
		want = 2
	case 0xe0 <= c && c <= 0xef:
		want = 3
		if c == 0xe0 {
			lo = 0xa0
		} else if c == 0xed {
			hi = 0x9f
		}
	case 0xf0 <= c && c <= 0xf4:
		want = 4
		if c == 0xf0 {
			lo = 0x90
		} else if c == 0xf4 {
			hi = 0x8f
		}
	default:
		return 0
	}
	n := 1
	for n < want && n < len(s) && lo <= s[n] && s[n] <= hi {
		lo, hi = 0x80, 0xbf
		n++
	}
	if n == want {
		return 0
	}
	return n
}
