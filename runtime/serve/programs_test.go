package serve

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/nstf/nstf/runtime/schedule"
)

// What programs that people talk through send, with the fields that we have no use for, and what they read of the
// answer. Zed (crates/open_ai, crates/ollama), Continue (core/llm/llms) and Cline (src/api/providers) by stored
// versions of their sources; the others as the authors of these tests remember them.
func TestPrograms(t *testing.T) {
	h, _, _ := serving(t, Options{}, schedule.Options{})
	tools := `[{"type": "function", "function": {"name": "read_file", "description": "Reads", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}, "strict": false}}]`
	for _, c := range []struct{ program, method, path, body, reads string }{
		{"Open WebUI, models", "GET", "/v1/models", "", "object=list data.0.id data.0.object=model data.0.created data.0.owned_by"},
		{"Open WebUI, chat", "POST", "/v1/chat/completions", `{"stream": true, "model": "demo", "messages": [{"role": "user", "content": "hi"}], "stream_options": {"include_usage": true}, "max_tokens": 4, "params": {}, "tool_servers": []}`,
			"choices.0.delta.content choices.0.finish_reason usage.completion_tokens"},
		{"Open WebUI, a title", "POST", "/v1/chat/completions", `{"model": "demo", "messages": [{"role": "user", "content": "hi"}], "stream": false, "max_completion_tokens": 4}`, "choices.0.message.content"},
		{"Open WebUI, Ollama", "GET", "/api/version", "", "version"},
		{"Open WebUI, Ollama", "GET", "/api/tags", "", "models.0.name models.0.model models.0.digest models.0.size models.0.modified_at models.0.details.family models.0.details.parameter_size models.0.details.quantization_level models.0.details.format"},
		{"Open WebUI, Ollama", "POST", "/api/chat", `{"model": "demo:latest", "messages": [{"role": "user", "content": "hi"}], "options": {"num_predict": 4, "num_ctx": 2048, "mirostat": 0, "num_gpu": 99}, "format": null, "keep_alive": "5m", "stream": true}`,
			"message.content done=true eval_count prompt_eval_count total_duration"},
		{"Zed, OpenAI", "POST", "/v1/chat/completions", `{"model": "demo", "messages": [{"role": "system", "content": [{"type": "text", "text": "s"}]}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}, {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": "{\"path\": \"a\"}"}}]}, {"role": "tool", "content": [{"type": "text", "text": "nothing"}], "tool_call_id": "c1"}], "stream": true, "stream_options": {"include_usage": true}, "max_completion_tokens": 4, "stop": [], "temperature": 1.0, "tool_choice": null, "parallel_tool_calls": false, "prompt_cache_key": "k", "reasoning_effort": null, "tools": ` + tools + `}`,
			"choices.0.delta.content choices.0.finish_reason usage.total_tokens"},
		{"Zed, Ollama", "POST", "/api/chat", `{"model": "demo", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}, {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "read_file", "arguments": {"path": "a"}}}], "thinking": null}, {"role": "tool", "tool_name": "read_file", "content": "nothing"}], "stream": true, "keep_alive": -1, "options": {"num_ctx": 4096, "num_predict": 4, "stop": null, "temperature": 1.0, "top_p": null}, "tools": [], "think": false}`,
			"model created_at message.role=assistant message.content done_reason done=true"},
		{"Zed, Ollama", "POST", "/api/show", `{"model": "demo"}`, "capabilities.0 model_info details.format"},
		{"Continue, Ollama", "POST", "/api/show", `{"name": "demo"}`, "template details.family"},
		{"Continue, Ollama", "POST", "/api/generate", `{"model": "demo", "prompt": "def f(", "raw": true, "options": {"temperature": 0.01, "num_predict": 4, "stop": ["\n\n"], "num_ctx": 4096, "use_mmap": true}, "keep_alive": 1800, "stream": true}`, "response done=true done_reason"},
		{"Continue, llama.cpp", "POST", "/completion", `{"prompt": "def f(", "stream": true, "n_predict": 4, "frequency_penalty": null, "presence_penalty": null, "min_p": null, "mirostat": null, "stop": ["\n\n"], "top_k": 40, "top_p": 1, "temperature": 0.2}`, "content stop=true"},
		{"Cline", "POST", "/v1/chat/completions", `{"model": "demo", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "<task>"}, {"type": "text", "text": "hi"}]}], "temperature": 0, "stream": true, "stream_options": {"include_usage": true}, "max_tokens": 4}`,
			"choices.0.delta.content usage.prompt_tokens"},
		{"aider", "POST", "/v1/chat/completions", `{"model": "demo", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "Ok."}, {"role": "user", "content": "b"}], "temperature": 0, "stream": true, "max_tokens": 4}`, "choices.0.delta.content"},
		{"LibreChat", "POST", "/v1/chat/completions", `{"model": "demo", "user": "u", "stream": true, "temperature": 1, "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0, "max_tokens": 4, "messages": [{"role": "system", "content": "s", "name": "instructions"}, {"role": "user", "content": "hi"}]}`, "choices.0.delta.content choices.0.finish_reason"},
		{"OpenAI's clients", "POST", "/v1/responses/input_tokens", `{"model": "demo", "input": "hi"}`, "object=response.input_tokens input_tokens"},
		{"llama.cpp's page", "POST", "/chat/completions/input_tokens", `{"messages": [{"role": "user", "content": "hi"}]}`, "input_tokens"},
		{"Claude Code", "HEAD", "/", "", ""},
		{"Claude Code", "POST", "/v1/messages?beta=true", `{"model": "claude-x", "max_tokens": 32000, "temperature": 1, "stream": true, "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}], "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]}, {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": ""}, {"type": "tool_use", "id": "c1", "name": "Read", "input": {}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "n"}], "is_error": false, "cache_control": {"type": "ephemeral"}}]}], "tools": [{"name": "Read", "description": "Reads", "input_schema": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {}}, "eager_input_streaming": true}], "metadata": {"user_id": "u"}, "thinking": {"type": "adaptive"}, "context_management": {"edits": []}, "output_config": {"effort": "high"}}`,
			"message.usage.input_tokens content_block.type delta.stop_reason usage.output_tokens"},
		{"Claude Code", "POST", "/v1/messages/count_tokens?beta=true", `{"model": "claude-x", "messages": [{"role": "user", "content": "hi"}], "tools": []}`, "input_tokens"},
	} {
		t.Run(c.program+" "+c.path, func(t *testing.T) {
			r, _ := http.NewRequest(c.method, h.URL+c.path, strings.NewReader(c.body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer none")
			r.Header.Set("Anthropic-Version", "2023-06-01")
			r.Header.Set("Anthropic-Beta", "a,b")
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if res.StatusCode != 200 {
				p, _ := io.ReadAll(res.Body)
				t.Fatalf("%d %s", res.StatusCode, p)
			}
			// Each field stands in one of the events, or in the answer; with "=", that value.
			missing := map[string]bool{}
			for f := range strings.FieldsSeq(c.reads) {
				missing[f] = true
			}
			lines := bufio.NewScanner(res.Body)
			lines.Buffer(nil, 1<<20)
			for lines.Scan() {
				var v any
				if json.Unmarshal([]byte(strings.TrimPrefix(lines.Text(), "data: ")), &v) != nil {
					continue
				}
				for f := range missing {
					path, want, _ := strings.Cut(f, "=")
					if got, ok := at(v, path); ok && (want == "" || got == want) {
						delete(missing, f)
					}
				}
			}
			for f := range missing {
				t.Errorf("nothing holds %s", f)
			}
		})
	}
}

// at returns what lies at a path of keys and indices, in words, where it is not null.
func at(v any, path string) (string, bool) {
	for key := range strings.SplitSeq(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[key]
		case []any:
			if key != "0" || len(x) == 0 {
				return "", false
			}
			v = x[0]
		default:
			return "", false
		}
	}
	if v == nil {
		return "", false
	}
	if s, ok := v.(string); ok {
		return s, true
	}
	p, _ := json.Marshal(v)
	return string(p), true
}
