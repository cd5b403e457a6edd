package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

// asCommand makes the test binary behave as nstf, for tests that need a
// process of their own.
const asCommand = "NSTF_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	debug.SetGCPercent(400) // a quarter less of the processors' time for commands on small models, in this process
	os.Exit(m.Run())
}

// command returns a process of nstf.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), asCommand+"=1")
	return c
}

// A result is what a command line did.
type result struct {
	out, err string
	code     int
}

// invokeWith runs a command line in this process.
func invokeWith(ctx context.Context, stdin io.Reader, args ...string) result {
	var out, errs bytes.Buffer
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a := &app{in: stdin, out: &out, err: &errs, interrupts: &interrupts{cancel: cancel}}
	code := a.run(ctx, args)
	return result{out.String(), errs.String(), code}
}

func invoke(args ...string) result {
	return invokeWith(context.Background(), strings.NewReader(""), args...)
}

// must fails the test unless the command ended well.
func must(t *testing.T, args ...string) string {
	t.Helper()
	r := invoke(args...)
	if r.code != exitFine {
		t.Fatalf("nstf %s: exit %d\n%s", strings.Join(args, " "), r.code, r.err)
	}
	return r.out
}

// fails checks that a command ends with a code and an error line that
// contains what.
func (r result) fails(t *testing.T, code int, what string) {
	t.Helper()
	if r.code != code || !strings.Contains(r.err, "error: ") || !strings.Contains(r.err, what) {
		t.Errorf("exit %d, want %d with an error of %q; stderr:\n%s", r.code, code, what, r.err)
	}
}

// empty checks that a folder holds nothing.
func empty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("%s is left after a failure", e.Name())
	}
}

// decode reads a command's JSON.
func decode(t *testing.T, out string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(out), v); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
}

const (
	demoModel = "../../testdata/demo/model"
	demoText  = "../../testdata/demo/text.txt"
	micro     = "../../testdata/micro"
	microText = "../../testdata/micro/README.md"
)

// copyDir copies a micro checkpoint, to be damaged.
func copyDir(t *testing.T, src string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), filepath.Base(src))
	if err := copyFiles(dir, src); err != nil {
		t.Fatal(err)
	}
	return dir
}

// copyFiles copies the files of a folder, and what links of it lead to.
func copyFiles(dir, src string) error {
	names, err := filepath.Glob(filepath.Join(src, "*"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for _, name := range names {
		p, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), p, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// packaged converts a model and returns the package.
func packaged(t *testing.T, src string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "model.nstf")
	must(t, "convert", src, "-o", out)
	return out
}
