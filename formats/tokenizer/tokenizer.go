package tokenizer

import (
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/nstf/nstf/formats"
)

// A Tokenizer encodes text to ids and decodes ids to text. It is immutable
// and safe for concurrent use.
type Tokenizer struct {
	name  string // for error messages
	model model
	added *addedVocab
	norm  normalizer   // nil: none
	pre   preTokenizer // nil: none
	post  postProcessor
	dec   decoder // nil: pieces are joined by spaces

	bos, eos, unk, pad, sep int32 // -1: absent
	stops                   []int32

	spec      spec   // the stages as JSON, for JSON and GGUFVocabulary
	nearest   *spec  // what JSON writes instead where no JSON says the same
	raw       []byte // tokenizer.json as read, or nil
	sp        *spModel
	gguf      *Vocabulary // the vocabulary as read from GGUF, or nil
	templates map[string]string

	scratch sync.Pool
}

// EncodeOptions are the choices of one call of [Tokenizer.Encode].
type EncodeOptions struct {
	NoSpecial      bool // add no BOS, EOS or other token of the post-processor
	NoParseSpecial bool // read the spelling of special tokens as plain text
}

// A model maps one pre-token to ids. Implementations are immutable.
type model interface {
	// encode appends the ids of word to dst.
	encode(dst []int32, word string, sc *scratch) ([]int32, error)
	// vocab returns the pieces by id; "" marks an id that does not exist.
	vocab() []string
	id(piece string) (int32, bool)
	kind() string // "BPE", "Unigram" or "SPM"
}

// A piece is a run of text on its way to the model, or an added token.
type piece struct {
	text  string
	id    int32 // an added token's id, or -1
	start bool  // text begins at the first byte of the input
}

// Encode returns the ids of text. The options choose whether the
// post-processor's tokens are added and whether special tokens are recognised
// in text. The error is a [formats.FormatError] when the vocabulary has no
// piece for a character and no unknown token, or when the pre-tokenizer's
// regular expression exceeds its limits on this text.
func (t *Tokenizer) Encode(text string, o EncodeOptions) ([]int32, error) {
	var dst []int32
	if !o.NoSpecial {
		dst = append(dst, t.post.prefix...)
	}
	dst, err := t.encode(dst, text, guard{all: o.NoParseSpecial})
	if err != nil {
		return nil, err
	}
	if !o.NoSpecial {
		dst = append(dst, t.post.suffix...)
	}
	return dst, nil
}

