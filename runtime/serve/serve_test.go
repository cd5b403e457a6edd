package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/tokenizer"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/sample"
	"github.com/nstf/nstf/runtime/schedule"
)

// serving returns a server over the demo's model, and its scheduler.
func serving(t *testing.T, o Options, so schedule.Options) (*httptest.Server, *Server, *schedule.Scheduler) {
	return servingAs(t, o, so, "")
}

// servingAs is serving with another chat template.
func servingAs(t *testing.T, o Options, so schedule.Options, template string) (*httptest.Server, *Server, *schedule.Scheduler) {
	t.Helper()
	m, err := checkpoint.Open("../../testdata/demo/model")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := m.Tokenizer()
	if template != "" {
		vocab, _ := m.File("tokenizer.json")
		tok, err = tokenizer.FromFiles("demo", tokenizer.Files{JSON: vocab, ChatTemplate: []byte(template), Config: []byte(`{"bos_token":"<s>","eos_token":"</s>"}`)})
	}
	if err != nil {
		t.Fatal(err)
	}
	ex, err := exec.New(m, exec.Options{Threads: 2, Context: 256, Sequences: 8})
	if err != nil {
		t.Fatal(err)
	}
	sched := schedule.New(ex, so)
	s := New(loadedModels(t, &Model{Info: Info{Name: "demo", Aliases: []string{"other"}, Arch: m.Graph.Arch, Context: 256, Created: time.Unix(1, 0), Parameters: 1_500_000, Digest: strings.Repeat("0", 64), Parallel: 2},
		Tokenizer: tok, Scheduler: sched, Sampling: sample.Options{Temperature: 1, TopP: 1, RepetitionPenalty: 1}}), o)
	h := httptest.NewServer(s)
	t.Cleanup(func() {
		h.Close()
		sched.Close()
		ex.Close()
		m.Close()
	})
	return h, s, sched
}

// loadedModels returns a pool of models that are loaded.
func loadedModels(t *testing.T, all ...*Model) *Pool {
	t.Helper()
	var sources []Source
	for _, m := range all {
		sources = append(sources, Source{Info: m.Info, Load: func() (*Model, func(), error) { return m, func() {}, nil }})
	}
	p := NewPool(sources, PoolOptions{})
	for _, m := range all {
		_, release, err := p.Get(t.Context(), m.Name)
		if err != nil {
			t.Fatal(err)
		}
		release()
	}
	return p
}

func post(t *testing.T, url, body string, headers ...string) (int, map[string]any, http.Header) {
	t.Helper()
	r, err := http.NewRequest("POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	p, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(p, &v); err != nil {
		t.Fatalf("%s answers %d with %q", url, res.StatusCode, p)
	}
	return res.StatusCode, v, res.Header
}

// Greedy and seeded answers are the same alone and beside others.
func TestAnswersDoNotDependOnTheLoad(t *testing.T) {
	h, _, _ := serving(t, Options{}, schedule.Options{})
	ask := func(i int) string {
		temperature := float64(i%3) / 2
		code, v, _ := post(t, h.URL+"/v1/completions", fmt.Sprintf(`{"prompt": %q, "max_tokens": %d, "temperature": %v, "seed": %d}`,
			"The old house stood"+strings.Repeat(" and waited", i%5), 4+i%9, temperature, i))
		if code != 200 {
			t.Errorf("%d: %v", code, v)
			return ""
		}
		return v["choices"].([]any)[0].(map[string]any)["text"].(string)
	}
	n := 40
	if testing.Short() {
		n = 12
	}
	alone := make([]string, n)
	for i := range alone {
		alone[i] = ask(i)
	}
	var wg sync.WaitGroup
	for i := range alone {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if got := ask(i); got != alone[i] {
				t.Errorf("request %d: %q beside others, %q alone", i, got, alone[i])
			}
		}()
	}
	wg.Wait()
}

// Clients that go away leave nothing behind.
func TestClientsVanish(t *testing.T) {
	h, _, sched := serving(t, Options{}, schedule.Options{Kept: -1})
	free := sched.Metrics().FreePages
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			r, _ := http.NewRequestWithContext(ctx, "POST", h.URL+"/v1/completions", strings.NewReader(`{"prompt": "Once", "max_tokens": 200, "stream": true, "ignore_eos": true}`))
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			lines := bufio.NewScanner(res.Body)
			for range 2 * i {
				lines.Scan()
			}
		}()
	}
	wg.Wait()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		m := sched.Metrics()
		if m.Running == 0 && m.Waiting == 0 && m.FreePages == free {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v; %d pages were free", m, free)
		}
	}
}

