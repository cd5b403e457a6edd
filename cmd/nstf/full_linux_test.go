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
	// Fitted tensors wait on the disk for the package: both must find room.
	text := append(withText(t, "llama-tied")[1:3], "--ctx", "16", "--samples", "4")
	statistics := filepath.Join(t.TempDir(), "s.nstats")
	must(t, append([]string{"calibrate", demoModel, "-o", statistics}, text...)...)
	for _, aim := range [][]string{{"--bpw", "4", "--schemes", "q4_0,q2_k"}, {"--scheme", "tcq2"}, {"--max-kld", "1", "--schemes", "q4_0,q2_k"}} {
		r := invoke(append(append([]string{"quantize", demoModel, "-o", out, "--stats", statistics, "--effort", "1"}, text...), aim...)...)
		r.fails(t, exitFailure, "disk full")
		if strings.Contains(r.err, ".work") {
			t.Errorf("work was done: %s", r.err)
		}
		empty(t, dir)
	}
	ids := filepath.Join(t.TempDir(), "ids.json")
	if err := os.WriteFile(ids, []byte("["+strings.Repeat("1, ", 100)+"1]"), 0o666); err != nil {
		t.Fatal(err)
	}
	invoke("eval", demoModel, "--token-ids", ids, "--dump-logits", out).fails(t, exitFailure, "disk full")
	empty(t, dir)
}
