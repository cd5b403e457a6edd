package serve

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

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

// mostScores bounds the probabilities of prompts' tokens that one request asks for: each
// choice repeats its prompt's.
const mostScores = 1 << 18

func (s *Server) completions(w http.ResponseWriter, r *http.Request) error {
	var q completionRequest
	m, release, err := s.open(r, &q)
	if err != nil {
		return err
	}
	defer release()
	o, err := q.read(s, m)
	if err != nil {
		return err
	}
	a := &completionAnswer{s: s, q: &q, m: m, head: map[string]any{"id": identifier("cmpl-"), "object": "text_completion", "created": time.Now().Unix(),
		"model": m.Name, "system_fingerprint": "nstf-" + s.o.Version}}
	if q.Suffix != "" {
		a.turns, err = q.fill(m, o)
	} else {
		a.turns, err = s.prompts(m, q.Prompt, o)
	}
	if err != nil {
		return err
	}
	scores := 0
	for _, t := range a.turns {
		scores += o.n * len(t.prompt) * (1 + o.top)
	}
	if o.scored && scores > mostScores {
		return invalid("logprobs", "%d probabilities of prompts are asked for, and %d at most given", scores, mostScores)
	}
	if q.Stream {
		return a.stream(w, r)
	}
	return a.whole(w, r)
}

// read returns what is asked of answers.
func (q *completionRequest) read(s *Server, m *Model) (o settings, err error) {
	if o, err = q.settings(m); err != nil {
		return o, err
	}
	if err := s.common(&o, q.N, q.Stop, q.LogitBias, m); err != nil {
		return o, err
	}
	switch {
	case q.BestOf != nil && *q.BestOf != o.n:
		return o, invalid("best_of", "best_of is n alone here")
	}
	o.maxTokens, o.endless = usualTokens, q.IgnoreEOS
	if o.format, err = q.format(); err != nil {
		return o, err
	}
	if q.MaxTokens != nil {
		o.maxTokens = max(0, *q.MaxTokens)
		if *q.MaxTokens == 0 {
			if !q.Echo {
				return o, invalid("max_tokens", "max_tokens is 0, without echo: there would be nothing to answer")
			}
			o.maxTokens, o.silent = 1, true // one is chosen, and that is all
		}
	}
	if q.Logprobs != nil {
		if o.logprobs, o.top = true, *q.Logprobs; o.top < 0 || o.top > mostTop {
			return o, invalid("logprobs", "logprobs is %d, and lies between 0 and %d", o.top, mostTop)
		}
		o.scored = q.Echo
	}
	return o, nil
}

// A completionAnswer is the answer to one request.
type completionAnswer struct {
	s     *Server
	q     *completionRequest
	m     *Model
	turns []*turn
	head  map[string]any // what whole answers and chunks begin with
}

// with returns a whole answer or a chunk.
func (a *completionAnswer) with(choices []any, used *usage) map[string]any {
	v := maps.Clone(a.head)
	if v["choices"] = choices; used != nil {
		v["usage"] = openaiUsage(used)
	}
	return v
}

// run generates the i-th turn's choices.
func (a *completionAnswer) run(r *http.Request, i int, all *usage, emit func(p *piece) error) error {
	t := a.turns[i]
	u, err := a.s.generate(r, t, func(p *piece) error {
		if t.silent {
			p.tokens = nil
		}
		return emit(p)
	})
	if t.silent {
		u.Tokens = 0
	}
	all.add(&u)
	return err
}

// echo returns a prompt's text.
func (a *completionAnswer) echo(t *turn) string {
	text, _ := a.m.Tokenizer.Decode(t.prompt, true)
	return text
}

func (a *completionAnswer) whole(w http.ResponseWriter, r *http.Request) error {
	choices, all := []any{}, usage{}
	for i, t := range a.turns {
		each := make([]gathered, t.n)
		if err := a.run(r, i, &all, func(p *piece) error { each[p.choice].add(p); return nil }); err != nil {
			return err
		}
		for j, g := range each {
			c := map[string]any{"index": i*t.n + j, "text": g.text, "finish_reason": g.end, "logprobs": nil}
			if t.logprobs {
				x := newSpelling(t, a.q.Echo)
				l := x.logprobs(nil)
				if a.q.Echo {
					l = x.prompt(t)
				}
				c["logprobs"] = l.append(x.logprobs(g.tokens))
			}
			if a.q.Echo {
				c["text"] = a.echo(t) + g.text
			}
			choices = append(choices, c)
		}
	}
	return writeJSON(w, a.with(choices, &all))
}