func (t *Tokenizer) encode(dst []int32, text string, g guard) ([]int32, error) {
	if !utf8.ValidString(text) {
		text, g = repair(text, g)
	}
	sc, _ := t.scratch.Get().(*scratch)
	if sc == nil {
		sc = new(scratch)
	}
	defer t.scratch.Put(sc)
	pieces, err := t.added.split(text, t.norm, g)
	if err != nil {
		return nil, formats.Errorf(t.name, "normalizer", "%v", err)
	}
	for _, p := range pieces {
		if p.id >= 0 {
			dst = append(dst, p.id)
			continue
		}
		if dst, err = t.encodePiece(dst, p, sc); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

func (t *Tokenizer) encodePiece(dst []int32, p piece, sc *scratch) ([]int32, error) {
	var err error
	words := append(sc.words[:0], p)
	if t.pre != nil {
		if words, err = t.pre.split(words); err != nil {
			return nil, formats.Errorf(t.name, "pre_tokenizer", "%v", err)
		}
	}
	for _, w := range words {
		if w.text == "" {
			continue
		}
		if dst, err = t.model.encode(dst, w.text, sc); err != nil {
			return nil, formats.Errorf(t.name, "model", "%v", err)
		}
	}
	return dst, nil
}

// repair replaces each byte of text that is not UTF-8 by U+FFFD and moves the
// guard's spans along.
func repair(text string, g guard) (string, guard) {
	var b strings.Builder
	b.Grow(len(text) + len(text)/8)
	at := make([]int, 0, 2*len(g.plain)) // new offsets of the spans' ends
	want := g.ends()
	for i, r := range text {
		for len(at) < len(want) && want[len(at)] <= i {
			at = append(at, b.Len())
		}
		b.WriteRune(r)
	}
	for len(at) < len(want) {
		at = append(at, b.Len())
	}
	return b.String(), g.moved(at)
}

// Decode returns the text of ids as Hugging Face's library does: pieces go
// through the decoder, bytes that do not form UTF-8 become U+FFFD, ids that
// have no piece are passed over. Where pieces spell bytes, an added token is its text
// even if that could be read as bytes, as llama.cpp has it. skipSpecial leaves special tokens out. A
// negative id is an error.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) (string, error) {
	for i, id := range ids {
		if id < 0 {
			return "", formats.Errorf(t.name, "", "id %d at position %d is negative", id, i)
		}
	}
	return t.decodeChain(ids, skipSpecial, false), nil
}

// decodeChain decodes ids. With raw, bytes come out as they are instead of
// through U+FFFD, so that the result for a prefix of ids stays a prefix.
func (t *Tokenizer) decodeChain(ids []int32, skipSpecial, raw bool) string {
	pieces := make([]string, 0, len(ids))
	for _, id := range ids {
		if skipSpecial && t.IsSpecial(id) {
			continue
		}
		if s, ok := t.decodePiece(id); ok {
			pieces = append(pieces, s)
		}
	}
	if t.dec == nil {
		return strings.Join(pieces, " ")
	}
	return strings.Join(t.dec.decode(pieces, raw), "")
}

// decodePiece is the piece of id as the decoder expects it.
func (t *Tokenizer) decodePiece(id int32) (string, bool) {
	if a := t.added.byID[id]; a != nil {
		return a.spelled, true
	}
	v := t.model.vocab()
	if id < 0 || int(id) >= len(v) || v[id] == "" {
		return "", false
	}
	return v[id], true
}

// VocabSize is one more than the largest id.
func (t *Tokenizer) VocabSize() int {
	return max(len(t.model.vocab()), int(t.added.maxID)+1)
}

// Piece returns the spelling of id in the vocabulary: for byte-level
// vocabularies in their printable alphabet. It is "" and false for an id
// without a piece.
func (t *Tokenizer) Piece(id int32) (string, bool) {
	if a := t.added.byID[id]; a != nil {
		return a.Content, true
	}
	return t.decodePiece(id)
}

// TokenBytes returns the bytes that id stands for in the middle of a text,
// which need not be UTF-8 alone. It is nil for an id without a piece.
func (t *Tokenizer) TokenBytes(id int32) []byte {
	s, ok := t.decodePiece(id)
	if !ok {
		return nil
	}
	if t.dec == nil {
		return []byte(s)
	}
	// A neighbour on the left keeps decoders that strip the text's first
	// space from touching this piece.
	left := strings.Join(t.dec.decode([]string{"x"}, true), "")
	both := strings.Join(t.dec.decode([]string{"x", s}, true), "")
	return []byte(strings.TrimPrefix(both, left))
}

// ID returns the id of a piece as the vocabulary spells it.
func (t *Tokenizer) ID(piece string) (int32, bool) {
	if a := t.added.byText[piece]; a != nil {
		return a.ID, true
	}
	return t.model.id(piece)
}

// IsSpecial reports whether id is a special token, one that skipSpecial
// leaves out and that plain text can never become.
func (t *Tokenizer) IsSpecial(id int32) bool {
	a := t.added.byID[id]
	return a != nil && a.Special
}

// BOS returns the id that begins a text, if the model has one.
func (t *Tokenizer) BOS() (int32, bool) { return t.bos, t.bos >= 0 }

// EOS returns the id that ends a text, if the model has one.
func (t *Tokenizer) EOS() (int32, bool) { return t.eos, t.eos >= 0 }

// UNK returns the id of unknown text, if the model has one.
func (t *Tokenizer) UNK() (int32, bool) { return t.unk, t.unk >= 0 }

// PAD returns the id that fills batches, if the model has one.
func (t *Tokenizer) PAD() (int32, bool) { return t.pad, t.pad >= 0 }

// Stops returns the ids that end a generation: EOS, the eos_token_id of
// generation_config.json and config.json (which may be lists), and for GGUF
// the eot and eom ids and the tokens that llama.cpp knows to end a turn.
func (t *Tokenizer) Stops() []int32 { return append([]int32(nil), t.stops...) }

// AddsBOS reports whether [Tokenizer.Encode] begins a text with BOS.
func (t *Tokenizer) AddsBOS() bool {
	return t.bos >= 0 && len(t.post.prefix) > 0 && t.post.prefix[0] == t.bos
}

// AddsEOS reports whether [Tokenizer.Encode] ends a text with EOS.
func (t *Tokenizer) AddsEOS() bool {
	n := len(t.post.suffix)
	return t.eos >= 0 && n > 0 && t.post.suffix[n-1] == t.eos
}
