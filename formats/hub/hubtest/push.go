package hubtest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
)

// uploads are what a server was sent and nobody has committed yet.
type uploads struct {
	objects map[string][]byte         // by SHA-256
	parts   map[string]map[int][]byte // of objects that come in parts, by upload
	begun   int
}

// Forget drops the parts of contents that are not whole, as storages do after a while.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.parts)
}

func (s *Server) handlePushes(api, files *http.ServeMux) {
	api.HandleFunc("POST /api/repos/create", s.create)
	api.HandleFunc("POST /api/validate-yaml", func(w http.ResponseWriter, r *http.Request) {
		answer(w, map[string]any{"errors": []any{}, "warnings": []any{}})
	})
	api.HandleFunc("POST /api/models/{org}/{name}/branch/{branch}", s.branch)
	api.HandleFunc("POST /api/models/{org}/{name}/preupload/{revision}", s.preupload)
	api.HandleFunc("POST /api/models/{org}/{name}/commit/{revision}", s.commit)
	files.HandleFunc("POST /{org}/{name}/info/lfs/objects/batch", s.batch)
	files.HandleFunc("POST /{org}/{name}/info/lfs/verify", s.verify)
	files.HandleFunc("POST /{org}/{name}/info/lfs/complete/{upload}", s.complete)
}

// may answers who may not write.
func (s *Server) may(w http.ResponseWriter, r *http.Request) bool {
	if s.Token != "" && r.Header.Get("Authorization") == "Bearer "+s.Token {
		return true
	}
	fail(w, http.StatusUnauthorized, "", "Invalid username or password.")
	return false
}

// asked reads what a request asks for.
func asked(w http.ResponseWriter, r *http.Request, v any) bool {
	if err := json.NewDecoder(r.Body).Decode(v); err != nil {
		fail(w, http.StatusBadRequest, "", err.Error())
		return false
	}
	return true
}

func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	var q struct{ Name, Organization, Type, Visibility string }
	if fault := s.note(r, false); fault.Status != 0 {
		w.WriteHeader(fault.Status)
		return
	}
	if !s.may(w, r) || !asked(w, r, &q) {
		return
	}
	name := q.Organization + "/" + q.Name
	s.mu.Lock()
	_, there := s.Repos[name]
	if !there {
		one := One(map[string][]byte{".gitattributes": []byte("*.nstf filter=lfs diff=lfs merge=lfs -text\n")})
		one.Private = q.Visibility == "private"
		s.Repos[name] = one
	}
	s.mu.Unlock()
	if there {
		fail(w, http.StatusConflict, "", "You already created this model repo")
		return
	}
	answer(w, map[string]any{"url": s.Hub.URL + "/" + name, "name": name, "id": name})
}

func (s *Server) branch(w http.ResponseWriter, r *http.Request) {
	commit, _, _, ok := s.found(w, r)
	if !ok || !s.may(w, r) {
		return
	}
	s.mu.Lock()
	name := r.PathValue("org") + "/" + r.PathValue("name")
	_, there := s.Repos[name].Commits[r.PathValue("branch")]
	if !there {
		s.point(name, r.PathValue("branch"), commit, nil)
	}
	s.mu.Unlock()
	if there {
		fail(w, http.StatusConflict, "", "Reference already exists")
		return
	}
	answer(w, map[string]any{})
}

// point lets a branch be a commit, in a copy of the repository. The lock is held.
func (s *Server) point(name, branch, commit string, files map[string][]byte) {
	now := *s.Repos[name]
	now.Commits, now.Files = maps.Clone(now.Commits), maps.Clone(now.Files)
	now.Commits[branch] = commit
	if files != nil {
		now.Files[commit] = files
	}
	s.Repos[name] = &now
}

func (s *Server) preupload(w http.ResponseWriter, r *http.Request) {
	_, files, _, ok := s.found(w, r)
	if !ok || !s.may(w, r) {
		return
	}
	var q struct {
		Files []struct {
			Path, Sample string
			Size         int
		}
	}
	if !asked(w, r, &q) {
		return
	}
	all := []map[string]any{}
	for _, f := range q.Files {
		sample, err := base64.StdEncoding.DecodeString(f.Sample)
		if err != nil || len(sample) != min(512, f.Size) {
			fail(w, http.StatusBadRequest, "", "sample of "+f.Path)
			return
		}
		e := map[string]any{"path": f.Path, "uploadMode": "regular", "shouldIgnore": false}
		if f.Size >= LFS {
			e["uploadMode"] = "lfs"
		}
		if p, ok := files[f.Path]; ok {
			e["oid"] = gitHash(p)
			if len(p) >= LFS {
				e["oid"] = s.hash(p)
			}
		}
		all = append(all, e)
	}
	answer(w, map[string]any{"files": all})
}

