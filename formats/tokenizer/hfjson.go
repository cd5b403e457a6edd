package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/nstf/nstf/formats"
)

// Files are the bytes of a Hugging Face directory's files; nil for those that
// are not there. JSON or Model must be.
type Files struct {
	JSON         []byte // tokenizer.json
	Config       []byte // tokenizer_config.json
	Special      []byte // special_tokens_map.json
	Generation   []byte // generation_config.json: eos_token_id
	Model        []byte // tokenizer.model, a SentencePiece ModelProto
	ChatTemplate []byte // chat_template.jinja
	ConfigJSON   []byte // config.json: bos_token_id, eos_token_id, pad_token_id
}

// spec holds the stages as tokenizer.json writes them.
type spec struct {
	Normalizer    rawJSON
	PreTokenizer  rawJSON
	PostProcessor rawJSON
	Decoder       rawJSON
}

type tokenizerJSON struct {
	Version       *string      `json:"version"`
	Truncation    rawJSON      `json:"truncation"`
	Padding       rawJSON      `json:"padding"`
	AddedTokens   []addedToken `json:"added_tokens"`
	Normalizer    rawJSON      `json:"normalizer"`
	PreTokenizer  rawJSON      `json:"pre_tokenizer"`
	PostProcessor rawJSON      `json:"post_processor"`
	Decoder       rawJSON      `json:"decoder"`
	Model         rawJSON      `json:"model"`
}

type modelJSON struct {
	Type                    string
	Dropout                 *float64
	UnkToken                *string
	ContinuingSubwordPrefix *string
	EndOfWordSuffix         *string
	FuseUnk                 *bool
	ByteFallback            *bool
	IgnoreMerges            *bool
	Vocab                   rawJSON
	Merges                  rawJSON
	UnkID                   *int32
	MaxInputCharsPerWord    rawJSON
}

// FromFiles reads the tokenizer of a Hugging Face directory; name stands for
// it in errors. tokenizer.json decides where there is one: truncation and
// padding in it are left aside, as they concern batches. Without one,
// tokenizer.model is read with SentencePiece's own semantics. Special tokens
// are those of tokenizer_config.json, then special_tokens_map.json, then the
// ids of config.json. A tokenizer_config.json of the Llama or Gemma classes
// that states add_bos_token or add_eos_token overrides the post-processor, as
// transformers does. Errors are [formats.FormatError] and
// [formats.UnsupportedError].
func FromFiles(name string, f Files) (*Tokenizer, error) {
	c, err := readConfig(name, f)
	if err != nil {
		return nil, err
	}
	var t *Tokenizer
	switch {
	case f.JSON != nil:
		t, err = fromJSON(name, f.JSON, c)
	case f.Model != nil:
		t, err = fromSentencePiece(name, f.Model, c)
	default:
		return nil, formats.Errorf(name, "", "there is neither tokenizer.json nor tokenizer.model")
	}
	if err != nil {
		return nil, err
	}
	if f.Model != nil && t.sp == nil {
		// Only its scores serve, for GGUF; damage there is no reason to
		// refuse a directory whose tokenizer.json is sound.
		t.sp, _ = parseSPModel(f.Model)
	}
	t.useConfig(c)
	return t, nil
}

// fromJSON reads tokenizer.json.
func fromJSON(name string, raw []byte, c *hfConfig) (*Tokenizer, error) {
	var j tokenizerJSON
	if err := json.Unmarshal(raw, &j); err != nil {
		return nil, jsonError(name, "tokenizer.json", err)
	}
	if j.Version != nil && *j.Version != "1.0" {
		return nil, formats.Unsupportedf(name, "tokenizer.json", "version %q", *j.Version)
	}
	m, err := readModel(j.Model)
	if err != nil {
		return nil, located(name, "model", err)
	}
	t := &Tokenizer{name: name, raw: raw, spec: spec{j.Normalizer, j.PreTokenizer, j.PostProcessor, j.Decoder}}
	return t.assemble(m, c.extend(j.AddedTokens, m))
}

func jsonError(name, part string, err error) error {
	e := formats.Errorf(name, part, "not the JSON it should be")
	e.Err = err
	var s *json.SyntaxError
	if as(err, &s) {
		e.Offset = s.Offset
	}
	return e
}

