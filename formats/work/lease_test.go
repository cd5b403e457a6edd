package work

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func join(t *testing.T, path string, silence time.Duration) *Folder {
	t.Helper()
	f, err := Join(t.Context(), Dir(path), Job{"model": "m"}, silence)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// lease wants a lease to be had, or not.
func lease(t *testing.T, f *Folder, name string, want bool) (release func()) {
	t.Helper()
	release, ok, err := f.Lease(t.Context(), name)
	if err != nil || ok != want {
		t.Fatalf("%s: %v, %v", name, ok, err)
	}
	return release
}

// One of many gets a lease, and the next when it is given back.
func TestLease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w")
	var folders []*Folder
	for range 8 {
		folders = append(folders, join(t, path, time.Hour))
	}
	for round := range 20 {
		var got atomic.Int32
		var releases [8]func()
		var all sync.WaitGroup
		for i, f := range folders {
			all.Go(func() {
				release, ok, err := f.Lease(t.Context(), "blocks.0")
				if err != nil {
					t.Error(err)
				}
				if ok {
					got.Add(1)
					releases[i] = release
				}
			})
		}
		all.Wait()
		if got.Load() != 1 {
			t.Fatalf("round %d: %d have the lease", round, got.Load())
		}
		for _, release := range releases {
			if release != nil {
				release()
			}
		}
	}
	other := lease(t, folders[0], "blocks.1", true)
	lease(t, folders[1], "blocks.1", false)
	lease(t, folders[1], "a name with / and spaces", true)
	other()
	lease(t, folders[1], "blocks.1", true)
	if left, _ := filepath.Glob(filepath.Join(path, "*.tmp-*")); len(left) > 0 {
		t.Errorf("%q is left", left)
	}
	// A folder of one process gives everything.
	alone, err := Create(filepath.Join(t.TempDir(), "alone"), Job{})
	if err != nil {
		t.Fatal(err)
	}
	defer alone.Close()
	lease(t, alone, "x", true)
	lease(t, alone, "x", true)
}

// A living process keeps its lease, however long it works; a dead one loses it.
func TestLeaseOfTheDead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w")
	const silence = 400 * time.Millisecond
	living, dead, waiting := join(t, path, silence), join(t, path, silence), join(t, path, silence)
	lease(t, living, "a", true)
	late := lease(t, dead, "b", true)
	dead.leases.stop() // as a kill does
	for begun := time.Now(); time.Since(begun) < 3*silence; time.Sleep(silence / 10) {
		lease(t, waiting, "a", false)
	}
	lease(t, waiting, "b", false) // seen for the first time
	for begun := time.Now(); ; time.Sleep(silence / 10) {
		_, ok, err := waiting.Lease(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			if time.Since(begun) < silence*9/10 {
				t.Errorf("taken over after %v", time.Since(begun))
			}
			break
		}
		if time.Since(begun) > 20*silence {
			t.Fatal("never taken over")
		}
	}
	late() // the dead one was only slow: what is another's stays
	lease(t, living, "b", false)
}

func TestJoinRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w")
	if _, err := Gather(t.Context(), Dir(path), Job{}, time.Second); err == nil || !strings.Contains(err.Error(), "no shard") {
		t.Error(err)
	}
	f := join(t, path, time.Hour)
	if err := f.Check(t.Context(), "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	for _, open := range []func() (*Folder, error){
		func() (*Folder, error) { return Join(t.Context(), Dir(path), Job{"model": "another"}, time.Hour) },
		func() (*Folder, error) { return Gather(t.Context(), Dir(path), Job{"model": "another"}, time.Hour) },
	} {
		if _, err := open(); err == nil || !strings.Contains(err.Error(), "another model") {
			t.Error(err)
		}
	}
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "letter.txt"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Join(t.Context(), Dir(foreign), Job{}, time.Hour); err == nil || !strings.Contains(err.Error(), "letter.txt") {
		t.Error(err)
	}
}
