package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/schedule"
)

// An echoed is what a completion says of its tokens.
type echoed struct {
	Text   string
	Finish string `json:"finish_reason"`
	Probs  *struct {
		Tokens  []string
		Values  []*float64           `json:"token_logprobs"`
		Top     []map[string]float64 `json:"top_logprobs"`
		Offsets []int                `json:"text_offset"`
	} `json:"logprobs"`
}

// echoes asks for a completion and returns its choices and how many tokens were chosen.
func echoes(t *testing.T, url, body string) ([]echoed, int) {
	t.Helper()
	code, v, _ := post(t, url+"/v1/completions", body)
	if code != 200 {
		t.Fatalf("%s: %d %v", body, code, v)
	}
	p, _ := json.Marshal(v)
	var all struct {
		Choices []echoed
		Usage   struct {
			Completion int `json:"completion_tokens"`
		}
	}
	if err := json.Unmarshal(p, &all); err != nil {
		t.Fatal(err)
	}
	return all.Choices, all.Usage.Completion
}

// likelihoods returns the logarithms of the probabilities of tokens behind the first, and of the
// most probable ones there, by an executor that reads them alone.
func likelihoods(t *testing.T, ids []int32) (own, best []float64) {
	t.Helper()
	m, err := checkpoint.Open("../../testdata/demo/model")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ex, err := exec.New(m, exec.Options{Threads: 1, Context: 256})
	if err != nil {
		t.Fatal(err)
	}
	defer ex.Close()
	seq, err := ex.NewSequence()
	if err != nil {
		t.Fatal(err)
	}
	err = seq.Prefill(context.Background(), ids, func(pos int, row []float32) error {
		if pos+1 == len(ids) {
			return nil
		}
		most, sum := float64(slices.Max(row)), 0.0
		for _, v := range row {
			sum += math.Exp(float64(v) - most)
		}
		own, best = append(own, float64(row[ids[pos+1]])-most-math.Log(sum)), append(best, -math.Log(sum))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return own, best
}

const echoText = "The old house stood at the end of the lane, and nobody had lived in it for years; the café — 日本 — was shut."

// With echo, logprobs are those of the prompt's tokens too, whoever else is served and whether
// the prompt is known from before.
func TestEchoLogprobs(t *testing.T) {
	h, s, _ := serving(t, Options{}, schedule.Options{PromptRows: 24})
	m, release, err := s.models.Get(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	release()
	ids, err := m.encode(echoText)
	if err != nil {
		t.Fatal(err)
	}
	own, best := likelihoods(t, ids)
	echo, _ := m.Tokenizer.Decode(ids, true)
	ask := func(more string) ([]echoed, int) {
		return echoes(t, h.URL, fmt.Sprintf(`{"prompt": %q, "echo": true, "temperature": 0, %s}`, echoText, more))
	}
	check := func(what string, c echoed, answer, top int) {
		p := c.Probs
		if p == nil || len(p.Tokens) != len(ids)+answer || len(p.Values) != len(p.Tokens) || len(p.Top) != len(p.Tokens) || len(p.Offsets) != len(p.Tokens) {
			t.Fatalf("%s: %+v", what, p)
		}
		if p.Values[0] != nil || p.Top[0] != nil || p.Offsets[0] != 0 {
			t.Errorf("%s: the first token has %v, %v, %d", what, p.Values[0], p.Top[0], p.Offsets[0])
		}
		for i, want := range own {
			got, most := *p.Values[1+i], math.Inf(-1)
			for _, v := range p.Top[1+i] {
				most = max(most, v)
			}
			if math.Abs(got-want) > 1e-12 || len(p.Top[1+i]) > top+1 || p.Top[1+i][p.Tokens[1+i]] < got || top > 0 && math.Abs(most-best[i]) > 1e-12 {
				t.Errorf("%s: token %d: %v and %v, want %v and %v", what, 1+i, got, p.Top[1+i], want, best[i])
			}
		}
		if text := []rune(c.Text); !strings.HasPrefix(c.Text, echo) || !slices.IsSorted(p.Offsets) || p.Offsets[len(ids)-1] > len([]rune(echo)) || p.Offsets[len(p.Offsets)-1] > len(text) {
			t.Errorf("%s: %q, offsets %v", what, c.Text, p.Offsets)
		} else {
			for i, token := range p.Tokens {
				if at := string(text[p.Offsets[i]:]); p.Offsets[i] > 0 && !strings.Contains(token, "\ufffd") && !strings.HasPrefix(at, token) && !m.Tokenizer.IsSpecial(ids[min(i, len(ids)-1)]) {
					t.Errorf("%s: token %d is %q and stands before %q", what, i, token, at)
				}
			}
		}
	}
	plain, _ := ask(`"max_tokens": 6`)
	if plain[0].Probs != nil {
		t.Errorf("without logprobs: %+v", plain[0].Probs)
	}
	var users sync.WaitGroup
	for i := range 6 { // the prompt is known by now; half come again beside others
		users.Go(func() {
			none, chosen := ask(`"max_tokens": 0, "logprobs": 1`)
			if check("no token", none[0], 0, 1); chosen != 0 || none[0].Text != echo || none[0].Finish != "length" {
				t.Errorf("no token: %d were chosen, %q, %s", chosen, none[0].Text, none[0].Finish)
			}
			if i%2 == 0 {
				return
			}
			one, chosen := ask(`"max_tokens": 1, "logprobs": 0, "n": 2`)
			if check("two choices", one[1], 1, 0); chosen != 2 {
				t.Errorf("two choices of a token: %d were chosen", chosen)
			}
			six, _ := ask(`"max_tokens": 6, "logprobs": 3`)
			if check("six tokens", six[0], 6, 3); six[0].Text != plain[0].Text {
				t.Errorf("with logprobs %q, without %q", six[0].Text, plain[0].Text)
			}
		})
	}
	users.Wait()
	list, _ := json.Marshal(ids)
	two, _ := echoes(t, h.URL, fmt.Sprintf(`{"prompt": [%s, [5]], "echo": true, "max_tokens": 0, "logprobs": 2}`, list))
	check("tokens", two[0], 0, 2)
	if p := two[1].Probs; len(p.Tokens) != 1 || p.Values[0] != nil {
		t.Errorf("of one token: %+v", p)
	}
}

// Streamed, it is the same.
func TestEchoStreams(t *testing.T) {
	h, _, _ := serving(t, Options{}, schedule.Options{})
	for _, tokens := range []int{0, 9} {
		body := fmt.Sprintf(`{"prompt": %q, "echo": true, "temperature": 0, "max_tokens": %d, "logprobs": 2`, echoText, tokens)
		whole, _ := echoes(t, h.URL, body+"}")
		res, err := http.Post(h.URL+"/v1/completions", "application/json", strings.NewReader(body+`, "stream": true}`))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var got echoed
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			data, ok := strings.CutPrefix(lines.Text(), "data: {")
			if !ok {
				continue
			}
			var c struct{ Choices []echoed }
			if err := json.Unmarshal([]byte("{"+data), &c); err != nil {
				t.Fatal(err)
			}
			one := c.Choices[0]
			if got.Text += one.Text; got.Probs == nil {
				got.Probs = one.Probs
				continue
			}
			p, q := got.Probs, one.Probs
			p.Tokens, p.Values, p.Top, p.Offsets = append(p.Tokens, q.Tokens...), append(p.Values, q.Values...), append(p.Top, q.Top...), append(p.Offsets, q.Offsets...)
			got.Finish = one.Finish
		}
		a, _ := json.Marshal(got)
		if b, _ := json.Marshal(whole[0]); string(a) != string(b) {
			t.Errorf("streamed\n%s\nwhole\n%s", a, b)
		}
	}
}

// What is not given is refused.
func TestEchoRefuses(t *testing.T) {
	h, _, _ := serving(t, Options{}, schedule.Options{})
	many, long := strings.Repeat(`"a",`, 15), strings.Repeat("5,", 20_000)
	for body, says := range map[string]string{
		`{"prompt": "a", "max_tokens": 0}`:                                           "echo",
		`{"prompt": "a", "max_tokens": 0, "logprobs": 1}`:                            "echo",
		`{"prompt": "a", "max_tokens": 0, "logprobs": 21, "echo": true}`:             "logprobs",
		`{"prompt": [` + many + `"a", "a"], "echo": true, "n": 2}`:                   "choices",
		`{"prompt": [` + long + `5], "echo": true, "logprobs": 20}`:                  "probabilities",
		`{"prompt": [` + long[:20_000] + `5], "echo": true, "logprobs": 20, "n": 2}`: "420042 probabilities",
	} {
		if code, v, _ := post(t, h.URL+"/v1/completions", body); code != 400 || !strings.Contains(fmt.Sprint(v), says) {
			t.Errorf("%s: %d %v", body, code, v)
		}
	}
}

// Where the tokenizer begins no text with a token of its own, texts may hold none at all.
func TestEmptyPrompts(t *testing.T) {
	m, err := checkpoint.Open("../../testdata/micro/qwen3")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tok, err := m.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	ex, err := exec.New(m, exec.Options{Threads: 1, Context: 56})
	if err != nil {
		t.Fatal(err)
	}
	defer ex.Close()
	sched := schedule.New(ex, schedule.Options{})
	defer sched.Close()
	h := httptest.NewServer(New(loadedModels(t, &Model{Info: Info{Name: "qwen3", Context: 56}, Tokenizer: tok, Scheduler: sched}), Options{}))
	defer h.Close()
	for _, c := range []struct{ path, body string }{
		{"/v1/completions", `{"prompt": ""}`},
		{"/v1/completions", `{"prompt": [["", ""]]}`},
		{"/v1/completions", `{"prompt": ["a", ["", ""]]}`},
		{"/v1/completions", `{"prompt": [["", ""]], "max_tokens": 0, "echo": true, "logprobs": 1}`},
		{"/completion", `{"prompt": [["", ""]]}`},
		{"/v1/embeddings", `{"input": ""}`},
		{"/v1/embeddings", `{"input": [["", ""]]}`},
	} {
		if code, v, _ := post(t, h.URL+c.path, c.body); code != 400 || !strings.Contains(fmt.Sprint(v), "is empty") {
			t.Errorf("%s: %s: %d %v", c.path, c.body, code, v)
		}
	}
	if code, v, _ := post(t, h.URL+"/v1/completions", `{"prompt": [["", 5]], "max_tokens": 1}`); code != 200 {
		t.Errorf("a token behind an empty text: %d %v", code, v)
	}
}
