package serve

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstf/nstf/runtime/schedule"
)

const harmonyTemplate = `{%- for m in messages -%}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{%- endfor -%}
{#- <|channel|>analysis<|message|> -#}{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}`

// specialTemplate writes calls between special tokens of the demo's vocabulary.
const specialTemplate = `{%- for m in messages -%}{{ m.role }}: {{ m.content or '' }}
{%- for call in m.tool_calls or [] -%}<|begin_of_text|>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}<|im_start|>{%- endfor -%}<|im_end|>{%- endfor -%}
{%- if add_generation_prompt -%}assistant: {%- endif -%}`

const callTools = `[{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {
	"unit": {"enum": ["metric", "imperial"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}, "exact": {"type": "boolean"},
	"place": {"type": "string", "maxLength": 6}, "list": {"type": "array", "items": {"$ref": "#/$defs/n"}, "maxItems": 2}},
	"$defs": {"n": {"type": "integer", "minimum": 0, "maximum": 5}}, "required": ["unit", "days"], "additionalProperties": false}}},
	{"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}, "additionalProperties": false}}}]`

// checkCalls says what is wrong with calls of callTools.
func checkCalls(calls []any) error {
	for _, c := range calls {
		f := c.(map[string]any)["function"].(map[string]any)
		var a struct {
			Unit, Place *string
			Days        *int
			Exact       *bool
			List        []int
		}
		d := json.NewDecoder(strings.NewReader(f["arguments"].(string)))
		d.DisallowUnknownFields()
		if err := d.Decode(&a); err != nil {
			return fmt.Errorf("%v: %v", f, err)
		}
		switch f["name"] {
		case "now":
			if strings.TrimSpace(strings.Trim(f["arguments"].(string), "{}")) != "" {
				return fmt.Errorf("%v has arguments", f)
			}
		case "look_up":
			if a.Unit == nil || *a.Unit != "metric" && *a.Unit != "imperial" || a.Days == nil || *a.Days < 1 || *a.Days > 9 || len(a.List) > 2 || a.Place != nil && len([]rune(*a.Place)) > 6 {
				return fmt.Errorf("%v", f)
			}
			for _, n := range a.List {
				if n < 0 || n > 5 {
					return fmt.Errorf("%v", f)
				}
			}
		default:
			return fmt.Errorf("%v is no tool", f)
		}
	}
	return nil
}

// A call that is demanded is made, in every way of calling, and obeys its schema.
func TestCallsAreMade(t *testing.T) {
	files, _ := filepath.Glob("../../testdata/answer/*.jinja")
	if len(files) < 7 {
		t.Fatalf("%d templates", len(files))
	}
	templates := map[string]string{"harmony": harmonyTemplate, "special": specialTemplate}
	for _, file := range files {
		p, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		// Without reasoning, which is free: this model would seldom end it.
		templates[strings.TrimSuffix(filepath.Base(file), ".jinja")] = strings.NewReplacer("<think>", "", "</think>", "", "reasoning_content", "reasoned").Replace(string(p))
	}
	times := 2
	if testing.Short() {
		times = 1
	}
	for name, template := range templates {
		h, _, _ := servingAs(t, Options{}, schedule.Options{}, template)
		whole := 0
		for _, c := range []struct {
			name, more string
			one        bool
			only       string
		}{
			{"required", `"tool_choice": "required"`, false, ""},
			{"one", `"tool_choice": "required", "parallel_tool_calls": false`, true, ""},
			{"named", `"tool_choice": {"type": "function", "function": {"name": "look_up"}}`, true, "look_up"},
			{"allowed", `"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "now"}}]}}`, false, "now"},
		} {
			for seed := range times {
				code, v, _ := post(t, h.URL+"/v1/chat/completions", fmt.Sprintf(`{"messages": [{"role": "user", "content": "a"}], "max_tokens": 150, "seed": %d, "temperature": 1.3, "tools": %s, %s}`, seed, callTools, c.more))
				if code != 200 {
					t.Fatalf("%s, %s: %d %v", name, c.name, code, v)
				}
				choice := v["choices"].([]any)[0].(map[string]any)
				message := choice["message"].(map[string]any)
				calls, _ := message["tool_calls"].([]any)
				if choice["finish_reason"] == "length" {
					continue // it broke off, in its reasoning or in a number of calls
				}
				whole++
				if err := checkCalls(calls); err != nil {
					t.Errorf("%s, %s, %d: %v", name, c.name, seed, err)
				}
				if choice["finish_reason"] != "tool_calls" || len(calls) == 0 || c.one && len(calls) != 1 || message["content"] != nil {
					t.Errorf("%s, %s, %d: %v", name, c.name, seed, choice)
				}
				for _, call := range calls {
					if got := call.(map[string]any)["function"].(map[string]any)["name"]; c.only != "" && got != c.only {
						t.Errorf("%s, %s, %d: %v", name, c.name, seed, got)
					}
				}
			}
		}
		if whole < times {
			t.Errorf("%s: %d answers were whole", name, whole)
		}
	}
}

