// Package hub finds models on Hugging Face's hub, or on a mirror of it, and keeps them in
// the cache that huggingface_hub keeps: what one downloads, the other finds.
//
// A [Ref] is what a user types: "org/name", "org/name@revision", "org/name:Q4_K_M",
// "hf://org/name@revision/file". [Client.Open] turns it into a [Snapshot], the files of one
// commit that make a model; [Client.Pull] downloads those that are not there yet.
//
// Layout of the cache and the hub's interface as in huggingface_hub 1.33 (file_download.py,
// utils/_http.py) and https://huggingface.co/docs/huggingface_hub/guides/manage-cache.
package hub

import (
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/nstf/nstf/formats"
)

// A Ref names a model on a hub.
type Ref struct {
	Repo     string // "org/name"
	Revision string // branch, tag or commit
	File     string // the one file that is meant, "" for the model
	Variant  string // which of several GGUF files is meant: "Q4_K_M", "" where nothing was said
}

// slash is how one is written in the name of a revision where a path may follow.
const slash = "%2F"

// MainRevision is the branch that is meant where none is named.
const MainRevision = "main"

var (
	repoName = regexp.MustCompile(`^[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*$`)
	revision = regexp.MustCompile(`^[A-Za-z0-9_][\w.+-]*(/[A-Za-z0-9_][\w.+-]*)*$`)
	variant  = regexp.MustCompile(`^[A-Za-z0-9][\w.-]*$`)
	commit   = regexp.MustCompile(`^[0-9a-f]{40}$`)
	// Revisions whose names have slashes can stand before a path (HfFileSystem).
	longRevision = regexp.MustCompile(`^refs/(pr|convert)/[^/:]+`)
	// What a browser shows: /org/name, /org/name/blob/revision/path.
	pageOf = regexp.MustCompile(`^/([^/]+/[^/]+)(?:/(?:blob|resolve|tree|raw)/([^/]+)(?:/(.*))?)?$`)
)

// IsCommit reports whether a revision is the hash of a commit.
func IsCommit(revision string) bool { return commit.MatchString(revision) }

// String returns the reference as a user would type it.
func (r Ref) String() string {
	s, at := r.Repo, r.Revision
	if r.File != "" && !longRevision.MatchString(at) {
		at = strings.ReplaceAll(at, "/", slash)
	}
	if at != MainRevision {
		s += "@" + at
	}
	switch {
	case r.File != "":
		return "hf://" + s + "/" + r.File
	case r.Variant != "":
		return s + ":" + r.Variant
	}
	return s
}

// Explicit reports whether s can only be a name on a hub: it begins with hf:// or with the
// address of endpoint.
func Explicit(s, endpoint string) bool {
	return strings.HasPrefix(s, "hf://") || strings.HasPrefix(s, endpoint+"/")
}

// LooksLike reports whether s reads like a bare "org/name" with what may follow it. A
// path may read so too: whoever asks has looked for it first.
func LooksLike(s string) bool {
	if strings.Contains(s, "://") {
		return false
	}
	r, err := Parse(s, "")
	if err != nil || r.File != "" && !strings.Contains(s, ":") {
		return false
	}
	switch strings.ToLower(path.Ext(r.Repo)) {
	case ".nstf", ".gguf", ".safetensors", ".json", ".nstats", ".jsonl", ".txt":
		return false
	}
	return true
}

