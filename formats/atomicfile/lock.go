package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// A Lock is an advisory lock on a file, which lasts until Close or the end of the
// process: what a killed process held is free. The file says who holds it.
type Lock struct{ f *os.File }

// A BusyError says that a living process holds a lock.
type BusyError struct {
	Path   string
	Holder string // "process 12 on host", as its holder wrote it
}

// Error implements error.
func (e *BusyError) Error() string { return e.Path + ": in use by " + e.Holder }

// errLocked is what the system's call came to where somebody else has the lock.
var errLocked = errors.New("locked")

// maxHolder is the most that is read of who holds a lock.
const maxHolder = 256

// TakeLock takes the lock of a file, which is made where it is missing, and fails with a
// [*BusyError] where somebody has it. A file system without locks gives everybody one.
func TakeLock(path string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	switch err := lockFile(f); {
	case errors.Is(err, errLocked):
		who, _ := io.ReadAll(io.LimitReader(f, maxHolder))
		f.Close()
		if len(who) == 0 {
			who = []byte("another process")
		}
		return nil, &BusyError{Path: path, Holder: strings.Trim(fmt.Sprintf("%q", who), `"`)}
	case err != nil && !errors.Is(err, errors.ErrUnsupported):
		f.Close()
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "an unknown host"
	}
	if err = f.Truncate(0); err == nil {
		_, err = f.WriteAt(fmt.Appendf(nil, "process %d on %s", os.Getpid(), host), 0)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Lock{f}, nil
}

// Close gives the lock back; the file stays.
func (l *Lock) Close() error {
	if l == nil || l.f == nil {
		return nil
	}
	f := l.f
	l.f = nil
	return f.Close()
}
