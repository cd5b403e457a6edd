// Package packed reads test data that the repository keeps compressed with gzip.
package packed

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// Read returns what a file named path.gz holds unpacked.
func Read(t testing.TB, path string) []byte {
	t.Helper()
	p, err := os.ReadFile(path + ".gz")
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(p))
	if err == nil {
		p, err = io.ReadAll(z)
	}
	if err != nil {
		t.Fatalf("%s.gz: %v", path, err)
	}
	return p
}

// File unpacks path.gz into a folder of the test and returns where.
func File(t testing.TB, path string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(out, Read(t, path), 0o600); err != nil {
		t.Fatal(err)
	}
	return out
}
