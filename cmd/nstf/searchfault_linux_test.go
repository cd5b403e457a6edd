package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSearchFaults quantizes with a GPU whose driver fails: where it was asked for by
// name one error and one hint, and what was finished goes on on the processor, to the
// same package; where it was not, the processor takes over and says so.
func TestSearchFaults(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("Once upon a time there was a little calibration text. ", 60)), 0o666); err != nil {
		t.Fatal(err)
	}
	// Codes alone are the GPU's: the text has been run.
	statistics := filepath.Join(dir, "stats.nstats")
	must(t, "calibrate", micro+"/llama-31", "--calib", text, "--ctx", "64", "--samples", "4", "--threads", "1", "--sensitivity=false", "--device", "cpu", "-o", statistics)
	args := []string{"quantize", micro + "/llama-31", "--scheme", "tcq2", "--stats", statistics, "--parallel", "--threads", "1", "--effort", "1"}
	plain := filepath.Join(dir, "plain.nstf")
	must(t, append(args, "--device", "cpu", "-o", plain)...)
	want, err := os.ReadFile(plain)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, device string
		fault        string
		says         string
		exit         int
	}{
		{"no device", "hip", "INIT=100", "hipErrorNoDevice", exitFailure},
		{"no such device", "hip:7", "ANY", "hip:7", exitFailure},
		{"no memory", "hip", "ALLOC=2", "--device cpu", exitFailure},
		{"no kernel", "hip", "BROKEN", "the compiler is broken", exitFailure},
		{"lost", "hip", "LOST=1", "hipErrorLaunchFailure", exitFailure},
		{"lost, unasked for", "auto", "LOST=1", "hipErrorLaunchFailure", exitFailure},
		{"no device, unasked for", "auto", "INIT=100", "", exitFine},
		{"no memory, unasked for", "auto", "ALLOC=2", "on the processor: no room", exitFine},
		{"no kernel, unasked for", "auto", "BROKEN", "on the processor: ", exitFine},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root := fakeROCm(t, c.fault)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			out := filepath.Join(t.TempDir(), "out.nstf")
			run := command(t, append(args, "--device", c.device, "-o", out)...)
			p := exec.CommandContext(ctx, run.Path, run.Args[1:]...)
			p.Env = append(run.Env, "ROCM_PATH="+root, "LD_LIBRARY_PATH=", "XDG_CACHE_HOME="+root)
			said, err := p.CombinedOutput()
			if ctx.Err() != nil {
				t.Fatalf("it hangs\n%s", said)
			}
			if code := p.ProcessState.ExitCode(); code != c.exit || !strings.Contains(string(said), c.says) || strings.Contains(string(said), "goroutine ") {
				t.Fatalf("exit %d, %v\n%s", code, err, said)
			}
			if c.exit != exitFine {
				if lines := "\n" + string(said); strings.Count(lines, "\nhint: ") != 1 || strings.Count(lines, "\nerror: ") != 1 {
					t.Errorf("not one error:\n%s", said)
				}
				if _, err := os.Stat(out); err == nil {
					t.Error("a package was written")
				}
				must(t, append(args, "--device", "cpu", "--resume", "-o", out)...)
			}
			if got, err := os.ReadFile(out); err != nil || string(got) != string(want) {
				t.Errorf("%v: another package than the processor's", err)
			}
		})
	}
}
