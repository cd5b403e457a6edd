// Package hubtest is a hub for tests: it answers as https://huggingface.co answers what
// huggingface_hub 1.33 asks, with storage on another host, and misbehaves where a test
// wants it to.
package hubtest

import (
	"bytes"
	"cmp"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Repo is what a hub has of a model.
type Repo struct {
	Private bool                         // answers as if it were not there without Token
	Gated   bool                         // refuses files without Token
	Commits map[string]string            // by branch or tag
	Files   map[string]map[string][]byte // by commit and path
}

// One is a repository of one commit on main.
func One(files map[string][]byte) *Repo {
	at := Commit(files)
	return &Repo{Commits: map[string]string{"main": at}, Files: map[string]map[string][]byte{at: files}}
}

// Folder is a repository of the files of a folder.
func Folder(folder fs.FS) (*Repo, error) {
	files := map[string][]byte{}
	err := fs.WalkDir(folder, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files[p], err = fs.ReadFile(folder, p)
		return err
	})
	return One(files), err
}

// Commit makes up the hash of a commit.
func Commit(files map[string][]byte) string {
	h := sha1.New()
	for _, name := range sorted(files) {
		fmt.Fprintf(h, "%s %d\n", name, len(files[name]))
		h.Write(files[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// A Fault changes one answer; the zero value changes nothing.
type Fault struct {
	Status     int           // answer with it
	RetryAfter string        // beside Status
	Cut        int           // end the connection behind so many bytes of the body; 0: not
	Flip       int           // change the byte before this one of the body; 0: none
	NoRanges   bool          // send the whole file
	Range      string        // as Content-Range
	Slow       time.Duration // between pieces of 64 KiB
	ETag       string        // instead of the storage's own
}

// A Request is one that a hub got.
type Request struct {
	Storage bool // by the host where contents lie
	Method  string
	Path    string
	Range   string
	Token   string
}

// A Server is a hub with its storage. Its fields are set before it is asked.
type Server struct {
	Repos map[string]*Repo
	Token string
	// Fault is asked before every answer; n counts those of the same path and range.
	Fault func(r Request, n int) Fault
	// PartSize is what the storage takes at once, of larger contents in parts; 0: anything.
	PartSize int
	// PerPage bounds a list of files; 0: 1000.
	PerPage int
	// Size is what is said of files in the storage, by path, instead of their size.
	Size map[string]int64

	// Hub and Storage are hosts of different names, as huggingface_hub wants them.
	Hub, Storage *httptest.Server

	mu       sync.Mutex
	requests []Request
	counts   map[Request]int
	expired  map[string]bool // signatures
	signed   int
	hashes   map[*byte]string // of contents that lie in the storage
	uploads                   // see push.go
}

// LFS is the size from which contents lie in the storage.
const LFS = 8 << 10

// New starts a hub.
func New(repos map[string]*Repo) *Server {
	s := &Server{Repos: repos, counts: map[Request]int{}, expired: map[string]bool{}, hashes: map[*byte]string{}, uploads: uploads{objects: map[string][]byte{}, parts: map[string]map[int][]byte{}}}
	s.Hub = httptest.NewServer(s.Handler())
	s.Storage = httptest.NewServer(http.HandlerFunc(s.storage))
	return s
}

// Close stops it.
func (s *Server) Close() {
	s.Hub.Close()
	s.Storage.Close()
}

// repo returns a repository as it is now.
func (s *Server) repo(name string) *Repo {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Repos[name]
}

// Requests returns what was asked.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Expire lets no address of the storage be good any more that was given out.
func (s *Server) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.signed + 1 {
		s.expired[strconv.Itoa(i)] = true
	}
}

// note remembers a request and returns the fault of its answer.
func (s *Server) note(r *http.Request, storage bool) Fault {
	q := Request{Storage: storage, Method: r.Method, Path: r.URL.Path, Range: r.Header.Get("Range"), Token: strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")}
	s.mu.Lock()
	s.requests = append(s.requests, q)
	key := q
	key.Token = ""
	n := s.counts[key]
	s.counts[key]++
	s.mu.Unlock()
	if s.Fault == nil {
		return Fault{}
	}
	return s.Fault(q, n)
}

// Handler answers as the hub.
func (s *Server) Handler() http.Handler {
	api, files := http.NewServeMux(), http.NewServeMux()
	api.HandleFunc("GET /api/models/{org}/{name}", s.info)
	api.HandleFunc("GET /api/models/{org}/{name}/revision/{revision}", s.info)
	api.HandleFunc("GET /api/models/{org}/{name}/tree/{revision}", s.tree)
	s.handlePushes(api, files)
	files.HandleFunc("GET /{org}/{name}/resolve/{revision}/{file...}", s.resolve)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/") {
			api.ServeHTTP(w, r)
		} else {
			files.ServeHTTP(w, r)
		}
	})
}

func fail(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("X-Error-Code", code)
	w.Header().Set("X-Error-Message", message)
	http.Error(w, `{"error":"`+message+`"}`, status)
}

// found returns the files that a request means, or answers it.
func (s *Server) found(w http.ResponseWriter, r *http.Request) (commit string, files map[string][]byte, fault Fault, ok bool) {
	fault = s.note(r, false)
	if fault.Status != 0 {
		if fault.RetryAfter != "" {
			w.Header().Set("Retry-After", fault.RetryAfter)
		}
		w.WriteHeader(fault.Status)
		return "", nil, fault, false
	}
	repo := s.repo(r.PathValue("org") + "/" + strings.TrimSuffix(r.PathValue("name"), ".git"))
	known := s.Token != "" && r.Header.Get("Authorization") == "Bearer "+s.Token
	if repo == nil || repo.Private && !known {
		if known {
			fail(w, http.StatusNotFound, "RepoNotFound", "Repository not found")
		} else {
			fail(w, http.StatusUnauthorized, "RepoNotFound", "Invalid username or password.")
		}
		return "", nil, fault, false
	}
	if repo.Gated && !known && !strings.HasPrefix(r.URL.Path, "/api/") {
		fail(w, http.StatusForbidden, "GatedRepo", "Access to this model is restricted.")
		return "", nil, fault, false
	}
	revision := r.PathValue("revision")
	if revision == "" {
		revision = "main"
	}
	commit = revision
	if c := repo.Commits[revision]; c != "" {
		commit = c
	}
	if files = repo.Files[commit]; files == nil {
		fail(w, http.StatusNotFound, "RevisionNotFound", "Invalid rev id: "+revision)
		return "", nil, fault, false
	}
	return commit, files, fault, true
}

func (s *Server) info(w http.ResponseWriter, r *http.Request) {
	commit, files, _, ok := s.found(w, r)
	if !ok {
		return
	}
	siblings := []map[string]any{}
	for _, name := range sorted(files) {
		siblings = append(siblings, map[string]any{"rfilename": name})
	}
	id := r.PathValue("org") + "/" + r.PathValue("name")
	answer(w, map[string]any{"id": id, "modelId": id, "sha": commit, "private": false, "gated": false, "disabled": false, "downloads": 0, "likes": 0, "tags": []string{}, "siblings": siblings})
}

func (s *Server) tree(w http.ResponseWriter, r *http.Request) {
	_, files, _, ok := s.found(w, r)
	if !ok {
		return
	}
	names := sorted(files)
	from, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
	per := s.PerPage
	if per == 0 {
		per = 1000
	}
	page := []map[string]any{}
	for _, name := range names[min(from, len(names)):min(from+per, len(names))] {
		p := files[name]
		e := map[string]any{"type": "file", "path": name, "size": len(p)}
		if len(p) < LFS {
			e["oid"] = gitHash(p)
		} else {
			e["oid"] = gitHash([]byte(s.hash(p)))
			e["lfs"] = map[string]any{"oid": s.hash(p), "size": cmp.Or(s.Size[name], int64(len(p))), "pointerSize": 130}
		}
		page = append(page, e)
	}
	if from+per < len(names) {
		next := *r.URL
		q := next.Query()
		q.Set("cursor", strconv.Itoa(from+per))
		next.RawQuery = q.Encode()
		w.Header().Set("Link", fmt.Sprintf(`<%s%s>; rel="next"`, s.Hub.URL, next.String()))
	}
	answer(w, page)
}

func (s *Server) resolve(w http.ResponseWriter, r *http.Request) {
	commit, files, fault, ok := s.found(w, r)
	if !ok {
		return
	}
	name := path.Clean(r.PathValue("file"))
	p, ok := files[name]
	if !ok {
		fail(w, http.StatusNotFound, "EntryNotFound", "Entry not found")
		return
	}
	w.Header().Set("X-Repo-Commit", commit)
	if len(p) < LFS {
		w.Header().Set("ETag", `"`+gitHash(p)+`"`)
		send(w, r, p, fault)
		return
	}
	w.Header().Set("X-Linked-Etag", `"`+s.hash(p)+`"`)
	w.Header().Set("X-Linked-Size", strconv.Itoa(len(p)))
	w.Header().Set("ETag", `"`+gitHash([]byte(s.hash(p)))+`"`)
	s.mu.Lock()
	s.signed++
	signature := s.signed
	s.mu.Unlock()
	q := url.Values{"repo": {r.PathValue("org") + "/" + r.PathValue("name")}, "commit": {commit}, "file": {name}, "signature": {strconv.Itoa(signature)}}
	http.Redirect(w, r, strings.Replace(s.Storage.URL, "127.0.0.1", "localhost", 1)+"/"+s.hash(p)+"?"+q.Encode(), http.StatusFound)
}

// storage answers as the host where contents lie.
func (s *Server) storage(w http.ResponseWriter, r *http.Request) {
	fault := s.note(r, true)
	if fault.Status == 0 && r.Method == http.MethodPut {
		s.take(w, r, fault)
		return
	}
	if fault.Status != 0 {
		if fault.RetryAfter != "" {
			w.Header().Set("Retry-After", fault.RetryAfter)
		}
		w.WriteHeader(fault.Status)
		return
	}
	q := r.URL.Query()
	s.mu.Lock()
	expired := s.expired[q.Get("signature")]
	s.mu.Unlock()
	repo := s.repo(q.Get("repo"))
	if repo == nil || expired {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	p := repo.Files[q.Get("commit")][q.Get("file")]
	w.Header().Set("ETag", `"`+cmp.Or(fault.ETag, s.hash(p))+`"`)
	send(w, r, p, fault)
}

// send answers with a content, a range of it, or what a fault makes of it.
func send(w http.ResponseWriter, r *http.Request, p []byte, f Fault) {
	if f.NoRanges {
		r.Header.Del("Range")
	}
	if f == (Fault{NoRanges: f.NoRanges}) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(p))
		return
	}
	var first, last int
	status := http.StatusOK
	if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last); n == 2 && first < len(p) {
		status = http.StatusPartialContent
		last = min(last, len(p)-1)
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(p)))
		p = p[first : last+1]
	}
	if f.Range != "" {
		w.Header().Set("Content-Range", f.Range)
	}
	if f.Flip > 0 && f.Flip <= len(p) {
		p = slices.Clone(p)
		p[f.Flip-1] ^= 1
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(p)))
	w.WriteHeader(status)
	end := len(p)
	if f.Cut > 0 {
		end = min(f.Cut, len(p))
	}
	for from := 0; from < end; from += 64 << 10 {
		w.Write(p[from:min(from+64<<10, end)])
		if f.Slow > 0 {
			w.(http.Flusher).Flush()
			select {
			case <-time.After(f.Slow):
			case <-r.Context().Done():
				return
			}
		}
	}
	if f.Cut > 0 && f.Cut < len(p) {
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // who went away reads no error
}

// hash is Hash of a content that does not change.
func (s *Server) hash(p []byte) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.hashes[&p[0]]
	if !ok {
		h = Hash(p)
		s.hashes[&p[0]] = h
	}
	return h
}

// Hash is what the hub names large contents by.
func Hash(p []byte) string {
	h := sha256.Sum256(p)
	return hex.EncodeToString(h[:])
}

func gitHash(p []byte) string {
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", len(p))
	h.Write(p)
	return hex.EncodeToString(h.Sum(nil))
}

func sorted(files map[string][]byte) (names []string) {
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
