package formats

import (
	"errors"
	"io"
	"testing"
)

// TestAt: an error of either family gets what it lacks of its place.
func TestAt(t *testing.T) {
	for want, err := range map[string]error{
		`f: "t": at byte 3: bad`:              Errorf("", "", "bad"),
		`f: "t": at byte 3: unsupported: odd`: Unsupportedf("", "", "odd"),
		`g: "u": at byte 0: bad`:              ErrorAt("g", "u", 0, "bad"),
		"f: \"t\": at byte 3: bad\nEOF":       errors.Join(Errorf("", "", "bad"), io.EOF),
		"EOF":                                 io.EOF,
	} {
		if got := At("f", "t", 3, err); got.Error() != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if err := At("f", "t", 3, nil); err != nil {
		t.Error(err)
	}
}
