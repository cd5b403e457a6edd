package serve

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/nstf/nstf/formats/answer"
	"github.com/nstf/nstf/formats/tokenizer"
)

// Anthropic's messages.
// Source: https://docs.anthropic.com/en/api/messages and messages-streaming, read 2026-11.

type messagesRequest struct {
	named
	structured
	Messages      []anthropicMessage `json:"messages"`
	System        json.RawMessage    `json:"system"`
	MaxTokens     *int               `json:"max_tokens"`
	StopSequences []string           `json:"stop_sequences"`
	Stream        bool               `json:"stream"`
	Temperature   *float64           `json:"temperature"`
	TopP          *float64           `json:"top_p"`
	TopK          *int               `json:"top_k"`
	Tools         []struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"input_schema"`
		Strict      bool            `json:"strict"`
	} `json:"tools"`
	ToolChoice *struct {
		Type   string `json:"type"`
		Name   string `json:"name"`
		Single bool   `json:"disable_parallel_tool_use"`
	} `json:"tool_choice"`
	Thinking *struct {
		Type string `json:"type"`
	} `json:"thinking"`
	OutputConfig *struct {
		Effort string `json:"effort"`
		Format *struct {
			Type   string          `json:"type"`
			Schema json.RawMessage `json:"schema"`
		} `json:"format"`
	} `json:"output_config"`
}

type anthropicMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// A block is one part of a message.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
}

// blocks returns a content's blocks; a string is one of text.
func blocks(raw json.RawMessage, param string) ([]block, error) {
	var text string
	if said(raw) && json.Unmarshal(raw, &text) == nil {
		return []block{{Type: "text", Text: text}}, nil
	}
	var all []block
	if err := json.Unmarshal(raw, &all); err != nil || all == nil {
		return nil, invalid(param, "%s: a content is a string or a list of blocks", param)
	}
	return all, nil
}

// blockText returns the text of blocks, which have nothing else.
func blockText(raw json.RawMessage, param string) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	all, err := blocks(raw, param)
	if err != nil {
		return "", err
	}
	text := ""
	for _, b := range all {
		if b.Type != "text" {
			return "", invalid(param, "%s: this server reads text, and not blocks of type %q", param, b.Type)
		}
		text += b.Text
	}
	return text, nil
}

// conversation returns what a request asks.
func (q *messagesRequest) conversation(s *Server, m *Model) (*conversation, settings, error) {
	f := samplingFields{Temperature: q.Temperature, TopP: q.TopP, TopK: q.TopK}
	o, err := f.settings(m)
	if err != nil {
		return nil, o, err
	}
	if err := s.common(&o, nil, q.StopSequences, nil, m); err != nil {
		return nil, o, err
	}
	if q.MaxTokens != nil {
		if o.maxTokens = *q.MaxTokens; o.maxTokens < 1 {
			return nil, o, invalid("max_tokens", "max_tokens: %d is below 1", o.maxTokens)
		}
	}
	c := &conversation{extra: map[string]json.RawMessage{}}
	if q.Thinking != nil {
		c.extra["enable_thinking"] = json.RawMessage(fmt.Sprint(q.Thinking.Type != "disabled"))
	}
	if p := q.OutputConfig; p != nil {
		if p.Effort != "" {
			c.extra["reasoning_effort"], _ = json.Marshal(p.Effort)
		}
		if f := p.Format; f != nil {
			if f.Type != "json_schema" || !said(f.Schema) {
				return nil, o, invalid("output_config.format", "output_config.format: it is of type json_schema, and has a schema")
			}
			q.also = append(q.also, schemaFormat(f.Schema))
		}
	}
	if o.format, err = q.format(); err != nil {
		return nil, o, err
	}
	system, err := blockText(q.System, "system")
	if err != nil {
		return nil, o, err
	}
	for i, a := range q.Messages {
		param := fmt.Sprintf("messages.%d.content", i)
		all, err := blocks(a.Content, param)
		if err != nil {
			return nil, o, err
		}
		switch a.Role {
		case "system": // newer programs send it here
			text, err := blockText(a.Content, param)
			if err != nil {
				return nil, o, err
			}
			c.messages = append(c.messages, tokenizer.Message{Role: "system", Content: text})
		case "user", "assistant":
			more, err := fromBlocks(a.Role, all, param)
			if err != nil {
				return nil, o, err
			}
			c.messages = append(c.messages, more...)
		default:
			return nil, o, invalid(fmt.Sprintf("messages.%d.role", i), "messages.%d.role: %q is none", i, a.Role)
		}
	}
	if len(c.messages) == 0 {
		return nil, o, invalid("messages", "messages: at least one is needed")
	}
	if system != "" {
		c.messages = append([]tokenizer.Message{{Role: "system", Content: system}}, c.messages...)
	}
	var tools []json.RawMessage
	for i, t := range q.Tools {
		if t.Type != "" && t.Type != "custom" {
			return nil, o, invalid(fmt.Sprintf("tools.%d.type", i), "tools.%d: this server has no tool %q of its own", i, t.Type)
		}
		raw, err := functionTool(t.Name, t.Description, t.InputSchema, t.Strict)
		if err != nil {
			return nil, o, invalid(fmt.Sprintf("tools.%d", i), "tools.%d: %v", i, err)
		}
		tools = append(tools, raw)
	}
	var choice json.RawMessage
	var parallel *bool
	if q.ToolChoice != nil {
		if q.ToolChoice.Single {
			parallel = new(bool)
		}
		choice, _ = json.Marshal(q.ToolChoice.Type)
		if q.ToolChoice.Type == "tool" {
			choice, _ = json.Marshal(map[string]string{"name": q.ToolChoice.Name})
		}
	}
	return c, o, c.choose(tools, choice, parallel)
}

// fromBlocks returns the messages of a role's blocks: results of tools are messages of
// their own, before what the user says.
func fromBlocks(role string, all []block, param string) ([]tokenizer.Message, error) {
	m := tokenizer.Message{Role: role}
	var results []tokenizer.Message
	thinking, some := "", false
	for _, b := range all {
		switch b.Type {
		case "text":
			m.Content += b.Text
			some = true
		case "thinking":
			thinking += b.Thinking
		case "redacted_thinking":
		case "tool_use":
			m.ToolCalls = append(m.ToolCalls, forTemplate(b.ID, b.Name, b.Input))
			some = true
		case "tool_result":
			text, err := blockText(b.Content, param)
			if err != nil {
				return nil, err
			}
			more, _ := json.Marshal(map[string]string{"tool_call_id": b.ToolUseID})
			results = append(results, tokenizer.Message{Role: "tool", Content: text, More: more})
		default:
			return nil, invalid(param, "%s: this server reads text, and not blocks of type %q", param, b.Type)
		}
	}
	if thinking != "" {
		m.More, _ = json.Marshal(map[string]string{"reasoning_content": thinking})
		some = true
	}
	if some || len(results) == 0 {
		results = append(results, m)
	}
	return results, nil
}

// anthropicEnd returns the reason of an end in Anthropic's words.
func anthropicEnd(end, stopped string) (reason string, sequence any) {
	switch {
	case stopped != "":
		return "stop_sequence", stopped
	case end == "length":
		return "max_tokens", nil
	case end == "tool_calls":
		return "tool_use", nil
	}
	return "end_turn", nil
}

func anthropicUsage(u *usage) map[string]any {
	return map[string]any{"input_tokens": u.PromptTokens - u.CachedTokens, "cache_read_input_tokens": u.CachedTokens, "cache_creation_input_tokens": 0, "output_tokens": u.Tokens}
}

func (s *Server) countTokens(w http.ResponseWriter, r *http.Request) error {
	n, err := s.count(r, new(messagesRequest))
	if err != nil {
		return err
	}
	return writeJSON(w, map[string]int{"input_tokens": n})
}

func (s *Server) messages(w http.ResponseWriter, r *http.Request) error {
	var q messagesRequest
	t, release, err := s.ask(r, &q)
	if err != nil {
		return err
	}
	defer release()
	if q.MaxTokens == nil {
		return invalid("max_tokens", "max_tokens: it is required")
	}
	head := map[string]any{"id": identifier("msg_"), "type": "message", "role": "assistant", "model": t.model.Name}
	if q.Stream {
		return s.streamMessages(w, r, t, head)
	}
	var g gathered
	u, err := s.generate(r, t, func(p *piece) error { g.add(p); return nil })
	if err != nil {
		return err
	}
	content := []any{}
	if g.reasoning != "" {
		content = append(content, map[string]any{"type": "thinking", "thinking": g.reasoning, "signature": ""})
	}
	if g.text != "" || g.reasoning == "" && len(g.calls) == 0 {
		content = append(content, map[string]any{"type": "text", "text": g.text})
	}
	for _, c := range g.calls {
		content = append(content, map[string]any{"type": "tool_use", "id": c.ID, "name": c.Function.Name, "input": asObject(c.Function.Arguments)})
	}
	head["content"], head["usage"] = content, anthropicUsage(&u)
	head["stop_reason"], head["stop_sequence"] = anthropicEnd(g.end, g.stopped)
	return writeJSON(w, head)
}

// asObject returns arguments as an object: an empty one where they broke off.
func asObject(arguments string) json.RawMessage {
	if !json.Valid([]byte(arguments)) {
		return json.RawMessage("{}")
	}
	return json.RawMessage(arguments)
}

// A blockStream writes the blocks of a message as they come.
type blockStream struct {
	out   *stream
	index int
	open  string // the type of the block that is open
}

func (b *blockStream) begin(kind string, start map[string]any) error {
	if b.open == kind && kind != "tool_use" {
		return nil
	}
	if err := b.end(); err != nil {
		return err
	}
	b.open = kind
	start["type"] = kind
	return b.out.send("content_block_start", map[string]any{"type": "content_block_start", "index": b.index, "content_block": start})
}

func (b *blockStream) end() error {
	if b.open == "" {
		return nil
	}
	b.open = ""
	b.index++
	return b.out.send("content_block_stop", map[string]any{"type": "content_block_stop", "index": b.index - 1})
}

func (b *blockStream) delta(v map[string]any) error {
	return b.out.send("content_block_delta", map[string]any{"type": "content_block_delta", "index": b.index, "delta": v})
}

func (b *blockStream) add(p answer.Part) error {
	switch p.Kind {
	case answer.Text:
		if err := b.begin("text", map[string]any{"text": ""}); err != nil {
			return err
		}
		return b.delta(map[string]any{"type": "text_delta", "text": p.Text})
	case answer.Reasoning:
		if err := b.begin("thinking", map[string]any{"thinking": "", "signature": ""}); err != nil {
			return err
		}
		return b.delta(map[string]any{"type": "thinking_delta", "thinking": p.Text})
	case answer.Call:
		return b.begin("tool_use", map[string]any{"id": identifier("toolu_"), "name": p.Text, "input": map[string]any{}})
	case answer.Arguments:
		return b.delta(map[string]any{"type": "input_json_delta", "partial_json": p.Text})
	}
	return b.end()
}

func (s *Server) streamMessages(w http.ResponseWriter, r *http.Request, t *turn, head map[string]any) error {
	out := s.stream(w, r, anthropic)
	defer out.close()
	b := &blockStream{out: out}
	start := func() error {
		if out.begun {
			return nil
		}
		head["content"], head["stop_reason"], head["stop_sequence"] = []any{}, nil, nil
		head["usage"] = map[string]any{"input_tokens": len(t.prompt), "output_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
		return out.send("message_start", map[string]any{"type": "message_start", "message": head})
	}
	end, stopped := "", ""
	u, err := s.generate(r, t, func(p *piece) error {
		if err := start(); err != nil {
			return err
		}
		for _, part := range p.parts {
			if err := b.add(part); err != nil {
				return err
			}
		}
		if p.end != "" {
			end, stopped = p.end, p.stopped
		}
		return nil
	})
	if err != nil {
		return out.fail(err)
	}
	if err := b.end(); err != nil {
		return err
	}
	reason, sequence := anthropicEnd(end, stopped)
	if err := out.send("message_delta", map[string]any{"type": "message_delta", "delta": map[string]any{"stop_reason": reason, "stop_sequence": sequence}, "usage": anthropicUsage(&u)}); err != nil {
		return err
	}
	return out.send("message_stop", map[string]any{"type": "message_stop"})
}
