package serve

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/answer"
	"github.com/nstf/nstf/formats/tokenizer"
)

// Ollama's API. Source: https://github.com/ollama/ollama/blob/main/docs/api.md, read 2026-11.

// ollamaVersion is the version whose words are spoken: clients ask before they use newer ones.
const ollamaSpoken = "0.14.0"

func (s *Server) ollamaVersion(w http.ResponseWriter, r *http.Request) error {
	return writeJSON(w, map[string]string{"version": ollamaSpoken})
}

func ollamaModel(i Info) map[string]any {
	return map[string]any{"name": i.Name, "model": i.Name, "modified_at": i.Created.UTC().Format(time.RFC3339Nano), "size": i.Bytes, "digest": i.Digest, "details": ollamaDetails(i)}
}

func ollamaDetails(i Info) map[string]any {
	return map[string]any{"parent_model": "", "format": "nstf", "family": i.Arch, "families": []string{i.Arch},
		"parameter_size": inWords(i.Parameters), "quantization_level": fmt.Sprintf("%.2f bpw", i.Bits)}
}

// inWords writes a number of parameters as Ollama does.
func inWords(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1e9, "B"}, {1e6, "M"}, {1e3, "K"}} {
		if n >= u.size {
			return fmt.Sprintf("%.1f%s", float64(n)/float64(u.size), u.name)
		}
	}
	return fmt.Sprint(n)
}

func (s *Server) ollamaTags(w http.ResponseWriter, r *http.Request) error {
	list := []any{}
	for _, i := range s.models.List() {
		list = append(list, ollamaModel(i))
	}
	return writeJSON(w, map[string]any{"models": list})
}

func (s *Server) ollamaPS(w http.ResponseWriter, r *http.Request) error {
	list := []any{}
	for _, i := range s.models.List() {
		if i.Loaded {
			m := ollamaModel(i)
			expires := i.Expires
			if expires.IsZero() { // programs take a time that is past for a model that is going
				expires = time.Now().AddDate(100, 0, 0)
			}
			m["expires_at"], m["size_vram"], m["context_length"] = expires.UTC().Format(time.RFC3339Nano), 0, i.Context
			list = append(list, m)
		}
	}
	return writeJSON(w, map[string]any{"models": list})
}

// ollamaPull finds that a model is here already: programs ask before they use one. No other
// is fetched.
func (s *Server) ollamaPull(w http.ResponseWriter, r *http.Request) error {
	q := struct {
		ollamaNamed
		Stream *bool `json:"stream"`
	}{}
	if err := readJSON(r, &q); err != nil {
		return err
	}
	if _, err := s.info(q.name()); err != nil || q.name() == "" {
		return &apiError{status: http.StatusNotFound, kind: "not_found_error", message: fmt.Sprintf("there is no model %q here, and none is fetched: models are files that nstf serve was given", formats.Brief(q.name(), 80))}
	}
	if q.Stream != nil && !*q.Stream {
		return writeJSON(w, map[string]string{"status": "success"})
	}
	out := s.stream(w, r, ollama)
	defer out.close()
	return out.send("", map[string]string{"status": "success"})
}

func (s *Server) ollamaShow(w http.ResponseWriter, r *http.Request) error {
	var q ollamaNamed
	m, release, err := s.open(r, &q)
	if err != nil {
		return err
	}
	defer release()
	capabilities := []string{"completion"}
	if _, f, err := m.conversation(r.Context()); err == nil {
		if f.Calls != nil || f.Harmony {
			capabilities = append(capabilities, "tools")
		}
		if f.ThinkClose != "" || f.Harmony {
			capabilities = append(capabilities, "thinking")
		}
	}
	return writeJSON(w, map[string]any{"modelfile": "", "parameters": "", "template": m.Tokenizer.ChatTemplates()["default"], "details": ollamaDetails(m.Info),
		"model_info":   map[string]any{"general.architecture": m.Arch, "general.parameter_count": m.Parameters, m.Arch + ".context_length": m.Context},
		"capabilities": capabilities, "modified_at": m.Created.UTC().Format(time.RFC3339Nano)})
}

// ollamaNamed has the older field beside the newer one.
type ollamaNamed struct {
	named
	Name string `json:"name"`
}

func (q *ollamaNamed) name() string { return cmp.Or(q.Model, q.Name) }

