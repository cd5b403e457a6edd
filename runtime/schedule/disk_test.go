package schedule

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/sample"
)

// disk opens a folder for a test.
func disk(t *testing.T, dir string, most int64) *Disk {
	t.Helper()
	d, err := OpenDisk(dir, most)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// asked is what a prompt gets of a new scheduler with a disk: its answer, and how many of
// its tokens were found.
func asked(t *testing.T, ex *exec.Executor, dir, identity string, most int64, ids []int32) (answer, int, DiskStats) {
	t.Helper()
	d := disk(t, dir, most)
	s := New(ex, Options{Disk: d, Identity: identity})
	st := submit(t, s, context.Background(), Request{Prompt: ids, Choices: []Choice{{MaxTokens: 12, Logprobs: true, Sampling: sample.Options{Temperature: 1, Seed: 3}}}})
	a := collected(st, 1)[0]
	found := st.Usage().CachedTokens
	if m := s.Metrics(); m.DiskTokens != int64(found) {
		t.Errorf("%d tokens were found, %d of them on the disk", found, m.DiskTokens)
	}
	closed(t, ex, s)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	return a, found, d.Stats()
}

// files are those of a folder, but the lock.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "lock" {
			names = append(names, e.Name())
		}
	}
	return names
}

// What a scheduler leaves on the disk begins the prompts of the next one, to the same
// answers.
func TestDisk(t *testing.T) {
	if emulated() {
		t.Skip("what a GPU remembers is not written down")
	}
	for _, c := range []struct {
		name, kv                   string
		again, longer, cut, beside int // tokens that are found
	}{
		{"llama-31", "", 128, 128, 64, 0}, {"gemma2", "", 128, 128, 64, 0}, {"qwen3_next", "", 133, 133, 0, 0}, {"llama-31", "q4", 133, 133, 0, 0},
	} {
		t.Run(c.name+c.kv, func(t *testing.T) {
			ex := executor(t, c.name, exec.Options{Sequences: 4, Places: 8, KV: c.kv})
			dir, ids := t.TempDir(), prompt(1, 200, ex.Graph().Vocab)
			const most = 64 << 20
			fresh := func(ids []int32) answer {
				a, found, _ := asked(t, ex, t.TempDir(), "a", most, ids)
				if found > 0 {
					t.Errorf("%d tokens were found in an empty folder", found)
				}
				return a
			}
			for _, q := range []struct {
				what     string
				identity string
				n, found int
			}{{"first", "a", 150, 0}, {"again", "a", 150, c.again}, {"longer", "a", 200, c.longer}, {"a beginning", "a", 100, c.cut}, {"another model", "b", 150, c.beside}} {
				got, found, stats := asked(t, ex, dir, q.identity, most, ids[:q.n])
				want := fresh(ids[:q.n])
				if found != q.found || stats.Damaged+stats.Failed+stats.Dropped > 0 {
					t.Errorf("%s: %d tokens were found, want %d; %+v", q.what, found, q.found, stats)
				}
				if !slices.Equal(got.tokens, want.tokens) || !slices.Equal(got.probs, want.probs) {
					t.Errorf("%s: %v, without a disk %v", q.what, got, want)
				}
			}
		})
	}
}

// What memory gave up is read from the disk, by the same scheduler too.
func TestDiskSpill(t *testing.T) {
	if emulated() {
		t.Skip("what a GPU remembers is not written down")
	}
	ex := executor(t, "llama-31", exec.Options{Sequences: 4})
	s := New(ex, Options{Kept: 1, Disk: disk(t, t.TempDir(), 64<<20)})
	for i, c := range []struct{ prompt, found int }{{1, 0}, {2, 0}, {1, 128}, {1, 149}} {
		st := submit(t, s, context.Background(), Request{Prompt: prompt(c.prompt, 150, ex.Graph().Vocab), Choices: []Choice{{MaxTokens: 2}}})
		collected(st, 1)
		if u := st.Usage(); u.CachedTokens != c.found {
			t.Errorf("request %d: %d tokens found, want %d", i, u.CachedTokens, c.found)
		}
	}
	closed(t, ex, s)
}

// A damaged file, and what a killed process leaves, are removed; what stands before it
// is used.
func TestDiskDamage(t *testing.T) {
	if emulated() {
		t.Skip("what a GPU remembers is not written down")
	}
	ex := executor(t, "llama-31", exec.Options{Sequences: 4})
	ids := prompt(1, 230, ex.Graph().Vocab)
	for _, c := range []struct {
		what   string
		damage func(path string) error
	}{
		{"a bit", func(path string) error {
			p, err := os.ReadFile(path)
			if err == nil {
				p[len(p)/2] ^= 1
				err = os.WriteFile(path, p, 0o600)
			}
			return err
		}},
		{"half of it", func(path string) error {
			info, err := os.Stat(path)
			return errors.Join(err, os.Truncate(path, info.Size()/2))
		}},
		{"all of it", func(path string) error { return os.Truncate(path, 0) }},
		{"the file of another page", func(path string) error { return os.WriteFile(path, []byte(diskMagic), 0o600) }},
	} {
		dir := t.TempDir()
		want, _, _ := asked(t, ex, dir, "", 64<<20, ids)
		// The third of three pages.
		chain := chainOf([]byte("\n"+ex.Arithmetic()+fmt.Sprintf("\n%v", ex.Graph().Ropes[0].Regime(230))), ids, 64)
		path := filepath.Join(dir, chain.pageName(2))
		if err := c.damage(path); err != nil {
			t.Fatal(err)
		}
		left := filepath.Join(dir, chain.pageName(1)+".tmp-00c0ffee")
		if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		got, found, stats := asked(t, ex, dir, "", 64<<20, ids)
		if found != 128 || stats.Damaged != 1 || !slices.Equal(got.tokens, want.tokens) || !slices.Equal(got.probs, want.probs) {
			t.Errorf("%s is damaged: %d found, %+v, %v instead of %v", c.what, found, stats, got, want)
		}
		if names := files(t, dir); len(names) != 3 || slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, "tmp") }) {
			t.Errorf("%s is damaged: left are %v", c.what, names)
		}
	}
}

