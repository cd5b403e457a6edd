package tokenizer

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// looseJSON reads raw into v, reporting whether that worked.
func looseJSON(raw []byte, v any) bool { return json.Unmarshal(raw, v) == nil }

// snakeCompact is an object's canonical form for comparison: keys sorted at
// every level, no spaces, "" for null.
func snakeCompact(raw []byte) []byte {
	if isNull(raw) {
		return nil
	}
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return raw
	}
	b, err := json.Marshal(v)
	if err != nil {
		return raw
	}
	return b
}

// JSON returns a tokenizer.json: the bytes that were read when the tokenizer
// came from one, else a file that Hugging Face's library turns into the same
// tokenizer. For SentencePiece models the merges are written out, of which
// equal scores are ordered by the left piece's length; for those with a
// charsmap or white space removal the stages are the nearest that the format
// has, as in Hugging Face's own converters.
func (t *Tokenizer) JSON() ([]byte, error) {
	if t.raw != nil {
		return bytes.Clone(t.raw), nil
	}
	s := t.spec
	if t.nearest != nil {
		s.Normalizer, s.PreTokenizer, s.Decoder = t.nearest.Normalizer, t.nearest.PreTokenizer, t.nearest.Decoder
	}
	tokens := []addedToken{}
	for _, a := range t.added.byID {
		tokens = append(tokens, *a)
	}
	for i, typ := range modelTypes(t.model) {
		if typ == TypeUserDefined && t.added.byID[int32(i)] == nil {
			tokens = append(tokens, addedToken{ID: int32(i), Content: t.model.vocab()[i]})
		}
	}
	slices.SortFunc(tokens, func(a, b addedToken) int { return int(a.ID) - int(b.ID) })
	version := "1.0"
	out := tokenizerJSON{Version: &version, AddedTokens: tokens, Normalizer: s.Normalizer, PreTokenizer: s.PreTokenizer,
		PostProcessor: s.PostProcessor, Decoder: s.Decoder, Model: t.modelJSON()}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(out); err != nil {
		return nil, located(t.name, "tokenizer.json", err)
	}
	return b.Bytes(), nil
}

func (t *Tokenizer) modelJSON() rawJSON {
	switch m := t.model.(type) {
	case *bpe:
		unk := ""
		if m.unk >= 0 {
			unk = m.pieces[m.unk]
		}
		return bpeJSON(m.pieces, m.mergePairs(), unk, m.opt, m.direct)
	case *spm:
		unk := ""
		if m.unk >= 0 {
			unk = m.pieces[m.unk]
		}
		return bpeJSON(m.pieces, m.mergePairs(), unk, bpeOptions{fuseUnk: true, byteFallback: true}, false)
	case *unigram:
		return m.json()
	}
	panic("tokenizer: unknown model")
}

func bpeJSON(pieces []string, pairs [][2]string, unk string, o bpeOptions, direct bool) rawJSON {
	if pairs == nil {
		pairs = [][2]string{}
	}
	return mustJSON(struct {
		Type         string      `json:"type"`
		Dropout      *float64    `json:"dropout"`
		Unk          *string     `json:"unk_token"`
		Prefix       *string     `json:"continuing_subword_prefix"`
		Suffix       *string     `json:"end_of_word_suffix"`
		FuseUnk      bool        `json:"fuse_unk"`
		ByteFallback bool        `json:"byte_fallback"`
		Direct       bool        `json:"ignore_merges"`
		Vocab        rawJSON     `json:"vocab"`
		Merges       [][2]string `json:"merges"`
	}{"BPE", nil, orNil(unk), orNil(o.prefix), orNil(o.suffix), o.fuseUnk, o.byteFallback, direct, vocabJSON(pieces), pairs})
}

func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// vocabJSON writes pieces by id, in the order of their ids.
func vocabJSON(pieces []string) rawJSON {
	var b strings.Builder
	b.WriteByte('{')
	for id, p := range pieces {
		if p == "" {
			continue
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.Write(mustJSON(p))
		b.WriteByte(':')
		b.Write(mustJSON(id))
	}
	b.WriteByte('}')
	return rawJSON(b.String())
}

// mergePairs lists every two pieces that spell a third, the best first.
func (m *spm) mergePairs() [][2]string {
	type row struct {
		rank  uint32
		split int
		piece string
	}
	var rows []row
	for p, r := range m.merge {
		for i := range p {
			if i == 0 {
				continue
			}
			_, left := m.merge[p[:i]]
			_, right := m.merge[p[i:]]
			if left && right && m.types[r.id] == TypeNormal {
				rows = append(rows, row{r.rank, i, p})
			}
		}
	}
	slices.SortFunc(rows, func(a, b row) int {
		switch {
		case a.rank != b.rank:
			if a.rank < b.rank {
				return -1
			}
			return 1
		case a.split != b.split:
			return a.split - b.split
		}
		return strings.Compare(a.piece, b.piece)
	})
	out := make([][2]string, len(rows))
	for i, r := range rows {
		out[i] = [2]string{r.piece[:r.split], r.piece[r.split:]}
	}
	return out
}

func (m *unigram) json() rawJSON {
	rows := make([][2]any, len(m.pieces))
	for i, p := range m.pieces {
		rows[i] = [2]any{p, m.scores[i]}
	}
	var unk *int32
	if m.unk >= 0 {
		unk = &m.unk
	}
	return mustJSON(map[string]any{"type": "Unigram", "unk_id": unk, "vocab": rows, "byte_fallback": m.fallback})
}
