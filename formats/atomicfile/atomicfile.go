// Package atomicfile writes a file that appears under its name only when it
// is whole.
//
// [NewOutput] takes the path and everything that is read to make the file, and refuses
// one that would be lost: no other package creates or renames files (but for what
// cmd/nstf/house_test.go lists). [Output.Create] checks the free space and opens a
// temporary file beside the final path; [File.Commit] flushes it to the disk and renames
// it; [File.Abort] removes it; [Output.WriteFile] does all of it for bytes in memory,
// [Output.CreateDir] for folders. A path that exists is replaced by Commit and untouched
// before, so a failure, an interrupt that ends in Abort, or a full disk leaves what was
// there. A process that is killed outright leaves the temporary, whose name is the final
// one's plus ".tmp-" and a random number.
//
// A File may be written by WriteAt from several goroutines at once; the other
// methods belong to one goroutine.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// A File is a file being written under a temporary name.
type File struct {
	out  *Output
	f    *os.File // nil once committed or aborted
	path string   // final path, links resolved
	temp string
	size int64
}

// A DiskFullError says that a file does not fit its disk.
type DiskFullError struct {
	Path      string // the file's final path
	Needed    int64  // bytes of the whole file, 0 when unknown
	Available int64  // bytes free for this user, -1 when unknown
	Err       error  // cause, nil where nothing was written yet
}

// Error implements error.
func (e *DiskFullError) Error() string {
	s := e.Path + ": disk full"
	if e.Needed > 0 {
		s += fmt.Sprintf(": %d bytes needed", e.Needed)
		if e.Available >= 0 {
			s += fmt.Sprintf(", %d available", e.Available)
		}
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *DiskFullError) Unwrap() error { return e.Err }

// Create starts the file, which will take size bytes (0 when unknown). It fails
// with a [*DiskFullError] where the disk has less room, and refuses a path
// that exists and is not a regular file: renaming would replace a device or
// a folder. A symbolic link is followed, so that its target is replaced.
//
// What [NewOutput] refuses is refused again, as much may have changed since.
//
// The caller defers Abort right away and calls Commit at the end.
func (o *Output) Create(size int64) (*File, error) {
	path := o.path
	if path == "" {
		return nil, errors.New("the output has no name")
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	final, err := resolve(path)
	if err != nil {
		return nil, err
	}
	if err := Room(filepath.Dir(final), size); err != nil {
		err.(*DiskFullError).Path = path
		return nil, err
	}
	for range 100 {
		temp := fmt.Sprintf("%s.tmp-%08x", final, rand.Uint32())
		var f *os.File
		_, err := o.begin(func() (_ string, err error) {
			f, err = os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
			return temp, err
		})
		switch {
		case errors.Is(err, fs.ErrExist):
			continue
		case errors.Is(err, fs.ErrNotExist):
			// Not wrapped: callers take fs.ErrNotExist for an input's.
			return nil, fmt.Errorf("%s: there is no folder %s", path, filepath.Dir(final))
		case err != nil:
			return nil, err
		}
		return &File{out: o, f: f, path: final, temp: temp, size: size}, nil
	}
	return nil, fmt.Errorf("%s: no free temporary name beside it", path)
}

// Room fails with a [*DiskFullError] where the disk of a folder has less than so many
// bytes for this user.
func Room(dir string, size int64) error {
	if free, ok := available(dir); ok && size > free {
		return &DiskFullError{Path: dir, Needed: size, Available: free}
	}
	return nil
}

// Full turns the system's "no space" on the disk of a folder into a [*DiskFullError],
// and leaves other errors as they are.
func Full(dir string, err error) error {
	if err == nil || !isDiskFull(err) {
		return err
	}
	e := &DiskFullError{Path: dir, Available: -1, Err: err}
	if free, ok := available(dir); ok {
		e.Available = free
	}
	return e
}

// resolve follows links and refuses what a rename must not replace.
func resolve(path string) (string, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil // a dangling link is replaced itself
	}
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s: exists and is not a regular file", path)
	}
	to, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) { // another process has removed it meanwhile
		return path, nil
	}
	return to, err
}

// Write implements io.Writer.
func (f *File) Write(p []byte) (int, error) {
	if f.f == nil {
		return 0, fs.ErrClosed
	}
	n, err := f.f.Write(p)
	return n, f.wrap(err)
}

// WriteAt implements io.WriterAt.
func (f *File) WriteAt(p []byte, off int64) (int, error) {
	if f.f == nil {
		return 0, fs.ErrClosed
	}
	n, err := f.f.WriteAt(p, off)
	return n, f.wrap(err)
}

// wrap turns the system's "no space" into a DiskFullError.
func (f *File) wrap(err error) error {
	err = Full(filepath.Dir(f.path), err)
	var full *DiskFullError
	if errors.As(err, &full) {
		full.Path, full.Needed = f.path, f.size
	}
	return err
}

// Commit flushes the file to the disk, unless its output is loose, and gives it its final name. On an
// error the temporary is removed and the final path is as it was.
func (f *File) Commit() error {
	if f.f == nil {
		return fs.ErrClosed
	}
	var err error
	if !f.out.loose {
		err = f.wrap(f.f.Sync())
	}
	if cerr := f.f.Close(); err == nil {
		err = f.wrap(cerr)
	}
	f.f = nil
	defer f.out.end(f.temp)
	if err == nil {
		err = os.Rename(f.temp, f.path)
	}
	if err != nil {
		os.Remove(f.temp)
		return err
	}
	if f.out.loose {
		return nil
	}
	return syncDir(filepath.Dir(f.path))
}

// Abort closes and removes the temporary file. After Commit, or a second
// time, it does nothing.
func (f *File) Abort() {
	if f.f == nil {
		return
	}
	f.f.Close()
	f.f = nil
	os.Remove(f.temp)
	f.out.end(f.temp)
}
