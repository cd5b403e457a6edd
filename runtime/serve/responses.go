package serve

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nstf/nstf/formats/answer"
	"github.com/nstf/nstf/formats/tokenizer"
)

// OpenAI's responses, as Open Responses has them: nothing is stored.
// Source: https://platform.openai.com/docs/api-reference/responses and
// https://www.openresponses.org/specification, read 2026-11.

type responsesRequest struct {
	named
	structured
	Input              json.RawMessage   `json:"input"`
	Instructions       string            `json:"instructions"`
	MaxOutputTokens    *int              `json:"max_output_tokens"`
	Temperature        *float64          `json:"temperature"`
	TopP               *float64          `json:"top_p"`
	Stream             bool              `json:"stream"`
	Tools              []json.RawMessage `json:"tools"`
	ToolChoice         json.RawMessage   `json:"tool_choice"`
	PreviousResponseID string            `json:"previous_response_id"`
	Background         bool              `json:"background"`
	Metadata           json.RawMessage   `json:"metadata"`
	Reasoning          *struct {
		Effort string `json:"effort"`
	} `json:"reasoning"`
	ParallelToolCalls *bool           `json:"parallel_tool_calls"`
	Text              json.RawMessage `json:"text"`
	Include           []string        `json:"include"`

	tools map[string]responseTool // that the model is told of, by what it calls them
}

// An item is one of a response's input.
type item struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Output    json.RawMessage `json:"output"`
	Namespace string          `json:"namespace"`         // of a call
	Input     string          `json:"input"`             // of a custom tool's call
	Sealed    string          `json:"encrypted_content"` // of reasoning
}

func (q *responsesRequest) conversation(s *Server, m *Model) (*conversation, settings, error) {
	f := samplingFields{Temperature: q.Temperature, TopP: q.TopP}
	o, err := f.settings(m)
	if err != nil {
		return nil, o, err
	}
	if err := s.common(&o, nil, nil, nil, m); err != nil {
		return nil, o, err
	}
	switch {
	case q.PreviousResponseID != "":
		return nil, o, invalid("previous_response_id", "responses are not stored here: send the whole conversation")
	case q.Background:
		return nil, o, invalid("background", "responses are not stored here: there is no background")
	}
	if q.MaxOutputTokens != nil {
		if o.maxTokens = *q.MaxOutputTokens; o.maxTokens < 1 {
			return nil, o, invalid("max_output_tokens", "max_output_tokens is %d, and 1 at least", o.maxTokens)
		}
	}
	if said(q.Text) {
		var t struct {
			Format *struct {
				Type   string          `json:"type"`
				Schema json.RawMessage `json:"schema"`
			} `json:"format"`
		}
		if err := json.Unmarshal(q.Text, &t); err != nil {
			return nil, o, invalid("text", "text is no object with a format")
		}
		switch f := t.Format; {
		case f == nil || f.Type == "text":
		case f.Type == "json_object":
			q.also = append(q.also, jsonFormat())
		case f.Type == "json_schema" && said(f.Schema):
			q.also = append(q.also, schemaFormat(f.Schema))
		default:
			return nil, o, invalid("text.format", "text.format is of type %q", f.Type)
		}
	}
	if o.format, err = q.format(); err != nil {
		return nil, o, err
	}
	c := &conversation{extra: map[string]json.RawMessage{}, anew: true}
	if q.Reasoning != nil && q.Reasoning.Effort != "" {
		c.extra["reasoning_effort"], _ = json.Marshal(q.Reasoning.Effort)
		if q.Reasoning.Effort == "none" {
			c.extra["enable_thinking"] = json.RawMessage("false")
		}
	}
	if q.Instructions != "" {
		c.messages = append(c.messages, tokenizer.Message{Role: "system", Content: q.Instructions})
	}
	var text string
	if json.Unmarshal(q.Input, &text) == nil {
		c.messages = append(c.messages, tokenizer.Message{Role: "user", Content: text})
	} else {
		var items []item
		if err := json.Unmarshal(q.Input, &items); err != nil || len(items) == 0 {
			return nil, o, invalid("input", "input is a text or a list of items")
		}
		for i := range items {
			if err := c.add(&items[i], fmt.Sprintf("input[%d]", i)); err != nil {
				return nil, o, err
			}
		}
	}
	tools, err := q.declared()
	if err != nil {
		return nil, o, err
	}
	return c, o, c.choose(tools, q.ToolChoice, q.ParallelToolCalls)
}

