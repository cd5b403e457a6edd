package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/sample"
	"github.com/nstf/nstf/runtime/schedule"
)

// loads counts what is loaded.
type loads struct{ now, most, all atomic.Int32 }

// micro is a source of a micro checkpoint of 100 bytes, say.
func micro(n *loads, name string, aliases ...string) Source {
	info := Info{Name: name, Aliases: aliases, Bytes: 100, Context: 48}
	return Source{Info: info, Load: func() (*Model, func(), error) {
		m, err := checkpoint.Open("../../testdata/micro/" + name)
		if err != nil {
			return nil, nil, err
		}
		tok, err := m.Tokenizer()
		if err != nil {
			return nil, nil, err
		}
		ex, err := exec.New(m, exec.Options{Threads: 1, Context: 48, Sequences: 4})
		if err != nil {
			return nil, nil, err
		}
		sched := schedule.New(ex, schedule.Options{})
		n.all.Add(1)
		if now := n.now.Add(1); now > n.most.Load() {
			n.most.Store(now)
		}
		time.Sleep(5 * time.Millisecond)
		return &Model{Info: info, Tokenizer: tok, Scheduler: sched, Sampling: sample.Options{Temperature: 1, TopP: 1, RepetitionPenalty: 1}}, func() {
			sched.Close()
			ex.Close()
			m.Close()
			n.now.Add(-1)
		}, nil
	}}
}

// loaded returns the names of what /api/ps tells.
func loaded(t *testing.T, base string) (names []string) {
	t.Helper()
	var v struct{ Models []struct{ Name string } }
	if code := get(t, base+"/api/ps", &v); code != 200 {
		t.Fatal(code)
	}
	for _, m := range v.Models {
		names = append(names, m.Name)
	}
	return names
}

func complete(t *testing.T, base, name string) (int, map[string]any) {
	t.Helper()
	code, v, _ := post(t, base+"/v1/completions", fmt.Sprintf(`{"model": %q, "prompt": [5, 6, 7], "max_tokens": 4, "temperature": 0}`, name))
	return code, v
}

// Models are loaded when they are asked for, no more of them than there is memory for, and
// answer as they do alone.
func TestPool(t *testing.T) {
	var n loads
	names := []string{"llama-2", "qwen3", "gemma2"}
	want := map[string]string{}
	for _, name := range names {
		p := NewPool([]Source{micro(&n, name)}, PoolOptions{})
		h := httptest.NewServer(New(p, Options{}))
		code, v := complete(t, h.URL, "any name")
		if want[name] = lookUp(v, "choices.0.text"); code != 200 {
			t.Fatal(v)
		}
		h.Close()
		p.Close()
	}
	if n.now.Load() != 0 {
		t.Fatalf("%d models are left", n.now.Load())
	}
	n.most.Store(0)
	p := NewPool([]Source{micro(&n, "llama-2"), micro(&n, "qwen3", "second", "zwei"), micro(&n, "gemma2")}, PoolOptions{Memory: 250})
	h := httptest.NewServer(New(p, Options{}))
	defer h.Close()
	var list struct {
		Data []struct {
			ID     string
			Loaded bool
		}
	}
	if get(t, h.URL+"/v1/models", &list); len(list.Data) != 3 || list.Data[1].ID != "qwen3" || list.Data[1].Loaded {
		t.Errorf("the list is %+v", list)
	}
	if got := loaded(t, h.URL); got != nil {
		t.Errorf("%q are loaded", got)
	}
	for name, of := range map[string]string{"": "llama-2", "second": "qwen3", "zwei": "qwen3"} {
		if code, v := complete(t, h.URL, name); code != 200 || v["model"] != of {
			t.Errorf("%q: %d %v", name, code, v)
		}
	}
	if got := loaded(t, h.URL); !slices.Equal(got, []string{"llama-2", "qwen3"}) {
		t.Errorf("%q are loaded", got)
	}
	if code, v := complete(t, h.URL, "another"); code != 404 {
		t.Errorf("a name of nobody: %d %v", code, v)
	}
	var wg sync.WaitGroup
	for i := range 60 {
		name := names[(i*7+i/3)%3]
		wg.Add(1)
		go func() {
			defer wg.Done()
			if code, v := complete(t, h.URL, name); code != 200 || lookUp(v, "choices.0.text") != want[name] {
				t.Errorf("%s: %d %v, alone %q", name, code, v, want[name])
			}
		}()
	}
	wg.Wait()
	if n.most.Load() > 2 {
		t.Errorf("%d models were loaded at once", n.most.Load())
	}
	p.Close()
	if n.now.Load() != 0 {
		t.Errorf("%d models are left", n.now.Load())
	}
	if code, _ := complete(t, h.URL, "qwen3"); code != 503 {
		t.Errorf("a closed pool answers %d", code)
	}
}

