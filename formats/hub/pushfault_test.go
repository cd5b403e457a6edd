package hub

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/hub/hubtest"
)

// A commit whose answer is lost is looked for on the branch, and never sent again.
func TestPushCommitOnce(t *testing.T) {
	pkg, card := noise(1<<20, 1), []byte("# a card")
	commits := func(s *hubtest.Server) (n int) {
		for _, r := range s.Requests() {
			if strings.Contains(r.Path, "/commit/") {
				n++
			}
		}
		return n
	}
	for name, tc := range map[string]struct {
		fault  func(n int) hubtest.Fault
		tries  int
		reason string // "" where the push succeeds
	}{
		"taken, and no answer":     {func(int) hubtest.Fault { return hubtest.Fault{Cut: 1} }, 1, ""},
		"not taken, and no answer": {func(int) hubtest.Fault { panic(http.ErrAbortHandler) }, 1, "the hub did not take the commit"},
		"a hub that fails":         {func(int) hubtest.Fault { return hubtest.Fault{Status: 500} }, 1, "the hub did not take the commit"},
		"refused":                  {func(int) hubtest.Fault { return hubtest.Fault{Status: 400} }, 1, "refused the upload"},
		"asked to wait": {func(n int) hubtest.Fault {
			return []hubtest.Fault{{Status: 503, RetryAfter: "1"}, {Status: 429}, {}}[n]
		}, 3, ""},
	} {
		t.Run(name, func(t *testing.T) {
			server, c := start(t, map[string]*hubtest.Repo{})
			server.Token, c.Token = "hf_secret", "hf_secret"
			server.Fault = func(r hubtest.Request, n int) hubtest.Fault {
				if strings.Contains(r.Path, "/commit/") {
					return tc.fault(n)
				}
				return hubtest.Fault{}
			}
			out, err := c.Push(t.Context(), upload(pkg, card))
			if commits(server) != tc.tries {
				t.Errorf("the commit was sent %d times, not %d", commits(server), tc.tries)
			}
			if tc.reason != "" {
				if err == nil || !strings.Contains(err.Error(), tc.reason) {
					t.Error(err)
				}
				return
			}
			if err != nil || out.Commit != server.Repos["org/new"].Commits["main"] {
				t.Fatalf("%+v, %v", out, err)
			}
			stored(t, server, "main", map[string][]byte{"m.nstf": pkg, "README.md": card})
		})
	}
}

// What somebody else commits between the question what is there and the commit stays.
func TestPushRaced(t *testing.T) {
	server, c := start(t, map[string]*hubtest.Repo{})
	server.Token, c.Token = "hf_secret", "hf_secret"
	theirs := Upload{Repo: "org/new", Revision: MainRevision, Files: []UploadFile{{Path: "README.md", Data: bytes.NewReader([]byte("# theirs"))}}}
	var once atomic.Bool
	server.Fault = func(r hubtest.Request, n int) hubtest.Fault {
		if strings.HasSuffix(r.Path, "/batch") && once.CompareAndSwap(false, true) {
			other := &Client{Endpoint: c.Endpoint, Token: c.Token, Cache: Cache{t.TempDir()}}
			if _, err := other.Push(t.Context(), theirs); err != nil {
				t.Error(err)
			}
		}
		return hubtest.Fault{}
	}
	pkg := noise(1<<20, 1)
	if _, err := c.Push(t.Context(), upload(pkg, []byte("# ours"))); err == nil || !strings.Contains(err.Error(), "somebody else") {
		t.Error(err)
	}
	stored(t, server, "main", map[string][]byte{"README.md": []byte("# theirs")})
}

