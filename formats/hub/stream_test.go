package hub

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/hub/hubtest"
)

// streaming opens a model whose weights are larger than what may be kept of them, in pieces
// of 256 KiB of which eight are kept.
func streaming(t *testing.T) (*hubtest.Server, *Client, []byte, func() (*Stream, formats.RemoteFile)) {
	t.Helper()
	want := noise(40*piece+12345, 7)
	server, c := start(t, map[string]*hubtest.Repo{"org/name": hubtest.One(map[string][]byte{"config.json": []byte(`{"a": 1}`), "model.safetensors": want, "tokenizer.json": noise(4000, 2)})})
	return server, c, want, func() (*Stream, formats.RemoteFile) {
		s := open(t, c, "org/name")
		st, err := c.Stream(t.Context(), s, 8*piece)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(st.Close)
		return st, st.Remote()[filepath.Join(s.Path(), "model.safetensors")]
	}
}

func TestStream(t *testing.T) {
	server, c, want, begin := streaming(t)
	c.Token = "hf_secret"
	var faults atomic.Int64
	server.Fault = func(r hubtest.Request, n int) hubtest.Fault {
		if !r.Storage || n > 0 || !strings.HasPrefix(r.Range, "bytes=") {
			return hubtest.Fault{}
		}
		return []hubtest.Fault{{}, {Cut: 1000}, {Status: 503}, {Status: 429, RetryAfter: "7"}, {NoRanges: true}, {Cut: 100_000}}[faults.Add(1)%6]
	}
	st, f := begin()
	if f.Size() != int64(len(want)) {
		t.Fatal(f.Size())
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	// Read by several at once, at random and in order.
	var readers sync.WaitGroup
	for i := range 8 {
		readers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			p := make([]byte, 3*piece)
			for range 30 {
				at := r.IntN(len(want))
				n, err := f.ReadAt(p[:r.IntN(len(p))], int64(at))
				if err != nil && err != io.EOF || !bytes.Equal(p[:n], want[at:at+n]) {
					t.Errorf("%d bytes at %d: %v", n, at, err)
					return
				}
			}
		})
	}
	readers.Wait()
	if got, err := io.ReadAll(io.NewSectionReader(f, 0, f.Size())); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if used := int64(after.HeapAlloc) - int64(before.HeapAlloc); st.Memory() != 8*piece || used > st.Memory()+2<<20 {
		t.Errorf("%d bytes of memory are kept, %d may be", used, st.Memory())
	}
	if n := len(st.have) + len(st.free); n > 8 || st.room != 0 {
		t.Errorf("%d pieces, room for %d", n, st.room)
	}
	if n, err := f.ReadAt(make([]byte, 10), f.Size()-4); n != 4 || err != io.EOF {
		t.Errorf("%d bytes behind the end, %v", n, err)
	}
	// The small files are there, the weights are not.
	if _, err := os.Stat(filepath.Join(c.Cache.snapshot("org/name", st.s.Commit), "tokenizer.json")); err != nil {
		t.Error(err)
	}
	for name, info := range c.Cache.blobs("org/name") {
		if info.Size() > 4000 {
			t.Errorf("%s lies on the disk: %d bytes", name, info.Size())
		}
	}
	for _, r := range server.Requests() {
		if r.Storage && r.Token != "" {
			t.Fatalf("the token went to the storage: %+v", r)
		}
	}
}

// What a hub changes while a model is read is an error that names the file.
func TestStreamChanged(t *testing.T) {
	late := func(n int, r hubtest.Request) bool {
		return r.Storage && !strings.HasPrefix(r.Range, "bytes=0-") && n == 0
	}
	for name, tc := range map[string]struct {
		fault  func(r hubtest.Request, n int) hubtest.Fault
		reason string
	}{
		"another ETag": {func(r hubtest.Request, n int) hubtest.Fault {
			if late(n, r) {
				return hubtest.Fault{ETag: "another"}
			}
			return hubtest.Fault{}
		}, "changed on the hub while it was read: its ETag was"},
		"a damaged range": {func(r hubtest.Request, n int) hubtest.Fault {
			if strings.HasPrefix(r.Range, "bytes=524288-") {
				return hubtest.Fault{Flip: 77}
			}
			return hubtest.Fault{}
		}, "sent bytes whose hash is"},
		"another size": {func(r hubtest.Request, n int) hubtest.Fault {
			if r.Storage {
				return hubtest.Fault{Range: "bytes 0-262143/262144"}
			}
			return hubtest.Fault{}
		}, "the hub sends"},
		"fewer bytes": {func(r hubtest.Request, n int) hubtest.Fault {
			if r.Storage && strings.HasPrefix(r.Range, "bytes=524288-") {
				return hubtest.Fault{Status: 416}
			}
			return hubtest.Fault{}
		}, "fewer bytes than the"},
		"always too busy": {func(r hubtest.Request, n int) hubtest.Fault {
			if r.Storage {
				return hubtest.Fault{Status: 429, RetryAfter: "3600"}
			}
			return hubtest.Fault{}
		}, "asks for fewer requests"},
		"only cuts": {func(r hubtest.Request, n int) hubtest.Fault {
			if r.Storage && strings.HasPrefix(r.Range, "bytes=524288-") {
				return hubtest.Fault{Status: 500}
			}
			return hubtest.Fault{}
		}, "status 500"},
	} {
		t.Run(name, func(t *testing.T) {
			server, _, _, begin := streaming(t)
			server.Fault = tc.fault
			_, f := begin()
			_, err := io.Copy(io.Discard, io.NewSectionReader(f, 0, f.Size()))
			var e *Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), tc.reason) || !strings.Contains(err.Error(), "org/name, model.safetensors") {
				t.Error(err)
			}
		})
	}
	// Bytes that differ the second time.
	server, _, _, begin := streaming(t)
	server.Fault = func(r hubtest.Request, n int) hubtest.Fault {
		if r.Storage && strings.HasPrefix(r.Range, "bytes=1048576-") && n > 0 {
			return hubtest.Fault{Flip: 1}
		}
		return hubtest.Fault{}
	}
	_, f := begin()
	p := make([]byte, 100)
	if _, err := f.ReadAt(p, 1<<20); err != nil {
		t.Fatal(err)
	}
	for i := range int64(12) {
		if _, err := f.ReadAt(p, (10+2*i)*piece); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.ReadAt(p, 1<<20); err == nil || !strings.Contains(err.Error(), "not those that came before") {
		t.Error(err)
	}
}

// Reading ends with the context, whoever waits.
func TestStreamEnds(t *testing.T) {
	server, c, _, _ := streaming(t)
	server.Fault = func(r hubtest.Request, n int) hubtest.Fault {
		if r.Storage {
			return hubtest.Fault{Slow: 1 << 40}
		}
		return hubtest.Fault{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := open(t, c, "org/name")
	st, err := c.Stream(ctx, s, 8*piece)
	if err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	for i := range int64(20) {
		readers.Go(func() {
			if _, err := st.Remote()[filepath.Join(s.Path(), "model.safetensors")].ReadAt(make([]byte, piece), 2*i*piece); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	cancel()
	readers.Wait()
}
