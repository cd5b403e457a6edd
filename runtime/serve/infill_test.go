package serve

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/tokenizer"
	"github.com/nstf/nstf/runtime/schedule"
)

// Gaps are filled in by the tokens that the vocabulary has for it, in each protocol.
func TestInfill(t *testing.T) {
	h, s, _ := serving(t, Options{}, schedule.Options{})
	m, release, err := s.models.Get(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	asks := map[string]string{
		"/v1/completions": `{"prompt": "def f(", "suffix": ")", "max_tokens": 8}`,
		"/api/generate":   `{"prompt": "def f(", "suffix": ")", "options": {"num_predict": 8}, "stream": false}`,
		"/infill":         `{"input_prefix": "def f(", "input_suffix": ")", "n_predict": 8, "input_extra": [{"text": "x", "filename": "a.py"}], "id_slot": 0, "n_indent": 2, "samplers": ["top_k", "infill"], "t_max_predict_ms": 500}`,
	}
	for path, body := range asks {
		if code, v, _ := post(t, h.URL+path, body); code != 400 || !strings.Contains(fmt.Sprint(v), "fills in no texts") {
			t.Errorf("%s of a model that cannot: %d %v", path, code, v)
		}
	}

	c, err := checkpoint.Open("../../testdata/demo/model")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	vocab, ok := c.File("tokenizer.json")
	if !ok {
		t.Fatal("the demo has no tokenizer")
	}
	names := strings.NewReplacer("<|im_start|>", "<|fim_prefix|>", "<|im_end|>", "<|fim_suffix|>", "<|end_of_text|>", "<|fim_middle|>").Replace(string(vocab))
	if m.Tokenizer, err = tokenizer.FromFiles("fills", tokenizer.Files{JSON: []byte(names), Config: []byte(`{"bos_token":"<|begin_of_text|>"}`)}); err != nil {
		t.Fatal(err)
	}
	plain := func(text string) []int32 {
		ids, err := m.Tokenizer.Encode(text, tokenizer.EncodeOptions{NoSpecial: true, NoParseSpecial: true})
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
	const begin, middle, prefix, suffix = 0, 1, 2, 3 // of the demo's vocabulary
	long := strings.Repeat("the old house ", 400)
	all := plain(long)
	room := 256 - usualMiddle/4 - 8
	for _, c := range []struct {
		gap  gap
		want []int32
	}{
		{gap{prefix: "def f(<|fim_middle|>", suffix: "):"}, slices.Concat([]int32{begin, prefix}, plain("def f(<|fim_middle|>"), []int32{suffix}, plain("):"), []int32{middle})},
		{gap{prefix: "a", suffix: "b", begun: "c", files: []gapFile{{"text", "name"}}}, slices.Concat([]int32{begin}, plain("text\n\n"), []int32{prefix}, plain("a"), []int32{suffix}, plain("b"), []int32{middle}, plain("c"))},
		{gap{prefix: long, suffix: long, files: []gapFile{{long, "name"}}, cut: true}, slices.Concat([]int32{begin, prefix}, all[len(all)-(room-room/4):], []int32{suffix}, all[:room/4], []int32{middle})},
		{gap{prefix: long, suffix: "b", cut: true}, slices.Concat([]int32{begin, prefix}, all[len(all)-(room-len(plain("b"))):], []int32{suffix}, plain("b"), []int32{middle})},
	} {
		turn, err := m.fill(&c.gap, "suffix", settings{n: 1, maxTokens: usualMiddle / 4})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(turn.prompt, c.want) {
			t.Errorf("%.40q %.40q: %v, want %v", c.gap.prefix, c.gap.suffix, turn.prompt, c.want)
		}
		if !slices.Contains(turn.stops(), prefix) {
			t.Error("another gap does not end a middle")
		}
	}
	fills := m.Tokenizer
	// Of a vocabulary that knows repositories and files; ids that the model has no rows for.
	more := strings.Replace(names, `"added_tokens": [`, `"added_tokens": [{"id": 4096, "content": "<|repo_name|>", "special": true}, {"id": 4097, "content": "<|file_sep|>", "special": true},`, 1)
	if m.Tokenizer, err = tokenizer.FromFiles("knows files", tokenizer.Files{JSON: []byte(more), Config: []byte(`{"bos_token":"<|begin_of_text|>"}`)}); err != nil {
		t.Fatal(err)
	}
	const repository, file = 4096, 4097
	name := func(text string) []int32 { return append([]int32{file}, plain(text+"\n")...) }
	head, own := append([]int32{begin, repository}, plain("repository\n")...), name("file")
	tail := slices.Concat(own, []int32{prefix}, plain("p"), []int32{suffix}, plain("s"), []int32{middle})
	left := room - len(head) + 1 - len(own) - len(plain("p")) - len(plain("s"))
	short := gapFile{"short", "b.py"}
	whole := slices.Concat(name("b.py"), plain("short"))
	for _, c := range []struct {
		gap  gap
		want []int32
	}{
		{gap{prefix: "p", suffix: "s", files: []gapFile{{"text", "a.py"}, short}}, slices.Concat(head, name("a.py"), plain("text"), whole, tail)},
		{gap{prefix: "p", suffix: "s", files: []gapFile{{"text", "a.py"}, short}, cut: true}, slices.Concat(head, name("a.py"), plain("text"), whole, tail)},
		{gap{prefix: "p", suffix: "s", files: []gapFile{{"lost", "a.py"}, {long, "c.py"}, short}, cut: true},
			slices.Concat(head, name("c.py"), all[len(all)-(left-len(whole)-len(name("c.py"))):], whole, tail)},
		{gap{prefix: long, suffix: long, files: []gapFile{{long, "c.py"}}, cut: true},
			slices.Concat([]int32{begin, prefix}, all[len(all)-(left+2-(left+2)/4):], []int32{suffix}, all[:(left+2)/4], []int32{middle})},
	} {
		turn, err := m.fill(&c.gap, "suffix", settings{n: 1, maxTokens: usualMiddle / 4})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(turn.prompt, c.want) {
			t.Errorf("%.40q of files: %v, want %v", c.gap.prefix, turn.prompt, c.want)
		}
	}
	m.Tokenizer = fills
	for path, body := range asks {
		code, v, _ := post(t, h.URL+path, body)
		if text := lookUp(v, "choices.0.text") + lookUp(v, "response") + lookUp(v, "content"); code != 200 || text == "" {
			t.Errorf("%s: %d %v", path, code, v)
		}
	}
	if code, v, _ := post(t, h.URL+"/v1/completions", `{"prompt": [1, 2], "suffix": ")"}`); code != 400 {
		t.Errorf("a prompt of tokens: %d %v", code, v)
	}
}

// What operators and programs try beside.
func TestSmallThings(t *testing.T) {
	h, _, _ := serving(t, Options{MaxBody: 1 << 12}, schedule.Options{})
	packed := func(text string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write([]byte(text))
		z.Close()
		return b.String()
	}
	for _, c := range []struct {
		path, body, coding string
		status             int
		says               string
	}{
		{"/tokenize", packed(`{"content": "a"}`), "gzip", 200, "tokens"},
		{"/tokenize", packed(`{"content": "a"}`), "X-GZip", 200, "tokens"},
		{"/tokenize", packed(`{"content": "` + strings.Repeat("a", 1<<20) + `"}`), "gzip", 413, "4096"},
		{"/tokenize", `{"content": "a"}`, "gzip", 400, "gzip"},
		{"/tokenize", `{"content": "a"}`, "zstd", 415, "zstd"},
		{"/v1/messages/batches", `{"requests": []}`, "", 404, "type:not_found_error"},
		{"/api/pull", `{"model": "demo", "stream": false}`, "", 200, "success"},
		{"/api/pull", `{"name": "demo"}`, "", 200, "success"},
		{"/api/pull", `{"model": "llama3"}`, "", 404, `there is no model "llama3" here, and none is fetched`},
		{"/v1/chat/completions", `{"messages": [{"role": "developer", "content": [{"type": "text", "text": "a"}]}, {"role": "user", "content": "b"}], "max_tokens": 2, "max_completion_tokens": null, "stream": null, "tools": [], "tool_choice": null, "n": null, "stop": null, "parallel_tool_calls": true, "service_tier": "auto", "store": false, "metadata": {}, "user": "u", "prompt_cache_key": "k", "verbosity": "low", "unknown": 1}`, "", 200, "choices"},
	} {
		headers := []string{"Content-Type", "application/json"}
		if c.coding != "" {
			headers = append(headers, "Content-Encoding", c.coding)
		}
		code, v, _ := post(t, h.URL+c.path, c.body, headers...)
		if said := fmt.Sprint(v); code != c.status || !strings.Contains(said, c.says) {
			t.Errorf("%s %.60q: %d %s, want %d with %q", c.path, c.body, code, said, c.status, c.says)
		} else if strings.HasPrefix(c.path, "/v1/messages") && v["type"] != "error" {
			t.Errorf("%s: %s is not Anthropic's", c.path, said)
		}
	}
	res, err := http.Head(h.URL + "/v1/models/demo")
	if err != nil || res.StatusCode != 200 {
		t.Errorf("HEAD: %v %v", res, err)
	}
	r, _ := http.NewRequest("POST", h.URL+"/tokenize", strings.NewReader(`{"content": "a"}`))
	r.Header.Set("Expect", "100-continue")
	if res, err := http.DefaultClient.Do(r); err != nil || res.StatusCode != 200 {
		t.Errorf("Expect: %v %v", res, err)
	}
}
