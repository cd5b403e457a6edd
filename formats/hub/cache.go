package hub

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
)

// A Cache is a folder in huggingface_hub's layout. Of each repository it holds
//
//	models--ORG--NAME/blobs/ETAG               contents
//	models--ORG--NAME/snapshots/COMMIT/PATH    links to them
//	models--ORG--NAME/refs/REVISION            the commit that a branch or tag was
//	.locks/models--ORG--NAME/ETAG.lock         held (flock) by who downloads a blob
//
// Where there are no links (Windows without the right to make them) a snapshot holds the
// file itself.
type Cache struct{ Root string }

// cacheTag marks a cache for programs that make copies of disks (https://bford.info/cachedir/).
const cacheTag = "Signature: 8a477f597d28d172789f06886806bc55\n# This folder is a cache of models.\n"

func (c Cache) folder(repo string) string {
	return filepath.Join(c.Root, "models--"+strings.ReplaceAll(repo, "/", "--"))
}

func (c Cache) blob(repo, etag string) string { return filepath.Join(c.folder(repo), "blobs", etag) }

func (c Cache) snapshot(repo, commit string) string {
	return filepath.Join(c.folder(repo), "snapshots", commit)
}

func (c Cache) file(repo, commit, name string) string {
	return filepath.Join(c.snapshot(repo, commit), filepath.FromSlash(name))
}

// lock returns the file that is locked while a blob is downloaded.
func (c Cache) lock(repo, etag string) (string, error) {
	dir := filepath.Join(c.Root, ".locks", filepath.Base(c.folder(repo)))
	return filepath.Join(dir, etag+".lock"), os.MkdirAll(dir, 0o777)
}

// commit returns what a revision was when it was last asked for, "" where the cache does
// not know it.
func (c Cache) commit(r Ref) string {
	if commit.MatchString(r.Revision) {
		return r.Revision
	}
	p, err := formats.ReadFile(filepath.Join(c.folder(r.Repo), "refs", filepath.FromSlash(r.Revision)), 256, "a reference")
	if s := strings.TrimSpace(string(p)); err == nil && commit.MatchString(s) {
		return s
	}
	return ""
}

// has reports whether the whole of a file is there.
func (c Cache) has(repo, commit string, f File) bool {
	info, err := os.Stat(c.file(repo, commit, f.Path))
	return err == nil && info.Mode().IsRegular() && info.Size() == f.Size
}

// files lists a snapshot, as the hub would.
func (c Cache) files(repo, commit string) (files []File, err error) {
	root := c.snapshot(repo, commit)
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := os.Stat(p)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			return nil // a link whose blob is gone
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		files = append(files, File{Path: filepath.ToSlash(rel), Size: info.Size()})
		return nil
	})
	return files, err
}

