package work

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/pem"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
)

// A bucketServer is as much of S3's interface as a bucket uses, over TLS, with what may go
// wrong. Real stores are held to the same in .ci/store.
type bucketServer struct {
	mu      sync.Mutex
	objects map[string][]byte
	uploads map[string]map[string][]byte
	// fault answers instead of the server, or closes the connection, and reports whether it did;
	// after reports that the answer of what was done is to be lost.
	fault func(w http.ResponseWriter, r *http.Request) bool
	after func(r *http.Request) bool
	deaf  string                     // the header of conditions that is ignored
	dead  func(r *http.Request) bool // reports that a body is not to be read
}

func etagOf(p []byte) string {
	sum := md5.Sum(p)
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, code)
}

func cut(w http.ResponseWriter) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		c.Close()
	}
}

func (s *bucketServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.dead != nil && s.dead(r) {
		time.Sleep(3 * time.Second)
		cut(w)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault != nil && s.fault(w, r) {
		return
	}
	key, ok := strings.CutPrefix(r.URL.Path, "/bkt/")
	if !ok {
		refuse(w, 404, "NoSuchBucket")
		return
	}
	q := r.URL.Query()
	there, has := s.objects[key]
	answer := func(v any) { xml.NewEncoder(w).Encode(v) }
	switch {
	case r.Method == "GET" && q.Has("list-type"):
		type contents struct{ Key string }
		var list struct {
			XMLName  xml.Name `xml:"ListBucketResult"`
			Contents []contents
		}
		for k := range s.objects {
			if strings.HasPrefix(k, q.Get("prefix")) {
				list.Contents = append(list.Contents, contents{k})
			}
		}
		answer(list)
	case r.Method == "GET" && q.Has("uploads"):
		type upload struct{ Key, UploadId string }
		var list struct {
			XMLName xml.Name `xml:"ListMultipartUploadsResult"`
			Upload  []upload
		}
		for id := range s.uploads {
			list.Upload = append(list.Upload, upload{strings.TrimPrefix(id, "of "), id})
		}
		answer(list)
	case r.Method == "POST" && q.Has("uploads"):
		s.uploads["of "+key] = map[string][]byte{}
		answer(struct {
			XMLName  xml.Name `xml:"InitiateMultipartUploadResult"`
			UploadId string
		}{UploadId: "of " + key})
	case r.Method == "PUT" && q.Has("partNumber"):
		s.uploads[q.Get("uploadId")][fmt.Sprintf("%09s", q.Get("partNumber"))] = body
		w.Header().Set("ETag", etagOf(body))
	case r.Method == "POST" && q.Has("uploadId"):
		parts := s.uploads[q.Get("uploadId")]
		var all []byte
		for _, k := range slices.Sorted(func(yield func(string) bool) {
			for k := range parts {
				if !yield(k) {
					return
				}
			}
		}) {
			all = append(all, parts[k]...)
		}
		delete(s.uploads, q.Get("uploadId"))
		s.objects[key] = all
		answer(struct {
			XMLName      xml.Name `xml:"CompleteMultipartUploadResult"`
			Bucket, ETag string
		}{Bucket: "bkt", ETag: etagOf(all)})
	case r.Method == "DELETE" && q.Has("uploadId"):
		delete(s.uploads, q.Get("uploadId"))
		w.WriteHeader(204)
	case r.Method == "DELETE":
		delete(s.objects, key)
		w.WriteHeader(204)
	case r.Method == "PUT":
		match := r.Header.Get("If-Match")
		switch {
		case r.Header.Get("If-None-Match") == "*" && has && s.deaf != "If-None-Match":
			refuse(w, 412, "PreconditionFailed")
		case match != "" && !has && s.deaf != "If-Match":
			refuse(w, 404, "NoSuchKey")
		case match != "" && match != etagOf(there) && s.deaf != "If-Match":
			refuse(w, 412, "PreconditionFailed")
		default:
			s.objects[key] = body
			w.Header().Set("ETag", etagOf(body))
		}
	case !has:
		refuse(w, 404, "NoSuchKey")
	default:
		w.Header().Set("ETag", etagOf(there))
		w.Header().Set("Last-Modified", "Sun, 22 Nov 2026 08:49:37 GMT")
		if m := r.Header.Get("If-Match"); m != "" && m != etagOf(there) {
			refuse(w, 412, "PreconditionFailed")
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(there))
	}
	if s.after != nil && s.after(r) {
		cut(w)
	}
}

// serve starts such a server, and returns a place there.
func serve(t *testing.T) (*bucketServer, *Bucket) {
	t.Helper()
	s := &bucketServer{objects: map[string][]byte{}, uploads: map[string]map[string][]byte{}}
	h := httptest.NewTLSServer(s)
	t.Cleanup(h.Close)
	file := filepath.Join(t.TempDir(), "cert.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw}), 0o666); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSL_CERT_FILE", file)
	t.Setenv("TMPDIR", t.TempDir())
	return s, &Bucket{Name: "bkt", Prefix: "p/q", Endpoint: h.URL, Region: "us-east-1", Key: credentials.NewStaticV4("key", "a secret", "")}
}

func opened(t *testing.T, b *Bucket) *objects {
	t.Helper()
	s, err := b.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.close() })
	return s.(*objects)
}