// add adds an item of the input.
func (c *conversation) add(i *item, param string) error {
	switch i.Type {
	case "message", "":
		raw, _ := json.Marshal(map[string]any{"role": i.Role, "content": i.Content})
		m, err := openaiMessage(raw, len(c.messages))
		if err != nil {
			return err
		}
		c.messages = append(c.messages, m)
		c.think(m.Role)
	case "function_call", "custom_tool_call":
		if i.Type == "custom_tool_call" {
			i.Arguments, _ = json.Marshal(map[string]string{customInput: i.Input})
		}
		call := forTemplate(i.CallID, spaced(i.Namespace, i.Name), i.Arguments)
		if n := len(c.messages); n > 0 && c.reasoning == "" && c.messages[n-1].Role == "assistant" && c.messages[n-1].Content == "" {
			c.messages[n-1].ToolCalls = append(c.messages[n-1].ToolCalls, call)
		} else {
			c.messages = append(c.messages, tokenizer.Message{Role: "assistant", ToolCalls: []json.RawMessage{call}})
			c.think("assistant")
		}
	case "function_call_output", "custom_tool_call_output":
		text, err := contentText(i.Output, param)
		if err != nil {
			return err
		}
		more, _ := json.Marshal(map[string]string{"tool_call_id": i.CallID})
		c.messages = append(c.messages, tokenizer.Message{Role: "tool", Content: text, More: more})
	case "reasoning":
		var parts []struct {
			Text string `json:"text"`
		}
		json.Unmarshal(i.Content, &parts)
		c.reasoning = ""
		for _, p := range parts {
			c.reasoning += p.Text
		}
		if c.reasoning == "" {
			c.reasoning = unsealed(i.Sealed)
		}
	default:
		return invalid(param+".type", "this server knows no items of type %q", i.Type)
	}
	return nil
}

// sealing begins what sealed made: other servers' reasoning is theirs to read.
const sealing = "nstf1:"

// sealed returns reasoning in a form that clients send back as it is.
func sealed(text string) string { return sealing + base64.StdEncoding.EncodeToString([]byte(text)) }

// unsealed returns what sealed was given, "" for what it did not make.
func unsealed(s string) string {
	s, ours := strings.CutPrefix(s, sealing)
	text, err := base64.StdEncoding.DecodeString(s)
	if !ours || err != nil || !utf8.Valid(text) {
		return ""
	}
	return string(text)
}

// A responseStream builds a response and, where out is set, tells of each part of it.
type responseStream struct {
	out      *stream
	sequence int
	response map[string]any
	output   []map[string]any
	kind     answer.Kind // of the item that is open
	open     bool
	text     string // of the open item
	tools    map[string]responseTool
	seal     bool // reasoning is given in a form that clients send back
}

func (b *responseStream) send(name string, v map[string]any) error {
	if b.out == nil {
		return nil
	}
	v["type"], v["sequence_number"] = name, b.sequence
	b.sequence++
	return b.out.send(name, v)
}

func (b *responseStream) index() int { return len(b.output) - 1 }

func (b *responseStream) add(p answer.Part) error {
	item := func() map[string]any { return b.output[b.index()] }
	switch p.Kind {
	case answer.Call:
		return b.begin(p.Kind, b.tools[p.Text].item(p.Text))
	case answer.Arguments:
		if b.text += p.Text; item()["type"] == "custom_tool_call" {
			return nil
		}
		return b.send("response.function_call_arguments.delta", map[string]any{"item_id": item()["id"], "output_index": b.index(), "delta": p.Text})
	case answer.CallEnd:
		return b.end("completed")
	case answer.Reasoning:
		if !b.open || b.kind != p.Kind {
			if err := b.begin(p.Kind, map[string]any{"type": "reasoning", "id": identifier("rs_"), "summary": []any{}, "content": []any{}}); err != nil {
				return err
			}
		}
		b.text += p.Text
		return b.send("response.reasoning_text.delta", map[string]any{"item_id": item()["id"], "output_index": b.index(), "content_index": 0, "delta": p.Text})
	}
	if !b.open || b.kind != p.Kind {
		if err := b.begin(p.Kind, map[string]any{"type": "message", "id": identifier("msg_"), "role": "assistant", "status": "in_progress", "content": []any{}}); err != nil {
			return err
		}
		if err := b.send("response.content_part.added", map[string]any{"item_id": item()["id"], "output_index": b.index(), "content_index": 0, "part": outputText("")}); err != nil {
			return err
		}
	}
	b.text += p.Text
	return b.send("response.output_text.delta", map[string]any{"item_id": item()["id"], "output_index": b.index(), "content_index": 0, "delta": p.Text, "logprobs": []any{}})
}

func outputText(text string) map[string]any {
	return map[string]any{"type": "output_text", "text": text, "annotations": []any{}, "logprobs": []any{}}
}

func (b *responseStream) begin(kind answer.Kind, item map[string]any) error {
	if err := b.end("completed"); err != nil {
		return err
	}
	b.kind, b.open, b.text = kind, true, ""
	b.output = append(b.output, item)
	return b.send("response.output_item.added", map[string]any{"output_index": b.index(), "item": item})
}

