package serve

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/nstf/nstf/formats/tokenizer"
)

// llama.cpp's own completion.
// Source: tools/server/README.md of llama.cpp, POST /completion, read 2026-11.

type nativeRequest struct {
	samplingFields
	structured
	named
	Prompt       json.RawMessage `json:"prompt"`
	Predict      *int            `json:"n_predict"`
	MaxTokens    *int            `json:"max_tokens"`
	N            *int            `json:"n"`
	Choices      *int            `json:"n_cmpl"`
	Stop         stopStrings     `json:"stop"`
	Stream       bool            `json:"stream"`
	Probs        int             `json:"n_probs"`
	LogitBias    json.RawMessage `json:"logit_bias"`
	IgnoreEOS    bool            `json:"ignore_eos"`
	ReturnTokens bool            `json:"return_tokens"`
}

// bias returns logit_bias: an object by tokens or texts, or pairs of a token or a text and
// a number, or false for a ban.
func (q *nativeRequest) bias(m *Model) (map[string]float32, error) {
	all := map[string]float32{}
	var object map[string]json.RawMessage
	var pairs [][2]json.RawMessage
	switch {
	case !said(q.LogitBias):
	case json.Unmarshal(q.LogitBias, &object) == nil:
		for k, v := range object {
			key := json.RawMessage(k)
			if _, err := strconv.ParseInt(k, 10, 32); err != nil {
				key, _ = json.Marshal(k)
			}
			pairs = append(pairs, [2]json.RawMessage{key, v})
		}
	case json.Unmarshal(q.LogitBias, &pairs) != nil:
		return nil, invalid("logit_bias", "logit_bias is neither an object nor a list of pairs")
	}
	for i, p := range pairs {
		var ids []int32
		var id int32
		var text string
		switch {
		case json.Unmarshal(p[0], &id) == nil:
			ids = []int32{id}
		case json.Unmarshal(p[0], &text) == nil:
			var err error
			if ids, err = m.Tokenizer.Encode(text, tokenizer.EncodeOptions{NoSpecial: true}); err != nil {
				return nil, err
			}
		default:
			return nil, invalid("logit_bias", "pair %d of logit_bias names no token", i)
		}
		var v float32
		var ban bool
		switch {
		case json.Unmarshal(p[1], &v) == nil:
		case json.Unmarshal(p[1], &ban) == nil && !ban:
			v = float32(math.Inf(-1))
		default:
			return nil, invalid("logit_bias", "pair %d of logit_bias has no number", i)
		}
		for _, id := range ids {
			all[strconv.Itoa(int(id))] = v
		}
	}
	return all, nil
}

func (q *nativeRequest) read(s *Server, m *Model) (o settings, err error) {
	if q.Seed != nil && *q.Seed == -1 { // any
		q.Seed = nil
	}
	if o, err = q.settings(m); err != nil {
		return o, err
	}
	bias, err := q.bias(m)
	if err != nil {
		return o, err
	}
	n := q.N
	if n == nil {
		n = q.Choices
	}
	if err := s.common(&o, n, q.Stop, bias, m); err != nil {
		return o, err
	}
	if o.logprobs, o.top = q.Probs > 0, q.Probs; q.Probs < 0 || q.Probs > mostTop {
		return o, invalid("n_probs", "n_probs is %d, and lies between 0 and %d", q.Probs, mostTop)
	}
	predict := q.Predict
	if predict == nil {
		predict = q.MaxTokens
	}
	switch {
	case predict == nil || *predict < 0:
	case *predict == 0: // the prompt is to be read, and no more
		o.maxTokens, o.silent = 1, true
	default:
		o.maxTokens = *predict
	}
	o.endless = q.IgnoreEOS
	o.format, err = q.format()
	return o, err
}

func (s *Server) completion(w http.ResponseWriter, r *http.Request) error {
	var q nativeRequest
	m, release, err := s.open(r, &q)
	if err != nil {
		return err
	}
	defer release()
	o, err := q.read(s, m)
	if err != nil {
		return err
	}
	turns, err := s.prompts(m, q.Prompt, o)
	if err != nil {
		return err
	}
	return s.complete(w, r, &q, turns)
}

// complete answers turns in llama.cpp's words.
func (s *Server) complete(w http.ResponseWriter, r *http.Request, q *nativeRequest, turns []*turn) error {
	if q.Stream {
		return s.streamCompletion(w, r, turns)
	}
	var all []any
	for i, t := range turns {
		each := make([]gathered, t.n)
		u, err := s.generate(r, t, func(p *piece) error { each[p.choice].add(p); return nil })
		if err != nil {
			return err
		}
		for j := range each {
			g := &each[j]
			v := ended(t, g, &u, i*t.n+j)
			v["content"] = g.text
			if q.ReturnTokens {
				v["tokens"] = ids(g.tokens)
			}
			if t.logprobs {
				v["completion_probabilities"] = nativeProbs(t.model.Tokenizer, g.tokens)
			}
			all = append(all, v)
		}
	}
	if len(all) == 1 {
		return writeJSON(w, all[0])
	}
	return writeJSON(w, all)
}