// Two processes share a prefix, one gathers, and nothing is left, in the store and on this
// machine, of a process that was killed too.
func TestBucket(t *testing.T) {
	s, b := serve(t)
	s.objects["p/qq/other"] = []byte("of somebody else")
	job := Job{"model": "m"}
	if _, err := Gather(t.Context(), b, job, time.Second); err == nil || !strings.Contains(err.Error(), "no shard has worked there") {
		t.Error(err)
	}
	var folders []*Folder
	for range 2 {
		f, err := Join(t.Context(), b, job, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		folders = append(folders, f)
	}
	if _, err := Join(t.Context(), b, Job{"model": "another"}, time.Hour); err == nil || !strings.Contains(err.Error(), "another model") {
		t.Error(err)
	}
	release := lease(t, folders[0], "x", true)
	lease(t, folders[1], "x", false)
	if _, err := folders[0].Put(t.Context(), sample(t, "x"), record{1}); err != nil {
		t.Fatal(err)
	}
	release()
	lease(t, folders[1], "x", true)()
	large := bytes.Repeat([]byte("0123456789abcde\n"), 40<<20/16) // three parts
	if err := folders[1].Write(t.Context(), "large", func(out *atomicfile.Output) error { return out.WriteFile(large) }); err != nil {
		t.Fatal(err)
	}
	if _, err := folders[1].Put(t.Context(), sample(t, "sums of x"), record{2}); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := folders[0].Get(t.Context(), "sums of x"); !ok {
		t.Error("what another process put is not there")
	}
	held := filepath.Join(folders[0].Own(""), "sums+of+x.nstf")
	if _, err := os.Stat(held); err != nil {
		t.Error(err)
	}
	if err := errors.Join(folders[1].Drop(t.Context(), "sums of x"), folders[0].Tidy(t.Context())); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(held); err == nil {
		t.Error("a copy of what another process dropped stayed")
	}
	for _, f := range folders {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	s.uploads["of p/q/half"] = map[string][]byte{"1": nil} // of a process that was killed
	f, err := Gather(t.Context(), b, job, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var busy *atomicfile.BusyError
	if _, err := Gather(t.Context(), b, job, time.Second); !errors.As(err, &busy) || !strings.Contains(err.Error(), "process") {
		t.Errorf("two gather: %v", err)
	}
	if x, _, ok := f.Get(t.Context(), "x"); !ok || x.Name != "x" {
		t.Error("what was put is not there")
	}
	path, err := f.Fetch(t.Context(), "large")
	if err != nil {
		t.Fatal(err)
	}
	if p, err := os.ReadFile(path); err != nil || !bytes.Equal(p, large) {
		t.Errorf("%d bytes of %d, %v", len(p), len(large), err)
	}
	if err := f.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(s.objects) != 1 || len(s.uploads) != 0 {
		t.Errorf("%d objects and %d uploads are left", len(s.objects), len(s.uploads))
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "*")); err != nil || len(left) > 0 {
		t.Errorf("%q, %v", left, err)
	}
}

// A lease that was taken over is neither renewed nor given back by who had it; one lock of a
// dead process is taken over.
func TestBucketLeaseOfTheDead(t *testing.T) {
	_, b := serve(t)
	o := opened(t, b)
	ctx := t.Context()
	first, ok, err := o.take(ctx, "l", mark{free: true}, "one")
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	renewed, err := o.renew(ctx, "l", first, "one")
	if err != nil || renewed == first {
		t.Fatal(renewed, err)
	}
	if _, ok, err := o.take(ctx, "l", first, "two"); ok || err != nil {
		t.Error("taken by who had not seen that it was renewed", err)
	}
	second, ok, err := o.take(ctx, "l", renewed, "two")
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if _, err := o.renew(ctx, "l", renewed, "one"); !errors.Is(err, errLost) {
		t.Errorf("renewed by who had lost it: %v", err)
	}
	if err := o.give(ctx, "l", renewed, "one"); !errors.Is(err, errLost) {
		t.Errorf("given back by who had lost it: %v", err)
	}
	if is, err := o.look(ctx, "l"); err != nil || is != second {
		t.Error(is, err)
	}
	lock, err := o.lock(ctx, 400*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	lock.(held).stop() // as a kill does
	began := time.Now()
	again, err := o.lock(ctx, 400*time.Millisecond)
	if err != nil || time.Since(began) < 300*time.Millisecond {
		t.Fatalf("after %v: %v", time.Since(began), err)
	}
	again.Close()
}

// A store that is overloaded, cuts connections and loses answers is asked again.
func TestBucketFaults(t *testing.T) {
	s, b := serve(t)
	o := opened(t, b)
	data := bytes.Repeat([]byte("abcdefgh"), 100_000)
	n := 0
	s.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if n++; n%4 == 0 {
			return false
		}
		switch n % 4 {
		case 1:
			refuse(w, 503, "SlowDown")
		case 2:
			refuse(w, 429, "TooManyRequests")
		case 3:
			if key := strings.TrimPrefix(r.URL.Path, "/bkt/"); r.Method == "GET" && r.Header.Get("Range") != "" && len(s.objects[key]) > 0 {
				// Half of what was asked for, and no more.
				var from int
				fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from)
				rest := s.objects[key][from:]
				w.Header().Set("Content-Length", fmt.Sprint(len(rest)))
				w.Header().Set("ETag", etagOf(s.objects[key]))
				w.Header().Set("Last-Modified", "Sun, 22 Nov 2026 08:49:37 GMT")
				w.WriteHeader(206)
				w.Write(rest[:len(rest)/2])
				w.(http.Flusher).Flush()
			}
			cut(w)
		}
		return true
	}
	if err := o.write(t.Context(), "x", func(out *atomicfile.Output) error { return out.WriteFile(data) }); err != nil {
		t.Fatal(err)
	}
	delete(o.copies, "x")
	path, err := o.fetch(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if p, err := os.ReadFile(path); err != nil || !bytes.Equal(p, data) {
		t.Errorf("%d bytes of %d, %v", len(p), len(data), err)
	}
	if _, err := o.fetch(t.Context(), "y"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	s.fault = nil
	// The answer to a conditional PUT is lost, so that it is repeated and refused.
	lost := 0
	s.after = func(r *http.Request) bool {
		if r.Method == "PUT" && lost == 0 {
			lost++
			return true
		}
		return false
	}
	is, ok, err := o.take(t.Context(), "l", mark{free: true}, "one")
	if err != nil || !ok || lost != 1 {
		t.Fatalf("%v, %v, %d answers lost", ok, err, lost)
	}
	if now, err := o.look(t.Context(), "l"); err != nil || now != is {
		t.Error(now, is, err)
	}
}

// A store that does not keep to conditions is refused when it is opened, and so is one that
// is not there, or not for this user. No secret is in what is said.
func TestBucketRefused(t *testing.T) {
	s, b := serve(t)
	always := func(status int, code string) func(w http.ResponseWriter, r *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool { refuse(w, status, code); return true }
	}
	plain := httptest.NewServer(s)
	defer plain.Close()
	var u *formats.UnsupportedError
	var e *StoreError
	for _, c := range []struct {
		name   string
		wrong  func(b *Bucket)
		reason string
		family any
	}{
		{"no If-None-Match", func(*Bucket) { s.deaf = "If-None-Match" }, "If-None-Match: * forbids goes through", &u},
		{"no If-Match", func(*Bucket) { s.deaf = "If-Match" }, "If-Match forbids goes through", &u},
		{"not implemented", func(*Bucket) { s.fault = always(501, "NotImplemented") }, "does not implement", &u},
		{"no bucket", func(b *Bucket) { b.Name = "none" }, "NoSuchBucket", &e},
		{"not allowed", func(*Bucket) { s.fault = always(403, "AccessDenied") }, "AccessDenied", &e},
		{"no key", func(b *Bucket) { b.Key = credentials.NewStaticV4("", "", "") }, "no credentials", &e},
		{"another scheme", func(b *Bucket) { b.Endpoint = "ftp://a secret@host" }, "not https://HOST", &e},
		{"a password in the address", func(b *Bucket) { b.Endpoint = "https://u:a-secret@host" }, "more than https://HOST", &e},
		{"no TLS", func(b *Bucket) { b.Endpoint = "https" + strings.TrimPrefix(plain.URL, "http") }, "HTTP response to HTTPS client", &e},
	} {
		s.deaf, s.fault = "", nil
		b := *b
		c.wrong(&b)
		_, err := Join(t.Context(), &b, Job{}, time.Second)
		if err == nil || !strings.Contains(err.Error(), c.reason) || !errors.As(err, c.family) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if len(s.objects) > 0 {
		t.Errorf("%d objects are left", len(s.objects))
	}
}

func TestParseBucket(t *testing.T) {
	for address, want := range map[string]string{
		"s3://b-1/p": "b-1 p", "s3://bucket/p/q/": "bucket p/q",
		"s3://bucket": "", "s3://bucket/": "", "s3:///p": "", "gs://bucket/p": "", "s3://B/p": "", "s3://bucket/a//b": "", "s3://bucket/../x": "", "s3://bucket/a b": "",
	} {
		b, err := ParseBucket(address)
		if got := ""; err == nil {
			if got = b.Name + " " + b.Prefix; got != want {
				t.Errorf("%s: %s", address, got)
			}
		} else if want != "" {
			t.Errorf("%s: %v", address, err)
		}
	}
}