// protoModel is a model before its stages are known.
type protoModel struct {
	modelJSON
	pieces []string // by id, "" for holes
	ids    map[string]int32
	scores []float64   // Unigram
	pairs  [][2]string // BPE
	types  []int32     // nil for tokenizer.json
	unk    int32
	rules  unigramRules

	user    *trie // user-defined pieces that the model itself recognises
	userIDs map[string]int32
}

func readModel(raw []byte) (*protoModel, error) {
	if isNull(raw) {
		return nil, fmt.Errorf("there is no model")
	}
	m := &protoModel{unk: -1}
	if err := strict(snake(raw), &m.modelJSON); err != nil {
		return nil, err
	}
	if m.Type == "" { // old files
		m.Type = "BPE"
		if bytes.HasPrefix(bytes.TrimSpace(m.Vocab), []byte("[")) {
			m.Type = "Unigram"
		}
	}
	switch m.Type {
	case "BPE":
		return m, m.readBPE()
	case "Unigram":
		return m, m.readUnigram()
	}
	return nil, unsupported("model %q", m.Type)
}

func (m *protoModel) readBPE() error {
	if m.Dropout != nil && *m.Dropout != 0 {
		return unsupported("dropout %v: encoding would be random", *m.Dropout)
	}
	if isNull(m.Vocab) || isNull(m.Merges) {
		return fmt.Errorf("vocab or merges are missing")
	}
	if err := json.Unmarshal(m.Vocab, &m.ids); err != nil {
		return fmt.Errorf("vocab: %w", err)
	}
	most := int32(-1)
	for p, id := range m.ids {
		if id < 0 || int(id) > 4*len(m.ids)+holes {
			return fmt.Errorf("vocab: %q has id %d among %d pieces", p, id, len(m.ids))
		}
		most = max(most, id)
	}
	m.pieces = make([]string, most+1)
	for p, id := range m.ids {
		if m.pieces[id] != "" {
			return fmt.Errorf("vocab: %q and %q share id %d", p, m.pieces[id], id)
		}
		m.pieces[id] = p
	}
	var err error
	m.pairs, err = readMerges(m.Merges)
	m.Vocab, m.Merges = nil, nil
	return err
}

// holes is how far ids may lie beyond the number of pieces.
const holes = 1 << 16

// readMerges reads both spellings: "a b" and ["a", "b"].
func readMerges(raw []byte) ([][2]string, error) {
	var lines []string
	if json.Unmarshal(raw, &lines) == nil {
		pairs := make([][2]string, 0, len(lines))
		for i, l := range lines {
			if strings.HasPrefix(l, "#version") {
				continue
			}
			a, b, ok := strings.Cut(l, " ")
			if !ok || strings.Contains(b, " ") {
				return nil, fmt.Errorf("merge %d is %q, not two pieces", i, l)
			}
			pairs = append(pairs, [2]string{a, b})
		}
		return pairs, nil
	}
	var lists [][]string
	if err := json.Unmarshal(raw, &lists); err != nil {
		return nil, fmt.Errorf("merges: %w", err)
	}
	pairs := make([][2]string, len(lists))
	for i, l := range lists {
		if len(l) != 2 {
			return nil, fmt.Errorf("merge %d has %d pieces", i, len(l))
		}
		pairs[i] = [2]string{l[0], l[1]}
	}
	return pairs, nil
}

func (m *protoModel) readUnigram() error {
	var rows [][2]any
	if err := json.Unmarshal(m.Vocab, &rows); err != nil {
		return fmt.Errorf("vocab: %w", err)
	}
	m.Vocab = nil
	m.ids = make(map[string]int32, len(rows))
	for i, r := range rows {
		p, ok := r[0].(string)
		s, ok2 := r[1].(float64)
		if !ok || !ok2 {
			return fmt.Errorf("vocab: entry %d is not [piece, score]", i)
		}
		m.pieces = append(m.pieces, p)
		m.scores = append(m.scores, s)
		m.ids[p] = int32(i)
	}
	if len(rows) == 0 {
		return fmt.Errorf("vocab is empty")
	}
	m.rules = unigramRules{byPiece: true}
	if m.UnkID != nil {
		if *m.UnkID < 0 || int(*m.UnkID) >= len(m.pieces) {
			return fmt.Errorf("unk_id %d of %d pieces", *m.UnkID, len(m.pieces))
		}
		m.unk = *m.UnkID
	}
	return nil
}

