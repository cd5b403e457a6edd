package hub

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/hub/hubtest"
)

// upload is a package of a megabyte and a page of text.
func upload(pkg, card []byte) Upload {
	return Upload{Repo: "org/new", Revision: MainRevision, Private: true, Message: "m",
		Files: []UploadFile{{Path: "m.nstf", Data: bytes.NewReader(pkg)}, {Path: "README.md", Data: bytes.NewReader(card)}}}
}

// stored wants a branch of the hub to be these files, beside the one that a hub makes.
func stored(t *testing.T, s *hubtest.Server, branch string, files map[string][]byte) {
	t.Helper()
	repo := s.Repos["org/new"]
	if repo == nil {
		t.Fatal("no repository")
	}
	got := repo.Files[repo.Commits[branch]]
	for name, want := range files {
		if !bytes.Equal(got[name], want) {
			t.Errorf("%s of %s: %d bytes, not %d", name, branch, len(got[name]), len(want))
		}
	}
	if len(got) != len(files)+1 {
		t.Errorf("%s has %d files, not %d", branch, len(got), len(files)+1)
	}
}

// puts counts the requests that bring contents to the storage.
func puts(s *hubtest.Server) (n int) {
	for _, r := range s.Requests() {
		if r.Method == http.MethodPut {
			n++
		}
	}
	return n
}

func TestPush(t *testing.T) {
	for _, part := range []int{0, 300_000} {
		server, c := start(t, map[string]*hubtest.Repo{})
		server.Token, server.PartSize, c.Token = "hf_secret", part, "hf_secret"
		pkg, card := noise(1<<20, 1), []byte("# a card")
		var done, total int64
		c.Progress = func(d, all int64) { done, total = d, all }
		out, err := c.Push(t.Context(), upload(pkg, card))
		if err != nil {
			t.Fatal(err)
		}
		if done != total-int64(len(card)) { // the card goes with the commit
			t.Errorf("%d of %d bytes told", done, total)
		}
		stored(t, server, "main", map[string][]byte{"m.nstf": pkg, "README.md": card})
		if !server.Repos["org/new"].Private || out.Commit != server.Repos["org/new"].Commits["main"] || out.Sent != 1<<20 {
			t.Errorf("%+v", out)
		}
		if want := map[int]int{0: 1, 300_000: 4}[part]; puts(server) != want {
			t.Errorf("%d requests for contents, not %d", puts(server), want)
		}
		// Again: nothing is sent, and nothing committed.
		if out, err = c.Push(t.Context(), upload(pkg, card)); err != nil || out.Commit != "" || out.Sent != 0 {
			t.Errorf("%+v, %v", out, err)
		}
		// On a branch: the contents are there, the commit is new.
		u := upload(pkg, []byte("# another card"))
		u.Revision = "v2"
		before := puts(server)
		if out, err = c.Push(t.Context(), u); err != nil || out.Commit == "" || out.Sent != 0 || puts(server) != before {
			t.Errorf("%+v, %v", out, err)
		}
		stored(t, server, "v2", map[string][]byte{"m.nstf": pkg, "README.md": []byte("# another card")})
		stored(t, server, "main", map[string][]byte{"m.nstf": pkg, "README.md": card})
		// Somebody's own card stays.
		u = upload(noise(1<<20, 2), []byte("# ours"))
		u.Files[1].Keep = func(old []byte) bool { return bytes.Equal(old, card) }
		if out, err = c.Push(t.Context(), u); err != nil || len(out.Kept) != 1 || out.Sent != 1<<20 {
			t.Errorf("%+v, %v", out, err)
		}
		stored(t, server, "main", map[string][]byte{"m.nstf": noise(1<<20, 2), "README.md": card})
		for _, r := range server.Requests() {
			if r.Storage && r.Token != "" {
				t.Fatalf("the token went to the storage: %+v", r)
			}
		}
	}
}

