package kernelcache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstf/nstf/kernels/hip"
)

// fake compiles to a text and counts.
type fake struct {
	identity string
	count    atomic.Int64
	running  atomic.Int64
	most     atomic.Int64
	fail     string // defines that do not compile
}

var errFake = errors.New("it does not compile")

func (f *fake) Identity() string { return f.identity }

func (f *fake) Compile(u hip.Unit, t hip.Target) ([]byte, string, error) {
	f.count.Add(1)
	n := f.running.Add(1)
	for m := f.most.Load(); n > m && !f.most.CompareAndSwap(m, n); m = f.most.Load() {
	}
	time.Sleep(5 * time.Millisecond)
	f.running.Add(-1)
	if f.fail != "" && u.Defines == f.fail {
		return nil, "log", errFake
	}
	return fmt.Appendf(nil, "code of %s %s for %s by %s", u.File, u.Defines, t.Arch, f.identity), "warning: " + u.Defines, nil
}

func units(n int) []hip.Unit {
	list := make([]hip.Unit, n)
	for i := range list {
		list[i] = hip.Unit{File: "common.hip", Defines: fmt.Sprintf("N=%d", i)}
	}
	return list
}

var gfx1100 = hip.Target{API: hip.HIP, Arch: "gfx1100", Wave: 32}