// The list of parts stays where the hub only fails to join them, and goes where it refuses.
func TestPushJoinFails(t *testing.T) {
	for status, left := range map[int]int{500: 1, 429: 1, 400: 0} {
		server, c := start(t, map[string]*hubtest.Repo{})
		server.Token, server.PartSize, c.Token = "hf_secret", 100_000, "hf_secret"
		server.Fault = func(r hubtest.Request, n int) hubtest.Fault {
			if strings.Contains(r.Path, "/complete/") {
				return hubtest.Fault{Status: status}
			}
			return hubtest.Fault{}
		}
		u := upload(noise(1<<20, 1), []byte("x"))
		if _, err := c.Push(t.Context(), u); err == nil {
			t.Fatal("joined")
		}
		if lists, _ := filepath.Glob(filepath.Join(c.Cache.Root, ".nstf-uploads", "*")); len(lists) != left {
			t.Errorf("status %d: %d lists are left, not %d", status, len(lists), left)
		}
		server.Fault = nil
		if out, err := c.Push(t.Context(), u); err != nil || (out.Sent == 0) != (left == 1) {
			t.Errorf("status %d: %+v, %v", status, out, err)
		}
	}
}

// A list of parts grows by a line for each that was sent; a line that an interrupt cut is
// no part.
func TestPartsAppend(t *testing.T) {
	p := &push{Client: &Client{Endpoint: "https://h", Cache: Cache{t.TempDir()}}, Upload: Upload{Repo: "o/n"}}
	f := &planned{UploadFile: UploadFile{Data: bytes.NewReader(make([]byte, 40))}, sum: "s"}
	m := &parts{Href: "j", Chunk: 10, Parts: []sentPart{{Addr: strings.Repeat("a", 1000)}, {Addr: "b"}, {Addr: "c"}, {Addr: "d"}}}
	var first os.FileInfo
	for i := range 3 {
		m.Parts[i].ETag = "tag" + string(rune('0'+i))
		if err := p.remember(f, m, i); err != nil {
			t.Fatal(err)
		}
		now, err := os.Stat(p.partsFile(f))
		if err != nil {
			t.Fatal(err)
		}
		if first != nil && (!os.SameFile(first, now) || now.Size()-first.Size() > 100) {
			t.Errorf("the list was written anew: %d bytes after %d", now.Size(), first.Size())
		}
		first = now
	}
	m.Close()
	raw, err := os.ReadFile(p.partsFile(f))
	if err != nil {
		t.Fatal(err)
	}
	for cut, want := range map[int]string{0: "tag0 tag1 tag2 ", 1: "tag0 tag1 tag2 ", 2: "tag0 tag1  ", 10: "tag0 tag1  "} {
		if err := os.WriteFile(p.partsFile(f), raw[:len(raw)-cut], 0o600); err != nil {
			t.Fatal(err)
		}
		old := p.begun(f)
		if old == nil {
			t.Fatalf("cut by %d: nothing", cut)
		}
		got := ""
		for _, part := range old.Parts[:3] {
			got += part.ETag + " "
		}
		if got != want || old.Parts[3] != m.Parts[3] || old.Parts[0].Addr != m.Parts[0].Addr {
			t.Errorf("cut by %d: %q, not %q", cut, got, want)
		}
		// What is behind the cut is written over.
		old.Parts[3].ETag = "tag3"
		if err := p.remember(f, old, 3); err != nil {
			t.Fatal(err)
		}
		old.Close()
		if again := p.begun(f); again == nil || again.Parts[3].ETag != "tag3" || again.Parts[0].ETag != "tag0" {
			t.Errorf("cut by %d: %+v", cut, again)
		}
	}
	p.forget(f)
	if p.begun(f) != nil {
		t.Error("not forgotten")
	}
}

// A stuck file is one of which nothing comes behind 512 KiB, once it is closed, until it is
// released.
type stuck struct {
	*bytes.Reader
	closed   *atomic.Bool
	release  chan struct{}
	returned chan struct{}
}

func (h stuck) ReadAt(p []byte, off int64) (int, error) {
	if h.closed.Load() && off >= 512<<10 {
		<-h.release
		defer func() { h.returned <- struct{}{} }()
	}
	return h.Reader.ReadAt(p, off)
}

