package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// writers are the commands that write models, and what each writes.
func writers(model, out string) map[string][]string {
	return map[string][]string{
		"convert":       {"convert", model, "-o", filepath.Join(out, "out.nstf")},
		"quantize":      {"quantize", model, "-o", filepath.Join(out, "out.nstf"), "--scheme", "q8_0"},
		"export":        {"export", model, "-o", filepath.Join(out, "out.gguf")},
		"export folder": {"export", model, "-o", filepath.Join(out, "out") + "/"},
		"dev generate":  {"dev", "generate", "--layers", "1", "--vocab", "20000", "-o", filepath.Join(out, "out")},
	}
}

// larger returns a model whose writing takes long enough to be met in the
// middle: 80 MiB.
func larger(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	must(t, "dev", "generate", "--shape", "1.1b", "--layers", "1", "--width", "1024", "--vocab", "12000", "-o", dir)
	return dir
}

// A writing is a process that was met while its temporary file was there.
type writing struct {
	*exec.Cmd
	stderr bytes.Buffer
}

// meet starts a command that writes into a folder and stops the process as
// soon as something appears there; nil where it was too fast.
func meet(t *testing.T, out string, args []string) *writing {
	t.Helper()
	w := &writing{Cmd: command(t, args...)}
	w.Stderr = &w.stderr
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(200 * time.Microsecond) {
		entries, err := os.ReadDir(out)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 0 {
			continue
		}
		if err := w.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(entries[0].Name(), ".tmp-") {
			return w
		}
		break // whole already
	}
	w.end(t, syscall.SIGKILL)
	if err := os.RemoveAll(filepath.Join(out, "out")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"out.nstf", "out.gguf"} {
		os.Remove(filepath.Join(out, name))
	}
	return nil
}

// end sends a signal, lets the process go on and returns its exit code.
func (w *writing) end(t *testing.T, s os.Signal) int {
	t.Helper()
	for _, s := range []os.Signal{s, syscall.SIGCONT} {
		if err := w.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	w.Wait()
	return w.ProcessState.ExitCode()
}

// attempts is how often a process may be too fast to be met.
const attempts = 20

// An interrupt in the middle of writing ends with 130 and leaves nothing.
func TestInterruptLeavesNothing(t *testing.T) {
	model := larger(t)
	out := t.TempDir()
	for name, args := range writers(model, out) {
		for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
			code := exitFine
			var w *writing
			for n := 0; code == exitFine && n < attempts; n++ {
				if w = meet(t, out, args); w == nil {
					continue
				}
				if code = w.end(t, s); code == exitFine {
					os.RemoveAll(args[len(args)-1])
				}
			}
			if w == nil || code != exitInterrupted || !strings.Contains(w.stderr.String(), "interrupted") {
				t.Fatalf("%s, %v: exit %d, stderr %q", name, s, code, w.stderr.String())
			}
			empty(t, out)
		}
	}
}

// A disk that fills up while a file is being written is named, and nothing of
// the file stays. The disk is a tmpfs, which only root may mount.
func TestDiskFillsUp(t *testing.T) {
	model := larger(t)
	for name := range writers("", "") {
		t.Run(name, func(t *testing.T) {
			disk := t.TempDir()
			if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=400m"); err != nil {
				t.Skipf("mounting a small disk: %v", err)
			}
			defer unix.Unmount(disk, unix.MNT_DETACH)
			fillMeanwhile(t, disk, writers(model, disk)[name])
		})
	}
}

// fillMeanwhile takes all room from a process that has just begun to write.
func fillMeanwhile(t *testing.T, disk string, args []string) {
	t.Helper()
	for range attempts {
		w := meet(t, disk, args)
		if w == nil {
			continue
		}
		filler := filepath.Join(disk, "filler")
		fill(t, filler)
		code := w.end(t, syscall.SIGCONT)
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		if code == exitFine {
			os.RemoveAll(args[len(args)-1]) // it had written everything
			continue
		}
		if errs := w.stderr.String(); code != exitFailure || !strings.Contains(errs, "disk full") || !strings.Contains(errs, "hint: free some space") {
			t.Errorf("exit %d, stderr:\n%s", code, errs)
		}
		empty(t, disk)
		return
	}
	t.Fatalf("never met %v while it wrote", args)
}

// fill writes a file until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{1 << 20, 4096} {
		for p := make([]byte, size); err == nil; {
			_, err = f.Write(p)
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		err = nil
	}
}
