package tokenizer

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/nstf/nstf/formats"
)

func as[T error](err error, target *T) bool { return errors.As(err, target) }

// A tokenName is a special token in a configuration: a string or an object
// with its content.
type tokenName string

func (n *tokenName) UnmarshalJSON(b []byte) error {
	if isNull(b) {
		return nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err == nil {
		*n = tokenName(s)
		return nil
	}
	var o struct{ Content string }
	if err := json.Unmarshal(b, &o); err != nil {
		return err
	}
	*n = tokenName(o.Content)
	return nil
}

// idList is an id or a list of them.
type idList []int32

func (l *idList) UnmarshalJSON(b []byte) error {
	if isNull(b) {
		return nil
	}
	var one int32
	if err := json.Unmarshal(b, &one); err == nil {
		*l = idList{one}
		return nil
	}
	return json.Unmarshal(b, (*[]int32)(l))
}

type specialNames struct {
	BOS  tokenName `json:"bos_token"`
	EOS  tokenName `json:"eos_token"`
	UNK  tokenName `json:"unk_token"`
	PAD  tokenName `json:"pad_token"`
	SEP  tokenName `json:"sep_token"`
	CLS  tokenName `json:"cls_token"`
	Mask tokenName `json:"mask_token"`
	More rawJSON   `json:"additional_special_tokens"`
}

func (s specialNames) or(o specialNames) specialNames {
	pick := func(a, b tokenName) tokenName {
		if a == "" {
			return b
		}
		return a
	}
	s.BOS, s.EOS, s.UNK, s.PAD = pick(s.BOS, o.BOS), pick(s.EOS, o.EOS), pick(s.UNK, o.UNK), pick(s.PAD, o.PAD)
	s.SEP, s.CLS, s.Mask = pick(s.SEP, o.SEP), pick(s.CLS, o.CLS), pick(s.Mask, o.Mask)
	if isNull(s.More) {
		s.More = o.More
	}
	return s
}

// hfConfig is what the files around tokenizer.json say.
type hfConfig struct {
	specialNames
	Class       string                `json:"tokenizer_class"`
	AddBOS      *bool                 `json:"add_bos_token"`
	AddEOS      *bool                 `json:"add_eos_token"`
	Legacy      *bool                 `json:"legacy"`
	AddedTokens map[string]addedToken `json:"added_tokens_decoder"`
	Chat        rawJSON               `json:"chat_template"`

	ids       modelIDs // config.json
	gen       modelIDs // generation_config.json
	templates map[string]string
}

type modelIDs struct {
	BOS  idList    `json:"bos_token_id"`
	EOS  idList    `json:"eos_token_id"`
	PAD  idList    `json:"pad_token_id"`
	Text *modelIDs `json:"text_config"`
	Kind string    `json:"model_type"`
}

func readConfig(name string, f Files) (*hfConfig, error) {
	c := &hfConfig{}
	var special specialNames
	for _, p := range []struct {
		file string
		raw  []byte
		into any
	}{
		{"tokenizer_config.json", f.Config, c}, {"special_tokens_map.json", f.Special, &special},
		{"config.json", f.ConfigJSON, &c.ids}, {"generation_config.json", f.Generation, &c.gen},
	} {
		if p.raw == nil {
			continue
		}
		if err := json.Unmarshal(p.raw, p.into); err != nil {
			return nil, jsonError(name, p.file, err)
		}
	}
	c.specialNames = c.specialNames.or(special)
	if t := c.ids.Text; t != nil {
		if c.ids.BOS == nil {
			c.ids.BOS = t.BOS
		}
		if c.ids.EOS == nil {
			c.ids.EOS = t.EOS
		}
		if c.ids.PAD == nil {
			c.ids.PAD = t.PAD
		}
	}
	var err error
	c.templates, err = readTemplates(name, c.Chat, f)
	return c, err
}

// readTemplates collects the chat templates by name. Where there are files of
// templates, chat_template.jinja being the default one, the configuration's do
// not count, as in transformers.
func readTemplates(name string, chat rawJSON, f Files) (map[string]string, error) {
	out := map[string]string{}
	if !isNull(chat) {
		var one string
		var list []struct{ Name, Template string }
		if json.Unmarshal(chat, &one) == nil {
			out["default"] = one
		} else if err := json.Unmarshal(chat, &list); err != nil {
			return nil, formats.Errorf(name, "chat_template", "neither a string nor a list of name and template: %v", err)
		}
		for _, t := range list {
			if t.Name == "" {
				return nil, formats.Errorf(name, "chat_template", "a template without a name")
			}
			out[t.Name] = t.Template
		}
	}
	if f.ChatTemplate != nil || len(f.Templates) > 0 {
		clear(out)
	}
	for name, source := range f.Templates {
		out[name] = string(source)
	}
	if f.ChatTemplate != nil {
		out["default"] = string(f.ChatTemplate)
	}
	return out, nil
}

// gemma reports whether transformers reads tokenizer.model with its Gemma
// converter, which never adds a dummy space, whatever the model file says.
func (c *hfConfig) gemma() bool {
	return strings.HasPrefix(c.ids.Kind, "gemma") || strings.HasPrefix(c.Class, "GemmaTokenizer")
}

// names lists the special tokens that have a role.
func (c *hfConfig) names() []string {
	out := []string{string(c.BOS), string(c.EOS), string(c.UNK), string(c.SEP), string(c.PAD), string(c.CLS), string(c.Mask)}
	var more []tokenName
	if json.Unmarshal(c.More, &more) == nil {
		for _, n := range more {
			out = append(out, string(n))
		}
	}
	return slices.DeleteFunc(out, func(s string) bool { return s == "" })
}

// extend adds what the configuration adds to tokenizer.json's added tokens:
// tokens of added_tokens_decoder that it lacks, and special tokens that are
// plain pieces of the model. A special token that no vocabulary has gets no id.
func (c *hfConfig) extend(tokens []addedToken, m *protoModel) []addedToken {
	have := map[string]bool{}
	for _, t := range tokens {
		have[t.Content] = true
	}
	keys := make([]int, 0, len(c.AddedTokens))
	for k := range c.AddedTokens {
		if id, err := strconv.ParseInt(k, 10, 32); err == nil {
			keys = append(keys, int(id))
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		t := c.AddedTokens[strconv.Itoa(k)]
		if t.ID = int32(k); t.Content != "" && !have[t.Content] {
			have[t.Content] = true
			tokens = append(tokens, t)
		}
	}
	for _, n := range c.names() {
		if id, ok := m.ids[n]; ok && !have[n] {
			have[n] = true
			tokens = append(tokens, addedToken{ID: id, Content: n, Special: true})
		}
	}
	return tokens
}

// rebuildsPost are the classes whose post-processor transformers rebuilds
// from add_bos_token and add_eos_token.
var rebuildsPost = map[string]bool{
	"LlamaTokenizer": true, "LlamaTokenizerFast": true, "CodeLlamaTokenizer": true, "CodeLlamaTokenizerFast": true,
	"GemmaTokenizer": true, "GemmaTokenizerFast": true, "CohereTokenizer": true, "CohereTokenizerFast": true,
}

// useConfig fills in the roles of special tokens.
func (t *Tokenizer) useConfig(c *hfConfig) {
	role := func(into *int32, name tokenName, ids ...idList) {
		if id, ok := t.ID(string(name)); ok && name != "" {
			*into = id
			return
		}
		for _, l := range ids {
			if len(l) > 0 && l[0] >= 0 && int(l[0]) < t.VocabSize() && *into < 0 {
				*into = l[0]
			}
		}
	}
	role(&t.bos, c.BOS, c.ids.BOS, c.gen.BOS)
	role(&t.eos, c.EOS, c.ids.EOS, c.gen.EOS)
	role(&t.pad, c.PAD, c.ids.PAD, c.gen.PAD)
	role(&t.unk, c.UNK)
	role(&t.sep, c.SEP)
	t.addStops(t.eos)
	t.addStops(c.ids.EOS...)
	t.addStops(c.gen.EOS...)
	t.templates = c.templates
	if c.AddBOS == nil && c.AddEOS == nil || !rebuildsPost[c.Class] {
		return
	}
	p := postProcessor{}
	if (c.AddBOS == nil || *c.AddBOS) && t.bos >= 0 {
		p.prefix = []int32{t.bos}
	}
	if flag(c.AddEOS) && t.eos >= 0 {
		p.suffix = []int32{t.eos}
	}
	if !slices.Equal(p.prefix, t.post.prefix) || !slices.Equal(p.suffix, t.post.suffix) {
		t.post = p
		t.spec.PostProcessor = templatePost(t, p)
		t.raw = nil // no longer what this tokenizer does
	}
}

func (t *Tokenizer) addStops(ids ...int32) {
	for _, id := range ids {
		if id >= 0 && !slices.Contains(t.stops, id) {
			t.stops = append(t.stops, id)
		}
	}
}

// templatePost writes a TemplateProcessing that adds p's ids.
func templatePost(t *Tokenizer, p postProcessor) rawJSON {
	if len(p.prefix)+len(p.suffix) == 0 {
		return nil
	}
	single := []any{}
	tokens := map[string]any{}
	add := func(ids []int32) {
		for _, id := range ids {
			s, _ := t.Piece(id)
			single = append(single, map[string]any{"SpecialToken": map[string]any{"id": s, "type_id": 0}})
			tokens[s] = map[string]any{"id": s, "ids": []int32{id}, "tokens": []string{s}}
		}
	}
	add(p.prefix)
	single = append(single, map[string]any{"Sequence": map[string]any{"id": "A", "type_id": 0}})
	add(p.suffix)
	pair := append(slices.Clone(single), map[string]any{"Sequence": map[string]any{"id": "B", "type_id": 1}})
	return mustJSON(map[string]any{"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens})
}

// mustJSON marshals plain data, which cannot fail.
func mustJSON(v any) rawJSON {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("tokenizer: " + err.Error())
	}
	return rawJSON(strings.TrimRight(b.String(), "\n"))
}