func (s *Server) batch(w http.ResponseWriter, r *http.Request) {
	_, _, _, ok := s.found(w, r)
	if !ok || !s.may(w, r) {
		return
	}
	var q struct {
		Operation string
		Transfers []string
		Objects   []struct {
			OID  string
			Size int
		}
		Ref struct{ Name string }
	}
	if !asked(w, r, &q) {
		return
	}
	repo := r.PathValue("org") + "/" + r.PathValue("name")
	storage := strings.Replace(s.Storage.URL, "127.0.0.1", "localhost", 1)
	all := []map[string]any{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range q.Objects {
		e := map[string]any{"oid": o.OID, "size": o.Size, "authenticated": true}
		all = append(all, e)
		if _, there := s.objects[o.OID]; there {
			continue
		}
		verify := map[string]any{"href": s.Hub.URL + "/" + repo + "/info/lfs/verify"}
		if s.PartSize == 0 || o.Size <= s.PartSize {
			e["actions"] = map[string]any{"upload": map[string]any{"href": storage + "/put?oid=" + o.OID}, "verify": verify}
			continue
		}
		s.begun++
		id := fmt.Sprintf("%s-%d", o.OID, s.begun)
		s.parts[id] = map[int][]byte{}
		header := map[string]any{"chunk_size": strconv.Itoa(s.PartSize)}
		for i := 0; i*s.PartSize < o.Size; i++ {
			header[fmt.Sprintf("%05d", i+1)] = storage + "/put?" + url.Values{"upload": {id}, "part": {strconv.Itoa(i + 1)}}.Encode()
		}
		e["actions"] = map[string]any{"upload": map[string]any{"href": s.Hub.URL + "/" + repo + "/info/lfs/complete/" + id, "header": header}, "verify": verify}
	}
	answer(w, map[string]any{"transfer": "basic", "objects": all})
}

// take stores contents, or a part of some.
func (s *Server) take(w http.ResponseWriter, r *http.Request, f Fault) {
	var body io.Reader = r.Body
	if f.Cut > 0 {
		io.CopyN(io.Discard, body, int64(f.Cut))
		panic(http.ErrAbortHandler)
	}
	p, err := io.ReadAll(body)
	if err != nil || int64(len(p)) != r.ContentLength {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	q := r.URL.Query()
	s.mu.Lock()
	defer s.mu.Unlock()
	if id := q.Get("upload"); id != "" {
		n, _ := strconv.Atoi(q.Get("part"))
		if s.parts[id] == nil || n < 1 {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		s.parts[id][n] = p
		w.Header().Set("ETag", `"`+Hash(p)+`"`)
		return
	}
	if Hash(p) != q.Get("oid") {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.objects[q.Get("oid")] = p
}

func (s *Server) complete(w http.ResponseWriter, r *http.Request) {
	if fault := s.note(r, false); fault.Status != 0 {
		w.WriteHeader(fault.Status)
		return
	}
	var q struct {
		OID   string
		Parts []struct {
			PartNumber int
			ETag       string
		}
	}
	if !asked(w, r, &q) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []byte
	for i, part := range q.Parts {
		p := s.parts[r.PathValue("upload")][i+1]
		if part.PartNumber != i+1 || part.ETag != `"`+Hash(p)+`"` {
			fail(w, http.StatusBadRequest, "", "parts")
			return
		}
		all = append(all, p...)
	}
	if Hash(all) != q.OID {
		fail(w, http.StatusBadRequest, "", "hash")
		return
	}
	s.objects[q.OID] = all
	delete(s.parts, r.PathValue("upload"))
	answer(w, map[string]any{})
}

func (s *Server) verify(w http.ResponseWriter, r *http.Request) {
	s.note(r, false)
	var q struct {
		OID  string
		Size int
	}
	if !s.may(w, r) || !asked(w, r, &q) {
		return
	}
	s.mu.Lock()
	p, there := s.objects[q.OID]
	s.mu.Unlock()
	if !there || len(p) != q.Size {
		fail(w, http.StatusNotFound, "", "no such object")
		return
	}
	answer(w, map[string]any{})
}

// commit takes a commit; a fault's Cut ends the connection behind it.
func (s *Server) commit(w http.ResponseWriter, r *http.Request) {
	_, files, fault, ok := s.found(w, r)
	if !ok || !s.may(w, r) {
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Header.Get("Content-Type") != "application/x-ndjson" {
		fail(w, http.StatusBadRequest, "", "not lines of JSON")
		return
	}
	files = maps.Clone(files)
	name, branch := r.PathValue("org")+"/"+r.PathValue("name"), r.PathValue("revision")
	s.mu.Lock()
	defer s.mu.Unlock()
	now, there := s.Repos[name].Commits[branch]
	if !there {
		fail(w, http.StatusBadRequest, "", "not a branch: "+branch)
		return
	}
	for i, line := range bytes.Split(bytes.TrimSpace(body), []byte("\n")) {
		var q struct {
			Key   string
			Value struct {
				Summary, ParentCommit, Path, Content, Encoding, Algo, OID string
				Size                                                      int
			}
		}
		err := json.Unmarshal(line, &q)
		switch v := q.Value; {
		case err != nil || (i == 0) != (q.Key == "header") || q.Key != "header" && path.Clean("/"+v.Path) != "/"+v.Path:
			fail(w, http.StatusBadRequest, "", "line "+strconv.Itoa(i))
			return
		case q.Key == "header" && v.Summary == "":
			fail(w, http.StatusBadRequest, "", "no summary")
			return
		case q.Key == "header" && v.ParentCommit != "" && v.ParentCommit != now:
			fail(w, http.StatusPreconditionFailed, "", "A commit has happened since. Please refresh and try again.")
			return
		case q.Key == "file":
			if files[v.Path], err = base64.StdEncoding.DecodeString(v.Content); err != nil || v.Encoding != "base64" {
				fail(w, http.StatusBadRequest, "", v.Path)
				return
			}
		case q.Key == "lfsFile":
			p, there := s.objects[v.OID]
			if !there || v.Algo != "sha256" || len(p) != v.Size {
				fail(w, http.StatusBadRequest, "", "no such object: "+v.OID)
				return
			}
			files[v.Path] = p
		case q.Key == "deletedFile":
			delete(files, v.Path)
		}
	}
	at := Commit(files)
	s.point(name, branch, at, files)
	if fault.Cut > 0 {
		panic(http.ErrAbortHandler)
	}
	answer(w, map[string]any{"success": true, "commitOid": at, "commitUrl": s.Hub.URL + "/" + name + "/commit/" + at})
}