type ollamaRequest struct {
	named
	Messages []json.RawMessage `json:"messages"`
	Prompt   string            `json:"prompt"`
	System   string            `json:"system"`
	Suffix   string            `json:"suffix"`
	Raw      bool              `json:"raw"`
	Images   []json.RawMessage `json:"images"`
	Tools    []json.RawMessage `json:"tools"`
	Stream   *bool             `json:"stream"`
	Think    json.RawMessage   `json:"think"`
	Format   json.RawMessage   `json:"format"`
	keepAlive
	Options struct {
		samplingFields
		NumPredict *int        `json:"num_predict"`
		Stop       stopStrings `json:"stop"`
	} `json:"options"`
}

func (q *ollamaRequest) settings(s *Server, m *Model) (settings, error) {
	o, err := q.Options.settings(m)
	if err != nil {
		return o, err
	}
	if len(q.Images) > 0 {
		return o, invalid("images", "this server reads text, and no images")
	}
	if n := q.Options.NumPredict; n != nil && *n > 0 {
		o.maxTokens = *n
	}
	var word string
	switch {
	case !said(q.Format) || string(q.Format) == `""`:
	case json.Unmarshal(q.Format, &word) != nil:
		o.format = schemaFormat(q.Format)
	case word == "json":
		o.format = jsonFormat()
	default:
		return o, invalid("format", "format is %q, and neither json nor a schema", word)
	}
	return o, s.common(&o, nil, q.Options.Stop, nil, m)
}

func (q *ollamaRequest) variables() map[string]json.RawMessage {
	extra := map[string]json.RawMessage{}
	var on bool
	var effort string
	switch {
	case json.Unmarshal(q.Think, &on) == nil:
		extra["enable_thinking"] = q.Think
	case json.Unmarshal(q.Think, &effort) == nil:
		extra["reasoning_effort"] = q.Think
	}
	return extra
}

func (q *ollamaRequest) conversation(s *Server, m *Model) (*conversation, settings, error) {
	o, err := q.settings(s, m)
	if err != nil {
		return nil, o, err
	}
	c := &conversation{extra: q.variables()}
	if err := c.choose(q.Tools, nil, nil); err != nil {
		return nil, o, err
	}
	for i, raw := range q.Messages {
		message, err := ollamaMessage(raw, i)
		if err != nil {
			return nil, o, err
		}
		c.messages = append(c.messages, message)
	}
	return c, o, nil
}

func (s *Server) ollamaChat(w http.ResponseWriter, r *http.Request) error {
	var q ollamaRequest
	m, release, err := s.open(r, &q)
	if err != nil {
		return err
	}
	defer release()
	reason, err := q.apply(s, m)
	if err != nil {
		return err
	}
	if len(q.Messages) == 0 { // how clients have a model loaded, or unloaded
		return writeJSON(w, map[string]any{"model": q.Model, "created_at": now(), "message": map[string]any{"role": "assistant", "content": ""}, "done": true, "done_reason": reason})
	}
	t, err := m.asked(r, s, &q)
	if err != nil {
		return err
	}
	return s.ollamaAnswer(w, r, &q, t, func(g *gathered) map[string]any {
		message := map[string]any{"role": "assistant", "content": g.text}
		if g.reasoning != "" {
			message["thinking"] = g.reasoning
		}
		if len(g.calls) > 0 {
			var all []any
			for _, c := range g.calls {
				all = append(all, map[string]any{"id": c.ID, "function": map[string]any{"name": c.Function.Name, "arguments": asObject(c.Function.Arguments)}})
			}
			message["tool_calls"] = all
		}
		return map[string]any{"message": message}
	})
}

// ollamaMessage reads the i-th message: OpenAI's with arguments that are objects, and
// reasoning of another name.
func ollamaMessage(raw json.RawMessage, i int) (tokenizer.Message, error) {
	var q struct {
		Thinking string            `json:"thinking"`
		Images   []json.RawMessage `json:"images"`
	}
	if err := json.Unmarshal(raw, &q); err != nil {
		return tokenizer.Message{}, invalid("messages", "message %d is not one: %v", i, err)
	}
	if len(q.Images) > 0 {
		return tokenizer.Message{}, invalid("messages", "message %d: this server reads text, and no images", i)
	}
	m, err := openaiMessage(raw, i)
	if err == nil && q.Thinking != "" && m.More == nil {
		m.More, _ = json.Marshal(map[string]string{"reasoning_content": q.Thinking})
	}
	return m, err
}