// A push that ends early commits nothing, and the next one sends what is missing.
func TestPushInterrupted(t *testing.T) {
	server, c := start(t, map[string]*hubtest.Repo{})
	server.Token, server.PartSize, c.Token, c.Parallel = "hf_secret", 100_000, "hf_secret", 1
	pkg, card := noise(1<<20, 1), []byte("# a card")
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stopped")
	sent := 0
	server.Fault = func(r hubtest.Request, n int) hubtest.Fault {
		if r.Method == http.MethodPut {
			if sent++; sent == 4 {
				cancel(stop)
				return hubtest.Fault{Cut: 10}
			}
		}
		return hubtest.Fault{}
	}
	if _, err := c.Push(ctx, upload(pkg, card)); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	repo := server.Repos["org/new"]
	if len(repo.Files[repo.Commits["main"]]) != 1 {
		t.Error("something was committed")
	}
	// Cut connections and waits are nothing that a user has to know.
	server.Fault = func(r hubtest.Request, n int) hubtest.Fault {
		if r.Method == http.MethodPut && n == 0 {
			return []hubtest.Fault{{Cut: 500}, {Status: 503}, {Status: 429, RetryAfter: "1"}}[len(server.Requests())%3]
		}
		return hubtest.Fault{}
	}
	out, err := c.Push(t.Context(), upload(pkg, card))
	if err != nil || out.Sent != 1<<20-300_000 {
		t.Fatalf("%+v, %v", out, err)
	}
	stored(t, server, "main", map[string][]byte{"m.nstf": pkg, "README.md": card})
	if left, _ := filepath.Glob(filepath.Join(c.Cache.Root, ".nstf-uploads", "*")); len(left) > 0 {
		t.Errorf("%q is left", left)
	}
	// Where the storage has forgotten the parts, all are sent again.
	server.Fault, sent = func(r hubtest.Request, n int) hubtest.Fault {
		if r.Method == http.MethodPut {
			if sent++; sent == 4 {
				cancel(stop)
				return hubtest.Fault{Status: 500}
			}
		}
		return hubtest.Fault{}
	}, 0
	ctx, cancel = context.WithCancelCause(t.Context())
	defer cancel(nil)
	pkg = noise(1<<20, 3)
	if _, err := c.Push(ctx, upload(pkg, card)); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	server.Fault = nil
	server.Forget()
	if _, err := c.Push(t.Context(), upload(pkg, card)); err != nil {
		t.Fatal(err)
	}
	stored(t, server, "main", map[string][]byte{"m.nstf": pkg, "README.md": card})
}

func TestPushRefused(t *testing.T) {
	status := func(path string, code int) func(hubtest.Request, int) hubtest.Fault {
		return func(r hubtest.Request, n int) hubtest.Fault {
			if strings.Contains(r.Path, path) {
				return hubtest.Fault{Status: code}
			}
			return hubtest.Fault{}
		}
	}
	for name, tc := range map[string]struct {
		token  string
		fault  func(hubtest.Request, int) hubtest.Fault
		reason string
	}{
		"no token":             {"", nil, "needs a token"},
		"another token":        {"hf_other", nil, "the token may not write there"},
		"no room":              {"hf_secret", status("/preupload/", 402), "no room"},
		"a busy hub":           {"hf_secret", status("/batch", 503), "refused the upload"},
		"storage that refuses": {"hf_secret", status("/put", 400), "refused the upload"},
		"somebody else":        {"hf_secret", status("/commit/", 412), "somebody else"},
		"verify":               {"hf_secret", status("/complete/", 400), "refused the upload"},
	} {
		t.Run(name, func(t *testing.T) {
			server, c := start(t, map[string]*hubtest.Repo{})
			server.Token, server.Fault, server.PartSize, c.Token = "hf_secret", tc.fault, 100_000, tc.token
			_, err := c.Push(t.Context(), upload(noise(1<<20, 1), []byte("x")))
			var e *Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), tc.reason) {
				t.Error(err)
			}
			if err != nil && (strings.Contains(err.Error(), "hf_secret") || e != nil && strings.Contains(e.Hint, "hf_secret")) {
				t.Error("the token is told")
			}
			if repo := server.Repos["org/new"]; repo != nil && len(repo.Files[repo.Commits["main"]]) != 1 {
				t.Error("something was committed")
			}
		})
	}
	c := &Client{Offline: true, Token: "x"}
	if _, err := c.Push(t.Context(), upload(nil, nil)); err == nil || !strings.Contains(err.Error(), "offline") {
		t.Error(err)
	}
	// A file that becomes shorter.
	server, c2 := start(t, map[string]*hubtest.Repo{})
	server.Token, c2.Token = "hf_secret", "hf_secret"
	u := upload(noise(1<<20, 1), nil)
	u.Files[0].Data = short{u.Files[0].Data}
	if _, err := c2.Push(t.Context(), u); err == nil || !strings.Contains(err.Error(), "m.nstf") {
		t.Error(err)
	}
	if _, err := os.Stat(c2.Cache.Root); err != nil {
		t.Error(err)
	}
}

type short struct{ formats.RemoteFile }

func (s short) Size() int64 { return s.RemoteFile.Size() + 1 }
