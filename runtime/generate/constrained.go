package generate

import (
	"context"
	"fmt"
	"slices"
	"strings"

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

// special is what stands for a special token in grammars.
func special(id int32) string { return fmt.Sprintf("\xff%d\xfe", id) }

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

// A constrained decoding lets a grammar choose with the sampler: logits come to the host,
// one token after the other.
type constrained struct {
	r      *run
	logits []float32 // behind last
	last   int32
	begun  bool // last is not in the sequence yet
	bits   []uint32
}

func (r *run) constrain(ctx context.Context, tokens []int32) (decoding, error) {
	logits, err := r.g.seq.PrefillLast(ctx, tokens)
	if err != nil {
		return nil, err
	}
	return &constrained{r: r, logits: logits, bits: make([]uint32, (len(logits)+31)/32)}, nil
}

// Next is as that of [exec.Decoding].
func (c *constrained) Next() (int32, error) {
	seq := c.r.g.seq
	if c.begun {
		logits, err := seq.Step(c.last)
		if err != nil {
			return 0, err
		}
		c.logits, c.begun = logits, false
	}
	if err := c.r.matcher.Mask(c.bits); err != nil {
		return 0, err
	}
	id := c.r.sampler.NextOf(c.bits, c.logits, seq.Tokens(), int64(seq.Len()))
	if err := c.r.matcher.Accept(id); err != nil {
		return 0, fmt.Errorf("token %d of a mask: %w", id, err)
	}
	c.last, c.begun = id, true
	return id, nil
}

// Stop does nothing: no token is computed ahead.
func (c *constrained) Stop() error { return nil }
