package formats

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/nstf/nstf/formats/tensor"
)

// Remote are files that are not on the disk, by the paths at which they are opened as if
// they lay there. A nil Remote has none. It does not change while it is in use.
type Remote map[string]RemoteFile

// A RemoteFile is read at any place, by several goroutines at once.
type RemoteFile interface {
	io.ReaderAt
	Size() int64
}

// Open is [OpenFile] for the files that are not on the disk, too.
func (r Remote) Open(path string) (*tensor.File, error) {
	if f, ok := r[path]; ok {
		return tensor.NewFile(f, path, f.Size()), nil
	}
	return OpenFile(path)
}

// Names returns the names of the files of r in a folder, sorted.
func (r Remote) Names(dir string) (names []string) {
	for path := range r {
		if filepath.Dir(path) == filepath.Clean(dir) {
			names = append(names, filepath.Base(path))
		}
	}
	slices.Sort(names)
	return names
}

// OpenFile opens a file that somebody else wrote. It must be a regular file: a pipe or
// a device where a file belongs is a [FormatError], and opening it does not wait for
// whoever may write to it. Other errors are those of the operating system.
func OpenFile(path string) (*tensor.File, error) {
	info, err := Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, Errorf(path, "", "%s, not a regular file", kindOf(info.Mode()))
	}
	f, err := tensor.OpenFile(path)
	return f, opening(path, err)
}

// ReadFile reads a regular file of at most limit bytes; what says in the error what a
// longer one cannot be: "a plan".
func ReadFile(path string, limit int64, what string) ([]byte, error) {
	return Remote(nil).ReadFile(path, limit, what)
}

// ReadFile is [ReadFile] for the files that are not on the disk, too.
func (r Remote) ReadFile(path string, limit int64, what string) ([]byte, error) {
	f, err := r.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if f.Size() > limit {
		return nil, Errorf(path, "", "%d bytes, more than %d: this is not %s", f.Size(), limit, what)
	}
	p := make([]byte, f.Size())
	if n, err := f.ReadAt(p, 0); n < len(p) {
		if err == io.EOF {
			err = ErrorAt(path, "", int64(n), "file became shorter while it was read")
		}
		return nil, err
	}
	return p, nil
}

// ReadHead reads the first bytes of a regular file, at most n.
func ReadHead(path string, n int) ([]byte, error) { return Remote(nil).ReadHead(path, n) }

// ReadHead is [ReadHead] for the files that are not on the disk, too.
func (r Remote) ReadHead(path string, n int) ([]byte, error) {
	f, err := r.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p := make([]byte, n)
	n, err = f.ReadAt(p, 0)
	if err == io.EOF {
		err = nil
	}
	return p[:n], err
}

// Stat is os.Stat for paths of files that somebody else wrote: a name that leads
// nowhere, for it is too long or goes in circles, is a [FormatError].
func Stat(path string) (fs.FileInfo, error) {
	info, err := os.Stat(path)
	return info, opening(path, err)
}

// opening turns what is wrong with a name into a FormatError. That there is no such
// file, or that this user may not read it, stays the system's error.
func opening(path string, err error) error {
	var of *fs.PathError
	if !errors.As(err, &of) {
		return err
	}
	for _, e := range []error{syscall.ELOOP, syscall.ENAMETOOLONG, syscall.ENOTDIR, syscall.EISDIR, syscall.EINVAL, syscall.ENXIO, syscall.ENODEV} {
		if errors.Is(of.Err, e) {
			return &FormatError{File: path, Offset: -1, Reason: "cannot be opened", Err: of.Err}
		}
	}
	return err
}

// kindOf says what lies where a regular file belongs.
func kindOf(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "something"
}
