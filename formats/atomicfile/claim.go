package atomicfile

import (
	"errors"
	"io/fs"
	"os"
)

// Claim writes a file that is not there yet, and reports whether it did: of several
// processes on a shared file system one does. Where the file system has links it appears
// with its bytes; elsewhere, by O_EXCL, it may be seen empty at first.
func Claim(path string, data []byte) (bool, error) {
	f, err := Scratch(path).Create(int64(len(data)))
	if err != nil {
		return false, err
	}
	defer f.Abort()
	if _, err := f.Write(data); err != nil {
		return false, err
	}
	if err := f.f.Sync(); err != nil {
		return false, f.wrap(err)
	}
	err = os.Link(f.temp, f.path)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err == nil, nil
	}
	direct, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, err = direct.Write(data)
	return true, errors.Join(f.wrap(err), direct.Close())
}
