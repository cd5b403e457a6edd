package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/hub/hubtest"
)

func TestParse(t *testing.T) {
	const hub = "https://huggingface.co"
	for _, c := range []struct {
		in   string
		want Ref
	}{
		{"org/name", Ref{Repo: "org/name", Revision: "main"}},
		{"Qwen/Qwen3.5-9B", Ref{Repo: "Qwen/Qwen3.5-9B", Revision: "main"}},
		{"org/name@v1.0", Ref{Repo: "org/name", Revision: "v1.0"}},
		{"org/name@refs/pr/12", Ref{Repo: "org/name", Revision: "refs/pr/12"}},
		{"org/name@feature/x", Ref{Repo: "org/name", Revision: "feature/x"}},
		{"org/name:Q4_K_M", Ref{Repo: "org/name", Revision: "main", Variant: "Q4_K_M"}},
		{"org/name@v1:UD-Q4_K_XL", Ref{Repo: "org/name", Revision: "v1", Variant: "UD-Q4_K_XL"}},
		{"org/name:name-q8_0.gguf", Ref{Repo: "org/name", Revision: "main", File: "name-q8_0.gguf"}},
		{"org/name:dir/name.nstf", Ref{Repo: "org/name", Revision: "main", File: "dir/name.nstf"}},
		{"hf://org/name", Ref{Repo: "org/name", Revision: "main"}},
		{"hf://models/org/name", Ref{Repo: "org/name", Revision: "main"}},
		{"hf://org/name/sub/a.gguf", Ref{Repo: "org/name", Revision: "main", File: "sub/a.gguf"}},
		{"hf://org/name@refs/pr/1/a.gguf", Ref{Repo: "org/name", Revision: "refs/pr/1", File: "a.gguf"}},
		{"hf://org/name@a%2Fb/a.gguf", Ref{Repo: "org/name", Revision: "a/b", File: "a.gguf"}},
		{hub + "/org/name", Ref{Repo: "org/name", Revision: "main"}},
		{hub + "/org/name/tree/v2", Ref{Repo: "org/name", Revision: "v2"}},
		{hub + "/org/name/blob/main/x.gguf?download=true", Ref{Repo: "org/name", Revision: "main", File: "x.gguf"}},
	} {
		if got, err := Parse(c.in, hub); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", c.in, got, err)
		}
		if again, err := Parse(c.want.String(), hub); err != nil || again != c.want {
			t.Errorf("%s is written as %s: %+v, %v", c.in, c.want, again, err)
		}
	}
	for _, s := range []string{"", "name", "org/", "/name", "org/na me", "../x", "org/..", "a--b/c", "org/name.git", "org/name@", "org/name@..", "org/name@a//b",
		"org/name:", "org/name:../x.gguf", "hf://org/name/../../etc/passwd", "hf://org/name/a\\b", "hf://org/name//a", "org/name/file", "hf://org", hub + "/org", hub + "/a/b/c/d",
		"org/name@refs/../x", "hf://org/name/C:/x", "org/" + strings.Repeat("n", 100)} {
		if r, err := Parse(s, hub); err == nil {
			t.Errorf("%q is %+v", s, r)
		}
	}
	for s, want := range map[string]bool{"org/name": true, "org/name@v1": true, "org/name:Q4_K_M": true, "out/model.nstf": false, "a/b/c": false, "name": false, "x/m.gguf": false,
		"hf://org/name": false, "org/name:x.gguf": true, "testdata/text.txt": false} {
		if LooksLike(s) != want {
			t.Errorf("%s looks like a name: %v", s, !want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("org/name@rev:Q4_K_M")
	f.Add("hf://org/name@refs/pr/1/a/b.gguf")
	f.Add("https://h/org/name/blob/main/x")
	f.Fuzz(func(t *testing.T, s string) {
		r, err := Parse(s, "https://h")
		if err != nil {
			return
		}
		for _, p := range []string{r.Repo, r.Revision} {
			if !filepath.IsLocal(filepath.FromSlash(p)) {
				t.Errorf("%q leads out of the cache: %+v", s, r)
			}
		}
		if r.File != "" && !filepath.IsLocal(filepath.FromSlash(r.File)) {
			t.Errorf("%q leads out of a snapshot: %+v", s, r)
		}
		if again, err := Parse(r.String(), "https://h"); r.Variant == "" && (err != nil || again != r) {
			t.Errorf("%q: %+v is written as %q: %+v, %v", s, r, r.String(), again, err)
		}
	})
}

func TestChoose(t *testing.T) {
	list := func(names ...string) (files []File) {
		for _, n := range names {
			files = append(files, File{Path: n, Size: 10})
		}
		return files
	}
	hf := list("config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json", "consolidated.safetensors",
		"tokenizer.json", "tokenizer.model", "chat_template.jinja", "README.md", "LICENSE", "original/params.json", "onnx/model.onnx", "pytorch_model.bin", "x.png", "1_Pooling/config.json")
	ggufs := list("README.md", "m-Q4_K_M.gguf", "m-UD-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m-Q8_0.gguf", "mmproj-F16.gguf", "BF16/m-BF16-00001-of-00003.gguf",
		"BF16/m-BF16-00002-of-00003.gguf", "BF16/m-BF16-00003-of-00003.gguf", "imatrix.gguf")
	for _, c := range []struct {
		ref         string
		all         []File
		open, files string // or what the error says
	}{
		{"o/n", hf, "", "config.json model-00001-of-00002.safetensors model-00002-of-00002.safetensors model.safetensors.index.json tokenizer.json tokenizer.model chat_template.jinja README.md LICENSE 1_Pooling/config.json"},
		{"o/n", ggufs, "m-Q4_K_M.gguf", "m-Q4_K_M.gguf"},
		{"o/n:q8_0", ggufs, "m-Q8_0.gguf", "m-Q8_0.gguf"},
		{"o/n:UD-Q4_K_M", ggufs, "m-UD-Q4_K_M.gguf", "m-UD-Q4_K_M.gguf"},
		{"o/n:BF16", ggufs, "BF16/m-BF16-00001-of-00003.gguf", "BF16/m-BF16-00001-of-00003.gguf BF16/m-BF16-00002-of-00003.gguf BF16/m-BF16-00003-of-00003.gguf"},
		{"o/n:Q4_K", ggufs, "error", "no GGUF file"},
		{"o/n:Q5_K_M", ggufs, "error", "m-Q8_0.gguf"},
		{"hf://o/n/BF16/m-BF16-00002-of-00003.gguf", ggufs, "BF16/m-BF16-00001-of-00003.gguf", "BF16/m-BF16-00001-of-00003.gguf BF16/m-BF16-00002-of-00003.gguf BF16/m-BF16-00003-of-00003.gguf"},
		{"o/n", list("a-00001-of-00002.gguf"), "error", "1 of the 00002 parts"},
		{"o/n", list("a-Q5_0.gguf", "b-Q5_0.gguf"), "error", "several GGUF files"},
		{"o/n:Q5_0", list("a-Q5_0.gguf", "b-Q5_0.gguf"), "error", "several files"},
		{"o/n", list("m.nstf", "README.md", "config.json", "model.safetensors"), "m.nstf", "m.nstf"},
		{"o/n", list("a.nstf", "b.nstf"), "error", "several packages"},
		{"o/n:b.nstf", list("a.nstf", "b.nstf"), "b.nstf", "b.nstf"},
		{"o/n:c.nstf", list("a.nstf", "b.nstf"), "error", "no file"},
		{"o/n", list("pytorch_model.bin", "config.json"), "error", "no weights"},
	} {
		r, err := Parse(c.ref, "")
		if err != nil {
			t.Fatal(err)
		}
		files, open, err := choose(r, c.all)
		if c.open == "error" {
			if err == nil || !strings.Contains(err.Error(), c.files) {
				t.Errorf("%s: %v", c.ref, err)
			}
			continue
		}
		var names []string
		for _, f := range files {
			names = append(names, f.Path)
		}
		if err != nil || open != c.open || strings.Join(names, " ") != c.files {
			t.Errorf("%s: %q of %q, %v", c.ref, open, names, err)
		}
	}
}

func noise(n int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return p
}

// piece is what a request of these tests asks for.
const piece = 256 << 10

// weights is a model of 3 chunks and a bit, with small files beside it.
func weights() map[string][]byte {
	return map[string][]byte{"config.json": []byte(`{"a": 1}`), "empty.txt": {}, "model.safetensors": noise(3*piece+12345, 1), "tokenizer.json": noise(100_000, 2), "tokenizer copy.json": noise(100_000, 2)}
}

func start(t *testing.T, repos map[string]*hubtest.Repo) (*hubtest.Server, *Client) {
	t.Helper()
	s := hubtest.New(repos)
	t.Cleanup(s.Close)
	return s, &Client{Endpoint: s.Hub.URL, bytes: piece, Cache: Cache{t.TempDir()}, Note: func(l string) { t.Log(l) },
		pause: func(ctx context.Context, _ time.Duration) error { return context.Cause(ctx) }}
}

func open(t *testing.T, c *Client, ref string) *Snapshot {
	t.Helper()
	r, err := Parse(ref, c.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Open(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// holds wants a snapshot to be the files, and nothing else in the blobs.
func holds(t *testing.T, c *Client, s *Snapshot, files map[string][]byte) {
	t.Helper()
	for name, want := range files {
		if got, err := os.ReadFile(c.Cache.file(s.Repo, s.Commit, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes of %d, %v", name, len(got), len(want), err)
		}
	}
	for name := range c.Cache.blobs(s.Repo) {
		if strings.Contains(name, ".") {
			t.Errorf("%s is left", name)
		}
	}
}

func TestPull(t *testing.T) {
	files := weights()
	server, c := start(t, map[string]*hubtest.Repo{"org/name": hubtest.One(files)})
	server.PerPage = 2
	c.Token = "hf_secret"
	var done, total int64
	c.Progress = func(d, all int64) { done, total = d, all }
	s := open(t, c, "org/name")
	if err := c.Pull(context.Background(), s); err != nil {
		t.Fatal(err)
	}
	holds(t, c, s, files)
	if done != total || total != s.Bytes()-100_000 { // a content that is there twice comes once
		t.Errorf("%d of %d bytes told", done, total)
	}
	if s.Path() != c.Cache.snapshot("org/name", s.Commit) {
		t.Error(s.Path())
	}
	stored, asked := 0, len(server.Requests())
	for _, r := range server.Requests() {
		if r.Storage && r.Token != "" {
			t.Errorf("the token went to the storage: %+v", r)
		}
		if !r.Storage && r.Token != c.Token {
			t.Errorf("no token: %+v", r)
		}
		if r.Storage {
			stored++
		}
	}
	if stored < 5 {
		t.Errorf("%d requests to the storage", stored)
	}
	// Again, with everything there.
	if err := c.Pull(context.Background(), open(t, c, "org/name")); err != nil {
		t.Fatal(err)
	}
	for _, r := range server.Requests()[asked:] {
		if strings.Contains(r.Path, "resolve") || r.Storage {
			t.Errorf("asked again: %+v", r)
		}
	}
	// Without the hub, and with a hub that is gone.
	offline := &Client{Offline: true, Cache: c.Cache}
	if s := open(t, offline, "org/name"); len(s.Missing()) > 0 || s.Commit == "" {
		t.Errorf("%+v", s)
	}
	server.Close()
	if s := open(t, c, "org/name"); len(s.Missing()) > 0 {
		t.Errorf("%+v", s)
	}
}

func TestRefusals(t *testing.T) {
	one := hubtest.One(map[string][]byte{"config.json": []byte("{}"), "model.safetensors": noise(100, 3)})
	private, gated := *one, *one
	private.Private, gated.Gated = true, true
	server, c := start(t, map[string]*hubtest.Repo{"o/open": one, "o/private": &private, "o/gated": &gated})
	server.Token = "hf_right"
	for _, tc := range []struct{ ref, token, reason, hint string }{
		{"o/none", "", "no such model", "HF_TOKEN"},
		{"o/private", "", "or it is private", "HF_TOKEN"},
		{"o/private", "hf_wrong", "or it is private", "no access"},
		{"o/gated", "", "asks for consent", c.Endpoint + "/o/gated"},
		{"o/open@v9", "", `no revision "v9"`, ""},
		{"o/open:x.gguf", "", "no file", ""},
	} {
		c.Token = tc.token
		r, err := Parse(tc.ref, c.Endpoint)
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.Open(context.Background(), r)
		if err == nil {
			err = c.Pull(context.Background(), s)
		}
		var e *Error
		var f *formats.FormatError
		if err == nil || !strings.Contains(err.Error(), tc.reason) || errors.As(err, &e) && (!e.Missing || !strings.Contains(e.Hint, tc.hint)) || e == nil && !errors.As(err, &f) {
			t.Errorf("%s: %v, %+v", tc.ref, err, e)
		}
		if tc.token != "" && strings.Contains(fmt.Sprint(err, e), tc.token) {
			t.Errorf("%s: the token is printed: %v", tc.ref, err)
		}
	}
	c.Token = "hf_right"
	for _, ref := range []string{"o/private", "o/gated"} {
		if err := c.Pull(context.Background(), open(t, c, ref)); err != nil {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

// What the network does now and then is survived; what a hub does wrong is told.
func TestFaults(t *testing.T) {
	storage := func(f hubtest.Fault, times int) func(hubtest.Request, int) hubtest.Fault {
		return func(r hubtest.Request, n int) hubtest.Fault {
			if r.Storage && n < times {
				return f
			}
			return hubtest.Fault{}
		}
	}
	for name, c := range map[string]struct {
		fault func(hubtest.Request, int) hubtest.Fault
		fails string
	}{
		"cut":       {storage(hubtest.Fault{Cut: 5000}, 3), ""},
		"cut often": {storage(hubtest.Fault{Cut: 100_000}, 1<<30), ""},
		"busy":      {storage(hubtest.Fault{Status: 503}, 2), ""},
		"asks often": {func(r hubtest.Request, n int) hubtest.Fault {
			if n < 2 && !r.Storage {
				return hubtest.Fault{Status: 429, RetryAfter: "1"}
			}
			return hubtest.Fault{}
		}, ""},
		"no ranges":   {storage(hubtest.Fault{NoRanges: true}, 1<<30), ""},
		"damaged":     {storage(hubtest.Fault{Flip: 77}, 1), ""},
		"damages all": {storage(hubtest.Fault{Flip: 77}, 1<<30), "hash"},
		"dead":        {storage(hubtest.Fault{Status: 503}, 1<<30), "503"},
		"waits long":  {func(hubtest.Request, int) hubtest.Fault { return hubtest.Fault{Status: 429, RetryAfter: "86400"} }, "fewer requests"},
		"416":         {storage(hubtest.Fault{Status: 416}, 1<<30), "fewer bytes"},
		"lies":        {storage(hubtest.Fault{Range: "bytes 0-1/2"}, 1<<30), "bytes 0-1/2"},
		"expires":     {storage(hubtest.Fault{Status: 403}, 1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := weights()
			server, client := start(t, map[string]*hubtest.Repo{"org/name": hubtest.One(files)})
			server.Fault = c.fault
			r, _ := Parse("org/name", client.Endpoint)
			s, err := client.Open(context.Background(), r)
			if err == nil {
				err = client.Pull(context.Background(), s)
			}
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("%v", err)
				}
				if s != nil && len(s.Missing()) == 0 {
					t.Error("nothing is missing")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			holds(t, client, s, files)
		})
	}
}

// Addresses of the storage are good for a while only.
func TestExpired(t *testing.T) {
	files := weights()
	server, c := start(t, map[string]*hubtest.Repo{"org/name": hubtest.One(files)})
	var once sync.Once
	server.Fault = func(r hubtest.Request, n int) hubtest.Fault {
		if r.Storage && strings.HasPrefix(r.Range, fmt.Sprintf("bytes=%d-", piece)) {
			once.Do(server.Expire)
		}
		return hubtest.Fault{}
	}
	c.Parallel = 1
	s := open(t, c, "org/name")
	if err := c.Pull(context.Background(), s); err != nil {
		t.Fatal(err)
	}
	holds(t, c, s, files)
}

// A download that was interrupted anywhere goes on where it was, to the same bytes.
func TestInterrupted(t *testing.T) {
	files := weights()
	server, c := start(t, map[string]*hubtest.Repo{"org/name": hubtest.One(files)})
	tries := 100
	if testing.Short() {
		tries = 20
	}
	r := rand.New(rand.NewPCG(5, 6))
	s := open(t, c, "org/name")
	// Answers of a pull that was stopped may go on while the next one begins.
	var cuts atomic.Int64
	server.Fault = func(q hubtest.Request, n int) hubtest.Fault {
		if q.Storage && n%2 == 0 {
			return hubtest.Fault{Cut: int(cuts.Load())}
		}
		return hubtest.Fault{}
	}
	stopped := 0
	for try := range tries {
		if try%10 == 0 {
			if err := os.RemoveAll(c.Cache.Root); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancelCause(context.Background())
		var left atomic.Int64
		left.Store(r.Int64N(s.Bytes() / 4))
		c.Progress = func(done, _ int64) {
			if done > left.Load() {
				cancel(errors.New("stopped"))
			}
		}
		cuts.Store(1 + r.Int64N(piece))
		if err := c.Pull(ctx, s); err != nil {
			stopped++
			// A kill may leave a line of the list cut, or of a chunk that never reached the disk.
			lists, _ := filepath.Glob(filepath.Join(c.Cache.folder("org/name"), "blobs", "*"+journalSuffix))
			for _, l := range lists {
				if p, _ := os.ReadFile(l); try%3 == 0 && len(p) > 90 {
					_ = os.WriteFile(l, p[:len(p)-1-r.IntN(2)], 0o600)
				} else if try%3 == 1 {
					_ = os.WriteFile(l, append(p, "1.\n2"...), 0o600)
				}
			}
		}
		cancel(nil)
		if try%10 == 9 {
			cuts.Store(0)
			c.Progress = nil
			if err := c.Pull(context.Background(), s); err != nil {
				t.Fatal(err)
			}
			holds(t, c, s, files)
		}
	}
	if stopped < tries/4 {
		t.Errorf("only %d of %d were stopped", stopped, tries)
	}
}

// Two programs that want the same at once download it once.
func TestTwoAtOnce(t *testing.T) {
	files := weights()
	server, c := start(t, map[string]*hubtest.Repo{"org/name": hubtest.One(files)})
	s := open(t, c, "org/name")
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			other := &Client{Endpoint: c.Endpoint, Cache: c.Cache, bytes: piece}
			if err := other.Pull(context.Background(), s); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	holds(t, c, s, files)
	bytes := 0
	for _, r := range server.Requests() {
		var first, last int
		if n, _ := fmt.Sscanf(r.Range, "bytes=%d-%d", &first, &last); n == 2 && r.Storage {
			bytes += last - first + 1
		}
	}
	if bytes > int(s.Bytes()) {
		t.Errorf("%d bytes were asked for of %d", bytes, s.Bytes())
	}
}

// A hub may say anything: nothing is written outside the cache.
func TestHostileHub(t *testing.T) {
	for name, answers := range map[string][2]string{
		"commit": {`{"sha": "../../../etc"}`, `[]`},
		"path":   {`{"sha": "0123456789012345678901234567890123456789"}`, `[{"type":"file","path":"../../config.json","size":1,"oid":"0123456789012345678901234567890123456789"}]`},
		"drive":  {`{"sha": "0123456789012345678901234567890123456789"}`, `[{"type":"file","path":"C:x.json","size":1,"oid":"0123456789012345678901234567890123456789"}]`},
		"hash":   {`{"sha": "0123456789012345678901234567890123456789"}`, `[{"type":"file","path":"config.json","size":1,"oid":"../../x"}]`},
		"size":   {`{"sha": "0123456789012345678901234567890123456789"}`, `[{"type":"file","path":"config.json","size":-1,"oid":"0123456789012345678901234567890123456789"}]`},
		"json":   {`<html>`, ``},
	} {
		mux := http.NewServeMux()
		mux.HandleFunc("/api/models/o/n/revision/main", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answers[0]) })
		mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answers[1]) })
		server, c := start(t, nil)
		server.Hub.Config.Handler = mux
		var f *formats.FormatError
		if s, err := c.Open(context.Background(), Ref{Repo: "o/n", Revision: "main"}); !errors.As(err, &f) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}

func TestListAndRemove(t *testing.T) {
	shared := noise(50_000, 4)
	first := map[string][]byte{"config.json": []byte("{}"), "model.safetensors": shared}
	second := map[string][]byte{"config.json": []byte(`{"b":1}`), "model.safetensors": shared}
	repo := &hubtest.Repo{Commits: map[string]string{"main": hubtest.Commit(second), "v1": hubtest.Commit(first)},
		Files: map[string]map[string][]byte{hubtest.Commit(first): first, hubtest.Commit(second): second}}
	_, c := start(t, map[string]*hubtest.Repo{"org/name": repo})
	for _, ref := range []string{"org/name@v1", "org/name"} {
		if err := c.Pull(context.Background(), open(t, c, ref)); err != nil {
			t.Fatal(err)
		}
	}
	all, err := c.Cache.Models()
	if err != nil || len(all) != 2 || !slices.ContainsFunc(all, func(m Cached) bool {
		return m.Repo == "org/name" && slices.Equal(m.Revisions, []string{"v1"}) && m.Files == 2
	}) {
		t.Errorf("%+v, %v", all, err)
	}
	if freed, err := c.Cache.Remove(Ref{Repo: "org/name", Revision: "v1"}, false); err != nil || freed != 2 {
		t.Errorf("%d bytes, %v", freed, err)
	}
	holds(t, c, open(t, c, "org/name"), second)
	if freed, err := c.Cache.Remove(Ref{Repo: "org/name", Revision: "main"}, true); err != nil || freed != 50_007 {
		t.Errorf("%d bytes, %v", freed, err)
	}
	if _, err := os.Stat(c.Cache.folder("org/name")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	var e *Error
	if _, err := c.Cache.Remove(Ref{Repo: "org/name", Revision: "main"}, true); !errors.As(err, &e) || !e.Missing {
		t.Error(err)
	}
}
