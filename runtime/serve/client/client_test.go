package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A fake answers each completion with three tokens, the last of which is no text, after a
// while; every failing-th request fails.
type fake struct {
	now, most, all atomic.Int32
	wait           time.Duration
	failing        int32
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body) // only then does a server see that a client goes
	n := f.all.Add(1)
	now := f.now.Add(1)
	defer f.now.Add(-1)
	for most := f.most.Load(); now > most && !f.most.CompareAndSwap(most, now); most = f.most.Load() {
	}
	select {
	case <-time.After(f.wait):
	case <-r.Context().Done():
	}
	if f.failing > 0 && n%f.failing == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"error": {"message": "busy", "code": "later"}}`)
		return
	}
	fmt.Fprint(w, "data: {\"choices\": [{\"text\": \"a\"}]}\n\ndata: {\"choices\": [{\"text\": \"b\", \"finish_reason\": \"length\"}]}\n\n")
	fmt.Fprint(w, "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 5, \"completion_tokens\": 3, \"prompt_tokens_details\": {\"cached_tokens\": 2}}}\n\ndata: [DONE]\n\n")
}

func TestMeasure(t *testing.T) {
	prompt := func(i int) []int32 { return []int32{int32(i)} }
	for _, c := range []struct {
		name        string
		load        Load
		least, most int32 // under way at once
	}{
		{"closed", Load{Concurrency: 3, Requests: 12}, 2, 3},
		{"ramp", Load{Concurrency: 4, Requests: 28, Ramp: 200 * time.Millisecond}, 2, 4},
		{"open", Load{Rate: 2000, Requests: 40}, 8, 40},
		{"open, bounded", Load{Rate: 2000, Requests: 20, Concurrency: 4}, 2, 4},
	} {
		f := &fake{wait: 40 * time.Millisecond, failing: 5}
		h := httptest.NewServer(f)
		c.load.Prompt, c.load.Gen = prompt, 3
		told := atomic.Int32{}
		got, err := (&Client{Base: h.URL}).Measure(t.Context(), c.load, func() { told.Add(1) })
		h.Close()
		n := c.load.Requests
		failed := n / 5
		if err != nil || got.Failed != failed || got.Tokens != 3*(n-failed) || got.PromptTokens != 5*(n-failed) || got.CachedTokens != 2*(n-failed) || int(told.Load()) != n || !strings.Contains(got.Error, "busy") {
			t.Errorf("%s: %+v %v", c.name, got, err)
		}
		if most := f.most.Load(); most < c.least || most > c.most {
			t.Errorf("%s: %d were under way at once", c.name, most)
		}
		// Users arrive in the ramp, and go on behind it.
		if ramped := got.Ramped; (c.load.Ramp > 0) != (ramped >= 3) || ramped >= n-failed {
			t.Errorf("%s: %d requests began in the ramp", c.name, ramped)
		}
		// The time of who waits for a place counts from when he was due.
		if got.FirstToken.P50 < 40 || got.Whole.P99 < got.FirstToken.P50 || !(got.TokenRate > 0 && got.RequestRate > 0) || c.load.Rate > 0 && c.load.Concurrency > 0 && got.FirstToken.P99 < 100 {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	f := &fake{wait: time.Minute}
	h := httptest.NewServer(f)
	defer h.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := (&Client{Base: h.URL}).Measure(ctx, Load{Rate: 100, Requests: 1000, Prompt: prompt}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it went on: %v", err)
	}
}

func TestAnswerFails(t *testing.T) {
	body, status := "", 200
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	defer h.Close()
	c := &Client{Base: h.URL + "/v1"}
	for _, x := range []struct {
		status     int
		body, says string
	}{
		{400, `{"error": {"message": "too long", "code": "context_length_exceeded"}}`, "too long"},
		{404, `{"error": "no model"}`, "no model"},
		{502, ``, "Bad Gateway"},
		{200, "data: {\"error\": {\"message\": \"the device is lost\"}}\n\n", "the device is lost"},
		{200, "data: {\"choices\": [{\"text\": \"a\"}]}\n\n", "broke off"},
		{200, "data: nothing\n\n", "no JSON"},
		{200, "data: " + strings.Repeat("x", mostLine+1), "too long"},
	} {
		status, body = x.status, x.body
		_, err := c.Answer(t.Context(), Request{Messages: []Message{{"user", "a"}}}, func(Delta) error { return nil })
		var told *ServerError
		if err == nil || !strings.Contains(err.Error(), x.says) || x.status != 200 && (!errors.As(err, &told) || told.Status != x.status) {
			t.Errorf("%d %.60s: %v", x.status, x.body, err)
		}
	}
	status, body = 200, "data: {\"choices\": [{\"text\": \"a\"}]}\n\ndata: {\"choices\": [{\"text\": \"b\"}]}\n\ndata: [DONE]\n\n"
	enough := errors.New("enough")
	n := 0
	if r, err := c.Answer(t.Context(), Request{Prompt: []int32{1}}, func(Delta) error { n++; return enough }); !errors.Is(err, enough) || n != 1 || r.Tokens != 1 {
		t.Errorf("%v, %d pieces, %+v", err, n, r)
	}
}
