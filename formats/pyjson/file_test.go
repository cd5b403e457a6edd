package pyjson

import (
	"errors"
	"testing"

	"github.com/nstf/nstf/formats"
)

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