func (s *Server) ollamaGenerate(w http.ResponseWriter, r *http.Request) error {
	var q ollamaRequest
	m, release, err := s.open(r, &q)
	if err != nil {
		return err
	}
	defer release()
	reason, err := q.apply(s, m)
	if err != nil {
		return err
	}
	if q.Prompt == "" {
		return writeJSON(w, map[string]any{"model": q.Model, "created_at": now(), "response": "", "done": true, "done_reason": reason})
	}
	o, err := q.settings(s, m)
	if err != nil {
		return err
	}
	var t *turn
	if q.Suffix != "" {
		t, err = m.fill(&gap{prefix: q.Prompt, suffix: q.Suffix}, "suffix", o)
	} else if _, _, chatErr := m.conversation(r.Context()); q.Raw || chatErr != nil {
		var ids []int32
		if ids, err = m.encode(q.Prompt); err == nil && len(ids) == 0 {
			err = empty("prompt")
		}
		if err == nil {
			t, err = m.completes(ids, o)
		}
	} else {
		c := &conversation{extra: q.variables()}
		if q.System != "" {
			c.messages = append(c.messages, tokenizer.Message{Role: "system", Content: q.System})
		}
		c.messages = append(c.messages, tokenizer.Message{Role: "user", Content: q.Prompt})
		t, err = m.turn(r.Context(), c, o)
	}
	if err != nil {
		return err
	}
	return s.ollamaAnswer(w, r, &q, t, func(g *gathered) map[string]any {
		v := map[string]any{"response": g.text}
		if g.reasoning != "" {
			v["thinking"] = g.reasoning
		}
		return v
	})
}

// A keeper is models that unload themselves.
type keeper interface {
	Keep(m *Model, d time.Duration)
}

// keepAlive is how long a model stays loaded behind a request: a duration in words, or
// seconds; less than 0: for good.
type keepAlive struct {
	KeepAlive json.RawMessage `json:"keep_alive"`
}

// apply has it done, and returns what a request that asks nothing else was for.
func (k *keepAlive) apply(s *Server, m *Model) (string, error) {
	if !said(k.KeepAlive) {
		return "load", nil
	}
	var text string
	var seconds float64
	var d time.Duration
	var err error
	switch {
	case json.Unmarshal(k.KeepAlive, &seconds) == nil:
	case json.Unmarshal(k.KeepAlive, &text) == nil:
		if seconds, err = strconv.ParseFloat(text, 64); err != nil {
			d, err = time.ParseDuration(text)
			seconds = d.Seconds()
		}
	default:
		err = errors.New("no duration")
	}
	if err != nil || math.IsNaN(seconds) {
		return "", invalid("keep_alive", "keep_alive is %s, and neither seconds nor a duration such as 5m", formats.Brief(string(k.KeepAlive), 40))
	}
	d = time.Duration(min(seconds, 1e9) * float64(time.Second))
	if seconds < 0 {
		d = -1
	}
	if p, ok := s.models.(keeper); ok {
		p.Keep(m, d)
	}
	if d == 0 {
		return "unload", nil
	}
	return "load", nil
}

func now() string { return time.Now().UTC().Format(time.RFC3339Nano) }

// ollamaAnswer runs a turn and writes it in lines or in one object; say returns what an
// object holds of what was gathered for it.
func (s *Server) ollamaAnswer(w http.ResponseWriter, r *http.Request, q *ollamaRequest, t *turn, say func(*gathered) map[string]any) error {
	streamed := q.Stream == nil || *q.Stream
	out := s.stream(w, r, ollama)
	defer out.close()
	head := func(v map[string]any) map[string]any {
		v["model"], v["created_at"] = q.Model, now()
		return v
	}
	var g gathered
	u, err := s.generate(r, t, func(p *piece) error {
		g.add(p)
		if !streamed || len(p.parts) == 0 {
			return nil
		}
		// A call is told of when it is whole.
		var calls []toolCall
		for _, part := range p.parts {
			if part.Kind == answer.CallEnd && part.Index < len(g.calls) {
				calls = append(calls, g.calls[part.Index])
			}
		}
		v := say(&gathered{text: textOf(p.parts, answer.Text), reasoning: textOf(p.parts, answer.Reasoning), calls: calls})
		v["done"] = false
		return out.send("", head(v))
	})
	if err != nil {
		return out.fail(err)
	}
	last := say(&g)
	if streamed {
		last = say(&gathered{})
	}
	reason := "stop"
	if g.end == "length" {
		reason = "length"
	}
	last["done"], last["done_reason"] = true, reason
	last["total_duration"], last["load_duration"] = u.all.Nanoseconds(), 0
	last["prompt_eval_count"], last["prompt_eval_duration"] = u.PromptTokens, u.first.Nanoseconds()
	last["eval_count"], last["eval_duration"] = u.Tokens, (u.all - u.first).Nanoseconds()
	if streamed {
		return out.send("", head(last))
	}
	return writeJSON(w, head(last))
}