// A disk takes as many bytes as it may, and what goes first was used before others: of a
// prompt its last pages.
func TestDiskBudget(t *testing.T) {
	if emulated() {
		t.Skip("what a GPU remembers is not written down")
	}
	ex := executor(t, "llama-31", exec.Options{Sequences: 4})
	dir, vocab := t.TempDir(), ex.Graph().Vocab
	_, _, stats := asked(t, ex, dir, "", 1<<30, prompt(1, 240, vocab))
	if stats.Files != 3 {
		t.Fatalf("a prompt of three pages: %+v", stats)
	}
	page := stats.Bytes / 3
	for i := range 4 {
		asked(t, ex, dir, "", 1<<30, prompt(2+i, 240, vocab))
	}
	const most = 8
	_, found, stats := asked(t, ex, dir, "", most*page+page/2, prompt(5, 250, vocab))
	if found != 192 || stats.Bytes > most*page+page/2 || stats.Dropped < 15-most {
		t.Errorf("%d tokens of the last prompt were found; %+v of %d bytes a page", found, stats, page)
	}
	have := map[string]bool{}
	for _, n := range files(t, dir) {
		have[n] = true
	}
	for i := range 5 {
		c := chainOf([]byte("\n"+ex.Arithmetic()+fmt.Sprintf("\n%v", ex.Graph().Ropes[0].Regime(240))), prompt(1+i, 240, vocab), 64)
		for p := 1; p < 3; p++ {
			if have[c.pageName(p)] && !have[c.pageName(p-1)] {
				t.Errorf("prompt %d has page %d and not the one before", i, p)
			}
		}
	}
	d := disk(t, dir, 1<<30)
	var busy *atomicfile.BusyError
	if _, err := OpenDisk(dir, 1<<30); !errors.As(err, &busy) {
		t.Errorf("a folder is opened twice: %v", err)
	}
	d.Close()
}

// A prompt is hashed for the disk once, however often a recurrent model is kept on its way.
func TestDiskHashesOnce(t *testing.T) {
	if emulated() {
		t.Skip("what a GPU remembers is not written down")
	}
	ex := executor(t, "qwen3_next", exec.Options{Sequences: 4, Places: 8})
	d := disk(t, t.TempDir(), 64<<20)
	k := newKept(ex, 64, &Options{Kept: 8, Disk: d})
	ids := prompt(1, 200, ex.Graph().Vocab)
	seq, err := ex.NewSequence()
	if err != nil {
		t.Fatal(err)
	}
	defer seq.Close()
	p := k.prefix(ids)
	if n, err := k.begin(seq, p, len(ids)-1); n != 0 || err != nil {
		t.Fatalf("%d tokens were found: %v", n, err)
	}
	const times = 4
	for i := range times {
		if err := seq.Prefill(context.Background(), ids[i*50:(i+1)*50], nil); err != nil {
			t.Fatal(err)
		}
		if err := k.add(seq, p, (i+1)*50); err != nil {
			t.Fatal(err)
		}
	}
	k.drop()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	// Three whole pages, and a state behind each piece that has one.
	if s := d.Stats(); k.sums != int64(len(ids)) || s.Files != 3+times-1 {
		t.Errorf("%d tokens were hashed of %d; %+v", k.sums, len(ids), s)
	}
}

// Contents are made where they are wanted alone, and a folder remembers what was used
// last, though dates are not written down each time.
func TestDiskKeepAndTouch(t *testing.T) {
	dir := t.TempDir()
	d := disk(t, dir, 64<<20)
	for _, name := range []string{"a", "b"} {
		if !d.keep(name+pageSuffix, func() []byte { return []byte(name) }) {
			t.Errorf("%s is not kept", name)
		}
	}
	never := func() []byte { t.Error("a content that nobody wants"); return nil }
	if !d.keep("a"+pageSuffix, never) {
		t.Error("what is there is not")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if d.keep("c"+pageSuffix, never) {
		t.Error("a closed disk keeps something")
	}
	for _, last := range []string{"a", "b", "a"} {
		d = disk(t, dir, 64<<20)
		d.touch([]string{last + pageSuffix})
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		d = disk(t, dir, 64<<20)
		a, b := d.files["a"+pageSuffix], d.files["b"+pageSuffix]
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if a.used == b.used || (a.used > b.used) != (last == "a") {
			t.Errorf("%s was used last: %d, %d", last, a.used, b.used)
		}
	}
}
