package nstf

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/tensor"
)

// TestDiskFillsUp writes to a real disk of 4 MiB, which only root may mount,
// that somebody else fills while the package is written.
func TestDiskFillsUp(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("mounting a small disk: %v", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)

	other := filepath.Join(dir, "other")
	filled := false
	fill := func(done, total int64) {
		if !filled {
			filled = true
			if err := os.WriteFile(other, make([]byte, 2*chunk), 0o644); err != nil {
				t.Error(err)
			}
		}
	}
	items := []Item{blobItem("w", tensor.BytesBlob(make([]byte, 3*chunk)))}
	err := Write(atomicfile.Scratch(filepath.Join(dir, "x.nstf")), meta(), items, WriteOptions{Progress: fill})
	var full *atomicfile.DiskFullError
	if !errors.As(err, &full) || !errors.Is(err, unix.ENOSPC) || full.Needed < 3*chunk {
		t.Errorf("got %v, want a DiskFullError", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "other" {
		t.Errorf("the disk holds %v, %v", entries, err)
	}
}