// eventually waits for something.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// Who asks for a model waits for those that are in use; models that are not are unloaded
// when they have been idle, or when a request says so.
func TestPoolWaitsAndUnloads(t *testing.T) {
	var n loads
	p := NewPool([]Source{micro(&n, "llama-2"), micro(&n, "qwen3")}, PoolOptions{Memory: 100})
	defer p.Close()
	m, release, err := p.Get(t.Context(), "llama-2")
	if err != nil || m.Name != "llama-2" {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, _, err := p.Get(ctx, "qwen3"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("there was room: %v", err)
	}
	got := make(chan error, 1)
	go func() {
		_, release, err := p.Get(t.Context(), "qwen3")
		if err == nil {
			release()
		}
		got <- err
	}()
	select {
	case err := <-got:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(30 * time.Millisecond):
	}
	release()
	release() // a second time it does nothing
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	if n.most.Load() != 1 {
		t.Errorf("%d models at once", n.most.Load())
	}

	p = NewPool([]Source{micro(&n, "llama-2"), micro(&n, "qwen3")}, PoolOptions{Idle: 200 * time.Millisecond})
	defer p.Close()
	h := httptest.NewServer(New(p, Options{}))
	defer h.Close()
	// What is in use does not go, however idle the others are.
	res, err := http.Post(h.URL+"/v1/completions", "application/json", strings.NewReader(`{"model": "qwen3", "prompt": [5, 6, 7], "max_tokens": 30, "stream": true, "ignore_eos": true}`))
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
	}
	res.Body.Close()
	eventually(t, "an idle model stays", func() bool { return loaded(t, h.URL) == nil })
	for ask, stays := range map[string]bool{`"keep_alive": 0`: false, `"keep_alive": "0s"`: false, `"keep_alive": "1h"`: true, `"keep_alive": -1`: true} {
		code, v, _ := post(t, h.URL+"/api/generate", `{"model": "llama-2", "prompt": "a", "raw": true, "stream": false, "options": {"num_predict": 2}, `+ask+`}`)
		if code != 200 {
			t.Fatalf("%s: %d %v", ask, code, v)
		}
		if !stays {
			eventually(t, ask+": the model stays", func() bool { return loaded(t, h.URL) == nil })
			continue
		}
		time.Sleep(300 * time.Millisecond)
		if got := loaded(t, h.URL); len(got) != 1 {
			t.Errorf("%s: %q are loaded", ask, got)
		}
		code, v, _ = post(t, h.URL+"/api/generate", `{"model": "llama-2", "keep_alive": 0}`)
		if code != 200 || v["done_reason"] != "unload" {
			t.Errorf("unloading: %d %v", code, v)
		}
		eventually(t, "it was to be unloaded", func() bool { return loaded(t, h.URL) == nil })
	}
	for _, wrong := range []string{`"soon"`, `{}`, `true`} {
		if code, v, _ := post(t, h.URL+"/api/chat", `{"model": "llama-2", "keep_alive": `+wrong+`}`); code != 400 {
			t.Errorf("keep_alive %s: %d %v", wrong, code, v)
		}
	}
}

// All who wait for a model that cannot be loaded are told, and the next one has it tried
// again; what may be for want of memory has others unloaded first.
func TestPoolFails(t *testing.T) {
	var n loads
	var tries atomic.Int32
	broken := Source{Info: Info{Name: "broken", Bytes: 100}, Load: func() (*Model, func(), error) {
		tries.Add(1)
		time.Sleep(20 * time.Millisecond)
		return nil, nil, formats.Errorf("broken", "", "it is")
	}}
	large := micro(&n, "qwen3")
	load := large.Load
	large.Load = func() (*Model, func(), error) {
		if n.now.Load() > 0 {
			return nil, nil, errors.New("the device has too little memory")
		}
		return load()
	}
	p := NewPool([]Source{micro(&n, "llama-2"), broken, large}, PoolOptions{})
	h := httptest.NewServer(New(p, Options{}))
	defer func() { h.Close(); p.Close() }()
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if code, v := complete(t, h.URL, "broken"); code != 500 || !strings.Contains(fmt.Sprint(v), "it is") {
				t.Errorf("%d %v", code, v)
			}
		}()
	}
	wg.Wait()
	before := tries.Load()
	if before > 4 {
		t.Errorf("loaded %d times for eight who waited together", before)
	}
	if complete(t, h.URL, "broken"); tries.Load() != before+1 {
		t.Errorf("%d tries, %d before", tries.Load(), before)
	}
	if code, v := complete(t, h.URL, "llama-2"); code != 200 {
		t.Errorf("%d %v", code, v)
	}
	if code, v := complete(t, h.URL, "qwen3"); code != 200 || n.now.Load() != 1 {
		t.Errorf("%d %v, %d loaded", code, v, n.now.Load())
	}
}