func TestWrongRequests(t *testing.T) {
	h, _, _ := serving(t, Options{MaxBody: 1 << 16, MaxTokens: 4}, schedule.Options{})
	long := strings.Repeat("word ", 2000)
	for _, c := range []struct {
		path, body string
		status     int
		says       string
	}{
		{"/v1/completions", `{"prompt": "a", "max_tokens": 50}`, 200, ""},
		{"/v1/completions", ``, 400, "no JSON"},
		{"/v1/completions", `{"prompt": 3}`, 400, "prompt"},
		{"/v1/completions", `{"prompt": []}`, 400, "no prompt"},
		{"/v1/completions", `{"prompt": [1000000]}`, 400, "1000000"},
		{"/v1/completions", `{"prompt": [-1]}`, 400, "-1"},
		{"/v1/completions", `{"prompt": "` + long + `"}`, 400, "positions"},
		{"/v1/completions", `{"prompt": "` + strings.Repeat(long, 8) + `"}`, 413, "65536"},
		{"/v1/completions", `{"prompt": "a", "n": 0}`, 400, "n is 0"},
		{"/v1/completions", `{"prompt": "a", "n": 100}`, 400, "n is 100"},
		{"/v1/completions", `{"prompt": "a", "temperature": "hot"}`, 400, `"message":"temperature is of the type string, and should be a number"`},
		{"/v1/completions", `{"prompt": "a",}`, 400, "at byte 16"},
		{"/v1/completions", `[]`, 400, "the body is of the type array, and should be an object"},
		{"/v1/chat/completions", `{"messages": "a"}`, 400, "messages is of the type string, and should be an array"},
		{"/v1/completions", `{"prompt": "a", "top_p": 3}`, 400, "top"},
		{"/v1/completions", `{"prompt": "a", "logprobs": 21}`, 400, "logprobs"},
		{"/v1/completions", `{"prompt": "a", "presence_penalty": 3}`, 400, "presence_penalty"},
		{"/v1/completions", `{"prompt": "a", "suffix": "b"}`, 400, "fills in no texts"},
		{"/v1/completions", `{"prompt": ` + strings.Repeat("[", 5000) + `}`, 400, "deeper"},
		{"/v1/chat/completions", `{"messages": []}`, 400, "no messages"},
		{"/v1/chat/completions", `{"messages": [{"content": "a"}]}`, 400, "no role"},
		{"/v1/chat/completions", `{"messages": [{"role": "user"}]}`, 400, "message 0 has no content"},
		{"/v1/chat/completions", `{"messages": [{"role": "user", "content": null}]}`, 400, "message 0 has no content"},
		{"/v1/chat/completions", `{"messages": [{"role": "user", "content": "a"}, {"role": "assistant"}]}`, 400, "message 1 has no content"},
		{"/api/chat", `{"messages": [{"role": "user"}]}`, 400, "message 0 has no content"},
		{"/v1/messages", `{"max_tokens": 1, "messages": [{"role": "user"}]}`, 400, "content"},
		{"/v1/messages", `{"max_tokens": 1, "messages": [{"role": "user", "content": null}]}`, 400, "content"},
		{"/v1/responses", `{"input": [{"role": "user"}]}`, 400, "no content"},
		{"/v1/chat/completions", `{"messages": [{"role": "king", "content": "a"}]}`, 400, "king"},
		{"/v1/chat/completions", `{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}`, 400, "image_url"},
		{"/v1/chat/completions", `{"messages": [{"role": "user", "content": "a"}], "tools": [{}]}`, 400, "tool 0"},
		{"/v1/chat/completions", `{"messages": [{"role": "user", "content": "a"}], "tool_choice": {"function": {"name": "x"}}}`, 400, "tool_choice"},
		{"/v1/responses", `{"input": 3}`, 400, "input"},
		{"/v1/responses", `{"input": "a", "previous_response_id": "x"}`, 400, "stored"},
		{"/v1/messages", `{"messages": [{"role": "user", "content": "a"}]}`, 400, "max_tokens"},
		{"/v1/messages", `{"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "image"}]}]}`, 400, "image"},
		{"/v1/messages", `{"max_tokens": 1, "messages": []}`, 400, "messages"},
		{"/api/chat", `{"messages": "a"}`, 400, "messages"},
		{"/detokenize", `{"tokens": [99999999]}`, 400, "99999999"},
		{"/v1/nothing", `{}`, 404, `/v1/nothing\": there is no such path`},
	} {
		body := c.body
		if len(body) > 60 {
			body = body[:60] + " …"
		}
		code, v, _ := post(t, h.URL+c.path, c.body)
		said, _ := json.Marshal(v)
		if code != c.status || !strings.Contains(string(said), c.says) {
			t.Errorf("%s %s: %d %s, want %d with %q", c.path, body, code, said, c.status, c.says)
		}
		if e, ok := v["error"].(map[string]any); code >= 400 && !strings.HasPrefix(c.path, "/api/") && (!ok || e["message"] == "") {
			t.Errorf("%s %s: the error is %s", c.path, body, said)
		}
		if strings.HasPrefix(c.path, "/v1/messages") && v["type"] != "error" {
			t.Errorf("%s: %s is not Anthropic's", c.path, said)
		}
	}
}

