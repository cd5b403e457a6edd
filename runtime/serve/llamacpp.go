package serve

import (
	"net/http"
	"unicode/utf8"

	"github.com/nstf/nstf/formats/tokenizer"
)

// Paths of llama.cpp's server that programs use.

func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) error {
	q := struct {
		named
		Content      *string `json:"content"`
		Prompt       *string `json:"prompt"` // vLLM's
		AddSpecial   bool    `json:"add_special"`
		AddSpecials  *bool   `json:"add_special_tokens"` // vLLM's
		ParseSpecial *bool   `json:"parse_special"`
		WithPieces   bool    `json:"with_pieces"`
	}{}
	m, release, err := s.open(r, &q)
	if err != nil {
		return err
	}
	defer release()
	var text string
	special := q.AddSpecial
	switch {
	case q.Content != nil:
		text = *q.Content
	case q.Prompt != nil:
		text, special = *q.Prompt, q.AddSpecials == nil || *q.AddSpecials
	default:
		return invalid("content", "there is no content")
	}
	ids, err := m.Tokenizer.Encode(text, tokenizer.EncodeOptions{NoSpecial: !special, NoParseSpecial: q.ParseSpecial != nil && !*q.ParseSpecial})
	if err != nil {
		return err
	}
	tokens := []any{}
	for _, id := range ids {
		if !q.WithPieces {
			tokens = append(tokens, id)
			continue
		}
		var piece any
		if b := m.Tokenizer.TokenBytes(id); utf8.Valid(b) {
			piece = string(b)
		} else {
			piece = asNumbers(b)
		}
		tokens = append(tokens, map[string]any{"id": id, "piece": piece})
	}
	v := map[string]any{"tokens": tokens}
	if q.Prompt != nil {
		v["count"], v["max_model_len"] = len(ids), m.Context
	}
	return writeJSON(w, v)
}

// asNumbers returns bytes as a list in JSON.
func asNumbers(b []byte) []int {
	all := make([]int, len(b))
	for i, c := range b {
		all[i] = int(c)
	}
	return all
}

func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		named
		Tokens []int32 `json:"tokens"`
	}
	m, release, err := s.open(r, &q)
	if err != nil {
		return err
	}
	defer release()
	for _, id := range q.Tokens {
		if id < 0 || int(id) >= m.Tokenizer.VocabSize() {
			return invalid("tokens", "%d is no token of the model", id)
		}
	}
	text, err := m.Tokenizer.Decode(q.Tokens, false)
	if err != nil {
		return err
	}
	return writeJSON(w, map[string]string{"content": text, "prompt": text})
}

// applyTemplate returns the prompt of a chat request.
func (s *Server) applyTemplate(w http.ResponseWriter, r *http.Request) error {
	var q chatRequest
	t, release, err := s.ask(r, &q)
	if err != nil {
		return err
	}
	defer release()
	text, err := t.model.Tokenizer.Decode(t.prompt, false)
	if err != nil {
		return err
	}
	return writeJSON(w, map[string]string{"prompt": text})
}
