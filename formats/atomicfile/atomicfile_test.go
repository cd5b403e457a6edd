package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	path := filepath.Join(dir, "out.bin")
	err = func() error {
		f, err := Scratch(path).Create(5)
		if err != nil {
			return err
		}
		defer f.Abort() // nothing is left if anything below fails
		if _, err := f.Write([]byte("whole")); err != nil {
			return err
		}
		return f.Commit()
	}()
	p, _ := os.ReadFile(path)
	fmt.Println(string(p), err)
	// Output: whole <nil>
}

// names lists a folder.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestAbortLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	f, err := Scratch(filepath.Join(dir, "x")).Create(0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("abc"), 10); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); len(got) != 1 || got[0] == "x" {
		t.Fatalf("while writing the folder holds %q, want only a temporary", got)
	}
	f.Abort()
	f.Abort()
	if got := names(t, dir); len(got) != 0 {
		t.Fatalf("Abort left %q", got)
	}
	if _, err := f.Write(nil); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Write after Abort: %v", err)
	}
	if err := f.Commit(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Commit after Abort: %v", err)
	}
}

func TestReplaceOnlyOnCommit(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := Scratch(path).Create(3)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("new")); err != nil {
		t.Fatal(err)
	}
	if p, _ := os.ReadFile(path); string(p) != "old" {
		t.Fatalf("before Commit the path holds %q", p)
	}
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	f.Abort() // must not remove the committed file
	if p, _ := os.ReadFile(path); string(p) != "new" {
		t.Fatalf("after Commit the path holds %q", p)
	}
	if got := names(t, dir); len(got) != 1 {
		t.Fatalf("Commit left %q", got)
	}
}

func TestFailedRenameLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	f, err := Scratch(path).Create(0)
	if err != nil {
		t.Fatal(err)
	}
	// A folder that appears under the final name meanwhile stops the rename.
	if err := os.MkdirAll(filepath.Join(path, "inner"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := f.Commit(); err == nil {
		t.Fatal("Commit replaced a folder")
	}
	if got := names(t, dir); len(got) != 1 || got[0] != "x" {
		t.Fatalf("failed Commit left %q", got)
	}
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	for _, want := range []string{"a long first one", "short", ""} {
		if err := Scratch(path).WriteFile([]byte(want)); err != nil {
			t.Fatal(err)
		}
		if p, err := os.ReadFile(path); string(p) != want || err != nil {
			t.Fatalf("the path holds %q, %v, want %q", p, err, want)
		}
	}
	if err := Scratch(filepath.Join(dir, "none", "x")).WriteFile(nil); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in a folder that is not there: %v", err)
	}
	if got := names(t, dir); len(got) != 1 {
		t.Fatalf("left %q", got)
	}
}

func TestDiskFullBeforeWriting(t *testing.T) {
	dir := t.TempDir()
	if _, ok := available(dir); !ok {
		t.Skip("this file system does not report free space")
	}
	_, err := Scratch(filepath.Join(dir, "x")).Create(math.MaxInt64)
	var full *DiskFullError
	if !errors.As(err, &full) || full.Needed != math.MaxInt64 || full.Available <= 0 {
		t.Fatalf("got %v, want a DiskFullError with both sizes", err)
	}
	if got := names(t, dir); len(got) != 0 {
		t.Fatalf("left %q", got)
	}
}

func TestRefusesWhatIsNotAFile(t *testing.T) {
	if _, err := Scratch(t.TempDir()).Create(0); err == nil {
		t.Error("a folder was accepted as output")
	}
	if _, err := Scratch(os.DevNull).Create(0); err == nil {
		t.Error("the null device was accepted as output: Commit would replace it")
	}
	// fs.ErrNotExist is for inputs: callers end with another exit code on it.
	if _, err := Scratch(filepath.Join(t.TempDir(), "no", "such", "folder")).Create(0); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing folder: %v", err)
	}
}

func TestFollowsLink(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a privilege")
	}
	dir, other := t.TempDir(), t.TempDir()
	target, link := filepath.Join(other, "target"), filepath.Join(dir, "link")
	if err := os.WriteFile(target, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	f, err := Scratch(link).Create(0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("new")); err != nil {
		t.Fatal(err)
	}
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	if p, _ := os.ReadFile(target); string(p) != "new" {
		t.Errorf("target holds %q", p)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v %v", info, err)
	}
}
