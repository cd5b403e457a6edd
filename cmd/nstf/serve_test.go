package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/model"
)

func TestServeRefuses(t *testing.T) {
	dir := t.TempDir()
	keyless := filepath.Join(dir, "keys")
	if err := os.WriteFile(keyless, []byte("# none\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	demo := demoModel
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{nil, exitUsage, "usage"},
		{[]string{demo, "--listen", "0.0.0.0:0"}, exitUsage, "--keys"},
		{[]string{demo, "--listen", ":0"}, exitUsage, "--keys"},
		{[]string{demo, "--listen", "[::]:0"}, exitUsage, "--keys"},
		{[]string{demo, "--listen", "192.0.2.1:0"}, exitUsage, "--keys"},
		{[]string{demo, "--listen", "localhost.example.org:0"}, exitUsage, "--keys"},
		{[]string{demo, "--listen", "8080"}, exitUsage, "address"},
		{[]string{demo, "--tls-cert", "x"}, exitUsage, "--tls-key"},
		{[]string{demo, "--parallel", "0"}, exitUsage, "--parallel"},
		{[]string{demo, "--keys", keyless}, exitInput, "no key"},
		{[]string{demo, "--keys", dir}, exitInput, dir},
		{[]string{demo, "--listen", "127.0.0.1:0", "--device", "cpu", demo}, exitUsage, "two models"},
		{[]string{filepath.Join(dir, "none.nstf"), "--listen", "127.0.0.1:0"}, exitInput, "none.nstf"},
	} {
		invoke(append([]string{"serve"}, c.args...)...).fails(t, c.code, c.says)
	}
}

// A served is a server that runs in this process.
type served struct {
	a     *app
	base  string
	ended chan int // takes its exit code
}

// serveIt starts a server, which ends with the test.
func serveIt(t *testing.T, args ...string) *served {
	t.Helper()
	r, w := io.Pipe()
	ctx, cancel := context.WithCancelCause(context.Background())
	s := &served{a: &app{in: strings.NewReader(""), out: io.Discard, err: w, interrupts: &interrupts{cancel: cancel}}, ended: make(chan int, 1)}
	go func() {
		s.ended <- s.a.run(ctx, append([]string{"serve", "--listen", "127.0.0.1:0", "--device", "cpu", "--threads", "1"}, args...))
		w.Close()
	}()
	said := ""
	for lines := bufio.NewScanner(r); s.base == ""; {
		if !lines.Scan() {
			t.Fatalf("the server does not begin: %s", said)
		}
		said += lines.Text() + "\n"
		_, s.base, _ = strings.Cut(lines.Text(), "listening on ")
	}
	go io.Copy(io.Discard, r)
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel(nil)
	})
	return s
}

