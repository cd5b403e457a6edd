//go:build linux && !nogpu && (amd64 || arm64)

package driver

import (
	"os"
	"path/filepath"
	"testing"
)

// TestLibraryPath tells two libraries of one name apart, as a process has that loads a vendor's and a test's.
func TestLibraryPath(t *testing.T) {
	const name, function = "libm.so.6", "cos"
	first, err := openLibrary(name)
	if err != nil {
		t.Fatal(err)
	}
	installed := libraryPath(first, name, function)
	bytes, err := os.ReadFile(installed)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, name)
	if err := os.WriteFile(copied, bytes, 0o600); err != nil {
		t.Fatal(err)
	}
	second, err := openLibrary(copied)
	if err != nil {
		t.Fatal(err)
	}
	if got := libraryPath(second, name, function); got != copied {
		t.Errorf("the copy lies at %s, not %s", got, copied)
	}
	if got := libraryPath(first, name, function); got != installed {
		t.Errorf("the installed one lies at %s, not %s", got, installed)
	}
}