func (a *completionAnswer) stream(w http.ResponseWriter, r *http.Request) error {
	out := a.s.stream(w, r, openai)
	defer out.close()
	var all usage
	for i, t := range a.turns {
		spellings := make([]*spelling, t.n)
		send := func(choice int, text string, l *completionLogprobs, end any) error {
			c := map[string]any{"index": i*t.n + choice, "text": text, "finish_reason": end, "logprobs": nil}
			if t.logprobs {
				c["logprobs"] = l
			}
			return out.send("", a.with([]any{c}, nil))
		}
		err := a.run(r, i, &all, func(p *piece) error {
			x := spellings[p.choice]
			if x == nil {
				x = newSpelling(t, a.q.Echo)
				if spellings[p.choice] = x; a.q.Echo {
					if err := send(p.choice, a.echo(t), x.prompt(t), nil); err != nil {
						return err
					}
				}
			}
			text := ""
			for _, part := range p.parts {
				text += part.Text
			}
			var end any
			if p.end != "" {
				end = p.end
			}
			return send(p.choice, text, x.logprobs(p.tokens), end)
		})
		if err != nil {
			return out.fail(err)
		}
	}
	if a.q.StreamOptions.IncludeUsage {
		if err := out.send("", a.with([]any{}, &all)); err != nil {
			return err
		}
	}
	return out.done()
}

// completionLogprobs are OpenAI's, of a run of tokens: what is not known is null.
type completionLogprobs struct {
	Tokens   []string             `json:"tokens"`
	Logprobs []*float64           `json:"token_logprobs"`
	Top      []map[string]float64 `json:"top_logprobs"` // with the token's own
	Offsets  []int                `json:"text_offset"`  // in characters
}

func (l *completionLogprobs) append(m *completionLogprobs) *completionLogprobs {
	return &completionLogprobs{append(l.Tokens, m.Tokens...), append(l.Logprobs, m.Logprobs...), append(l.Top, m.Top...), append(l.Offsets, m.Offsets...)}
}

// A spelling follows the text of one choice, to say where in it its tokens stand.
type spelling struct {
	tok    *tokenizer.Tokenizer
	stream *tokenizer.Stream
	offset int // of what the next token says
}

func newSpelling(t *turn, echo bool) *spelling {
	o := tokenizer.StreamOptions{SkipSpecial: true}
	if !echo {
		o.Context = t.prompt
	}
	return &spelling{tok: t.model.Tokenizer, stream: t.model.Tokenizer.NewStream(o)}
}

func (x *spelling) text(id int32) string {
	return strings.ToValidUTF8(string(x.tok.TokenBytes(id)), "\ufffd")
}

// prompt returns what is known of a prompt's tokens: nothing of the first one's probability.
func (x *spelling) prompt(t *turn) *completionLogprobs {
	l := x.logprobs([]tokenLogprob{{id: t.prompt[0]}})
	l.Logprobs[0], l.Top[0] = nil, nil
	return l.append(x.logprobs(t.scores))
}

// logprobs returns what is known of the tokens that come next.
func (x *spelling) logprobs(tokens []tokenLogprob) *completionLogprobs {
	l := &completionLogprobs{[]string{}, []*float64{}, []map[string]float64{}, []int{}}
	for _, t := range tokens {
		text, p, best := x.text(t.id), finite(t.logprob), map[string]float64{}
		best[text] = p
		for _, other := range t.top {
			if text := x.text(other.Token); other.Token != t.id { // of several that are spelled alike the most probable one
				if p, ok := best[text]; !ok || p < finite(other.Logprob) {
					best[text] = finite(other.Logprob)
				}
			}
		}
		l.Tokens, l.Logprobs, l.Top, l.Offsets = append(l.Tokens, text), append(l.Logprobs, &p), append(l.Top, best), append(l.Offsets, x.offset)
		x.offset += utf8.RuneCountInString(x.stream.Next(t.id))
	}
	return l
}