func get(t *testing.T, c *Cache, target hip.Target, list []hip.Unit) *Result {
	t.Helper()
	r, err := c.Get(context.Background(), target, list, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range list {
		if !strings.Contains(string(r.Code[u]), u.Defines+" for "+target.Arch) {
			t.Fatalf("%v: %q", u, r.Code[u])
		}
	}
	return r
}

// TestWarm: the second start compiles nothing and says nothing.
func TestWarm(t *testing.T) {
	f := &fake{identity: "a"}
	c := &Cache{Compiler: f, Dir: filepath.Join(t.TempDir(), "new", "folder"), Parallel: 3}
	var steps []string
	list := units(9)
	r, err := c.Get(context.Background(), gfx1100, append(list, list[0]), func(done, total int64) { steps = append(steps, fmt.Sprint(done, "/", total)) })
	if err != nil || r.Compiled != 9 || r.Loaded != 0 || f.count.Load() != 9 || len(r.Unsaved) > 0 || !strings.Contains(r.Log, "warning: N=4") {
		t.Fatalf("%+v, %v", r, err)
	}
	if f.most.Load() != 3 {
		t.Errorf("%d at once, want 3", f.most.Load())
	}
	if len(steps) != 10 || steps[0] != "0/9" || steps[9] != "9/9" {
		t.Errorf("steps %v", steps)
	}
	r, err = c.Get(context.Background(), gfx1100, list, func(done, total int64) { t.Errorf("step %d/%d", done, total) })
	if err != nil || r.Loaded != 9 || r.Compiled != 0 || f.count.Load() != 9 {
		t.Errorf("the second time: %+v, %v", r, err)
	}
}

// TestKey: whatever decides about the code is part of the key.
func TestKey(t *testing.T) {
	f := &fake{identity: "a"}
	c := &Cache{Compiler: f, Dir: t.TempDir()}
	list := units(1)
	get(t, c, gfx1100, list)
	for name, change := range map[string]func(*Cache, *hip.Target, *[]hip.Unit){
		"compiler": func(c *Cache, _ *hip.Target, _ *[]hip.Unit) { c.Compiler = &fake{identity: "b"} },
		"target":   func(_ *Cache, t *hip.Target, _ *[]hip.Unit) { t.Arch = "gfx90a" },
		"wave":     func(_ *Cache, t *hip.Target, _ *[]hip.Unit) { t.Wave = 64 },
		"defines":  func(_ *Cache, _ *hip.Target, u *[]hip.Unit) { *u = []hip.Unit{{File: "common.hip", Defines: "N=7"}} },
		"source":   func(_ *Cache, _ *hip.Target, u *[]hip.Unit) { *u = []hip.Unit{{File: "reduce.hip", Defines: "N=0"}} },
	} {
		other, target, u := *c, gfx1100, list
		change(&other, &target, &u)
		if r := get(t, &other, target, u); r.Compiled != 1 {
			t.Errorf("another %s: found the code of the first", name)
		}
	}
	if r := get(t, c, gfx1100, list); r.Loaded != 1 {
		t.Error("the first code is gone")
	}
}

// TestDamage: an entry that is cut, changed, or another's, is made again.
func TestDamage(t *testing.T) {
	list := units(2)
	for name, damage := range map[string]func(a, b []byte) []byte{
		"empty":   func(a, _ []byte) []byte { return nil },
		"cut":     func(a, _ []byte) []byte { return a[:len(a)-1] },
		"header":  func(a, _ []byte) []byte { return a[:len(magic)+5] },
		"bit":     func(a, _ []byte) []byte { a[len(a)-3] ^= 4; return a },
		"another": func(_, b []byte) []byte { return b },
		"version": func(a, _ []byte) []byte { a[len(magic)-2]++; return a },
	} {
		f := &fake{identity: "a"}
		c := &Cache{Compiler: f, Dir: t.TempDir()}
		get(t, c, gfx1100, list)
		files, _ := filepath.Glob(filepath.Join(c.Dir, "*.kernel"))
		if len(files) != 2 {
			t.Fatalf("files %v", files)
		}
		a, _ := os.ReadFile(files[0])
		b, _ := os.ReadFile(files[1])
		if err := os.WriteFile(files[0], damage(bytes.Clone(a), b), 0o666); err != nil {
			t.Fatal(err)
		}
		if r := get(t, c, gfx1100, list); r.Compiled != 1 || r.Loaded != 1 {
			t.Errorf("%s: %d compiled, %d loaded", name, r.Compiled, r.Loaded)
		}
		if r := get(t, c, gfx1100, list); r.Loaded != 2 {
			t.Errorf("%s: it was not repaired", name)
		}
	}
}

// TestAhead: code built ahead serves a machine without a compiler.
func TestAhead(t *testing.T) {
	f := &fake{identity: "a"}
	dir, list := t.TempDir(), units(4)
	c := &Cache{Compiler: f}
	if n, err := c.Build(context.Background(), gfx1100, list[:3], dir, nil); err != nil || n != 3 {
		t.Fatalf("built %d: %v", n, err)
	}
	if n, err := c.Build(context.Background(), gfx1100, list[:3], dir, nil); err != nil || n != 0 {
		t.Errorf("the second time built %d: %v", n, err)
	}
	bare := &Cache{Ahead: []string{t.TempDir(), dir}}
	if r := get(t, bare, gfx1100, list[:3]); r.Loaded != 3 {
		t.Errorf("%+v", r)
	}
	if _, err := bare.Get(context.Background(), gfx1100, list, nil); !errors.Is(err, ErrNoCompiler) || !strings.Contains(err.Error(), "N=3") {
		t.Errorf("a unit that was not built: %v", err)
	}
	if _, err := bare.Build(context.Background(), gfx1100, list, t.TempDir(), nil); !errors.Is(err, ErrNoCompiler) {
		t.Errorf("building without a compiler: %v", err)
	}
}

// TestFailure ends everything and keeps nothing of the unit that failed.
func TestFailure(t *testing.T) {
	f := &fake{identity: "a", fail: "N=2"}
	c := &Cache{Compiler: f, Dir: t.TempDir(), Parallel: 1}
	if _, err := c.Get(context.Background(), gfx1100, units(50), nil); !errors.Is(err, errFake) {
		t.Errorf("%v", err)
	}
	if n := f.count.Load(); n > 4 {
		t.Errorf("%d units were compiled after the failure", n-3)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(os.ErrDeadlineExceeded)
	if _, err := c.Get(ctx, gfx1100, units(50)[10:], nil); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestUnwritable: a folder that cannot be written is told, not fatal.
func TestUnwritable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	c := &Cache{Compiler: &fake{identity: "a"}, Dir: filepath.Join(file, "below")}
	if r := get(t, c, gfx1100, units(2)); len(r.Unsaved) != 2 {
		t.Errorf("%+v", r)
	}
}

func TestPrune(t *testing.T) {
	c := &Cache{Compiler: &fake{identity: "a"}, Dir: t.TempDir()}
	list := units(4)
	get(t, c, gfx1100, list)
	files, _ := filepath.Glob(filepath.Join(c.Dir, "*.kernel"))
	s, err := os.Stat(files[0])
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-48 * time.Hour)
	for _, f := range files {
		if err := os.Chtimes(f, old, old); err != nil {
			t.Fatal(err)
		}
	}
	get(t, c, gfx1100, list[1:3]) // used now
	left, other := filepath.Join(c.Dir, "x.kernel.tmp-1"), filepath.Join(c.Dir, "mine.txt")
	for _, f := range []string{left, other} {
		if err := os.WriteFile(f, nil, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(f, old, old); err != nil {
			t.Fatal(err)
		}
	}
	get(t, c, gfx1100, units(5)[4:]) // a compilation takes away what is left of others
	if rest, _ := os.ReadDir(c.Dir); len(rest) != 6 {
		t.Errorf("behind a compilation: %v", rest)
	}
	if err := prune(c.Dir, 3*s.Size()); err != nil {
		t.Fatal(err)
	}
	if r := get(t, c, gfx1100, list[1:3]); r.Loaded != 2 {
		t.Error("what was used last is gone")
	}
	rest, _ := os.ReadDir(c.Dir)
	if len(rest) != 4 {
		t.Errorf("left: %v", rest)
	}
}
