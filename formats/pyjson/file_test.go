package pyjson

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
)

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	if _, err := ReadFile(path, 4, "plan"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of no file: %v", err)
	}
	if err := os.WriteFile(path, []byte("1234"), 0o666); err != nil {
		t.Fatal(err)
	}
	if p, err := ReadFile(path, 4, "plan"); string(p) != "1234" || err != nil {
		t.Errorf("at the limit: %q, %v", p, err)
	}
	var format *formats.FormatError
	if _, err := ReadFile(path, 3, "plan"); !errors.As(err, &format) || format.File != path || !strings.Contains(err.Error(), "more than 3 bytes: this is no plan") {
		t.Errorf("past the limit: %v", err)
	}
}

func TestVersion(t *testing.T) {
	read := func(text string) (v int64, err error) {
		err = NewScanner("f", 100, []byte(text)).Version(&v, 2, "plan", "package")()
		return v, err
	}
	if v, err := read(" 2,"); v != 2 || err != nil {
		t.Errorf("version %d: %v", v, err)
	}
	var format *formats.FormatError
	for _, text := range []string{"0", "-1", "1.5", `"1"`, ""} {
		if _, err := read(text); !errors.As(err, &format) || format.File != "f" {
			t.Errorf("%q: %v", text, err)
		}
	}
	var unsupported *formats.UnsupportedError
	_, err := read("3")
	if !errors.As(err, &unsupported) {
		t.Fatalf("a newer version: %v", err)
	}
	want := formats.UnsupportedError{File: "f", Tensor: "version", Offset: 101, Feature: "version 3 of plans; this program knows 2",
		Hint: "a newer program made this package: use that one"}
	if *unsupported != want {
		t.Errorf("got %+v, want %+v", *unsupported, want)
	}
}
