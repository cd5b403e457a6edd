package work

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/nstf/nstf/formats/atomicfile"
)

// Keys that lead out of the folder of copies, or deeper, are nobody's work: neither a file of
// this machine nor what lies there goes.
func TestBucketForeignKeys(t *testing.T) {
	s, b := serve(t)
	job := Job{"model": "m"}
	f, err := Join(t.Context(), b, job, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	letter := filepath.Join(os.TempDir(), "letter.tmp-1")
	if err := os.WriteFile(letter, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	foreign := []string{"p/q/../letter.tmp-1", "p/q/./letter.tmp-1", "p/q/sub/x.tmp-1", `p/q/a\b.tmp-1`, "p/q/.", "p/q/.."}
	for _, key := range foreign {
		s.objects[key] = nil
	}
	s.uploads["of p/q/sub/y"] = map[string][]byte{}
	if f, err = Gather(t.Context(), b, job, time.Second); err != nil {
		t.Fatal(err)
	}
	f.store.(*objects).forget("../letter.tmp-1")
	if err := f.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(letter); err != nil {
		t.Error(err)
	}
	if len(s.objects) != len(foreign) || len(s.uploads) != 1 {
		t.Errorf("%d objects and %d uploads are left", len(s.objects), len(s.uploads))
	}
}

// late has the next PUT of a name granted after who asked for it has given up.
func late(t *testing.T, s *bucketServer, name string) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	s.after = func(r *http.Request) bool {
		if r.Method != "PUT" || !strings.HasSuffix(r.URL.Path, "/"+name) {
			return false
		}
		s.after = nil
		cancel()
		return true
	}
	return ctx
}

// A renewal that was given up and granted all the same loses no lease: it is renewed and given
// back by what then is there. A store that cannot be asked says nothing of it.
func TestBucketLateRenewal(t *testing.T) {
	s, b := serve(t)
	o := opened(t, b)
	own, ok, err := o.take(t.Context(), "l", mark{free: true}, "one")
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if _, err := o.renew(late(t, s, "l"), "l", own, "one"); err == nil || errors.Is(err, errLost) {
		t.Fatal(err)
	}
	s.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == "GET" {
			refuse(w, 503, "SlowDown")
		}
		return r.Method == "GET"
	}
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := o.renew(short, "l", own, "one"); err == nil || errors.Is(err, errLost) {
		t.Errorf("lost to nobody: %v", err)
	}
	s.fault = nil
	if own, err = o.renew(t.Context(), "l", own, "one"); err != nil {
		t.Fatalf("after a late renewal: %v", err)
	}
	if own, err = o.renew(t.Context(), "l", own, "one"); err != nil {
		t.Fatal(err)
	}
	if _, err := o.renew(late(t, s, "l"), "l", own, "one"); err == nil {
		t.Fatal("granted in time")
	}
	if err := o.give(t.Context(), "l", own, "one"); err != nil {
		t.Fatalf("after a late renewal: %v", err)
	}
	if is, err := o.look(t.Context(), "l"); err != nil || !is.free {
		t.Error(is, err)
	}
}

// Who has lost the lock of a place removes nothing there.
func TestBucketDiscardByTheDead(t *testing.T) {
	s, b := serve(t)
	job := Job{"model": "m"}
	f, err := Join(t.Context(), b, job, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Put(t.Context(), sample(t, "x"), record{1}); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if f, err = Gather(t.Context(), b, job, time.Hour); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.objects["p/q/"+lockFile] = []byte("process 7 on elsewhere\n01\n")
	s.mu.Unlock()
	var busy *atomicfile.BusyError
	if err := f.Remove(t.Context()); !errors.As(err, &busy) || busy.Holder != "process 7 on elsewhere" {
		t.Errorf("discarded what another process gathers: %v", err)
	}
	if len(s.objects) != 3 {
		t.Errorf("%d objects are left", len(s.objects))
	}
}

// A process that gathers sweeps away what another has just laid down to probe the store.
func TestBucketProbeSwept(t *testing.T) {
	for n := range 3 { // behind the n-th PUT
		s, b := serve(t)
		s.after = func(r *http.Request) bool {
			if r.Method == "PUT" {
				if n--; n < 0 {
					for key := range s.objects {
						delete(s.objects, key)
					}
					s.after = nil
				}
			}
			return false
		}
		opened(t, b)
		if len(s.objects) > 0 {
			t.Errorf("%d objects are left", len(s.objects))
		}
	}
}

// What took long, as a large upload, and fails at the end is tried again; a store that is out
// of reach is given up.
func TestBucketPatience(t *testing.T) {
	_, b := serve(t)
	o := opened(t, b)
	o.patience = 50 * time.Millisecond
	busy := minio.ErrorResponse{StatusCode: 503}
	n := 0
	err := o.asked(t.Context(), "x", func() error {
		if n++; n == 5 { // one failure to count from, and three anew
			return nil
		}
		time.Sleep(2 * o.patience)
		return busy
	})
	if err != nil || n != 5 {
		t.Errorf("after %d: %v", n, err)
	}
	n = 0
	var e *StoreError
	if err := o.asked(t.Context(), "x", func() error { n++; return busy }); !errors.As(err, &e) || n != 2 {
		t.Errorf("after %d: %v", n, err)
	}
	// The errors of a full disk are those of no network.
	n = 0
	full := &atomicfile.DiskFullError{Path: "x", Err: &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}}
	if err := o.asked(t.Context(), "x", func() error { n++; return full }); !errors.Is(err, syscall.ENOSPC) || n != 1 {
		t.Errorf("after %d: %v", n, err)
	}
}

