package atomicfile

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A Temp is a temporary folder of one process, which other users may not look into. It goes
// with Close, or, where its process was killed, with the next Temp of the same kind that the
// same user makes on the same machine.
type Temp struct {
	path string
	lock *Lock
}

// tempLock is the file in a Temp that its process has locked.
const tempLock = "lock"

// NewTemp makes a folder whose name begins with kind, and removes those of dead processes.
func NewTemp(kind string) (*Temp, error) {
	dir, prefix := os.TempDir(), kind+hostWord()+"-"
	removeDead(dir, prefix, lockFile)
	for try := 0; ; try++ {
		t, err := newTemp(dir, prefix)
		var busy *BusyError
		if !errors.As(err, &busy) || try == 10 {
			return t, err
		}
	}
}

// newTemp fails with a [*BusyError] where another process took the new folder for a dead
// one's, which it can between its lock's appearance and the locking.
func newTemp(dir, prefix string) (*Temp, error) {
	path, err := os.MkdirTemp(dir, prefix)
	if err != nil {
		return nil, err
	}
	at := filepath.Join(path, tempLock)
	lock, err := TakeLock(at)
	if err == nil && !lock.at(at) {
		err = errors.Join(&BusyError{Path: at, Holder: "a process that removed it"}, lock.Close())
	}
	if err != nil {
		os.RemoveAll(path)
		return nil, err
	}
	return &Temp{path, lock}, nil
}

// at reports whether the locked file is the one that a path names.
func (l *Lock) at(path string) bool {
	is, err := l.f.Stat()
	named, lerr := os.Lstat(path)
	return err == nil && lerr == nil && os.SameFile(is, named)
}

// Path returns where the folder is.
func (t *Temp) Path() string { return t.path }

// Close removes the folder.
func (t *Temp) Close() error { return errors.Join(t.lock.Close(), os.RemoveAll(t.path)) }

// hostWord returns this machine's name as a part of a file's name.
func hostWord() string {
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	word := strings.Map(func(r rune) rune {
		if strings.ContainsRune("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz.-", r) {
			return r
		}
		return '_'
	}, host)
	return cmp.Or(word[:min(len(word), 60)], "host")
}

// removeDead removes folders that no living process of this machine has locked.
func removeDead(dir, prefix string, lock func(*os.File) error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // whoever makes a folder there is told
	}
	for _, e := range entries {
		if random, ok := strings.CutPrefix(e.Name(), prefix); ok && e.IsDir() && strings.Trim(random, "0123456789") == "" {
			removeIfDead(filepath.Join(dir, e.Name()), lock)
		}
	}
}

// removeIfDead removes a folder that is this user's alone, and whose lock is free. A temporary
// folder is everybody's: what bears such a name may be a link, or another user's, with a lock
// that is a link to a file of this one. Where locks are not real nobody knows who lives, and
// all stay.
func removeIfDead(path string, lock func(*os.File) error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return
	}
	defer root.Close()
	is, err := root.Stat(".")
	if named, lerr := os.Lstat(path); err != nil || lerr != nil || !os.SameFile(is, named) || !private(is) {
		return
	}
	if is, err := root.Lstat(tempLock); err != nil || !is.Mode().IsRegular() {
		return
	}
	f, err := root.OpenFile(tempLock, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if lock(f) != nil {
		return
	}
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.Name() != tempLock {
			root.RemoveAll(e.Name())
		}
	}
	root.Remove(tempLock)
	f.Close()
	root.Remove(tempLock) // where no open file is removed
	root.Close()
	os.Remove(path)
}
