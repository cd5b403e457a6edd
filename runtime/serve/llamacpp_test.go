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

func get(t *testing.T, url string, v any) int {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	p, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(p, v); err != nil {
		t.Fatalf("%s answers %d with %q", url, res.StatusCode, p)
	}
	return res.StatusCode
}

// llama.cpp's own completion is what OpenAI's gives, in its words.
func TestNativeCompletion(t *testing.T) {
	h, _, _ := serving(t, Options{}, schedule.Options{})
	_, whole, _ := post(t, h.URL+"/v1/completions", `{"prompt": "Once upon", "max_tokens": 12, "temperature": 0}`)
	want := lookUp(whole, "choices.0.text")
	for _, path := range []string{"/completion", "/completions"} {
		code, v, _ := post(t, h.URL+path, `{"prompt": "Once upon", "n_predict": 12, "temperature": 0, "n_probs": 2, "return_tokens": true}`)
		if code != 200 || v["content"] != want || v["stop_type"] != "limit" || v["tokens_predicted"] != 12.0 || len(v["tokens"].([]any)) != 12 {
			t.Errorf("%s: %d %v, want %q", path, code, v, want)
		}
		probs := v["completion_probabilities"].([]any)
		first := probs[0].(map[string]any)
		if top := first["top_logprobs"].([]any); len(probs) != 12 || len(top) != 2 || top[0].(map[string]any)["id"] != first["id"] {
			t.Errorf("%s: %v", path, probs)
		}
	}
	// Tokens between texts are one prompt.
	_, v, _ := post(t, h.URL+"/tokenize", `{"content": " upon"}`)
	ids, _ := json.Marshal(v["tokens"])
	mixed := `["Once", ` + strings.Trim(string(ids), "[]") + `]`
	if _, v, _ := post(t, h.URL+"/completion", `{"prompt": `+mixed+`, "n_predict": 12, "temperature": 0}`); v["content"] != want {
		t.Errorf("mixed: %v, want %q", v, want)
	}
	res, err := http.Post(h.URL+"/completion", "application/json", strings.NewReader(`{"prompt": "Once upon", "n_predict": 12, "temperature": 0, "stream": true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	got, last, n := "", map[string]any{}, 0
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if line, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			last = nil
			if err := json.Unmarshal([]byte(line), &last); err != nil {
				t.Fatal(err)
			}
			if last["stop"] == false {
				n += len(last["tokens"].([]any))
				got += last["content"].(string)
			}
		}
	}
	if got != want || last["stop"] != true || last["stop_type"] != "limit" || last["timings"].(map[string]any)["predicted_n"] != 12.0 || n > 12 {
		t.Errorf("streamed %q, %d tokens, %v; want %q", got, n, last, want)
	}
	// The end of a stream tells of all of the text, of which it repeats nothing.
	lines, err := http.Post(h.URL+"/completion", "application/json", strings.NewReader(`{"prompt": "Once upon", "stream": true, "grammar": "root ::= \"a\\nb\""}`))
	if err != nil {
		t.Fatal(err)
	}
	defer lines.Body.Close()
	all, err := io.ReadAll(lines.Body)
	if err != nil {
		t.Fatal(err)
	}
	end := strings.Split(strings.TrimSpace(string(all)), "data: ")
	last = nil
	if err := json.Unmarshal([]byte(end[len(end)-1]), &last); err != nil || last["stop"] != true || last["has_new_line"] != true || last["content"] != "" {
		t.Errorf("%v: a stream of two lines: %s", err, all)
	}
	word := strings.Fields(want)[2]
	_, v, _ = post(t, h.URL+"/completion", `{"prompt": "Once upon", "n_predict": 12, "temperature": 0, "stop": ["`+word+`"]}`)
	if v["stop_type"] != "word" || v["stopping_word"] != word {
		t.Errorf("with %q as a stop: %v", word, v)
	}
	_, v, _ = post(t, h.URL+"/completion", `{"prompt": "Once upon", "n_predict": 0}`)
	if v["content"] != "" || v["tokens_predicted"] != 0.0 {
		t.Errorf("no token: %v", v)
	}
	// What is banned is not chosen, by a text or a token.
	first := strings.Fields(want)[0]
	_, v, _ = post(t, h.URL+"/completion", `{"prompt": "Once upon", "n_predict": 1, "temperature": 0, "logit_bias": [[" `+first+`", false]]}`)
	if strings.TrimSpace(v["content"].(string)) == first {
		t.Errorf("%q was banned: %v", first, v)
	}
	_, v, _ = post(t, h.URL+"/completion", `{"prompt": "Once upon", "n_predict": 1, "temperature": 0, "logit_bias": {" `+first+`": -100}}`)
	if strings.TrimSpace(v["content"].(string)) == first {
		t.Errorf("%q was banned: %v", first, v)
	}
	if took := v["timings"].(map[string]any); took["predicted_n"] != 1.0 || took["predicted_per_second"] != 0.0 {
		t.Errorf("one token, which the prompt's time holds: %v", took)
	}
	for _, wrong := range []string{`{"n_predict": 1}`, `{"prompt": "a", "n_probs": 21}`, `{"prompt": "a", "logit_bias": [[1]]}`, `{"prompt": [1, "a", {}]}`, `{"prompt": "a", "logit_bias": [[1, true]]}`} {
		if code, v, _ := post(t, h.URL+"/completion", wrong); code != 400 {
			t.Errorf("%s: %d %v", wrong, code, v)
		}
	}
}

func TestOtherNames(t *testing.T) {
	h, _, _ := serving(t, Options{}, schedule.Options{})
	var list, models map[string]any
	if get(t, h.URL+"/models", &models); len(models["data"].([]any)) != 1 {
		t.Errorf("/models: %v", models)
	}
	if get(t, h.URL+"/v1/health", &list); list["status"] != "ok" {
		t.Errorf("/v1/health: %v", list)
	}
	code, v, _ := post(t, h.URL+"/chat/completions", `{"messages": [{"role": "user", "content": "a"}], "max_tokens": 2}`)
	if code != 200 || v["object"] != "chat.completion" {
		t.Errorf("/chat/completions: %d %v", code, v)
	}
	var props struct {
		Default struct {
			Context int `json:"n_ctx"`
		} `json:"default_generation_settings"`
		Slots    int    `json:"total_slots"`
		Template string `json:"chat_template"`
		EOS      string `json:"eos_token"`
	}
	if code := get(t, h.URL+"/props", &props); code != 200 || props.Default.Context != 256 || props.Slots != 2 || props.Template == "" || props.EOS == "" {
		t.Errorf("/props: %d %+v", code, props)
	}
	var slots []struct {
		Context int  `json:"n_ctx"`
		Busy    bool `json:"is_processing"`
	}
	if code := get(t, h.URL+"/slots?fail_on_no_slot=1", &slots); code != 200 || len(slots) != 2 || slots[0].Busy || slots[0].Context != 256 {
		t.Errorf("/slots: %d %+v", code, slots)
	}
	// Programs slice the digest and show the size.
	var tags struct {
		Models []struct {
			Digest  string
			Details struct {
				Size string `json:"parameter_size"`
			}
		}
	}
	get(t, h.URL+"/api/tags", &tags)
	if len(tags.Models) != 1 || len(tags.Models[0].Digest) != 64 || tags.Models[0].Details.Size != "1.5M" {
		t.Errorf("/api/tags: %+v", tags)
	}
	code, v, _ = post(t, h.URL+"/api/push", `{"model": "x"}`)
	if says, ok := v["error"].(string); code != 404 || !ok || !strings.Contains(says, "/api/push") {
		t.Errorf("/api/push: %d %v", code, v)
	}
	code, v, _ = post(t, h.URL+"/tokenize", `{"prompt": "a b", "with_pieces": true}`)
	if code != 200 || v["count"] != float64(len(v["tokens"].([]any))) || v["max_model_len"] != 256.0 {
		t.Errorf("/tokenize: %d %v", code, v)
	}
	if code, v, _ := post(t, h.URL+"/tokenize", `{}`); code != 400 {
		t.Errorf("/tokenize of nothing: %d %v", code, v)
	}
}