// Text that is held to a format comes behind reasoning and in the last channel, and beside
// calls where there are tools.
func TestFormatsBehindReasoning(t *testing.T) {
	object, err := os.ReadFile("../../testdata/answer/object.jinja")
	if err != nil {
		t.Fatal(err)
	}
	for name, template := range map[string]string{"harmony": harmonyTemplate, "object": string(object), "special": specialTemplate} {
		h, _, _ := servingAs(t, Options{}, schedule.Options{}, template)
		whole, called := 0, 0
		for seed := range 8 {
			more := ""
			if seed%2 == 1 {
				more = `, "tools": ` + callTools
			}
			code, v, _ := post(t, h.URL+"/v1/chat/completions", fmt.Sprintf(`{"messages": [{"role": "user", "content": "a"}], "max_tokens": 150, "seed": %d, "temperature": 1.3,
				"structured_outputs": {"choice": ["yes", "no"]}%s}`, seed, more))
			if code != 200 {
				t.Fatalf("%s: %d %v", name, code, v)
			}
			choice := v["choices"].([]any)[0].(map[string]any)
			message := choice["message"].(map[string]any)
			calls, _ := message["tool_calls"].([]any)
			switch {
			case choice["finish_reason"] == "length":
				continue
			case len(calls) > 0 && more != "":
				called++
				if err := checkCalls(calls); err != nil {
					t.Errorf("%s, %d: %v", name, seed, err)
				}
			case message["content"] != "yes" && message["content"] != "no":
				t.Errorf("%s, %d: %v", name, seed, choice)
			}
			whole++
		}
		if whole < 2 {
			t.Errorf("%s: %d answers were whole", name, whole)
		}
		t.Log(name, whole, called)
	}
}