// end completes the open item.
func (b *responseStream) end(status string) error {
	if !b.open {
		return nil
	}
	b.open = false
	item := b.output[b.index()]
	at := map[string]any{"item_id": item["id"], "output_index": b.index()}
	with := func(more map[string]any) map[string]any {
		for k, v := range at {
			more[k] = v
		}
		return more
	}
	switch b.kind {
	case answer.Call:
		item["status"] = status
		if item["type"] == "custom_tool_call" {
			text := customText(b.text)
			item["input"] = text
			if err := b.send("response.custom_tool_call_input.delta", with(map[string]any{"delta": text})); err != nil {
				return err
			}
			if err := b.send("response.custom_tool_call_input.done", with(map[string]any{"input": text})); err != nil {
				return err
			}
			break
		}
		item["arguments"] = b.text
		if err := b.send("response.function_call_arguments.done", with(map[string]any{"name": item["name"], "arguments": b.text})); err != nil {
			return err
		}
	case answer.Reasoning:
		item["content"] = []any{map[string]any{"type": "reasoning_text", "text": b.text}}
		if b.seal {
			item["encrypted_content"] = sealed(b.text)
		}
		if err := b.send("response.reasoning_text.done", with(map[string]any{"content_index": 0, "text": b.text})); err != nil {
			return err
		}
	default:
		part := outputText(b.text)
		item["content"], item["status"] = []any{part}, status
		if err := b.send("response.output_text.done", with(map[string]any{"content_index": 0, "text": b.text, "logprobs": []any{}})); err != nil {
			return err
		}
		if err := b.send("response.content_part.done", with(map[string]any{"content_index": 0, "part": part})); err != nil {
			return err
		}
	}
	return b.send("response.output_item.done", map[string]any{"output_index": b.index(), "item": item})
}

func (s *Server) responses(w http.ResponseWriter, r *http.Request) error {
	var q responsesRequest
	t, release, err := s.ask(r, &q)
	if err != nil {
		return err
	}
	defer release()
	b := &responseStream{response: q.head(t), tools: q.tools, seal: slices.Contains(q.Include, "reasoning.encrypted_content")}
	if q.Stream {
		b.out = s.stream(w, r, openai)
		defer b.out.close()
	}
	begin := func() error {
		if b.sequence > 0 || b.out == nil {
			return nil
		}
		b.response["status"], b.response["output"] = "in_progress", []any{}
		if err := b.send("response.created", map[string]any{"response": b.response}); err != nil {
			return err
		}
		return b.send("response.in_progress", map[string]any{"response": b.response})
	}
	end := ""
	u, err := s.generate(r, t, func(p *piece) error {
		if err := begin(); err != nil {
			return err
		}
		for _, part := range p.parts {
			if err := b.add(part); err != nil {
				return err
			}
		}
		if p.end != "" {
			end = p.end
		}
		return nil
	})
	if err != nil {
		if b.sequence == 0 {
			return err
		}
		e := explain(err)
		b.response["status"], b.response["error"] = "failed", map[string]any{"code": "server_error", "message": e.message}
		b.send("response.failed", map[string]any{"response": b.response})
		return err
	}
	status, last := "completed", "response.completed"
	if end == "length" {
		status, last = "incomplete", "response.incomplete"
		b.response["incomplete_details"] = map[string]any{"reason": "max_output_tokens"}
	}
	if err := b.end(status); err != nil {
		return err
	}
	if b.output == nil {
		b.output = []map[string]any{}
	}
	b.response["status"], b.response["output"], b.response["completed_at"] = status, b.output, time.Now().Unix()
	b.response["usage"] = map[string]any{"input_tokens": u.PromptTokens, "output_tokens": u.Tokens, "total_tokens": u.PromptTokens + u.Tokens,
		"input_tokens_details": map[string]any{"cached_tokens": u.CachedTokens}, "output_tokens_details": map[string]any{"reasoning_tokens": u.reasoning}}
	if b.out != nil {
		return b.send(last, map[string]any{"response": b.response})
	}
	return writeJSON(w, b.response)
}

// head returns what a response says of its request.
func (q *responsesRequest) head(t *turn) map[string]any {
	orNull := func(p json.RawMessage, otherwise any) any {
		if len(p) == 0 {
			return otherwise
		}
		return p
	}
	tools := []any{}
	for _, raw := range q.Tools {
		if ours(raw) {
			tools = append(tools, raw)
		}
	}
	var instructions, most, effort any
	if q.Instructions != "" {
		instructions = q.Instructions
	}
	if q.MaxOutputTokens != nil {
		most = *q.MaxOutputTokens
	}
	if q.Reasoning != nil && q.Reasoning.Effort != "" {
		effort = q.Reasoning.Effort
	}
	return map[string]any{
		"id": identifier("resp_"), "object": "response", "created_at": time.Now().Unix(), "completed_at": nil, "model": t.model.Name,
		"error": nil, "incomplete_details": nil, "instructions": instructions, "max_output_tokens": most, "max_tool_calls": nil, "previous_response_id": nil,
		"parallel_tool_calls": q.ParallelToolCalls == nil || *q.ParallelToolCalls, "temperature": t.sampling.Temperature, "top_p": t.sampling.TopP,
		"presence_penalty": 0, "frequency_penalty": 0, "top_logprobs": 0, "truncation": "disabled", "background": false, "store": false, "service_tier": "default",
		"reasoning": map[string]any{"effort": effort, "summary": nil}, "text": orNull(q.Text, map[string]any{"format": map[string]any{"type": "text"}}),
		"tools": tools, "tool_choice": orNull(q.ToolChoice, "auto"), "metadata": orNull(q.Metadata, map[string]any{}), "usage": nil,
		"safety_identifier": nil, "prompt_cache_key": nil,
	}
}
