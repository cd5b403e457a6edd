package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"github.com/nstf/nstf/formats/atomicfile"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

func sample(t *testing.T, name string) formats.Tensor {
	t.Helper()
	s, _ := scheme.ByName("f32")
	x, err := scheme.New(name, s, []int64{2, 2}, nil, tensor.BytesBlob([]byte(name + strings.Repeat("z", 16))[:16]))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

type record struct{ Error float64 }

// What was put is there after a resume, with its record; another job is
// refused by the name of what differs; half-written files disappear.
func TestResume(t *testing.T) {
	path := Path(filepath.Join(t.TempDir(), "out.nstf"))
	job := Job{"source": "a", "plan": "b"}
	f, err := Create(path, job)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"blocks.0.attn.q.weight", "../../Escape/weight"}
	for i, name := range names {
		x, err := f.Put(t.Context(), sample(t, name), record{float64(i)})
		if err != nil {
			t.Fatal(err)
		}
		if p, err := x.Parts[0].Data.Bytes(); err != nil || string(p[:4]) != name[:4] {
			t.Errorf("%q, %v", p, err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(path, job); !errors.Is(err, ErrExists) {
		t.Errorf("made twice: %v", err)
	}
	half := filepath.Join(path, "x.nstf.tmp-00000001")
	if err := os.WriteFile(half, []byte("half"), 0o666); err != nil {
		t.Fatal(err)
	}
	var u *formats.UnsupportedError
	if _, err := Resume(path, Job{"source": "a", "plan": "c"}); !errors.As(err, &u) || !strings.Contains(err.Error(), "plan") || strings.Contains(err.Error(), "source") || u.Hint == "" {
		t.Errorf("another job: %v", err)
	}
	if f, err = Resume(path, job); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(half); err == nil {
		t.Error("a half-written file stayed")
	}
	for i, name := range names {
		x, raw, ok := f.Get(t.Context(), name)
		var r record
		if !ok || x.Name != name || json.Unmarshal(raw, &r) != nil || r.Error != float64(i) {
			t.Errorf("%s: %v, %s, %v", name, x, raw, ok)
		}
	}
	if _, _, ok := f.Get(t.Context(), "blocks.1.attn.q.weight"); ok {
		t.Error("a tensor that was never put is there")
	}
	if err := f.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the folder stayed")
	}
}

// A tensor whose bytes were damaged counts as not finished. A folder of tensors whose
// journal is gone is refused, one that is empty was never begun.
func TestDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w")
	f, err := Create(path, Job{"a": "b"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Put(context.Background(), sample(t, "w"), record{}); err != nil {
		t.Fatal(err)
	}
	f.Close()
	file := filepath.Join(path, "w.nstf")
	p, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p[len(p)-4096] ^= 1
	if err := os.WriteFile(file, p, 0o666); err != nil {
		t.Fatal(err)
	}
	if f, err = Resume(path, Job{"a": "b"}); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := f.Get(t.Context(), "w"); ok {
		t.Error("a damaged tensor was taken")
	}
	f.Close()
	if err := os.Remove(filepath.Join(path, "journal.json")); err != nil {
		t.Fatal(err)
	}
	var foreign *formats.UnsupportedError
	if _, err = Resume(path, Job{"a": "b"}); !errors.As(err, &foreign) {
		t.Errorf("without a journal: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if f, err = Resume(path, Job{"a": "b"}); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(path); err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
	f.Close()
	if err := os.WriteFile(filepath.Join(path, "journal.json"), []byte("{"), 0o666); err != nil {
		t.Fatal(err)
	}
	var e *formats.FormatError
	if _, err = Resume(path, Job{"a": "b"}); !errors.As(err, &e) {
		t.Errorf("a damaged journal: %v", err)
	}
}

// FuzzJournal: any bytes are a journal or a FormatError.
func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"plan": "x"}`))
	f.Add([]byte(`[1]`))
	f.Fuzz(func(t *testing.T, p []byte) {
		var e *formats.FormatError
		if _, err := parseJournal("j", p); err != nil && !errors.As(err, &e) {
			t.Errorf("%v", err)
		}
	})
}

// TestDiscard removes what a run left, killed before it had a journal too, and
// nothing else.
func TestDiscard(t *testing.T) {
	for file, removed := range map[string]bool{"journal.json": true, "journal.json.tmp-1": true, "thesis.tex": false} {
		path := filepath.Join(t.TempDir(), "out.work")
		if err := os.Mkdir(path, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, file), []byte("{}"), 0o666); err != nil {
			t.Fatal(err)
		}
		err := Discard(path)
		if _, left := os.Stat(path); (left != nil) != removed || (err == nil) != removed {
			t.Errorf("a folder with %s: %v, %v", file, err, left)
		}
		if _, err := Resume(path, Job{}); (err == nil) != removed {
			t.Errorf("resuming a folder with %s: %v", file, err)
		}
	}
}

// A folder in which a process works is nobody else's: neither taken, nor resumed, nor
// removed, and the error says whose it is. When that process ends, it is free.
func TestBusy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w")
	f, err := Create(path, Job{"a": "b"})
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	tries := map[string]func() error{
		"create":  func() error { _, err := Create(path, Job{"a": "b"}); return err },
		"resume":  func() error { _, err := Resume(path, Job{"a": "b"}); return err },
		"discard": func() error { return Discard(path) },
	}
	for name, try := range tries {
		var busy *atomicfile.BusyError
		if err := try(); !errors.As(err, &busy) || !strings.Contains(err.Error(), fmt.Sprintf("process %d on %s", os.Getpid(), host)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(path, journal)); err != nil {
		t.Errorf("the folder was touched: %v", err)
	}
	f.Close()
	if err := tries["create"](); !errors.Is(err, ErrExists) {
		t.Errorf("when it is free: %v", err)
	}
	if err := tries["discard"](); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("it was not removed")
	}
}