// begin makes the folders of a snapshot and notes what its revision is now.
func (c Cache) begin(r Ref, commit string) error {
	for _, dir := range []string{c.snapshot(r.Repo, commit), filepath.Join(c.folder(r.Repo), "blobs")} {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
	}
	if tag := filepath.Join(c.Root, "CACHEDIR.TAG"); !exists(tag) {
		_ = atomicfile.Scratch(tag).WriteFile([]byte(cacheTag)) // of no use to us
	}
	if r.Revision == commit || c.commit(r) == commit {
		return nil
	}
	ref := filepath.Join(c.folder(r.Repo), "refs", filepath.FromSlash(r.Revision))
	if err := os.MkdirAll(filepath.Dir(ref), 0o777); err != nil {
		return err
	}
	return atomicfile.Scratch(ref).WriteFile([]byte(commit))
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// link puts a blob under its name into a snapshot.
func (c Cache) link(repo, commit string, f File) error {
	name, blob := c.file(repo, commit, f.Path), c.blob(repo, f.Etag)
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return err
	}
	to, err := filepath.Rel(filepath.Dir(name), blob)
	if err != nil {
		return err
	}
	if exists(name) { // of a blob that is gone or was cut
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	err = os.Symlink(to, name)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err := os.Link(blob, name); err == nil { // Windows, where links are a right
		return nil
	}
	return os.Rename(blob, name)
}

// A Cached is one snapshot in a cache.
type Cached struct {
	Repo      string    `json:"repo"`
	Commit    string    `json:"commit"`
	Revisions []string  `json:"revisions"` // names that are this commit, sorted
	Files     int       `json:"files"`
	Bytes     int64     `json:"bytes"` // of its files, shared ones too
	Changed   time.Time `json:"changed"`
	Path      string    `json:"path"`
	Broken    int       `json:"broken,omitempty"` // links whose contents are gone
}

// Models lists the snapshots of models, by name and commit. A folder that is no cache, or
// not there, has none.
func (c Cache) Models() ([]Cached, error) {
	dirs, err := os.ReadDir(c.Root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Cached
	for _, d := range dirs {
		name, ok := strings.CutPrefix(d.Name(), "models--")
		org, model, ok2 := strings.Cut(name, "--")
		if !ok || !ok2 || !d.IsDir() {
			continue
		}
		repo := org + "/" + model
		named := c.refs(repo)
		snapshots, err := os.ReadDir(filepath.Join(c.folder(repo), "snapshots"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, s := range snapshots {
			if !s.IsDir() || !commit.MatchString(s.Name()) {
				continue
			}
			one := Cached{Repo: repo, Commit: s.Name(), Revisions: named[s.Name()], Path: c.snapshot(repo, s.Name())}
			err := filepath.WalkDir(one.Path, func(p string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				info, err := os.Stat(p)
				if err != nil {
					one.Broken++
					return nil
				}
				one.Files, one.Bytes = one.Files+1, one.Bytes+info.Size()
				if info.ModTime().After(one.Changed) {
					one.Changed = info.ModTime()
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b Cached) int {
		return cmp.Or(strings.Compare(a.Repo, b.Repo), strings.Compare(a.Commit, b.Commit))
	})
	return all, nil
}

// refs returns the names of each commit that has one, sorted.
func (c Cache) refs(repo string) map[string][]string {
	named := map[string][]string{}
	root := filepath.Join(c.folder(repo), "refs")
	_ = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error { // without refs: no names
		if err == nil && d.Type().IsRegular() {
			rel, _ := filepath.Rel(root, p)
			r := Ref{Repo: repo, Revision: filepath.ToSlash(rel)}
			at := c.commit(r)
			named[at] = append(named[at], r.Revision)
		}
		return nil
	})
	for _, names := range named {
		slices.Sort(names)
	}
	return named
}

// absent says that the cache has nothing of what was meant.
func (c Cache) absent(r Ref) *Error {
	return &Error{What: r.String(), Reason: "is not in the cache " + c.Root, Missing: true, Hint: "nstf list shows what is there"}
}

// Remove takes a model out of the cache and returns the bytes that its disk got back: the
// snapshot of a revision with the contents that no other snapshot has, or all of a
// repository where whole is set. What was begun of a download leaves with the repository.
func (c Cache) Remove(r Ref, whole bool) (freed int64, err error) {
	dir := c.folder(r.Repo)
	if !exists(dir) {
		return 0, c.absent(r)
	}
	if whole {
		before := c.blobs(r.Repo)
		for _, info := range before {
			freed += info.Size()
		}
		if err := os.RemoveAll(dir); err != nil {
			return 0, err
		}
		return freed, os.RemoveAll(filepath.Join(c.Root, ".locks", filepath.Base(dir)))
	}
	at := c.commit(r)
	if at == "" || !exists(c.snapshot(r.Repo, at)) {
		return 0, c.absent(r)
	}
	if err := os.RemoveAll(c.snapshot(r.Repo, at)); err != nil {
		return 0, err
	}
	for _, name := range c.refs(r.Repo)[at] {
		os.Remove(filepath.Join(dir, "refs", filepath.FromSlash(name)))
	}
	used := map[string]bool{}
	err = filepath.WalkDir(filepath.Join(dir, "snapshots"), func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type()&fs.ModeSymlink != 0 {
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			used[path.Base(filepath.ToSlash(to))] = true
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	for etag, info := range c.blobs(r.Repo) {
		if !used[etag] && !strings.Contains(etag, ".") {
			if err := os.Remove(c.blob(r.Repo, etag)); err != nil {
				return freed, err
			}
			freed += info.Size()
		}
	}
	return freed, nil
}

func (c Cache) blobs(repo string) map[string]fs.FileInfo {
	all := map[string]fs.FileInfo{}
	entries, _ := os.ReadDir(filepath.Join(c.folder(repo), "blobs"))
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			all[e.Name()] = info
		}
	}
	return all
}