// Parse reads a reference; endpoint is the hub's address, as in [Client.Endpoint].
func Parse(s, endpoint string) (Ref, error) {
	r := Ref{Revision: MainRevision}
	wrong := func(format string, args ...any) (Ref, error) {
		return Ref{}, formats.Errorf(s, "", "not a name on a hub: "+format, args...)
	}
	rest := s
	if page, ok := strings.CutPrefix(s, endpoint); ok && endpoint != "" {
		page, _, _ = strings.Cut(page, "?")
		m := pageOf.FindStringSubmatch(strings.TrimSuffix(page, "/"))
		if m == nil {
			return wrong("an address of a model is %s/ORG/NAME", endpoint)
		}
		r.Repo, r.File = m[1], m[3]
		if m[2] != "" {
			r.Revision = strings.ReplaceAll(m[2], slash, "/")
		}
		return r.checked(s)
	}
	rest, explicit := strings.CutPrefix(rest, "hf://")
	rest = strings.TrimPrefix(rest, "models/")
	org, rest, ok := strings.Cut(rest, "/")
	if !ok {
		return wrong("it is ORG/NAME, with @REVISION or :QUANTIZATION behind it")
	}
	end := strings.IndexAny(rest, "@:/")
	if end < 0 {
		end = len(rest)
	}
	r.Repo, rest = org+"/"+rest[:end], rest[end:]
	if at, ok := strings.CutPrefix(rest, "@"); ok {
		end := strings.IndexAny(at, ":/")
		if m := longRevision.FindString(at); m != "" {
			end = len(m)
		}
		if end < 0 {
			end = len(at)
		}
		r.Revision, rest = strings.ReplaceAll(at[:end], slash, "/"), at[end:]
		if r.Revision == "" {
			return wrong("no revision behind @")
		}
		if !explicit && strings.HasPrefix(rest, "/") { // a branch with a slash in its name
			file := strings.IndexByte(rest, ':')
			if file < 0 {
				file = len(rest)
			}
			r.Revision, rest = r.Revision+rest[:file], rest[file:]
		}
	}
	switch {
	case rest == "":
	case rest[0] == ':' && path.Ext(rest) != "" && (strings.EqualFold(path.Ext(rest), ".gguf") || strings.EqualFold(path.Ext(rest), ".nstf")):
		r.File = rest[1:]
	case rest[0] == ':':
		if r.Variant = rest[1:]; !variant.MatchString(r.Variant) {
			return wrong("%q behind the colon is no quantization", formats.Brief(r.Variant, 40))
		}
	case explicit:
		r.File = strings.TrimSuffix(rest[1:], "/")
	default:
		return wrong("a file of a repository is hf://ORG/NAME/FILE or ORG/NAME:FILE")
	}
	return r.checked(s)
}

// checked refuses names that no hub has, and paths that lead out of a folder.
func (r Ref) checked(s string) (Ref, error) {
	if !repoName.MatchString(r.Repo) || len(r.Repo) > 96 || strings.Contains(r.Repo, "--") || strings.Contains(r.Repo, "..") ||
		strings.HasSuffix(r.Repo, ".git") || strings.HasSuffix(r.Repo, ".") || strings.HasSuffix(r.Repo, "-") {
		return Ref{}, formats.Errorf(s, "", "not a name on a hub: %q is not ORG/NAME", formats.Brief(r.Repo, 100))
	}
	if !revision.MatchString(r.Revision) || strings.Contains(r.Revision, "..") || len(r.Revision) > 200 {
		return Ref{}, formats.Errorf(s, "", "not a name on a hub: %q is no revision", formats.Brief(r.Revision, 100))
	}
	if r.File != "" {
		if err := checkPath(r.File); err != nil {
			return Ref{}, formats.Errorf(s, "", "not a name on a hub: %v", err)
		}
	}
	return r, nil
}

// checkPath refuses paths that are no file's inside a folder, on any system.
func checkPath(p string) error {
	if p == "" || len(p) > 1024 || strings.ContainsAny(p, "\\:\x00") || path.Clean(p) != p || !filepath.IsLocal(filepath.FromSlash(p)) {
		return fmt.Errorf("%q is no path inside a repository", formats.Brief(p, 100))
	}
	for _, c := range p {
		if c < ' ' || c == 0x7f {
			return fmt.Errorf("%q is no path inside a repository", formats.Brief(p, 100))
		}
	}
	return nil
}
