package hub

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nstf/nstf/formats"
)

// An Upload is what [Client.Push] brings to a repository, in one commit.
type Upload struct {
	Repo     string // "org/name"; made where it is not there
	Revision string // a branch; made where it is not there
	Private  bool   // of a repository that is made
	Message  string // of the commit
	Files    []UploadFile
}

// An UploadFile is one file of an upload.
type UploadFile struct {
	Path string // in the repository
	Data formats.RemoteFile
	// Keep decides, where the repository has another file of that name, whether it stays;
	// nil: it does not. Of a larger one than a page of text, only a beginning is shown.
	Keep func(old []byte) bool
}

// Pushed says what a push came to.
type Pushed struct {
	Commit string   // "" where everything was there
	Kept   []string // files that Keep let stay
	Sent   int64    // bytes of contents that went to the storage
}

// The requests are those of huggingface_hub 2.4 (hf_api.py, _commit_api.py, lfs.py):
// large contents by the LFS batch interface (lfs.go), in parts where the hub asks for
// them, and all of it made visible by one commit at the end.

// Push uploads files. Until the commit, which is the last request, nothing in the
// repository changes; contents that the hub has already, of an earlier push that was
// interrupted, are not sent again, and neither are the parts of one that it took, for as
// long as it keeps them. Where the branch changes meanwhile, the push fails. The token goes
// to the hub's own host alone.
func (c *Client) Push(ctx context.Context, u Upload) (*Pushed, error) {
	p := &push{Client: c, Upload: u}
	if c.Offline {
		return nil, &Error{What: u.Repo, Reason: "nothing is uploaded offline", Hint: "HF_HUB_OFFLINE and TRANSFORMERS_OFFLINE forbid to ask the hub"}
	}
	if err := c.prepare(); err != nil {
		return nil, err
	}
	if c.Token == "" {
		return nil, &Error{What: u.Repo, Reason: "uploading needs a token", Missing: true, Hint: writeHint}
	}
	for _, f := range u.Files {
		if err := checkPath(f.Path); err != nil {
			return nil, formats.Errorf(f.Path, "", "%v", err)
		}
	}
	out, err := p.run(ctx)
	return out, p.explainPush(err)
}

const writeHint = "set HF_TOKEN, or write the token by hf auth login: one that may write"

// maxRegular is the largest file that a hub may want inside the commit itself.
const maxRegular = 10 << 20

// maxOld is how much of a file that is there [UploadFile.Keep] is shown.
const maxOld = 256 << 10

// A push is one call of Push.
type push struct {
	*Client
	Upload

	mu          sync.Mutex
	done, total int64
}

// A planned file is one with what the hub wants done about it.
type planned struct {
	UploadFile
	Mode   string `json:"uploadMode"` // "lfs" or "regular"
	Ignore bool   `json:"shouldIgnore"`
	OID    string `json:"oid"` // of the file that is there
	sum    string // SHA-256
	git    string // git's hash, of regular files
}

// own is the name that the hub gives the contents.
func (f *planned) own() string {
	if f.Mode == "regular" {
		return f.git
	}
	return f.sum
}

