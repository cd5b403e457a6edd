package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstf/nstf/runtime/serve/client"
)

// Talking to a server is talking to the model: the same answers, and the same commands.
func TestChatServer(t *testing.T) {
	s := serveIt(t, demoModel, "--ctx", "512")
	talk := func(input string, flags ...string) result {
		t.Helper()
		return invokeWith(context.Background(), strings.NewReader(input), append([]string{"chat", "--server", s.base, "--temperature", "0", "--max-tokens", "4"}, flags...)...)
	}
	// White space around an answer is left away by servers.
	bare := func(r result) string {
		var out []string
		for line := range strings.Lines(r.out) {
			out = append(out, strings.TrimSpace(line))
		}
		return strings.Join(out, "\n")
	}
	file := filepath.Join(t.TempDir(), "talk.json")
	for _, input := range []string{"Who is there?\n", "Who is there?\nTell me more of it.\n", "Go away.\n/clear\nWho is there?\n", "Who is there?\nGo away.\n/undo\nTell me more of it.\n", "/system Be brief.\nWho is there?\n"} {
		if got, want := talk(input), talkTo(t, input); got.code != 0 || bare(got) != bare(want) {
			t.Errorf("%q: exit %d, %q by the server, %q here\n%s", input, got.code, got.out, want.out, got.err)
		}
	}
	r := talk("/stats\nWho is there?\n/stats\n/save "+file+"\n/load "+file+"\n/nothing\n", "--system", "Be brief.")
	for _, want := range []string{"there was no answer yet", "of 512 positions", "known before", "3 messages", "unknown command /nothing"} {
		if !strings.Contains(r.err, want) {
			t.Errorf("%q is not said in:\n%s", want, r.err)
		}
	}
	if p, err := os.ReadFile(file); err != nil || !strings.Contains(string(p), "Be brief.") || !strings.Contains(string(p), "assistant") {
		t.Errorf("saved: %s %v", p, err)
	}
	if got, want := talk("", "-p", "Who is there?", "--stats"), talk("Who is there?\n"); bare(got) != bare(want) || !strings.Contains(got.err, "first token") {
		t.Errorf("-p answers %q, a conversation %q; %s", got.out, want.out, got.err)
	}
	talk(strings.Repeat("word ", 2000)+"\n").fails(t, exitFailure, "positions")
	talk("x\n", "--server", "127.0.0.1:8080").fails(t, exitUsage, "--server")
	talk("x\n", "--server", "http://127.0.0.1:1").fails(t, exitFailure, "127.0.0.1:1")
	invoke("chat").fails(t, exitUsage, "--server")
	invoke("chat", "x.nstf").fails(t, exitUsage, "nstf run x.nstf --chat")
	talk("x\n", "-p", "a", "-f", "b").fails(t, exitUsage, "-p and -f")
}

// Reasoning is shown beside the answer, and a stream that breaks off is an error.
func TestChatServerReasons(t *testing.T) {
	end := "data: [DONE]\n\n"
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error": {"message": "no key"}}`)
			return
		}
		if r.URL.Path == "/v1/models" {
			fmt.Fprint(w, `{"data": [{"id": "a"}, {"id": "b"}]}`)
			return
		}
		var q client.Request
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil || q.Model != "b" || !q.Stream {
			t.Errorf("%+v %v", q, err)
		}
		fmt.Fprint(w, "data: {\"choices\": [{\"delta\": {\"reasoning_content\": \"Hm\"}}]}\n\n: alive\n\ndata: {\"choices\": [{\"delta\": {\"content\": \"Yes\"}, \"finish_reason\": \"stop\"}]}\n\n"+end)
	}))
	defer h.Close()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"chat", "--server", h.URL + "/v1/", "--key-file", key, "--server-model", "b", "-p", "Is it?"}
	if r := invoke(args...); r.code != 0 || r.out != "Yes\n" || !strings.Contains(r.err, "(reasoning)\nHm\n(answer)") {
		t.Errorf("exit %d, %q, %q", r.code, r.out, r.err)
	}
	if r := invoke(append(args, "--no-reasoning")...); r.out != "Yes\n" || strings.Contains(r.err, "Hm") {
		t.Errorf("%q, %q", r.out, r.err)
	}
	invoke("chat", "--server", h.URL, "-p", "x").fails(t, exitFailure, "no key")
	end = ""
	invoke(args...).fails(t, exitFailure, "broke off")
}

func TestBenchServer(t *testing.T) {
	s := serveIt(t, demoModel, "--ctx", "256")
	r := invoke("bench", "--server", s.base, "--concurrency", "1,4", "--rate", "50", "--prompts", "20,40", "--gen", "6", "--requests", "6", "--server-model", "model", "--json")
	var all []client.Figures
	if err := json.Unmarshal([]byte(r.out), &all); r.code != 0 || err != nil || len(all) != 3 {
		t.Fatalf("exit %d, %v, %s %s", r.code, err, r.out, r.err)
	}
	for i, f := range all {
		if f.Requests != 6 || f.Failed != 0 || f.PromptTokens != 180 || f.Tokens != 36 || !(f.TokenRate > 0) || !(f.FirstToken.P50 > 0 && f.FirstToken.P50 <= f.FirstToken.P99) || !(f.Whole.P50 >= f.FirstToken.P50) {
			t.Errorf("%d: %+v", i, f)
		}
	}
	if all[1].Concurrency != 4 || all[2].Rate != 50 {
		t.Errorf("%+v", all)
	}
	if r := invoke("bench", "--server", s.base, "--concurrency", "2", "--prompt", "8", "--gen", "2"); r.code != 0 || !strings.Contains(r.out, "2 at once") || !strings.Contains(r.out, "first token") {
		t.Errorf("exit %d: %s %s", r.code, r.out, r.err)
	}
	r = invoke("bench", "--server", s.base, "--concurrency", "2", "--ramp", "100ms", "--requests", "60", "--prompt", "8", "--gen", "2", "--json")
	if err := json.Unmarshal([]byte(r.out), &all); r.code != 0 || err != nil || len(all) != 1 || all[0].Ramp != 0.1 || all[0].Ramped < 1 || all[0].Failed != 0 {
		t.Errorf("exit %d, %v, %s %s", r.code, err, r.out, r.err)
	}
	for _, c := range []struct{ flags, says string }{
		{"--server " + s.base, "--concurrency or --rate"},
		{"--server " + s.base + " --rate 3 --ramp 1s", "--ramp"},
		{"--ramp 1s", "--server"},
		{"--rate 3", "--server"},
		{"--server " + s.base + " --rate 0", "--rate"},
		{"--server " + s.base + " --concurrency 0", "--concurrency"},
		{"--server " + s.base + " --concurrency 1 --gen 0", "--gen"},
		{"--server " + s.base + " --concurrency 1 --exact", "as it is"},
		{"x.nstf --server " + s.base + " --concurrency 1", "as it is"},
	} {
		invoke(append([]string{"bench"}, strings.Fields(c.flags)...)...).fails(t, exitUsage, c.says)
	}
	invoke("bench", "--server", s.base, "--concurrency", "1", "--prompt", "300", "--gen", "2").fails(t, exitFailure, "requests failed")
}