func (s *Server) streamCompletion(w http.ResponseWriter, r *http.Request, turns []*turn) error {
	out := s.stream(w, r, openai)
	defer out.close()
	for i, t := range turns {
		each := make([]gathered, t.n)
		u, err := s.generate(r, t, func(p *piece) error {
			g := &each[p.choice]
			before := len(g.text)
			g.add(p)
			text := g.text[before:]
			if text == "" && !t.logprobs {
				return nil
			}
			v := map[string]any{"index": i*t.n + p.choice, "content": text, "tokens": ids(p.tokens), "stop": false, "id_slot": -1,
				"tokens_predicted": len(g.tokens), "tokens_evaluated": len(t.prompt)}
			if t.logprobs {
				v["completion_probabilities"] = nativeProbs(t.model.Tokenizer, p.tokens)
			}
			return out.send("", v)
		})
		if err != nil {
			return out.fail(err)
		}
		for j := range each {
			if err := out.send("", ended(t, &each[j], &u, i*t.n+j)); err != nil {
				return err
			}
		}
	}
	return nil
}

func ids(tokens []tokenLogprob) []int32 {
	all := []int32{}
	for _, t := range tokens {
		all = append(all, t.id)
	}
	return all
}

// ended returns what is said of a choice at its end, beside what it says.
func ended(t *turn, g *gathered, u *usage, index int) map[string]any {
	kind := "eos"
	switch {
	case g.end == "length":
		kind = "limit"
	case g.stopped != "":
		kind = "word"
	}
	chosen := len(g.tokens)
	if t.silent {
		chosen = 0
	}
	prompt, _ := t.model.Tokenizer.Decode(t.prompt, false)
	return map[string]any{
		"index": index, "content": "", "tokens": []int32{}, "id_slot": -1, "stop": true, "model": t.model.Name,
		"tokens_predicted": chosen, "tokens_evaluated": len(t.prompt), "tokens_cached": len(t.prompt) + max(0, chosen-1),
		"generation_settings": nativeSettings(&t.settings), "prompt": prompt, "has_new_line": strings.Contains(g.text, "\n"),
		"truncated": false, "stop_type": kind, "stopping_word": g.stopped, "timings": timings(u),
	}
}

func nativeSettings(o *settings) map[string]any {
	predict := o.maxTokens
	if predict == 0 {
		predict = -1
	}
	return map[string]any{"seed": o.sampling.Seed, "temperature": o.sampling.Temperature, "top_k": o.sampling.TopK, "top_p": o.sampling.TopP, "min_p": o.sampling.MinP,
		"repeat_penalty": o.sampling.RepetitionPenalty, "repeat_last_n": o.sampling.RepetitionWindow, "presence_penalty": o.presence, "frequency_penalty": o.frequency,
		"n_predict": predict, "max_tokens": predict, "stop": append([]string{}, o.stop...), "ignore_eos": o.endless, "n_probs": o.top}
}

// timings are what a turn took, in llama.cpp's words.
func timings(u *usage) map[string]any {
	read := u.PromptTokens - u.CachedTokens
	first, rest := u.first.Seconds()*1000, (u.all-u.first).Seconds()*1000
	per := func(a, b float64) float64 {
		if b <= 0 {
			return 0
		}
		return a / b
	}
	behind := float64(max(0, u.Tokens-1)) // of the first token, which the prompt's time holds
	return map[string]any{"cache_n": u.CachedTokens,
		"prompt_n": read, "prompt_ms": first, "prompt_per_token_ms": per(first, float64(read)), "prompt_per_second": per(1000*float64(read), first),
		"predicted_n": u.Tokens, "predicted_ms": rest, "predicted_per_token_ms": per(rest, behind), "predicted_per_second": per(1000*behind, rest)}
}

// nativeProbs are the logarithms of probabilities in llama.cpp's words: OpenAI's, with ids.
func nativeProbs(tok *tokenizer.Tokenizer, tokens []tokenLogprob) []any {
	all := chatLogprobs(tok, tokens)
	for i, e := range all {
		one := e.(map[string]any)
		one["id"] = tokens[i].id
		for j, top := range one["top_logprobs"].([]any) {
			top.(map[string]any)["id"] = tokens[i].top[j].Token
		}
	}
	return all
}
