package serve

import (
	"encoding/json"
	"fmt"
)

// Tools of responses.
// Source: types of openai's Python client 3.3.0 (namespace_tool, custom_tool,
// response_custom_tool_call), and what Codex 0.169 sends.

// A responseTool is what a call of a tool looks like.
type responseTool struct {
	namespace, name string
	custom          bool
}

// A declaredTool is a tool as a request writes it.
type declaredTool struct {
	Type        string            `json:"type"`
	Name        string            `json:"name"`
	Description string            `json:"description"`
	Parameters  json.RawMessage   `json:"parameters"`
	Strict      bool              `json:"strict"`
	Tools       []json.RawMessage `json:"tools"` // of a namespace
	Format      struct {
		Syntax     string `json:"syntax"`
		Definition string `json:"definition"`
	} `json:"format"` // of a custom one
}

// ours reports whether a tool is the client's to run. The others are offers of OpenAI's
// servers (web_search, code_interpreter ...): this one has none of them, so the model is
// not told of them.
func ours(raw json.RawMessage) bool {
	var t declaredTool
	if json.Unmarshal(raw, &t) != nil {
		return true // and wrong
	}
	return t.Type == "function" || t.Type == "custom" || t.Type == "namespace" || t.Type == ""
}

// declared returns the tools of a request as chat completions write them: those of a
// namespace by both names, and custom ones, which take a text, as functions of one.
func (q *responsesRequest) declared() ([]json.RawMessage, error) {
	q.tools = map[string]responseTool{}
	var all []json.RawMessage
	for i, raw := range q.Tools {
		if !ours(raw) {
			continue
		}
		param := fmt.Sprintf("tools[%d]", i)
		var t declaredTool
		if err := json.Unmarshal(raw, &t); err != nil {
			return nil, invalid(param, "tool %d is none: %v", i, err)
		}
		inside, space := []json.RawMessage{raw}, ""
		if t.Type == "namespace" {
			inside, space = t.Tools, t.Name
		}
		for _, raw := range inside {
			one, err := q.declare(raw, space)
			if err != nil {
				return nil, invalid(param, "tool %d: %v", i, err)
			}
			all = append(all, one)
		}
	}
	return all, nil
}

// declare returns one of them.
func (q *responsesRequest) declare(raw json.RawMessage, space string) (json.RawMessage, error) {
	var t declaredTool
	if err := json.Unmarshal(raw, &t); err != nil {
		return nil, err
	}
	if t.Type != "function" && t.Type != "custom" || t.Name == "" {
		return nil, fmt.Errorf("it is of type %q and of name %q, and should be a function or custom, with a name", t.Type, t.Name)
	}
	if t.Type == "custom" {
		input := map[string]any{"type": "string"}
		switch f := t.Format; f.Syntax {
		case "regex":
			input["pattern"], t.Strict = "^("+f.Definition+")$", true
		case "":
		default:
			t.Description = paragraphs(t.Description, "Its input is a text of this grammar ("+f.Syntax+"):\n"+f.Definition)
		}
		t.Parameters, _ = json.Marshal(map[string]any{"type": "object", "properties": map[string]any{customInput: input}, "required": []string{customInput}, "additionalProperties": false})
	}
	if !said(t.Parameters) {
		t.Parameters = json.RawMessage(`{"type":"object","properties":{}}`)
	}
	name := spaced(space, t.Name)
	q.tools[name] = responseTool{space, t.Name, t.Type == "custom"}
	return functionTool(name, t.Description, t.Parameters, t.Strict)
}

// customInput is the one argument of a custom tool.
const customInput = "input"

// spaced is what the model calls a tool of a namespace; "" is none.
func spaced(space, name string) string {
	if space == "" {
		return name
	}
	return space + "__" + name
}

// item returns what a call begins as; name is what the model wrote.
func (t responseTool) item(name string) map[string]any {
	v := map[string]any{"type": "function_call", "id": identifier("fc_"), "call_id": identifier("call_"), "name": name, "arguments": "", "status": "in_progress"}
	if t.name != "" {
		v["name"] = t.name
	}
	if t.namespace != "" {
		v["namespace"] = t.namespace
	}
	if t.custom {
		delete(v, "arguments")
		v["type"], v["id"], v["input"] = "custom_tool_call", identifier("ctc_"), ""
	}
	return v
}

// customText returns what a custom tool is called with, "" where the call broke off.
func customText(arguments string) string {
	var v map[string]json.RawMessage
	var text string
	if json.Unmarshal([]byte(arguments), &v) == nil {
		json.Unmarshal(v[customInput], &text)
	}
	return text
}

// think gives the message that was added last the reasoning that came before it, where it
// is an answer.
func (c *conversation) think(role string) {
	if m := &c.messages[len(c.messages)-1]; c.reasoning != "" && role == "assistant" && m.More == nil {
		m.More, _ = json.Marshal(map[string]string{"reasoning_content": c.reasoning})
	}
	c.reasoning = ""
}
