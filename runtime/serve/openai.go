package serve

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/nstf/nstf/formats/answer"
	"github.com/nstf/nstf/formats/tokenizer"
)

// OpenAI's chat completions.
// Source: https://platform.openai.com/docs/api-reference, read 2026-11.

type chatRequest struct {
	named
	samplingFields
	structured
	Messages            []json.RawMessage `json:"messages"`
	Tools               []json.RawMessage `json:"tools"`
	ToolChoice          json.RawMessage   `json:"tool_choice"`
	N                   *int              `json:"n"`
	MaxTokens           *int              `json:"max_tokens"`
	MaxCompletionTokens *int              `json:"max_completion_tokens"`
	Stop                stopStrings       `json:"stop"`
	Stream              bool              `json:"stream"`
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Logprobs           bool                       `json:"logprobs"`
	TopLogprobs        int                        `json:"top_logprobs"`
	LogitBias          map[string]float32         `json:"logit_bias"`
	ReasoningEffort    string                     `json:"reasoning_effort"`
	ChatTemplateKwargs map[string]json.RawMessage `json:"chat_template_kwargs"`
	IgnoreEOS          bool                       `json:"ignore_eos"`
	Modalities         []string                   `json:"modalities"`
	ParallelToolCalls  *bool                      `json:"parallel_tool_calls"`
	Functions          json.RawMessage            `json:"functions"`

	// vLLM's and llama.cpp's: whether the last message, the assistant's, is gone on with,
	// as it is where nothing is said.
	Continue  *bool `json:"continue_final_message"`
	NewAnswer *bool `json:"add_generation_prompt"`
}

// mostTop bounds top_logprobs.
const mostTop = 20

func (s *Server) chatCompletions(w http.ResponseWriter, r *http.Request) error {
	var q chatRequest
	t, release, err := s.ask(r, &q)
	if err != nil {
		return err
	}
	defer release()
	id, created := identifier("chatcmpl-"), time.Now().Unix()
	head := func(kind string) map[string]any {
		return map[string]any{"id": id, "object": kind, "created": created, "model": t.model.Name, "system_fingerprint": "nstf-" + s.o.Version}
	}
	if q.Stream {
		return s.streamChat(w, r, &q, t, head)
	}
	all := make([]gathered, t.n)
	u, err := s.generate(r, t, func(p *piece) error { all[p.choice].add(p); return nil })
	if err != nil {
		return err
	}
	var choices []any
	for i, g := range all {
		message := map[string]any{"role": "assistant", "content": g.text, "refusal": nil}
		if g.reasoning != "" {
			message["reasoning_content"] = g.reasoning
		}
		if len(g.calls) > 0 {
			message["tool_calls"] = g.calls
			if g.text == "" {
				message["content"] = nil
			}
		}
		choice := map[string]any{"index": i, "message": message, "finish_reason": g.end, "logprobs": nil}
		if t.logprobs {
			choice["logprobs"] = map[string]any{"content": chatLogprobs(t.model.Tokenizer, g.tokens), "refusal": nil}
		}
		choices = append(choices, choice)
	}
	out := head("chat.completion")
	out["choices"], out["usage"] = choices, openaiUsage(&u)
	return writeJSON(w, out)
}

func openaiUsage(u *usage) map[string]any {
	return map[string]any{
		"prompt_tokens": u.PromptTokens, "completion_tokens": u.Tokens, "total_tokens": u.PromptTokens + u.Tokens,
		"prompt_tokens_details":     map[string]any{"cached_tokens": u.CachedTokens},
		"completion_tokens_details": map[string]any{"reasoning_tokens": u.reasoning},
	}
}

