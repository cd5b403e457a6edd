package formats

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	if _, err := ReadFile(path, 4, "a plan"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of no file: %v", err)
	}
	if err := os.WriteFile(path, []byte("1234"), 0o666); err != nil {
		t.Fatal(err)
	}
	if p, err := ReadFile(path, 4, "a plan"); string(p) != "1234" || err != nil {
		t.Errorf("at the limit: %q, %v", p, err)
	}
	if p, err := ReadHead(path, 3); string(p) != "123" || err != nil {
		t.Errorf("its head: %q, %v", p, err)
	}
	if p, err := ReadHead(path, 9); string(p) != "1234" || err != nil {
		t.Errorf("more than there is: %q, %v", p, err)
	}
	var format *FormatError
	if _, err := ReadFile(path, 3, "a plan"); !errors.As(err, &format) || format.File != path || !strings.Contains(err.Error(), "4 bytes, more than 3: this is not a plan") {
		t.Errorf("past the limit: %v", err)
	}
}

// What is not a regular file, and a name that leads nowhere, is a bad input.
func TestOpenFile(t *testing.T) {
	dir := t.TempDir()
	long := filepath.Join(dir, strings.Repeat("x", 5000))
	loop := filepath.Join(dir, "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Skipf("links need a privilege: %v", err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, long, loop, filepath.Join(file, "below"), os.DevNull, dir + "/a\x00b"} {
		var format *FormatError
		if f, err := OpenFile(path); !errors.As(err, &format) || format.File != path {
			t.Errorf("%.40q: %v, %v", path, f, err)
		}
	}
}
