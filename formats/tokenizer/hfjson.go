package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"

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
	// Templates are additional_chat_templates/NAME.jinja, by NAME.
	Templates map[string][]byte
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

// assemble builds the stages of t.spec around a model.
func (t *Tokenizer) assemble(m *protoModel, tokens []addedToken) (*Tokenizer, error) {
	var err error
	for _, stage := range []struct {
		name string
		raw  []byte
	}{{"normalizer", t.spec.Normalizer}, {"pre_tokenizer", t.spec.PreTokenizer}, {"post_processor", t.spec.PostProcessor}, {"decoder", t.spec.Decoder}} {
		if err := checkStage(stage.raw); err != nil {
			return nil, located(t.name, stage.name, err)
		}
	}
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
	if err := t.checkGrowth(); err != nil {
		return nil, err
	}
	if tokens, err = placeAdded(tokens, m); err != nil {
		return nil, located(t.name, "added_tokens", err)
	}
	if t.added, err = newAddedVocab(tokens, t.norm); err != nil {
		return nil, located(t.name, "added_tokens", err)
	}
	t.added.spell(t.dec)
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