func (s *Server) streamChat(w http.ResponseWriter, r *http.Request, q *chatRequest, t *turn, head func(string) map[string]any) error {
	out := s.stream(w, r, openai)
	defer out.close()
	begun := make([]bool, t.n)
	send := func(choice int, delta map[string]any, logprobs, end any) error {
		c := head("chat.completion.chunk")
		one := map[string]any{"index": choice, "delta": delta, "finish_reason": end, "logprobs": logprobs}
		c["choices"] = []any{one}
		if q.StreamOptions.IncludeUsage {
			c["usage"] = nil
		}
		return out.send("", c)
	}
	u, err := s.generate(r, t, func(p *piece) error {
		if !begun[p.choice] {
			begun[p.choice] = true
			if err := send(p.choice, map[string]any{"role": "assistant", "content": ""}, nil, nil); err != nil {
				return err
			}
		}
		var logprobs any
		if t.logprobs && len(p.tokens) > 0 {
			logprobs = map[string]any{"content": chatLogprobs(t.model.Tokenizer, p.tokens), "refusal": nil}
		}
		for _, part := range p.parts {
			if delta := chatDelta(part); delta != nil {
				if err := send(p.choice, delta, logprobs, nil); err != nil {
					return err
				}
				logprobs = nil
			}
		}
		if p.end != "" {
			return send(p.choice, map[string]any{}, logprobs, p.end)
		}
		return nil
	})
	if err != nil {
		return out.fail(err)
	}
	if q.StreamOptions.IncludeUsage {
		c := head("chat.completion.chunk")
		c["choices"], c["usage"] = []any{}, openaiUsage(&u)
		if err := out.send("", c); err != nil {
			return err
		}
	}
	return out.done()
}

func chatDelta(p answer.Part) map[string]any {
	call := func(c toolCall) map[string]any {
		c.Index = &p.Index
		return map[string]any{"tool_calls": []toolCall{c}}
	}
	switch p.Kind {
	case answer.Text:
		return map[string]any{"content": p.Text}
	case answer.Reasoning:
		return map[string]any{"reasoning_content": p.Text}
	case answer.Call:
		c := toolCall{ID: identifier("call_"), Type: "function"}
		c.Function.Name = p.Text
		return call(c)
	case answer.Arguments:
		var c toolCall
		c.Function.Arguments = p.Text
		return call(c)
	}
	return nil
}

func chatLogprobs(tok *tokenizer.Tokenizer, tokens []tokenLogprob) []any {
	one := func(id int32, logprob float64) map[string]any {
		b := tok.TokenBytes(id)
		return map[string]any{"token": strings.ToValidUTF8(string(b), "\ufffd"), "logprob": finite(logprob), "bytes": asNumbers(b)}
	}
	all := []any{}
	for _, t := range tokens {
		e := one(t.id, t.logprob)
		top := []any{}
		for _, l := range t.top {
			top = append(top, one(l.Token, l.Logprob))
		}
		e["top_logprobs"] = top
		all = append(all, e)
	}
	return all
}

// finite returns a logarithm that JSON can say: OpenAI's of what is impossible is -9999.
func finite(v float64) float64 {
	if math.IsInf(v, -1) || math.IsNaN(v) {
		return -9999
	}
	return v
}

// conversation returns what a request asks.
func (q *chatRequest) conversation(s *Server, m *Model) (*conversation, settings, error) {
	o, err := q.settings(m)
	if err != nil {
		return nil, o, err
	}
	if err := s.common(&o, q.N, q.Stop, q.LogitBias, m); err != nil {
		return nil, o, err
	}
	switch {
	case q.MaxCompletionTokens != nil:
		o.maxTokens = *q.MaxCompletionTokens
	case q.MaxTokens != nil:
		o.maxTokens = *q.MaxTokens
	}
	if o.maxTokens < 0 { // llama.cpp's -1: without a bound
		o.maxTokens = 0
	}
	if o.logprobs, o.top = q.Logprobs, q.TopLogprobs; o.top < 0 || o.top > mostTop {
		return nil, o, invalid("top_logprobs", "top_logprobs is %d, and lies between 0 and %d", o.top, mostTop)
	}
	o.endless = q.IgnoreEOS
	if o.format, err = q.format(); err != nil {
		return nil, o, err
	}
	for _, mode := range q.Modalities {
		if mode != "text" {
			return nil, o, invalid("modalities", "this server answers in text, and not in %q", mode)
		}
	}
	if len(q.Functions) > 0 && string(q.Functions) != "null" {
		return nil, o, invalid("functions", "functions are called tools now")
	}
	c := &conversation{extra: map[string]json.RawMessage{}}
	for k, v := range q.ChatTemplateKwargs {
		c.extra[k] = v
	}
	if q.ReasoningEffort != "" {
		c.extra["reasoning_effort"], _ = json.Marshal(q.ReasoningEffort)
		if _, said := c.extra["enable_thinking"]; !said && q.ReasoningEffort == "none" {
			c.extra["enable_thinking"] = json.RawMessage("false")
		}
	}
	for i, raw := range q.Messages {
		message, err := openaiMessage(raw, i)
		if err != nil {
			return nil, o, err
		}
		c.messages = append(c.messages, message)
	}
	if q.Continue != nil {
		last := len(q.Messages) > 0 && c.messages[len(c.messages)-1].Role == "assistant"
		switch c.anew = !*q.Continue; {
		case *q.Continue && q.NewAnswer != nil && *q.NewAnswer:
			return nil, o, invalid("continue_final_message", "continue_final_message and add_generation_prompt do not go together")
		case *q.Continue && !last:
			return nil, o, invalid("continue_final_message", "the last message is not the assistant's, and cannot be gone on with")
		}
	}
	return c, o, c.choose(q.Tools, q.ToolChoice, q.ParallelToolCalls)
}

