package serve

import (
	"encoding/json"

	"github.com/nstf/nstf/formats/tokenizer"
	"github.com/nstf/nstf/runtime/generate"
)

// prompts returns the turns of a completion's prompt: a text, tokens, both mixed, or a
// list of these.
func (s *Server) prompts(m *Model, raw json.RawMessage, o settings) ([]*turn, error) {
	all, err := m.texts(raw, "prompt", m.encode)
	if err != nil {
		return nil, err
	}
	var turns []*turn
	for _, ids := range all {
		t, err := m.completes(ids, o)
		if err != nil {
			return nil, err
		}
		turns = append(turns, t)
	}
	if n := len(turns) * o.n; n > s.o.MaxChoices {
		return nil, invalid("prompt", "%d choices are asked for, and %d at most given", n, s.o.MaxChoices)
	}
	return turns, nil
}

// completes returns the turn that goes on where tokens end.
func (m *Model) completes(ids []int32, o settings) (t *turn, err error) {
	t = &turn{model: m, prompt: ids, settings: o}
	if o.format != nil {
		t.hold = &hold{}
		t.hold.compiled, err = m.compile(o.format)
	}
	return t, err
}

// mostTexts bounds the texts of a request.
const mostTexts = 2048

// texts returns the tokens of one text or of several; param is the field, encode reads one
// that is no list.
func (m *Model) texts(raw json.RawMessage, param string, encode func(text string) ([]int32, error)) ([][]int32, error) {
	list := []json.RawMessage{raw}
	var elements []json.RawMessage
	if json.Unmarshal(raw, &elements) == nil && elements != nil && !mixed(elements) {
		list = elements
	}
	if len(list) > mostTexts {
		return nil, invalid(param, "%s holds %d texts, and %d at most may be", param, len(list), mostTexts)
	}
	var all [][]int32
	for _, one := range list {
		ids, err := m.ids(one, param, encode)
		if err != nil {
			return nil, err
		}
		if len(ids) == 0 {
			return nil, empty(param)
		}
		all = append(all, ids)
	}
	if len(all) == 0 {
		return nil, invalid(param, "there is no %s", param)
	}
	return all, nil
}

func empty(param string) error { return invalid(param, "the %s is empty", param) }

// mixed reports whether a list is one prompt: tokens, between texts or alone.
func mixed(list []json.RawMessage) bool {
	for _, raw := range list {
		var id int32
		if json.Unmarshal(raw, &id) == nil {
			return true
		}
	}
	return false
}

// ids returns the tokens of one text.
func (m *Model) ids(raw json.RawMessage, param string, encode func(text string) ([]int32, error)) ([]int32, error) {
	var text *string
	var parts []json.RawMessage
	var inside struct {
		Text *string `json:"prompt_string"` // llama.cpp's
	}
	switch {
	case json.Unmarshal(raw, &text) == nil && text != nil:
	case json.Unmarshal(raw, &parts) == nil && len(parts) > 0:
		return m.join(parts, param)
	case json.Unmarshal(raw, &inside) == nil && inside.Text != nil:
		text = inside.Text
	default:
		return nil, invalid(param, "a %s is a text or a list of tokens", param)
	}
	return encode(*text)
}

// encode returns a text's tokens, with what begins one and without what ends it.
func (m *Model) encode(text string) ([]int32, error) {
	return generate.Prompt(m.Tokenizer, text, true)
}

// join returns the tokens of texts and tokens.
func (m *Model) join(parts []json.RawMessage, param string) ([]int32, error) {
	var ids []int32
	for i, raw := range parts {
		var id *int32
		if json.Unmarshal(raw, &id) == nil && id != nil {
			if *id < 0 || int(*id) >= m.Tokenizer.VocabSize() {
				return nil, invalid(param, "%d is no token of the model", *id)
			}
			ids = append(ids, *id)
			continue
		}
		var text *string
		if json.Unmarshal(raw, &text) != nil || text == nil {
			return nil, invalid(param, "part %d of a %s is neither a text nor a token", i, param)
		}
		more, err := m.Tokenizer.Encode(*text, tokenizer.EncodeOptions{NoSpecial: i > 0})
		if err != nil {
			return nil, err
		}
		ids = append(ids, more...)
	}
	return ids, nil
}
