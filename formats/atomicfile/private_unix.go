//go:build unix

package atomicfile

import (
	"io/fs"
	"os"
	"syscall"
)

// private reports whether a folder is this user's, and nobody else may look into it.
func private(is fs.FileInfo) bool {
	s, ok := is.Sys().(*syscall.Stat_t)
	return ok && is.IsDir() && int64(s.Uid) == int64(os.Geteuid()) && is.Mode().Perm()&0o077 == 0
}