// A transport may read on after it has answered: those bytes count no more.
func TestPushReadOn(t *testing.T) {
	server, c := start(t, map[string]*hubtest.Repo{})
	server.Token, c.Token = "hf_secret", "hf_secret"
	slow := stuck{bytes.NewReader(noise(8<<20, 1)), &atomic.Bool{}, make(chan struct{}), make(chan struct{}, 100)}
	server.Fault = func(r hubtest.Request, n int) hubtest.Fault {
		if strings.HasSuffix(r.Path, "/batch") {
			slow.closed.Store(true)
		}
		if r.Method == http.MethodPut {
			return hubtest.Fault{Status: 400}
		}
		return hubtest.Fault{}
	}
	var done atomic.Int64
	c.Progress = func(d, _ int64) { done.Store(d) }
	u := upload(nil, []byte("x"))
	u.Files[0].Data = slow
	if _, err := c.Push(t.Context(), u); err == nil {
		t.Fatal("sent")
	}
	was := done.Load()
	if hashed := int64(8<<20 + 1); was != hashed {
		t.Errorf("%d bytes are told as done, of which %d were hashed", was, hashed)
	}
	close(slow.release)
	select {
	case <-slow.returned:
	case <-time.After(10 * time.Second):
		t.Fatal("nobody read on")
	}
	for range 20 {
		time.Sleep(5 * time.Millisecond)
		if done.Load() != was {
			t.Fatalf("%d bytes are told after the end, %d before", done.Load(), was)
		}
	}
}

// Addresses of the storage are signed: an error names their host alone.
func TestSignedUntold(t *testing.T) {
	server, c := start(t, map[string]*hubtest.Repo{"org/name": hubtest.One(weights())})
	server.Token, c.Token = "hf_secret", "hf_secret"
	server.Fault = func(r hubtest.Request, n int) hubtest.Fault {
		if r.Storage {
			panic(http.ErrAbortHandler)
		}
		return hubtest.Fault{}
	}
	_, perr := c.Push(t.Context(), upload(noise(1<<20, 1), []byte("x")))
	gerr := c.Pull(t.Context(), open(t, c, "org/name"))
	for want, err := range map[string]error{"the upload failed": perr, "cannot be reached": gerr} {
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Fatalf("no %q: %v", want, err)
		}
		if s := err.Error() + e.Hint; strings.Contains(s, "oid=") || strings.Contains(s, "signature=") || !strings.Contains(s, "localhost") {
			t.Error(s)
		}
	}
}

// Sizes that a hub makes up end in an error.
func TestWrongSizes(t *testing.T) {
	for _, size := range []int64{math.MaxInt64, 1 << 62, 1<<44 + 1} {
		server, c := start(t, map[string]*hubtest.Repo{"org/name": hubtest.One(map[string][]byte{"model.safetensors": noise(20_000, 1), "config.json": []byte("{}")})})
		server.Size = map[string]int64{"model.safetensors": size}
		r, err := Parse("org/name", c.Endpoint)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Open(context.Background(), r)
		var wrong *formats.FormatError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), "model.safetensors") {
			t.Errorf("%d: %v", size, err)
		}
	}
	// The largest that may be takes no memory before it is read.
	c := &Client{}
	st := &Stream{c: c, s: &Snapshot{}, size: streamPiece}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	st.add(File{Path: "m.gguf", Size: maxSize, Etag: strings.Repeat("0", 64)})
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 || st.files[0].pieces != maxSize/streamPiece {
		t.Errorf("%d bytes for %d pieces of which nothing was read", n, st.files[0].pieces)
	}
	// Parts, too.
	p := &push{Client: c, Upload: Upload{Repo: "o/n"}}
	f := &planned{UploadFile: UploadFile{Path: "m", Data: bytes.NewReader(make([]byte, 10))}}
	for _, chunk := range []any{"9223372036854775807", 1e300, -1.0, "x"} {
		if _, err := p.object(context.Background(), f, &target{Header: map[string]any{"chunk_size": chunk}}); err == nil || !strings.Contains(err.Error(), "parts of") {
			t.Errorf("%v: %v", chunk, err)
		}
	}
}
