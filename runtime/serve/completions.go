package serve

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/nstf/nstf/formats/tokenizer"
)

// OpenAI's completions.
// Source: https://platform.openai.com/docs/api-reference/completions, read 2026-11.

type completionRequest struct {
	named
	samplingFields
	structured
	Prompt        json.RawMessage `json:"prompt"`
	N             *int            `json:"n"`
	BestOf        *int            `json:"best_of"`
	MaxTokens     *int            `json:"max_tokens"`
	Stop          stopStrings     `json:"stop"`
	Stream        bool            `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Logprobs  *int               `json:"logprobs"`
	Echo      bool               `json:"echo"`
	Suffix    string             `json:"suffix"`
	LogitBias map[string]float32 `json:"logit_bias"`
	IgnoreEOS bool               `json:"ignore_eos"`
}

// usualTokens is OpenAI's bound of a completion that names none.
const usualTokens = 16

func (s *Server) completions(w http.ResponseWriter, r *http.Request) error {
	var q completionRequest
	m, release, err := s.open(r, &q)
	if err != nil {
		return err
	}
	defer release()
	o, err := q.settings(m)
	if err != nil {
		return err
	}
	if err := s.common(&o, q.N, q.Stop, q.LogitBias, m); err != nil {
		return err
	}
	switch {
	case q.Suffix != "":
		return invalid("suffix", "texts are not filled in here: suffix is not known")
	case q.BestOf != nil && *q.BestOf != o.n:
		return invalid("best_of", "best_of is n alone here")
	case q.Echo && q.Logprobs != nil:
		return invalid("echo", "a prompt's logprobs are not given: echo and logprobs do not go together")
	}
	o.maxTokens, o.endless = usualTokens, q.IgnoreEOS
	if o.format, err = q.format(); err != nil {
		return err
	}
	if q.MaxTokens != nil {
		o.maxTokens = max(0, *q.MaxTokens)
		if *q.MaxTokens == 0 {
			return invalid("max_tokens", "max_tokens is 0: there would be nothing to answer")
		}
	}
	if q.Logprobs != nil {
		if o.logprobs, o.top = true, *q.Logprobs; o.top < 0 || o.top > mostTop {
			return invalid("logprobs", "logprobs is %d, and lies between 0 and %d", o.top, mostTop)
		}
	}
	turns, err := s.prompts(m, q.Prompt, o)
	if err != nil {
		return err
	}
	id, created := identifier("cmpl-"), time.Now().Unix()
	head := func() map[string]any {
		return map[string]any{"id": id, "object": "text_completion", "created": created, "model": m.Name, "system_fingerprint": "nstf-" + s.o.Version}
	}
	choice := func(index int, text string, tokens []tokenLogprob, offset int, end any) map[string]any {
		c := map[string]any{"index": index, "text": text, "finish_reason": end, "logprobs": nil}
		if o.logprobs {
			c["logprobs"] = completionLogprobs(m.Tokenizer, tokens, offset)
		}
		return c
	}
	echo := func(t *turn) string {
		if !q.Echo {
			return ""
		}
		text, _ := m.Tokenizer.Decode(t.prompt, true)
		return text
	}
	if q.Stream {
		out := s.stream(w, r, openai)
		defer out.close()
		var all usage
		for i, t := range turns {
			said := make([]string, t.n)
			for j := range said {
				if said[j] = echo(t); said[j] != "" {
					c := head()
					c["choices"] = []any{choice(i*o.n+j, said[j], nil, 0, nil)}
					if err := out.send("", c); err != nil {
						return err
					}
				}
			}
			u, err := s.generate(r, t, func(p *piece) error {
				text := ""
				for _, part := range p.parts {
					text += part.Text
				}
				c := head()
				var end any
				if p.end != "" {
					end = p.end
				}
				c["choices"] = []any{choice(i*o.n+p.choice, text, p.tokens, len([]rune(said[p.choice])), end)}
				said[p.choice] += text
				return out.send("", c)
			})
			if err != nil {
				return out.fail(err)
			}
			all.add(&u)
		}
		if q.StreamOptions.IncludeUsage {
			c := head()
			c["choices"], c["usage"] = []any{}, openaiUsage(&all)
			if err := out.send("", c); err != nil {
				return err
			}
		}
		return out.done()
	}
	var choices []any
	var all usage
	for i, t := range turns {
		each := make([]gathered, t.n)
		u, err := s.generate(r, t, func(p *piece) error { each[p.choice].add(p); return nil })
		if err != nil {
			return err
		}
		all.add(&u)
		for j, g := range each {
			choices = append(choices, choice(i*o.n+j, echo(t)+g.text, g.tokens, 0, g.end))
		}
	}
	out := head()
	out["choices"], out["usage"] = choices, openaiUsage(&all)
	return writeJSON(w, out)
}

func completionLogprobs(tok *tokenizer.Tokenizer, tokens []tokenLogprob, offset int) map[string]any {
	texts, logprobs, tops, offsets := []string{}, []float64{}, []map[string]float64{}, []int{}
	for _, t := range tokens {
		text := strings.ToValidUTF8(string(tok.TokenBytes(t.id)), "\ufffd")
		texts, logprobs, offsets = append(texts, text), append(logprobs, finite(t.logprob)), append(offsets, offset)
		offset += len([]rune(text))
		top := map[string]float64{}
		for _, l := range t.top {
			top[strings.ToValidUTF8(string(tok.TokenBytes(l.Token)), "\ufffd")] = finite(l.Logprob)
		}
		tops = append(tops, top)
	}
	return map[string]any{"tokens": texts, "token_logprobs": logprobs, "top_logprobs": tops, "text_offset": offsets}
}
