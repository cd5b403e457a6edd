package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A disk that is too small is refused before a byte is written, and one that
// fills up meanwhile leaves no file. Only root may mount one.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("mounting a small disk: %v", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	out := filepath.Join(dir, "out")
	for _, args := range [][]string{
		{"convert", demoModel, "-o", out},
		{"quantize", demoModel, "-o", out, "--scheme", "q4_0"},
		{"eval", demoModel, "--text", demoText, "--save-ref", out},
	} {
		r := invoke(args...)
		r.fails(t, exitFailure, "disk full")
		r.fails(t, exitFailure, "hint: free some space")
		empty(t, dir)
	}
	ids := filepath.Join(t.TempDir(), "ids.json")
	if err := os.WriteFile(ids, []byte("["+strings.Repeat("1, ", 100)+"1]"), 0o666); err != nil {
		t.Fatal(err)
	}
	invoke("eval", demoModel, "--token-ids", ids, "--dump-logits", out).fails(t, exitFailure, "disk full")
	empty(t, dir)
}
