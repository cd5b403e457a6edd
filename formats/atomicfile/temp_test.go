package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// tempName is a name that this process would give.
func tempName(kind string) string { return kind + hostWord() + "-123" }

func temps(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Setenv("TMP", dir)
	return dir
}

// dead makes what a killed process left.
func dead(t *testing.T, path string) {
	t.Helper()
	err := errors.Join(os.Mkdir(path, 0o700), os.WriteFile(filepath.Join(path, tempLock), []byte("process 1"), 0o600), os.WriteFile(filepath.Join(path, "copy"), nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
}

func there(path string) bool { _, err := os.Lstat(path); return err == nil }

// Folders of killed processes go, those of living ones, of other machines and of other kinds
// stay.
func TestTemp(t *testing.T) {
	dir := temps(t)
	gone, elsewhere, other := filepath.Join(dir, tempName("a-")), filepath.Join(dir, "a-elsewhere-123"), filepath.Join(dir, tempName("b-"))
	for _, path := range []string{gone, elsewhere, other} {
		dead(t, path)
	}
	one, err := NewTemp("a-")
	if err != nil {
		t.Fatal(err)
	}
	two, err := NewTemp("a-")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{gone: false, elsewhere: true, other: true, one.Path(): true, two.Path(): true} {
		if there(path) != want {
			t.Errorf("%s is there: %v", path, !want)
		}
	}
	if info, err := os.Stat(one.Path()); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o700 {
		t.Error(info, err)
	}
	if err := errors.Join(one.Close(), two.Close()); err != nil || there(one.Path()) {
		t.Error("it stayed", err)
	}
}

// Where locks are not real, nobody's folder goes.
func TestTempWithoutLocks(t *testing.T) {
	dir := temps(t)
	living := filepath.Join(dir, tempName("a-"))
	dead(t, living)
	removeDead(dir, "a-"+hostWord()+"-", func(*os.File) error { return errors.ErrUnsupported })
	if !there(filepath.Join(living, "copy")) {
		t.Error("the copies of a process that may live are gone")
	}
}

// What another user laid there is not followed: neither a link that bears such a name, nor a
// folder that others may write into, nor a lock that is a link.
func TestTempOfOthers(t *testing.T) {
	dir, home := temps(t), t.TempDir()
	file := filepath.Join(home, "letter")
	if err := os.WriteFile(file, []byte("dear"), 0o600); err != nil {
		t.Fatal(err)
	}
	linked := filepath.Join(home, "folder")
	dead(t, linked)
	if err := os.Symlink(linked, filepath.Join(dir, "a-"+hostWord()+"-1")); err != nil {
		t.Skip(err)
	}
	trap := filepath.Join(dir, "a-"+hostWord()+"-2")
	if err := errors.Join(os.Mkdir(trap, 0o700), os.Symlink(file, filepath.Join(trap, tempLock)), os.WriteFile(filepath.Join(trap, "copy"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(dir, "a-"+hostWord()+"-3")
	dead(t, open)
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	theirs := filepath.Join(dir, "a-"+hostWord()+"-4")
	dead(t, theirs)
	if err := os.Chown(theirs, 12345, 12345); err != nil {
		theirs = open // only root gives folders away
	}
	one, err := NewTemp("a-")
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	if p, err := os.ReadFile(file); err != nil || string(p) != "dear" {
		t.Errorf("%q, %v", p, err)
	}
	for _, path := range []string{linked, trap, open, theirs} {
		if runtime.GOOS != "windows" && !there(filepath.Join(path, "copy")) {
			t.Errorf("%s was emptied", path)
		}
	}
}

// A lock whose file was removed and made again meanwhile is not the folder's.
func TestLockOfAnotherFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), tempLock)
	lock, err := TakeLock(path)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if !lock.at(path) {
		t.Error("it is not where it was made")
	}
	if err := os.Remove(path); err != nil {
		t.Skip(err)
	}
	if lock.at(path) {
		t.Error("it is where nothing is")
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if lock.at(path) {
		t.Error("it is another file")
	}
}