func (p *push) run(ctx context.Context) (*Pushed, error) {
	files := make([]planned, len(p.Files))
	for i, f := range p.Files {
		files[i] = planned{UploadFile: f}
		p.total += 2 * f.Data.Size() // hashed and sent
	}
	for i := range files {
		if err := p.hash(ctx, &files[i]); err != nil {
			return nil, err
		}
	}
	if err := p.create(ctx); err != nil {
		return nil, err
	}
	parent, err := p.head(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.preupload(ctx, files); err != nil {
		return nil, err
	}
	out := &Pushed{}
	var changed []planned
	for _, f := range files {
		switch {
		case f.Ignore:
			p.note("%s: the repository's .gitignore leaves it out", f.Path)
		case f.OID != "" && f.OID == f.own():
			p.step(f.Data.Size())
		case f.OID != "" && f.Keep != nil && p.keeps(ctx, &f, parent):
			out.Kept = append(out.Kept, f.Path)
			p.step(f.Data.Size())
		default:
			changed = append(changed, f)
		}
	}
	if len(changed) == 0 {
		return out, nil
	}
	sent, err := p.contents(ctx, changed)
	if err != nil {
		return nil, err
	}
	out.Sent = sent
	out.Commit, err = p.commit(ctx, changed, parent)
	return out, err
}

// step tells of bytes that were hashed or sent.
func (p *push) step(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	if p.Progress != nil {
		p.Progress(p.done, p.total)
	}
}

// hash reads a file for the names that the hub gives its contents.
func (p *push) hash(ctx context.Context, f *planned) error {
	size := f.Data.Size()
	sum, git := newHash(File{Etag: strings.Repeat("0", 64)}), newHash(File{Size: size})
	buf := make([]byte, 1<<20)
	for at := int64(0); at < size; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		n, err := f.Data.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
		if n == 0 {
			return fmt.Errorf("%s: %w", f.Path, unexpected(err))
		}
		sum.Write(buf[:n])
		if size <= maxRegular {
			git.Write(buf[:n])
		}
		at += int64(n)
		p.step(int64(n))
	}
	f.sum, f.git = hex.EncodeToString(sum.Sum(nil)), hex.EncodeToString(git.Sum(nil))
	return nil
}

// create makes the repository and the branch where they are not there.
func (p *push) create(ctx context.Context) error {
	org, name, _ := strings.Cut(p.Repo, "/")
	ask := map[string]any{"name": name, "organization": org, "type": "model"}
	if p.Private {
		ask["visibility"] = "private"
	}
	err := p.post(ctx, p.Endpoint+"/api/repos/create", ask, nil)
	var e *refusal
	switch {
	case errors.As(err, &e) && e.status == http.StatusConflict: // there already
	case errors.As(err, &e) && (e.status == http.StatusUnauthorized || e.status == http.StatusPaymentRequired || e.status == http.StatusForbidden):
		// Not to be made with this token; it may be there.
		if _, aerr := p.ask(ctx, p.Endpoint+"/api/models/"+p.Repo, &struct{}{}); aerr != nil {
			return err
		}
	case err != nil:
		return err
	}
	if p.Revision == MainRevision {
		return nil
	}
	err = p.post(ctx, p.Endpoint+"/api/models/"+p.Repo+"/branch/"+url.PathEscape(p.Revision), struct{}{}, nil)
	if errors.As(err, &e) && e.status == http.StatusConflict {
		return nil
	}
	return err
}

// head returns the commit that the branch is.
func (p *push) head(ctx context.Context) (string, error) {
	var info struct {
		SHA string `json:"sha"`
	}
	at := p.Endpoint + "/api/models/" + p.Repo + "/revision/" + url.PathEscape(p.Revision)
	if _, err := p.ask(ctx, at, &info); err != nil {
		return "", err
	}
	if !commit.MatchString(info.SHA) {
		return "", formats.Errorf(at, "", "the hub names %q as its commit", formats.Brief(info.SHA, 100))
	}
	return info.SHA, nil
}

// preupload asks how each file is to be uploaded.
func (p *push) preupload(ctx context.Context, files []planned) error {
	type file struct {
		Path   string `json:"path"`
		Sample string `json:"sample"`
		Size   int64  `json:"size"`
	}
	var ask struct {
		Files []file `json:"files"`
	}
	for _, f := range files {
		sample := make([]byte, min(512, f.Data.Size()))
		if _, err := f.Data.ReadAt(sample, 0); err != nil && err != io.EOF {
			return err
		}
		ask.Files = append(ask.Files, file{f.Path, base64.StdEncoding.EncodeToString(sample), f.Data.Size()})
	}
	var answer struct {
		Files []struct {
			Path string `json:"path"`
			planned
		} `json:"files"`
	}
	at := p.Endpoint + "/api/models/" + p.Repo + "/preupload/" + url.PathEscape(p.Revision)
	if err := p.post(ctx, at, ask, &answer); err != nil {
		return err
	}
	for i := range files {
		f := &files[i]
		for _, a := range answer.Files {
			if a.Path == f.Path {
				f.Mode, f.Ignore, f.OID = a.Mode, a.Ignore, a.OID
			}
		}
		if f.Data.Size() == 0 { // what the storage takes for nothing
			f.Mode = "regular"
		}
		if f.Mode != "lfs" && (f.Mode != "regular" || f.Data.Size() > maxRegular) {
			return formats.Errorf(at, f.Path, "the hub wants %d bytes uploaded as %q", f.Data.Size(), formats.Brief(f.Mode, 40))
		}
	}
	return nil
}