// A strict tool's arguments obey its schema wherever the model begins to call it.
func TestStrictTools(t *testing.T) {
	h, s, _ := servingAs(t, Options{}, schedule.Options{}, specialTemplate)
	m, release, err := s.models.Get(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	begin, ok := m.Tokenizer.ID("<|begin_of_text|>")
	if !ok {
		t.Fatal("the demo has no such token")
	}
	strict := strings.ReplaceAll(callTools, `{"name"`, `{"strict": true, "name"`)
	called := 0
	for seed := range 6 {
		// The bias has the model call: nothing else makes it.
		code, v, _ := post(t, h.URL+"/v1/chat/completions", fmt.Sprintf(`{"messages": [{"role": "user", "content": "a"}], "max_tokens": 150, "seed": %d, "temperature": 1.3, "tools": %s, "logit_bias": {"%d": 18}}`, seed, strict, begin))
		if code != 200 {
			t.Fatalf("%d %v", code, v)
		}
		choice := v["choices"].([]any)[0].(map[string]any)
		calls, _ := choice["message"].(map[string]any)["tool_calls"].([]any)
		if n := len(calls); n > 0 && choice["finish_reason"] == "length" { // the last one broke off
			calls = calls[:n-1]
		}
		called += len(calls)
		if err := checkCalls(calls); err != nil {
			t.Errorf("%d: %v", seed, err)
		}
	}
	if called < 3 {
		t.Errorf("%d calls", called)
	}
	wrong := strings.Replace(strict, `"minimum": 1`, `"not": {}`, 1)
	if code, v, _ := post(t, h.URL+"/v1/chat/completions", `{"messages": [{"role": "user", "content": "a"}], "tool_choice": "required", "tools": `+wrong+`}`); code != 400 || !strings.Contains(fmt.Sprint(v), "look_up") {
		t.Errorf("a strict schema that cannot be held: %d %v", code, v)
	}
}

// A schema too large to be held makes no request fail, unless the tool is strict.
func TestLargeSchemas(t *testing.T) {
	h, _, _ := servingAs(t, Options{}, schedule.Options{}, specialTemplate)
	tools := `[{"type": "function", "function": {"name": "run", "strict": %v, "parameters": {"type": "object", "properties": {"script": {"type": "string", "maxLength": 524288}, "fast": {"type": "boolean"}}, "required": ["fast"], "additionalProperties": false}}}]`
	ask := `{"messages": [{"role": "user", "content": "a"}], "seed": 3, "max_tokens": 100, "tool_choice": "required", "tools": ` + tools + `}`
	code, v, _ := post(t, h.URL+"/v1/chat/completions", fmt.Sprintf(ask, false))
	if code != 200 || !strings.Contains(fmt.Sprint(v), "name:run") {
		t.Errorf("%d %v", code, v)
	}
	if code, v, _ := post(t, h.URL+"/v1/chat/completions", fmt.Sprintf(ask, true)); code != 400 || !strings.Contains(fmt.Sprint(v), "states") {
		t.Errorf("a strict one: %d %v", code, v)
	}
	// Each of two can be held, and both together cannot: the larger one is held by types, the other whole.
	two := `{"messages": [{"role": "user", "content": "a"}], "seed": 3, "max_tokens": 100, "tool_choice": "required", "tools": [
		{"type": "function", "function": {"name": "long", "parameters": {"type": "object", "properties": {"a": {"type": "string", "maxLength": 3000}}, "required": ["a"], "additionalProperties": false}}},
		{"type": "function", "function": {"name": "longer", "strict": %v, "parameters": {"type": "object", "properties": {"a": {"type": "string", "maxLength": 4000}}, "required": ["a"], "additionalProperties": false}}}]}`
	if code, v, _ := post(t, h.URL+"/v1/chat/completions", fmt.Sprintf(two, false)); code != 200 || !strings.Contains(fmt.Sprint(v), "name:long") {
		t.Errorf("two: %d %.200v", code, v)
	}
	if code, v, _ := post(t, h.URL+"/v1/chat/completions", fmt.Sprintf(two, true)); code != 200 {
		t.Errorf("two, the larger one strict: %d %.200v", code, v)
	}
}

func TestToolChoiceRefuses(t *testing.T) {
	h, _, _ := serving(t, Options{}, schedule.Options{})
	for says, more := range map[string]string{
		"there is none":       `"tool_choice": "required"`,
		"is not known":        `"tool_choice": "required", "tools": ` + callTools,
		"names \\\"other\\\"": `"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"function": {"name": "other"}}]}}, "tools": ` + callTools,
		"is \\\"must\\\"":     `"tool_choice": "must", "tools": ` + callTools,
	} {
		code, v, _ := post(t, h.URL+"/v1/chat/completions", `{"messages": [{"role": "user", "content": "a"}], `+more+`}`)
		if said, _ := json.Marshal(v); code != 400 || !strings.Contains(string(said), says) {
			t.Errorf("%s: %d %s", more, code, said)
		}
	}
}
