package tensor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// A File is an open, read-only file: an io.ReaderAt that reads with pread,
// so that streaming it leaves nothing mapped, and a [Mapper] that maps the
// whole file on first use, for running from it. A file that lies elsewhere
// ([NewFile]) is read, and cannot be mapped.
//
// A mapped file that another process truncates faults on access; the size is
// fixed at open and every reader checks its offsets against it.
type File struct {
	src  io.ReaderAt
	f    *os.File // src, nil where the bytes lie elsewhere
	path string
	size int64

	once   sync.Once
	mapped []byte
	mapErr error
}

// OpenFile opens a regular file for reading, and waits for nobody where it is something
// else. Packages outside formats/tensor open files by formats.OpenFile, whose errors say
// what is wrong with them.
func OpenFile(path string) (*File, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: not a regular file", path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &File{src: f, f: f, path: path, size: info.Size()}, nil
}

// NewFile returns a file of size bytes that are read from src and called path. Closing it
// leaves src as it is.
func NewFile(src io.ReaderAt, path string, size int64) *File {
	return &File{src: src, path: path, size: size}
}

// Path returns the path the file was opened by.
func (f *File) Path() string { return f.path }

// Size returns the size at the time of opening.
func (f *File) Size() int64 { return f.size }

// ReadAt implements io.ReaderAt.
func (f *File) ReadAt(p []byte, off int64) (int, error) { return f.src.ReadAt(p, off) }

// Map returns bytes of the mapped file; see [Mapper].
func (f *File) Map(off, size int64) ([]byte, error) {
	if f.f == nil {
		return nil, fmt.Errorf("map %s: it is not on the disk", f.path)
	}
	f.once.Do(func() {
		if f.size > 0 {
			f.mapped, f.mapErr = mapFile(f.f, f.size)
		}
	})
	if f.mapErr != nil {
		return nil, fmt.Errorf("map %s: %w", f.path, f.mapErr)
	}
	if off < 0 || size < 0 || off > f.size-size {
		return nil, io.ErrUnexpectedEOF
	}
	return f.mapped[off : off+size : off+size], nil
}

// Blob returns a range of the file, which the caller has checked against
// [File.Size].
func (f *File) Blob(off, size int64) Blob { return NewBlob(f, off, size) }

// Close unmaps and closes. Bytes handed out by Map are gone afterwards.
func (f *File) Close() error {
	f.once.Do(func() {})
	var err error
	if f.mapped != nil {
		err = unmapFile(f.mapped)
		f.mapped = nil
	}
	if f.f == nil {
		return nil
	}
	if cerr := f.f.Close(); err == nil {
		err = cerr
	}
	return err
}

// Files are the open files of a model that may lie in several.
type Files []*File

// Add takes one more, and returns all of its bytes, unread.
func (f *Files) Add(file *File) Blob {
	*f = append(*f, file)
	return file.Blob(0, file.Size())
}

// Close closes all of them and forgets them.
func (f *Files) Close() error {
	var errs []error
	for _, file := range *f {
		errs = append(errs, file.Close())
	}
	*f = nil
	return errors.Join(errs...)
}