// common reads what chat and completions have in common.
func (s *Server) common(o *settings, n *int, stop stopStrings, bias map[string]float32, m *Model) error {
	if n != nil {
		o.n = *n
	}
	if o.n < 1 || o.n > s.o.MaxChoices {
		return invalid("n", "n is %d, and lies between 1 and %d", o.n, s.o.MaxChoices)
	}
	if err := stop.check(); err != nil {
		return err
	}
	o.stop = stop
	for k, v := range bias {
		id, err := strconv.ParseInt(k, 10, 32)
		if err != nil || id < 0 || int(id) >= m.Tokenizer.VocabSize() {
			return invalid("logit_bias", "%q is no token of the model", k)
		}
		if o.bias == nil {
			o.bias = map[int32]float32{}
		}
		if v <= -100 { // OpenAI: a ban
			v = float32(math.Inf(-1))
		}
		o.bias[int32(id)] = v
	}
	return nil
}

// openaiMessage reads the i-th message.
func openaiMessage(raw json.RawMessage, i int) (tokenizer.Message, error) {
	param := fmt.Sprintf("messages[%d]", i)
	var q struct {
		Role             string          `json:"role"`
		Content          json.RawMessage `json:"content"`
		Name             string          `json:"name"`
		ToolCallID       string          `json:"tool_call_id"`
		ReasoningContent string          `json:"reasoning_content"`
		Reasoning        string          `json:"reasoning"`
		ToolCalls        []struct {
			ID       string `json:"id"`
			Function struct {
				Name      string          `json:"name"`
				Arguments json.RawMessage `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	}
	if err := json.Unmarshal(raw, &q); err != nil {
		return tokenizer.Message{}, invalid(param, "message %d is not one: %v", i, err)
	}
	m := tokenizer.Message{Role: q.Role}
	switch q.Role {
	case "developer": // templates know it as system
		m.Role = "system"
	case "system", "user", "assistant", "tool":
	case "":
		return m, invalid(param+".role", "message %d has no role", i)
	default:
		return m, invalid(param+".role", "message %d is of the role %q", i, q.Role)
	}
	if !said(q.Content) && (q.Role != "assistant" || len(q.ToolCalls) == 0 && q.ReasoningContent+q.Reasoning == "") {
		return m, invalid(param+".content", "message %d has no content", i)
	}
	text, err := contentText(q.Content, param)
	if err != nil {
		return m, err
	}
	m.Content = text
	for _, c := range q.ToolCalls {
		m.ToolCalls = append(m.ToolCalls, forTemplate(c.ID, c.Function.Name, c.Function.Arguments))
	}
	more := map[string]string{}
	if q.ReasoningContent+q.Reasoning != "" {
		more["reasoning_content"] = q.ReasoningContent + q.Reasoning
	}
	if q.Name != "" {
		more["name"] = q.Name
	}
	if q.ToolCallID != "" {
		more["tool_call_id"] = q.ToolCallID
	}
	if len(more) > 0 {
		m.More, _ = json.Marshal(more)
	}
	return m, nil
}

// contentText returns the text of a content: a string, or parts of text.
func contentText(raw json.RawMessage, param string) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var parts []struct {
		Type    string `json:"type"`
		Text    string `json:"text"`
		Refusal string `json:"refusal"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", invalid(param+".content", "a content is a string or a list of parts")
	}
	var b strings.Builder
	for _, p := range parts {
		switch p.Type {
		case "text", "input_text", "output_text":
			b.WriteString(p.Text)
		case "refusal":
			b.WriteString(p.Refusal)
		default:
			return "", invalid(param+".content", "this server reads text, and not parts of type %q", p.Type)
		}
	}
	return b.String(), nil
}
