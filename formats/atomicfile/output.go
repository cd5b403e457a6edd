package atomicfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// An Output is a path that may be written: [NewOutput] has checked that it is none of
// the files that it is made from, and that what it would replace may be replaced.
// Whoever writes a file takes an Output, so that nobody can forget to ask.
//
// Discard may be called from any goroutine, once or more; the other methods belong to
// one.
type Output struct {
	path  string
	terms Terms
	loose bool // see Loose

	mu    sync.Mutex
	temps map[string]bool // what is being written, by its name
	over  bool            // Discard was called
}

// Terms are what an output is written under.
type Terms struct {
	// Inputs are the paths of all files that are read to make it. Those that are empty,
	// or are not there, do not count.
	Inputs []string
	// Kind is what it will be. A file that is there already is replaced where it is of
	// the same kind, or empty.
	Kind Kind
	// Force replaces a file of another kind too; never one of the inputs.
	Force bool
}

// A Kind tells files of one kind from all others.
type Kind struct {
	Name string                 // with its article: "a package"
	Is   func(head []byte) bool // by at most [KindHead] bytes from its start; nil: nobody can tell
}

// KindHead is how many bytes of a file tell what it is.
const KindHead = 512

// A RefusedError says that a path must not be written.
type RefusedError struct {
	Path   string
	Reason string
	Hint   string // what the user can do
}

// Error implements error.
func (e *RefusedError) Error() string { return e.Path + ": " + e.Reason }

// NewOutput checks that a file can be written to path under these terms, before the
// work that it takes. A path that must not be written is a [*RefusedError]: one of the
// inputs, by whatever name or link, "-", or a file of another kind. Other errors are
// those of the operating system: a folder that is missing, or takes no files.
func NewOutput(path string, t Terms) (*Output, error) {
	o := &Output{path: path, terms: t, temps: map[string]bool{}}
	switch {
	case path == "":
		return nil, &RefusedError{Path: `""`, Reason: "the output has no name", Hint: "give it one by -o"}
	case path == "-":
		return nil, &RefusedError{Path: path, Reason: "outputs are renamed when they are whole, so they do not go to standard output",
			Hint: "give a path by -o; ./- is a file of that name"}
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	f, err := o.Create(0)
	if err != nil {
		return nil, err
	}
	f.Abort()
	return o, nil
}

// Scratch returns an output that is made from nobody's files: one of a folder that the
// program keeps for itself, such as a cache or a work folder.
func Scratch(path string) *Output { return &Output{path: path, temps: map[string]bool{}} }

// Loose has files appear without being flushed to the disk: for what is read with a hash, and
// made again where a machine that lost its power has lost some of it.
func (o *Output) Loose() *Output {
	o.loose = true
	return o
}

// Path returns the path as it was given.
func (o *Output) Path() string { return o.path }

// check refuses a path that is an input, or holds a file of another kind.
func (o *Output) check() error {
	is, err := os.Stat(o.path)
	if err != nil || is.IsDir() {
		return nil // nothing there to lose, or what no file replaces
	}
	for _, input := range o.terms.Inputs {
		if holds(input, is) {
			return &RefusedError{Path: o.path, Reason: "is read to make it (as " + input + ")", Hint: "choose another name for the output"}
		}
	}
	if o.terms.Kind.Is == nil || o.terms.Force || is.Size() == 0 || !is.Mode().IsRegular() {
		return nil
	}
	head, err := readHead(o.path)
	if err != nil {
		return err
	}
	if !o.terms.Kind.Is(head) {
		return &RefusedError{Path: o.path, Reason: "is there already, and is not " + o.terms.Kind.Name, Hint: "choose another name, or replace it by --force"}
	}
	return nil
}

func readHead(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head := make([]byte, KindHead)
	n, err := io.ReadFull(f, head)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	return head[:n], err
}

// holds reports whether an input is that file, by whatever name or link.
func holds(input string, is fs.FileInfo) bool {
	in, err := os.Stat(input)
	return input != "" && err == nil && os.SameFile(in, is)
}

// Beside refuses a folder of the output's own (OUT.work) in which an input lies: it is
// removed at the end.
func (o *Output) Beside(dir string) error {
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil // not there
	}
	if root, err = filepath.Abs(root); err != nil {
		return err
	}
	for _, input := range o.terms.Inputs {
		at, err := filepath.EvalSymlinks(input)
		if input == "" || err != nil {
			continue
		}
		if at, err = filepath.Abs(at); err != nil {
			return err
		}
		if rel, err := filepath.Rel(root, at); err == nil && filepath.IsLocal(rel) {
			return &RefusedError{Path: o.path, Reason: "its work folder, which is removed at the end, holds " + input, Hint: "choose another name for the output"}
		}
	}
	return nil
}

