package serve

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/schedule"
)

// The vectors that are served are transformers', pooled as the model says.
func TestEmbeddings(t *testing.T) {
	var cases []struct {
		Model             string
		IDs               []int32
		Mean, Last, First []float64
	}
	p, err := os.ReadFile("../../testdata/embeddings/reference.json")
	if err == nil {
		err = json.Unmarshal(p, &cases)
	}
	if err != nil {
		t.Fatal(err)
	}
	served := 0
	for _, name := range []string{"llama-2", "gemma2"} {
		m, err := checkpoint.Open("../../testdata/micro/" + name)
		if err != nil {
			t.Fatal(err)
		}
		tok, err := m.Tokenizer()
		if err != nil {
			t.Fatal(err)
		}
		ex, err := exec.New(m, exec.Options{Threads: 1, Context: 56, Sequences: 2, Exact: true})
		if err != nil {
			t.Fatal(err)
		}
		sched := schedule.New(ex, schedule.Options{})
		for _, pool := range []model.Pooling{"", model.PoolMean, model.PoolFirst} {
			h := httptest.NewServer(New(loadedModels(t, &Model{Info: Info{Name: name, Context: 56}, Tokenizer: tok, Scheduler: sched, Pooling: pool}), Options{}))
			var inputs []string
			var want [][]float64
			for _, c := range cases {
				if c.Model == name {
					ids, _ := json.Marshal(c.IDs)
					inputs = append(inputs, string(ids))
					want = append(want, map[model.Pooling][]float64{"": c.Last, model.PoolMean: c.Mean, model.PoolFirst: c.First}[pool])
				}
			}
			for _, encoding := range []string{"float", "base64"} {
				code, v, _ := post(t, h.URL+"/v1/embeddings", fmt.Sprintf(`{"input": [%s], "encoding_format": %q}`, strings.Join(inputs, ","), encoding))
				if code != 200 {
					t.Fatalf("%s: %d %v", name, code, v)
				}
				for i, d := range v["data"].([]any) {
					got := numbers(t, d.(map[string]any)["embedding"])
					if len(got) != len(want[i]) {
						t.Fatalf("%s: %d numbers of %d", name, len(got), len(want[i]))
					}
					for k := range got {
						if math.Abs(got[k]-want[i][k]) > 2e-4 {
							t.Fatalf("%s, pooled %q, text %d: element %d is %v, not %v", name, pool, i, k, got[k], want[i][k])
						}
					}
					served++
				}
			}
			// The others say the same, in their words.
			_, v, _ := post(t, h.URL+"/v1/embeddings", `{"input": ["a", "a b c"]}`)
			same := numbers(t, v["data"].([]any)[1].(map[string]any)["embedding"])
			_, v, _ = post(t, h.URL+"/api/embed", `{"model": "m", "input": ["a", "a b c"]}`)
			check(t, "/api/embed", numbers(t, v["embeddings"].([]any)[1]), same)
			_, v, _ = post(t, h.URL+"/api/embeddings", `{"model": "m", "prompt": "a b c"}`)
			check(t, "/api/embeddings", numbers(t, v["embedding"]), same)
			for _, path := range []string{"/embedding", "/embeddings"} {
				var list []struct{ Embedding [][]float64 }
				postInto(t, h.URL+path, `{"content": "a b c"}`, &list)
				check(t, path, list[0].Embedding[0], same)
			}
			_, v, _ = post(t, h.URL+"/v1/embeddings", `{"input": "a b c", "dimensions": 5}`)
			cut := append([]float64(nil), same[:5]...)
			normalise(cut)
			check(t, "dimensions", numbers(t, v["data"].([]any)[0].(map[string]any)["embedding"]), cut)
			long := strings.Repeat("a b ", 100)
			if code, v, _ := post(t, h.URL+"/v1/embeddings", `{"input": "`+long+`"}`); code != 400 {
				t.Errorf("too long a text: %d %v", code, v)
			}
			if code, v, _ := post(t, h.URL+"/api/embed", `{"input": "`+long+`"}`); code != 200 || v["prompt_eval_count"] != 56.0 {
				t.Errorf("too long a text, cut: %d %v", code, v)
			}
			for _, wrong := range []string{`{}`, `{"input": []}`, `{"input": 3}`, `{"input": "a", "encoding_format": "hex"}`, `{"input": "a", "dimensions": -1}`, `{"input": "a", "dimensions": 100000}`, `{"input": [[-5]]}`} {
				if code, v, _ := post(t, h.URL+"/v1/embeddings", wrong); code != 400 {
					t.Errorf("%s: %d %v", wrong, code, v)
				}
			}
			h.Close()
		}
		sched.Close()
		ex.Close()
		m.Close()
	}
	if served != 2*3*3*2 {
		t.Errorf("%d vectors were compared", served)
	}
}

func check(t *testing.T, what string, got, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d numbers, want %d", what, len(got), len(want))
		return
	}
	for i := range got {
		if math.Abs(got[i]-want[i]) > 1e-6 {
			t.Errorf("%s: element %d is %v, want %v", what, i, got[i], want[i])
			return
		}
	}
}

// numbers returns an embedding's.
func numbers(t *testing.T, v any) (out []float64) {
	t.Helper()
	if s, ok := v.(string); ok {
		p, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		for ; len(p) >= 4; p = p[4:] {
			out = append(out, float64(math.Float32frombits(binary.LittleEndian.Uint32(p))))
		}
		return out
	}
	for _, x := range v.([]any) {
		out = append(out, x.(float64))
	}
	return out
}

// postInto decodes an answer that is no object.
func postInto(t *testing.T, url, body string, v any) {
	t.Helper()
	res, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(v); err != nil || res.StatusCode != 200 {
		t.Fatalf("%s: %d %v", url, res.StatusCode, err)
	}
}
