package serve

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/nstf/nstf/runtime/schedule"
)

// Tools as Codex 0.169 declares them: of a namespace, custom ones that take a text, and
// some of OpenAI's own, which the model is not told of.
const responseTools = `[{"type": "function", "name": "exec_command", "strict": false, "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}},
	{"type": "namespace", "name": "agents", "description": "d", "tools": [{"type": "function", "name": "close", "strict": false, "parameters": {"type": "object", "properties": {"target": {"enum": ["a"]}}, "required": ["target"], "additionalProperties": false}}]},
	{"type": "custom", "name": "patch", "description": "Patches", "format": {"type": "grammar", "syntax": "regex", "definition": "[ab]{3}\n"}},
	{"type": "custom", "name": "note", "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"}},
	{"type": "web_search", "external_web_access": true}]`

func TestResponseTools(t *testing.T) {
	h, s, _ := servingAs(t, Options{}, schedule.Options{}, specialTemplate)
	ask := `{"input": "a", "max_output_tokens": 200, "temperature": 0, "store": false, "include": ["reasoning.encrypted_content"], "tool_choice": {"type": "%s", "name": "%s"}, "tools": ` + responseTools
	item := func(kind, name string) map[string]any {
		t.Helper()
		code, v, _ := post(t, h.URL+"/v1/responses", fmt.Sprintf(ask, kind, name)+"}")
		if code != 200 {
			t.Fatal(code, v)
		}
		if n := len(v["tools"].([]any)); n != 4 {
			t.Errorf("%d tools are said to be there", n)
		}
		return v["output"].([]any)[0].(map[string]any)
	}
	if c := item("function", "agents__close"); c["type"] != "function_call" || c["namespace"] != "agents" || c["name"] != "close" || strings.Join(strings.Fields(c["arguments"].(string)), "") != `{"target":"a"}` {
		t.Errorf("a call within a namespace: %v", c)
	}
	c := item("custom", "patch")
	if text, _ := c["input"].(string); c["type"] != "custom_tool_call" || c["name"] != "patch" || len(text) != 4 || strings.Trim(text, "ab") != "\n" || c["arguments"] != nil {
		t.Errorf("a call of a custom tool: %v", c)
	}
	res, err := http.Post(h.URL+"/v1/responses", "application/json", strings.NewReader(fmt.Sprintf(ask, "custom", "patch")+`, "stream": true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var events []string
	var text string
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		var e struct{ Type, Input string }
		if line, ok := strings.CutPrefix(lines.Text(), "data: "); ok && json.Unmarshal([]byte(line), &e) == nil {
			if events = append(events, strings.TrimPrefix(e.Type, "response.")); strings.HasSuffix(e.Type, "input.done") {
				text = e.Input
			}
		}
	}
	if got, want := strings.Join(events, " "), "created in_progress output_item.added custom_tool_call_input.delta custom_tool_call_input.done output_item.done completed"; got != want || text != c["input"] {
		t.Errorf("streamed: %s, %q; want %s, %q", got, text, want, c["input"])
	}

	m, release, err := s.models.Get(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	q := &responsesRequest{}
	if err := json.Unmarshal([]byte(`{"tools": `+responseTools+`, "input": [{"role": "user", "content": "a"}, {"type": "reasoning", "summary": [], "content": null, "encrypted_content": "nstf1:aG1t"},
		{"type": "function_call", "namespace": "agents", "name": "close", "call_id": "1", "arguments": "{}"}, {"type": "custom_tool_call", "name": "patch", "call_id": "2", "input": "x\ny"},
		{"type": "function_call_output", "call_id": "1", "output": "b"}, {"type": "custom_tool_call_output", "call_id": "2", "output": [{"type": "input_text", "text": "c"}]},
		{"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "so"}]}, {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "d"}]}, {"role": "user", "content": "e"}]}`), q); err != nil {
		t.Fatal(err)
	}
	talk, _, err := q.conversation(s, m)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range talk.messages {
		line := m.Role + ":" + m.Content
		for _, c := range m.ToolCalls {
			line += " " + string(c)
		}
		got = append(got, line+string(m.More))
	}
	want := []string{"user:a", `assistant: {"function":{"arguments":{},"name":"agents__close"},"id":"1","type":"function"} {"function":{"arguments":{"input":"x\ny"},"name":"patch"},"id":"2","type":"function"}{"reasoning_content":"hmm"}`,
		`tool:b{"tool_call_id":"1"}`, `tool:c{"tool_call_id":"2"}`, `assistant:d{"reasoning_content":"so"}`, "user:e"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the conversation is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if !strings.Contains(string(talk.tools[3].raw), `(lark):\nstart: X`) {
		t.Errorf("the model is not told of the grammar: %s", talk.tools[3].raw)
	}
	for says, body := range map[string]string{
		"there is none": `{"input": "a", "tool_choice": "required", "tools": [{"type": "web_search"}]}`,
		"of type":       `{"input": "a", "tools": [{"type": "namespace", "name": "n", "tools": [{"type": "web_search"}]}]}`,
		"tool 0":        `{"input": "a", "tools": [3]}`,
	} {
		if code, v, _ := post(t, h.URL+"/v1/responses", body); code != 400 || !strings.Contains(fmt.Sprint(v), says) {
			t.Errorf("%s: %d %v", body, code, v)
		}
	}
}
