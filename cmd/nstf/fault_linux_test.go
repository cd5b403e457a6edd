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

// fakeROCm builds the fake driver of package driver with faults, and returns a
// folder that ROCM_PATH may name.
func fakeROCm(t *testing.T, faults ...string) string {
	t.Helper()
	cc := ""
	for _, name := range []string{"cc", "clang", "clang-19", "gcc"} {
		if p, err := exec.LookPath(name); err == nil {
			cc = p
			break
		}
	}
	if cc == "" {
		t.Skip("no C compiler: the fake driver cannot be built")
	}
	root := t.TempDir()
	dir := filepath.Join(root, "lib")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for name, define := range map[string]string{"libamdhip64.so.6": "-DANY", "libhiprtc.so.6": "-DCOMPILER"} {
		args := []string{"-shared", "-fPIC", "-O1", "-w", "-o", filepath.Join(dir, name), "../../runtime/gpu/driver/testdata/fake.c", "-lpthread", define}
		for _, f := range faults {
			args = append(args, "-D"+f)
		}
		if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return root
}

// TestDeviceFaults runs the program on drivers that fail: one error that says
// what happened, one hint, no text, no crash, and an end.
func TestDeviceFaults(t *testing.T) {
	for _, c := range []struct {
		name   string
		faults []string
		says   []string
	}{
		{"library lacks a function", []string{"LACKS"}, nil},
		{"no device, as without permission", []string{"INIT=100"}, []string{"hipErrorNoDevice"}},
		{"unknown target", []string{`ARCH="gfx000"`}, []string{"gfx000"}},
		{"no memory", []string{"ALLOC=2"}, []string{"hipErrorOutOfMemory"}},
		{"a kernel does not compile", []string{"BROKEN"}, []string{"the compiler is broken"}},
		{"code is refused", []string{"LOAD=209"}, []string{"hipErrorNoBinaryForGpu"}},
		{"a launch fails", []string{"LAUNCH=9"}, []string{"hipErrorOther (9)"}},
		{"lost at once", []string{"LOST=1"}, []string{"hipErrorLaunchFailure"}},
		{"lost in the middle", []string{"LOST=60"}, []string{"hipErrorLaunchFailure"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root := fakeROCm(t, c.faults...)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			run := command(t, "run", micro+"/llama-3", "--device", "hip", "--greedy", "--max-tokens", "8", "-p", "a")
			var out, errs strings.Builder
			p := exec.CommandContext(ctx, run.Path, run.Args[1:]...)
			p.Env = append(run.Env, "ROCM_PATH="+root, "LD_LIBRARY_PATH=", "XDG_CACHE_HOME="+root)
			p.Stdout, p.Stderr = &out, &errs
			err := p.Run()
			if ctx.Err() != nil {
				t.Fatalf("it hangs\n%s", errs.String())
			}
			exit, ok := err.(*exec.ExitError)
			if !ok || exit.ExitCode() != exitFailure && exit.ExitCode() != exitUnsupported {
				t.Fatalf("%v\n%s%s", err, out.String(), errs.String())
			}
			lines := "\n" + errs.String()
			if strings.Count(lines, "\nhint: ") != 1 || !strings.Contains(lines, "\nerror: ") || strings.Contains(lines, "goroutine ") {
				t.Errorf("not one error:\n%s", errs.String())
			}
			for _, text := range c.says {
				if !strings.Contains(errs.String(), text) {
					t.Errorf("does not say %q:\n%s", text, errs.String())
				}
			}
		})
	}
}
