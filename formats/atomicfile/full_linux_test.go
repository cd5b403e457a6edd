package atomicfile

import (
	"errors"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDiskFullWhileWriting fills a real disk: a tmpfs of 64 KiB, which only
// root may mount.
func TestDiskFullWhileWriting(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("mounting a small disk: %v", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)

	f, err := Scratch(filepath.Join(dir, "x")).Create(0) // size not announced
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err = f.Write(make([]byte, 4096)); err != nil {
			break
		}
	}
	var full *DiskFullError
	if !errors.As(err, &full) || !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("got %v, want a DiskFullError from ENOSPC", err)
	}
	f.Abort()
	if got := names(t, dir); len(got) != 0 {
		t.Fatalf("left %q", got)
	}

	if _, err := Scratch(filepath.Join(dir, "x")).Create(65537); !errors.As(err, &full) || full.Available != 65536 {
		t.Fatalf("announcing one byte too many: %v", err)
	}
}