// Discard removes what is being written and not committed, and lets nothing be begun
// any more: the process is about to end, whatever its other goroutines wait for.
func (o *Output) Discard() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	for temp := range o.temps {
		os.RemoveAll(temp)
	}
}

// begin makes a temporary and returns its name, under a lock, so that Discard misses none.
func (o *Output) begin(create func() (string, error)) (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over {
		return "", fs.ErrClosed
	}
	temp, err := create()
	if err == nil {
		o.temps[temp] = true
	}
	return temp, err
}

// end forgets a temporary that has been renamed or removed.
func (o *Output) end(temp string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.temps, temp)
}

// WriteFile writes a file whose bytes are in memory: on an error the path is as it was.
func (o *Output) WriteFile(data []byte) error {
	f, err := o.Create(int64(len(data)))
	if err != nil {
		return err
	}
	return f.whole(data)
}

// whole writes all of a file that has been started.
func (f *File) whole(data []byte) error {
	defer f.Abort()
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Commit()
}

// WriteJSON writes a value as indented JSON with a line end, into a folder that is
// made where it is missing.
func (o *Output) WriteJSON(v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(o.path), 0o777); err != nil {
		return err
	}
	return o.WriteFile(append(data, '\n'))
}

// A Dir is a folder being written under a temporary name.
type Dir struct {
	out  *Output
	temp string
	path string
	done bool
}

// NewFolder checks that a folder can be written: path must not be there, or be an
// empty folder.
func NewFolder(path string) (*Output, error) {
	if path == "" || path == "-" {
		return NewOutput(path, Terms{})
	}
	o := Scratch(path)
	d, err := o.CreateDir()
	if err != nil {
		return nil, err
	}
	d.Abort()
	return o, nil
}

// CreateDir starts a folder. The caller defers Abort right away and calls Commit at
// the end.
func (o *Output) CreateDir() (*Dir, error) {
	d := &Dir{out: o, path: filepath.Clean(o.path)}
	if old, err := os.ReadDir(d.path); err == nil && len(old) > 0 {
		return nil, &RefusedError{Path: d.path, Reason: "the folder is not empty", Hint: "choose another name for the output"}
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	temp, err := o.begin(func() (string, error) { return os.MkdirTemp(filepath.Dir(d.path), filepath.Base(d.path)+".tmp-") })
	if errors.Is(err, fs.ErrNotExist) {
		// Not wrapped: callers take fs.ErrNotExist for an input's.
		return nil, fmt.Errorf("%s: there is no folder %s", d.path, filepath.Dir(d.path))
	}
	if err != nil {
		return nil, err
	}
	d.temp = temp
	return d, nil
}

// Create starts a file of the folder, whose name may hold folders.
func (d *Dir) Create(name string, size int64) (*File, error) {
	if !filepath.IsLocal(name) || strings.HasSuffix(name, "/") {
		return nil, fmt.Errorf("%s: the name of the file %q leaves the folder", d.path, name)
	}
	path := filepath.Join(d.temp, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return Scratch(path).Create(size)
}

// WriteFile writes a file of the folder whose bytes are in memory.
func (d *Dir) WriteFile(name string, data []byte) error {
	f, err := d.Create(name, int64(len(data)))
	if err != nil {
		return err
	}
	return f.whole(data)
}

// Commit gives the folder its final name.
func (d *Dir) Commit() error {
	if err := os.Chmod(d.temp, 0o755); err != nil {
		return err
	}
	if err := os.Remove(d.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := os.Rename(d.temp, d.path)
	if err == nil {
		d.done = true
		d.out.end(d.temp)
	}
	return err
}

// Abort removes the folder. After Commit, or a second time, it does nothing.
func (d *Dir) Abort() {
	if !d.done {
		d.done = true
		os.RemoveAll(d.temp)
		d.out.end(d.temp)
	}
}
