package generate

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nstf/nstf/formats/tokenizer"
	"github.com/nstf/nstf/runtime/grammar"
)

// Vocabulary returns a tokenizer's vocabulary as grammars see it: those tokens that end a
// generation are where a grammar may end, and special tokens are legal only where a
// grammar names them by what [Specials] writes, which no UTF-8 has in it.
func Vocabulary(tok *tokenizer.Tokenizer) (*grammar.Vocabulary, error) {
	ends := tok.Stops()
	tokens := make([][]byte, tok.VocabSize())
	for i := range tokens {
		id := int32(i)
		switch {
		case slices.Contains(ends, id):
		case tok.IsSpecial(id):
			tokens[i] = []byte(special(id))
		default:
			if b := tok.TokenBytes(id); !slices.Contains(b, 0xff) {
				tokens[i] = b
			}
		}
	}
	ends = slices.DeleteFunc(slices.Clone(ends), func(id int32) bool { return id < 0 || int(id) >= len(tokens) })
	return grammar.NewVocabulary(tokens, ends)
}

// A special token's number stands between these in grammars.
const specialStart, specialEnd = 0xff, 0xfe

func special(id int32) string { return fmt.Sprintf("\xff%d\xfe", id) }

// plainly reads text as it is, without what is put around it.
var plainly = tokenizer.EncodeOptions{NoSpecial: true, NoParseSpecial: true}

// End is what [Specials] writes for a token that ends a generation.
const End = "\xff\xfe"

// Specials returns what writes the spellings of special tokens within a text as grammars
// of [Vocabulary] have these tokens.
func Specials(tok *tokenizer.Tokenizer) *strings.Replacer {
	ends := tok.Stops()
	type pair struct{ text, with string }
	var all []pair
	for i := range tok.VocabSize() {
		id := int32(i)
		text, _ := tok.Piece(id)
		switch {
		case text == "":
		case slices.Contains(ends, id):
			all = append(all, pair{text, End})
		case tok.IsSpecial(id):
			all = append(all, pair{text, special(id)})
		}
	}
	slices.SortStableFunc(all, func(a, b pair) int { return len(b.text) - len(a.text) }) // the longest first
	var list []string
	for _, p := range all {
		list = append(list, p.text, p.with)
	}
	return strings.NewReplacer(list...)
}

// Vocabulary returns the model's vocabulary as grammars see it.
func (g *Generator) Vocabulary() (_ *grammar.Vocabulary, err error) {
	if g.vocab == nil {
		g.vocab, err = Vocabulary(g.tok)
	}
	return g.vocab, err
}

// A Guide holds one text to a grammar as it is decoded: its Mask is an [exec.Masker], and
// it is told every token by Accept. It is used by one goroutine.
type Guide struct {
	*grammar.Matcher
	tok    *tokenizer.Tokenizer
	anchor []int32 // tokens of a line end
}

// NewGuide returns the guide of one text, in front of it. The grammar is compiled for the
// tokenizer's [Vocabulary].
func NewGuide(c *grammar.Compiled, tok *tokenizer.Tokenizer) *Guide {
	g := &Guide{Matcher: c.NewMatcher(), tok: tok}
	g.anchor, _ = tok.Encode(anchor, plainly)
	return g
}

// Mask is an [exec.Masker].
func (g *Guide) Mask(bits []uint32) (bool, error) { return true, g.Matcher.Mask(bits) }

// Forced returns the tokens of the bytes that alone may follow, as the tokenizer has them,
// but for the last one where there is a choice behind it: it might have been longer.
func (g *Guide) Forced() []int32 {
	b := g.Jump()
	if len(b) < 2 {
		return nil
	}
	var ids []int32
	for m := g.Clone(); len(b) > 0; {
		some, n := g.tokens(b)
		open := n == len(b) && b[n-1] != specialEnd
		for i, id := range some {
			if m.Accept(id) != nil || open && i == len(some)-1 && !m.IsDone() {
				return ids
			}
			ids = append(ids, id)
		}
		if n == 0 {
			break
		}
		b = b[n:]
	}
	return ids
}

// anchor stands before a text that is tokenized by itself, so that nothing is put there.
const anchor = "\n"

// tokens returns the tokens of the special token that b begins with, or of the text before
// the next one, and how many bytes that is; 0 where it has none.
func (g *Guide) tokens(b []byte) ([]int32, int) {
	if b[0] == specialStart {
		end := bytes.IndexByte(b, specialEnd)
		id, err := strconv.ParseInt(string(b[1:max(end, 1)]), 10, 32)
		if err != nil {
			return nil, 0
		}
		return []int32{int32(id)}, end + 1
	}
	n := bytes.IndexByte(b, specialStart)
	if n < 0 {
		n = len(b)
	}
	text := b[:n]
	for len(text) > 0 && !utf8.Valid(text) { // it ends within a character
		text = text[:len(text)-1]
	}
	ids, err := g.tok.Encode(anchor+string(text), plainly)
	if err != nil || len(ids) < len(g.anchor) || !slices.Equal(ids[:len(g.anchor)], g.anchor) {
		return nil, 0
	}
	ids = ids[len(g.anchor):]
	rest := text
	for _, id := range ids {
		spelled := g.tok.TokenBytes(id)
		if len(spelled) == 0 || !bytes.HasPrefix(rest, spelled) {
			return nil, 0
		}
		rest = rest[len(spelled):]
	}
	if len(rest) > 0 {
		return nil, 0
	}
	return ids, n
}
