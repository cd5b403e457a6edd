package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/nstf/nstf/formats/work"
)

// TestQuantizeKilled kills a process that quantizes at twenty random points,
// goes on each time, and wants the bytes of a run that nobody disturbed, at
// another number of threads.
func TestQuantizeKilled(t *testing.T) {
	for _, c := range [][]string{{"--scheme", "tcq2"}, {"--scheme", "q4_0", "--head-scheme", "tcq3", "--parallel"}} {
		dir := t.TempDir()
		whole, out := filepath.Join(dir, "whole.nstf"), filepath.Join(dir, "out.nstf")
		flags := append(append([]string{"quantize"}, c...), withText(t, "llama-31")...)
		began := time.Now()
		if text, err := command(t, append(flags, "-o", whole)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		takes := time.Since(began)
		want, err := os.ReadFile(whole)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(uint64(began.UnixNano()), 1))
		resumed := 0
		for killed := 0; killed < 10; {
			p := command(t, append(flags, "-o", out, "--resume", "--threads", "3")...)
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(rng.Int64N(int64(takes))))
			p.Process.Signal(syscall.SIGKILL)
			if p.Wait() == nil || lies(out) {
				sameBytes(t, out, want)
				os.Remove(out)
				takes = takes * 3 / 4 // the undisturbed run was slower than these
				continue
			}
			killed++
			if lies(work.Path(out)) {
				resumed++
			}
		}
		if text, err := command(t, append(flags, "-o", out, "--resume")...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		sameBytes(t, out, want)
		if lies(work.Path(out)) {
			t.Error("the work folder stayed")
		}
		t.Logf("%v: %d of 10 kills left work", c, resumed)
	}
}

func sameBytes(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%s differs from the package of an undisturbed run", path)
	}
}
