//go:build unix

package tensor

import (
	"os"

	"golang.org/x/sys/unix"
)

// openFile does not wait where a path leads to a pipe.
func openFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
}

func mapFile(f *os.File, size int64) ([]byte, error) {
	p, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	inLargePages(p)
	return p, nil
}

func unmapFile(p []byte) error { return unix.Munmap(p) }