// Answers obey the format that is asked for, in every protocol, beside answers that are free.
func TestFormats(t *testing.T) {
	h, _, _ := serving(t, Options{}, schedule.Options{})
	schema := `{"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 120}}, "required": ["name", "age"], "additionalProperties": false}`
	chat := `"messages": [{"role": "user", "content": "Who?"}], "max_tokens": 120, "temperature": 1.2, `
	var wg sync.WaitGroup
	for _, c := range []struct{ path, body, at, kind string }{
		{"/v1/chat/completions", chat + `"seed": 1, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": ` + schema + `}}`, "choices.0.message.content", "schema"},
		{"/v1/chat/completions", chat + `"seed": 2, "structured_outputs": {"choice": ["yes", "no"]}`, "choices.0.message.content", "choice"},
		{"/v1/chat/completions", chat + `"seed": 3`, "choices.0.message.content", ""},
		{"/v1/completions", `"prompt": "A", "max_tokens": 120, "seed": 4, "json_schema": ` + schema, "choices.0.text", "schema"},
		{"/v1/completions", `"prompt": "A", "max_tokens": 120, "seed": 5, "grammar": "root ::= \"yes\" | \"no\""`, "choices.0.text", "choice"},
		{"/v1/responses", `"input": "Who?", "temperature": 0, "max_output_tokens": 120, "text": {"format": {"type": "json_schema", "name": "x", "schema": ` + schema + `}}`, "output.0.content.0.text", "schema"},
		{"/api/chat", `"stream": false, "messages": [{"role": "user", "content": "Who?"}], "options": {"num_predict": 120, "seed": 6}, "format": ` + schema, "message.content", "schema"},
	} {
		wg.Add(1)
		go func() {
			defer wg.Done()
			code, v, _ := post(t, h.URL+c.path, "{"+c.body+"}")
			text := lookUp(v, c.at)
			var got struct {
				Name *string
				Age  *int
			}
			err := json.Unmarshal([]byte(text), &got)
			switch {
			case code != 200 || text == "":
				t.Errorf("%s: %d %v", c.body, code, v)
			case c.kind == "choice" && text != "yes" && text != "no":
				t.Errorf("%s: %q", c.body, text)
			case c.kind == "schema" && (err != nil || got.Name == nil || got.Age == nil || *got.Age > 120):
				t.Errorf("%s: %q %v", c.body, text, err)
			}
		}()
	}
	wg.Wait()
	for _, wrong := range []string{`{"type": "json_schema", "json_schema": {"schema": {"not": {}}}}`, `{"type": "xml"}`, `{"type": "json_schema"}`,
		`{"type": "json_schema", "json_schema": {"schema": {"$ref": "#/nothing"}}}`, `{"type": "json_schema", "json_schema": {"schema": {"type": "object", "required": 3}}}`} {
		if code, v, _ := post(t, h.URL+"/v1/chat/completions", "{"+chat+`"response_format": `+wrong+"}"); code != 400 {
			t.Errorf("%s: %d %v", wrong, code, v)
		}
	}
}