// A signal lets answers end, and has those who come told when to come again.
func TestServeDrains(t *testing.T) {
	server := serveIt(t, demoModel, "--ctx", "1024")
	base, a, ended := server.base, server.a, server.ended
	post := func() *http.Response {
		res, err := http.Post(base+"/v1/completions", "application/json", strings.NewReader(`{"prompt": "Once", "max_tokens": 900, "stream": true, "ignore_eos": true}`))
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	first := post()
	if a.interrupts.signal(false) {
		t.Fatal("the first signal ends the server at once")
	}
	time.Sleep(10 * time.Millisecond)
	second := post()
	if second.StatusCode != http.StatusServiceUnavailable || second.Header.Get("Retry-After") == "" {
		t.Errorf("who comes late gets %d", second.StatusCode)
	}
	second.Body.Close()
	p, err := io.ReadAll(first.Body)
	if err != nil || !strings.HasSuffix(string(p), "data: [DONE]\n\n") {
		t.Errorf("the answer was cut off: %v, %d bytes", err, len(p))
	}
	first.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	select {
	case code := <-ended:
		if code != 0 {
			t.Errorf("exit code %d", code)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the server does not end")
	}
}

func TestServeHints(t *testing.T) {
	for _, c := range []struct {
		scheme, addr string
		keys         bool
		says         []string
	}{
		{"http", "127.0.0.1:8080", false, []string{"open http://127.0.0.1:8080/\n", "http://127.0.0.1:8080/v1 (", "curl http://127.0.0.1:8080/v1/chat/completions -d '{"}},
		{"https", "[::]:1", true, []string{"open https://127.0.0.1:1/\n", `completions -H "Authorization: Bearer KEY" -d`}},
		{"http", "[::1]:2", false, []string{"open http://[::1]:2/\n"}},
	} {
		for _, says := range c.says {
			if got := hints(c.scheme, c.addr, c.keys); !strings.Contains(got, says) {
				t.Errorf("%s: %s does not say %q", c.addr, got, says)
			}
		}
	}
}

// A folder of models is served under their names and aliases, each loaded when it is asked for.
func TestServeFolder(t *testing.T) {
	dir := t.TempDir()
	micro, err := filepath.Abs("../../testdata/micro")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"llama-2", "qwen3"} {
		if err := os.Symlink(filepath.Join(micro, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"broken.nstf": "no package", "notes.txt": "no model"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := serveIt(t, dir, "--alias", "first", "--alias", "zwei=qwen3,drei="+filepath.Join(dir, "qwen3"), "--idle", "1h", "--memory", "1GiB")
	get := func(path string) string {
		t.Helper()
		res, err := http.Get(s.base + path)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		p, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != 200 {
			t.Fatalf("%s: %d %s %v", path, res.StatusCode, p, err)
		}
		return string(p)
	}
	if list := get("/v1/models"); !strings.Contains(list, `"id":"llama-2"`) || !strings.Contains(list, `"id":"qwen3"`) || strings.Contains(list, "broken") || strings.Contains(list, `"loaded":true`) {
		t.Errorf("the list is %s", list)
	}
	if ps := get("/api/ps"); strings.Contains(ps, "llama-2") {
		t.Errorf("something is loaded: %s", ps)
	}
	for name, of := range map[string]string{"first": "llama-2", "zwei": "qwen3", "drei": "qwen3"} {
		res, err := http.Post(s.base+"/v1/completions", "application/json", strings.NewReader(`{"model": "`+name+`", "prompt": [5, 6], "max_tokens": 2}`))
		if err != nil {
			t.Fatal(err)
		}
		p, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != 200 || !strings.Contains(string(p), `"model":"`+of+`"`) {
			t.Errorf("%s: %d %s", name, res.StatusCode, p)
		}
	}
	if ps := get("/api/ps"); !strings.Contains(ps, "llama-2") || !strings.Contains(ps, "qwen3") {
		t.Errorf("loaded are %s", ps)
	}
	empty := t.TempDir()
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{empty}, exitInput, "no model"},
		{[]string{dir, "--alias", "x=nobody"}, exitUsage, "names no model"},
		{[]string{dir, "--alias", "qwen3"}, exitUsage, "of that name"},
		{[]string{dir, "--memory", "much"}, exitUsage, "--memory"},
		{[]string{dir, "--idle", "-1s"}, exitUsage, "negative"},
		{[]string{filepath.Join(dir, "broken.nstf")}, exitInput, "broken.nstf"},
	} {
		invoke(append([]string{"serve", "--listen", "127.0.0.1:0"}, c.args...)...).fails(t, c.code, c.says)
	}
}

// How embeddings are pooled travels with the model.
func TestPoolingTravels(t *testing.T) {
	dir := t.TempDir()
	from := filepath.Join(dir, "model")
	if err := copyFiles(from, filepath.Join(micro, "llama-2")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(from, "1_Pooling"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, "1_Pooling", "config.json"), []byte(`{"pooling_mode_mean_tokens": true}`), 0o666); err != nil {
		t.Fatal(err)
	}
	packed, back := filepath.Join(dir, "model.nstf"), filepath.Join(dir, "back")
	must(t, "convert", from, "-o", packed)
	must(t, "export", packed, "-o", back+"/")
	for _, path := range []string{from, packed, back} {
		m, err := checkpoint.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if p, told, err := m.Pooling(); p != model.PoolMean || !told || err != nil {
			t.Errorf("%s: %q %v %v", path, p, told, err)
		}
		m.Close()
	}
}

// A server's logprobs of a prompt are what eval sums up.
func TestServeScoresAsEval(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text.txt")
	said := strings.Repeat("The old house stood at the end of the lane. ", 3)
	if err := os.WriteFile(text, []byte(said), 0o600); err != nil {
		t.Fatal(err)
	}
	figures := evaluate(t, demoModel, "--text", text, "--ctx", "2048", "--device", "cpu")
	server := serveIt(t, demoModel, "--ctx", "2048")
	body, _ := json.Marshal(map[string]any{"prompt": said, "echo": true, "logprobs": 0, "max_tokens": 0})
	res, err := http.Post(server.base+"/v1/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var answer struct {
		Choices []struct {
			Logprobs struct {
				Values []*float64 `json:"token_logprobs"`
			}
		}
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	sum, values := 0.0, answer.Choices[0].Logprobs.Values[1:]
	for _, v := range values {
		sum -= *v
	}
	if mean := sum / float64(len(values)); len(values) != figures.Scored || math.Abs(mean-figures.NLL.Value) > 1e-12 {
		t.Errorf("%v of %d tokens by the server, %+v by eval", mean, len(values), figures)
	}
}