// keeps shows a file of the parent to who decides on it.
func (p *push) keeps(ctx context.Context, f *planned, parent string) bool {
	segments := strings.Split(f.Path, "/")
	for i, s := range segments {
		segments[i] = url.PathEscape(s)
	}
	resp, err := p.get(ctx, p.Endpoint+"/"+p.Repo+"/resolve/"+parent+"/"+strings.Join(segments, "/"), -1, 0)
	if err != nil {
		return true
	}
	defer resp.Body.Close()
	old, err := io.ReadAll(io.LimitReader(resp.Body, maxOld))
	return resp.StatusCode != http.StatusOK || err != nil || f.Keep(old)
}

// commit makes the files visible, and returns the new commit. The hub refuses it where the
// branch is no longer the parent. It is sent again only where the hub said that it did not
// look at it.
func (p *push) commit(ctx context.Context, files []planned, parent string) (string, error) {
	var body bytes.Buffer
	line := json.NewEncoder(&body)
	put := func(key string, value any) { line.Encode(map[string]any{"key": key, "value": value}) } // into memory
	put("header", map[string]string{"summary": cmp.Or(p.Message, "Upload by nstf"), "description": "", "parentCommit": parent})
	for _, f := range files {
		if f.Mode == "lfs" {
			put("lfsFile", map[string]any{"path": f.Path, "algo": "sha256", "oid": f.sum, "size": f.Data.Size()})
			continue
		}
		data := make([]byte, f.Data.Size())
		if n, err := f.Data.ReadAt(data, 0); n < len(data) {
			return "", unexpected(err)
		}
		put("file", map[string]string{"path": f.Path, "content": base64.StdEncoding.EncodeToString(data), "encoding": "base64"})
	}
	var done struct {
		OID string `json:"commitOid"`
	}
	at := p.Endpoint + "/api/models/" + p.Repo + "/commit/" + url.PathEscape(p.Revision)
	var last error
	err := p.again(ctx, "commit", func() (bool, error) {
		resp, err := p.send(ctx, http.MethodPost, at, "application/x-ndjson", bytes.NewReader(body.Bytes()), int64(body.Len()))
		if err == nil {
			err = p.answered(resp, at, &done)
		}
		var e *refusal
		if errors.As(err, &e) && (e.status == http.StatusTooManyRequests || e.status == http.StatusServiceUnavailable && e.after > 0) {
			return false, err
		}
		last = err
		return false, nil
	})
	switch {
	case err != nil:
		return "", err
	case final(last):
		return "", last
	case last != nil:
		return p.committed(ctx, files, parent, last)
	case !commit.MatchString(done.OID):
		return "", formats.Errorf(at, "", "the hub names %q as its commit", formats.Brief(done.OID, 100))
	}
	return done.OID, nil
}