func TestKeysAndLimits(t *testing.T) {
	h, s, _ := serving(t, Options{Keys: []string{"one", "two"}, Rate: 0.001, Burst: 2, Origins: []string{"https://a.example"}}, schedule.Options{})
	body := `{"content": "a"}`
	for _, c := range []struct {
		key  []string
		want int
	}{
		{nil, 401}, {[]string{"Authorization", "Bearer three"}, 401}, {[]string{"Authorization", "Bearer onetwo"}, 401},
		{[]string{"Authorization", "Bearer one"}, 200}, {[]string{"X-Api-Key", "one"}, 200}, {[]string{"X-Api-Key", "one"}, 429}, {[]string{"X-Api-Key", "two"}, 200},
	} {
		code, v, header := post(t, h.URL+"/tokenize", body, c.key...)
		if code != c.want {
			t.Errorf("with %v: %d %v, want %d", c.key, code, v, c.want)
		}
		if code == 429 && header.Get("Retry-After") == "" {
			t.Error("429 does not say when to come again")
		}
		if header.Get("X-Request-Id") == "" {
			t.Error("a request has no id")
		}
	}
	for _, path := range []string{"/metrics", "/v1/models", "/api/tags"} {
		if res, err := http.Get(h.URL + path); err != nil || res.StatusCode != 401 {
			t.Errorf("%s without a key: %v %v", path, res, err)
		}
	}
	for path, says := range map[string]string{"/": "<!doctype html>", "/page.js": "use strict"} { // the page needs none
		res, err := http.Get(h.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		p, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != 200 || !strings.Contains(string(p), says) || !strings.Contains(res.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %d %v", path, res.StatusCode, res.Header)
		}
	}
	r, _ := http.NewRequest("OPTIONS", h.URL+"/v1/chat/completions", nil)
	for origin, want := range map[string]string{"https://a.example": "https://a.example", "https://b.example": ""} {
		r.Header.Set("Origin", origin)
		res, err := http.DefaultClient.Do(r)
		if err != nil || res.Header.Get("Access-Control-Allow-Origin") != want {
			t.Errorf("from %s: %v %v", origin, res, err)
		}
	}
	if err := s.Drain(context.Background()); err != nil {
		t.Error(err)
	}
	if code, _, header := post(t, h.URL+"/tokenize", body, "X-Api-Key", "two"); code != 503 || header.Get("Retry-After") == "" {
		t.Errorf("a server that ends answers %d", code)
	}
	if res, err := http.Get(h.URL + "/ready"); err != nil || res.StatusCode != 503 {
		t.Errorf("a server that ends is ready: %v %v", res, err)
	}
	if res, err := http.Get(h.URL + "/health"); err != nil || res.StatusCode != 200 {
		t.Errorf("it is not alive: %v %v", res, err)
	}
}

// What is streamed is what is answered at once.
func TestStreams(t *testing.T) {
	h, _, _ := serving(t, Options{}, schedule.Options{})
	for _, c := range []struct{ path, ask, text string }{
		{"/v1/completions", `"prompt": "Once upon", "max_tokens": 20, "temperature": 0, "stop": "the"`, "choices.0.text"},
		{"/v1/chat/completions", `"messages": [{"role": "user", "content": "Once"}], "max_tokens": 20, "temperature": 0`, "choices.0.delta.content"},
		{"/v1/messages", `"messages": [{"role": "user", "content": "Once"}], "max_tokens": 20, "temperature": 0`, "delta.text"},
		{"/v1/responses", `"input": "Once", "max_output_tokens": 20, "temperature": 0`, "delta"},
		{"/api/chat", `"messages": [{"role": "user", "content": "Once"}], "options": {"num_predict": 20, "temperature": 0}`, "message.content"},
	} {
		_, whole, _ := post(t, h.URL+c.path, `{`+c.ask+`, "stream": false}`)
		at := map[string]string{"/v1/chat/completions": "choices.0.message.content", "/v1/messages": "content.0.text", "/v1/responses": "output.0.content.0.text"}[c.path]
		if at == "" {
			at = c.text
		}
		want := lookUp(whole, at)
		res, err := http.Post(h.URL+c.path, "application/json", strings.NewReader(`{`+c.ask+`, "stream": true}`))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		lines := bufio.NewScanner(res.Body)
		for lines.Scan() {
			line := strings.TrimPrefix(lines.Text(), "data: ")
			var v map[string]any
			if json.Unmarshal([]byte(line), &v) == nil {
				got += lookUp(v, c.text)
			}
		}
		res.Body.Close()
		if got != want || want == "" {
			t.Errorf("%s: %q in pieces, %q at once", c.path, got, want)
		}
	}
}

// lookUp returns the string at a path of keys and indices, "" where there is none.
func lookUp(v any, path string) string {
	for _, key := range strings.Split(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[key]
		case []any:
			var i int
			if fmt.Sscan(key, &i); i >= len(x) {
				return ""
			}
			v = x[i]
		}
	}
	s, _ := v.(string)
	return s
}