func flag(b *bool) bool { return b != nil && *b }

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// assemble builds the stages of t.spec around a model.
func (t *Tokenizer) assemble(m *protoModel, tokens []addedToken) (*Tokenizer, error) {
	var err error
	if t.norm == nil {
		if t.norm, err = parseNormalizer(t.spec.Normalizer); err != nil {
			return nil, located(t.name, "normalizer", err)
		}
	}
	if t.pre, err = parsePre(t.spec.PreTokenizer); err != nil {
		return nil, located(t.name, "pre_tokenizer", err)
	}
	if t.dec, err = parseDecoder(t.spec.Decoder); err != nil {
		return nil, located(t.name, "decoder", err)
	}
	if t.post, err = parsePost(t.spec.PostProcessor); err != nil {
		return nil, located(t.name, "post_processor", err)
	}
	if tokens, err = placeAdded(tokens, m); err != nil {
		return nil, located(t.name, "added_tokens", err)
	}
	t.added = newAddedVocab(tokens, t.norm)
	if t.model, err = m.build(t.added.specials()); err != nil {
		return nil, located(t.name, "model", err)
	}
	for _, id := range slices.Concat(t.post.prefix, t.post.suffix) {
		if int(id) >= t.VocabSize() {
			return nil, formats.Errorf(t.name, "post_processor", "id %d of a vocabulary of %d", id, t.VocabSize())
		}
	}
	t.bos, t.eos, t.unk, t.pad, t.sep = -1, -1, m.unk, -1, -1
	if b, ok := t.model.(*bpe); ok {
		t.unk = b.unk
	}
	return t, nil
}

func (m *protoModel) build(special map[int32]bool) (model, error) {
	switch m.Type {
	case "SPM":
		scores := make([]float32, len(m.scores))
		for i, s := range m.scores {
			scores[i] = float32(s)
		}
		s, err := newSPM(m.pieces, scores, m.types, m.unk)
		if err == nil && m.user != nil {
			s.freeze(m.user, m.userIDs)
		}
		return s, err
	case "Unigram":
		return newUnigram(m.pieces, m.scores, m.types, m.unk, flag(m.ByteFallback), special, m.rules)
	}
	o := bpeOptions{text(m.ContinuingSubwordPrefix), text(m.EndOfWordSuffix), flag(m.FuseUnk), flag(m.ByteFallback)}
	b, err := newBPE(m.pieces, m.ids, m.pairs, text(m.UnkToken), o, flag(m.IgnoreMerges))
	if err != nil {
		return nil, err
	}
	b.blocked = special
	m.pairs = nil
	return b, nil
}

// placeAdded checks the ids of added tokens: that of the model's piece of the
// same spelling, else the next behind all ids so far, which is how Hugging
// Face's library numbers them whatever the file says.
func placeAdded(tokens []addedToken, m *protoModel) ([]addedToken, error) {
	slices.SortStableFunc(tokens, func(a, b addedToken) int { return int(a.ID) - int(b.ID) })
	next := int32(len(m.pieces))
	seen := map[string]bool{}
	out := tokens[:0]
	for _, t := range tokens {
		if t.Content == "" || seen[t.Content] {
			continue
		}
		seen[t.Content] = true
		if id, ok := m.ids[t.Content]; ok {
			if id != t.ID {
				return nil, fmt.Errorf("%q has id %d here and %d in the model", t.Content, t.ID, id)
			}
		} else if t.ID >= 0 && int(t.ID) < len(m.pieces) && m.pieces[t.ID] == "" {
			// A hole of the vocabulary, as GGUF files have.
		} else if t.ID != next {
			return nil, fmt.Errorf("%q has id %d, but the next free one is %d", t.Content, t.ID, next)
		} else {
			next++
		}
		out = append(out, t)
	}
	return out, nil
}