// committed finds out whether the hub took a commit that it did not answer.
func (p *push) committed(ctx context.Context, files []planned, parent string, unanswered error) (string, error) {
	now, err := p.head(ctx)
	if err == nil && now != parent {
		there := slices.Clone(files)
		err = p.preupload(ctx, there)
		if err == nil && !slices.ContainsFunc(there, func(f planned) bool { return f.OID != f.own() }) {
			return now, nil
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		return "", cause
	}
	e := &Error{What: p.Repo, Reason: elsewhere, Hint: repeatHint, Err: unanswered}
	switch {
	case err != nil:
		e.Reason = "the hub did not say whether it took the commit"
	case now == parent:
		e.Reason = "the hub did not take the commit"
	}
	return "", e
}

const (
	elsewhere  = "somebody else changed the repository meanwhile"
	repeatHint = "repeat the command: what was uploaded is not sent again"
)

// post sends JSON and reads JSON, nil for none.
func (p *push) post(ctx context.Context, at string, ask, answer any) error {
	return p.postAs(ctx, at, "application/json", ask, answer)
}

func (p *push) postAs(ctx context.Context, at, kind string, ask, answer any) error {
	body, err := json.Marshal(ask)
	if err != nil {
		return err
	}
	what, _, _ := strings.Cut(at, "?") // what follows may be a signature
	return p.again(ctx, what, func() (bool, error) {
		resp, err := p.send(ctx, http.MethodPost, at, kind, bytes.NewReader(body), int64(len(body)))
		if err != nil {
			return false, err
		}
		return false, p.answered(resp, what, answer)
	})
}

// answered reads an answer as JSON and closes it.
func (p *push) answered(resp *http.Response, at string, v any) error {
	if resp.StatusCode/100 != 2 {
		return p.refused(resp)
	}
	defer resp.Body.Close()
	if v == nil {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, v); err != nil {
		return formats.Errorf(at, "", "not the answer of a hub: %v", err)
	}
	return nil
}

// send sends a body; the token goes to the hub's own host alone. It gives up where the
// body does not move.
func (p *push) send(ctx context.Context, method, at, kind string, body io.Reader, size int64) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(longestWait, func() { cancel(errStalled) })
	moving := &moving{Reader: body, timer: timer}
	r, err := http.NewRequestWithContext(ctx, method, at, io.NopCloser(moving))
	if err != nil {
		timer.Stop()
		cancel(nil)
		return nil, hostAlone(err)
	}
	r.ContentLength = size
	r.Header.Set("User-Agent", cmp.Or(p.Agent, "nstf"))
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	if kind == lfsType {
		r.Header.Set("Accept", lfsType)
	}
	if r.URL.Host == p.base.Host && r.URL.Scheme == p.base.Scheme {
		r.Header.Set("Authorization", "Bearer "+p.Token)
	} else if p.base.Scheme == "https" && r.URL.Scheme != "https" {
		timer.Stop()
		cancel(nil)
		return nil, formats.Errorf(p.Repo, "", "the hub sends the upload from https to %s", r.URL.Scheme)
	}
	resp, err := p.slow.Do(r)
	if err != nil {
		timer.Stop()
		cancel(nil)
		if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
			return nil, cause
		}
		return nil, hostAlone(err)
	}
	resp.Body = &watched{ReadCloser: resp.Body, cancel: cancel, timer: timer, ctx: ctx}
	return resp, nil
}

// A moving body tells that it moves.
type moving struct {
	io.Reader
	timer *time.Timer
}

// Read implements io.Reader.
func (m *moving) Read(p []byte) (int, error) {
	m.timer.Reset(longestWait)
	return m.Reader.Read(p)
}

// explainPush says what a failure of an upload means to a user.
func (p *push) explainPush(err error) error {
	var known *Error
	if err == nil || errors.As(err, &known) || errors.Is(err, context.Canceled) {
		return err
	}
	var e *refusal
	switch {
	case !errors.As(err, &e):
		failed := &Error{What: p.Repo, Reason: "the upload failed", Err: err}
		if passing(err) {
			failed.Hint = repeatHint
		}
		return failed
	case e.hub && (e.status == http.StatusUnauthorized || e.status == http.StatusForbidden):
		return &Error{What: p.Repo, Reason: "the token may not write there", Missing: true, Err: e,
			Hint: "take one with the right to write to " + strings.SplitN(p.Repo, "/", 2)[0] + ": " + p.Endpoint + "/settings/tokens"}
	case e.status == http.StatusPaymentRequired || e.status == http.StatusInsufficientStorage:
		return &Error{What: p.Repo, Reason: "the account has no room for it", Err: e}
	case e.status == http.StatusPreconditionFailed || e.status == http.StatusConflict:
		return &Error{What: p.Repo, Reason: elsewhere, Hint: repeatHint, Err: e}
	}
	return &Error{What: p.Repo, Reason: "the hub refused the upload", Err: e}
}