// A connection that falls silent is given up, and the transfer gone on with.
func TestBucketSilence(t *testing.T) {
	s, b := serve(t)
	o := opened(t, b)
	data := bytes.Repeat([]byte("abcdefgh"), 2<<20)
	s.objects["p/q/x"] = data
	silent := 0
	s.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != "GET" || silent > 0 {
			return false
		}
		silent++
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		w.Header().Set("ETag", etagOf(data))
		w.Header().Set("Last-Modified", "Sun, 22 Nov 2026 08:49:37 GMT")
		w.WriteHeader(206)
		w.Write(data[:len(data)/2])
		w.(http.Flusher).Flush()
		s.mu.Unlock()
		select {
		case <-r.Context().Done():
		case <-time.After(20 * time.Second):
		}
		s.mu.Lock()
		return true
	}
	o.stall = 300 * time.Millisecond
	began := time.Now()
	path, err := o.fetch(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if p, err := os.ReadFile(path); err != nil || !bytes.Equal(p, data) || silent != 1 {
		t.Errorf("%d bytes of %d, %v, %d times silent", len(p), len(data), err, silent)
	}
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("a silent download was held for %v", d)
	}
	// One that is slow is none that is silent.
	pieces := 0
	s.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != "GET" {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		w.Header().Set("ETag", etagOf(data))
		w.Header().Set("Last-Modified", "Sun, 22 Nov 2026 08:49:37 GMT")
		w.WriteHeader(206)
		for at := range 10 {
			w.Write(data[at*len(data)/10 : (at+1)*len(data)/10])
			w.(http.Flusher).Flush()
			pieces++
			time.Sleep(o.stall / 5)
		}
		return true
	}
	delete(o.copies, "x")
	if _, err := o.fetch(t.Context(), "x"); err != nil || pieces != 10 {
		t.Errorf("%d pieces, %v", pieces, err)
	}
	s.fault = nil
	deaf := 0
	s.dead = func(r *http.Request) bool {
		if r.Method == "PUT" && deaf == 0 {
			deaf++
			return true
		}
		return false
	}
	o.stall = 100 * time.Millisecond
	began = time.Now()
	if err := o.write(t.Context(), "y", func(out *atomicfile.Output) error { return out.WriteFile(data[:15<<20]) }); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d > 2500*time.Millisecond || deaf != 1 {
		t.Errorf("a silent upload was held for %v", d)
	}
	if !bytes.Equal(s.objects["p/q/y"], data[:15<<20]) {
		t.Errorf("%d bytes were written", len(s.objects["p/q/y"]))
	}
}

// rotating gives keys as a role does, which has none at times.
type rotating struct {
	give []func() (credentials.Value, error)
}

func (r *rotating) Retrieve() (credentials.Value, error) {
	next := r.give[0]
	if len(r.give) > 1 {
		r.give = r.give[1:]
	}
	return next()
}

func (r *rotating) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	return r.Retrieve()
}

func (r *rotating) IsExpired() bool { return len(r.give) > 1 }

// A refresh that brings no key is waited for. No request goes out unsigned.
func TestBucketKeys(t *testing.T) {
	s, b := serve(t)
	key := func() (credentials.Value, error) {
		return credentials.Value{AccessKeyID: "key", SecretAccessKey: "a secret", SignerType: credentials.SignatureV4}, nil
	}
	empty := func() (credentials.Value, error) {
		return credentials.Value{SignerType: credentials.SignatureAnonymous}, nil
	}
	fails := func() (credentials.Value, error) { return credentials.Value{}, errors.New("500 Internal Server Error") }
	s.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") == "" {
			t.Errorf("%s %s is not signed", r.Method, r.URL.Path)
			refuse(w, 403, "AccessDenied")
			return true
		}
		return false
	}
	role := &rotating{[]func() (credentials.Value, error){key}}
	b.Key = credentials.New(role)
	o := opened(t, b)
	role.give = []func() (credentials.Value, error){empty, fails, empty, key}
	if _, err := o.list(t.Context()); err != nil || len(role.give) != 1 {
		t.Errorf("%v, and %d keys to come", err, len(role.give))
	}
	var e *StoreError
	for _, none := range []func() (credentials.Value, error){empty, fails} {
		b.Key = credentials.New(&rotating{[]func() (credentials.Value, error){none}})
		began := time.Now()
		if _, err := b.open(t.Context()); !errors.As(err, &e) || !strings.Contains(err.Error(), "no credentials") || time.Since(began) > 5*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	}
}
