package nstf

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/zeebo/blake3"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/tensor"
)

// blobItem is a u8 tensor of any bytes.
func blobItem(name string, b tensor.Blob) Item {
	shape := []int64{b.Len()}
	return Item{Tensor: formats.Tensor{Name: name, Shape: shape, Scheme: "u8",
		Parts: []formats.Part{{Name: "data", DType: tensor.U8, Shape: shape, Data: b}}}}
}

// onlyOld fails unless dir holds nothing but a file "x" with content "old".
func onlyOld(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 || entries[0].Name() != "x" {
		t.Errorf("the folder holds %v", entries)
	}
	if p, err := os.ReadFile(filepath.Join(dir, "x")); err != nil || string(p) != "old" {
		t.Errorf("x holds %q, %v", p, err)
	}
}

// oldFile makes a folder with a file "x".
func oldFile(t *testing.T) (dir, path string) {
	dir = t.TempDir()
	path = filepath.Join(dir, "x")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir, path
}

func TestInterruptLeavesNothing(t *testing.T) {
	dir, path := oldFile(t)
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := Write(atomicfile.Scratch(path), meta(), []Item{blobItem("big", tensor.BytesBlob(make([]byte, 5*chunk)))}, WriteOptions{
		Context: ctx,
		Progress: func(done, total int64) {
			if calls++; calls == 2 {
				cancel()
			}
		}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if calls != 2 {
		t.Errorf("%d runs were written, want 2", calls)
	}
	onlyOld(t, dir)
}

// failing reads zeros up to a byte, then fails, or ends.
type failing struct {
	at  int64
	err error
}

func (f failing) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > f.at {
		return int(max(f.at-off, 0)), f.err
	}
	return len(p), nil
}

func TestBadSourceLeavesNothing(t *testing.T) {
	broken := errors.New("broken disk")
	for name, f := range map[string]failing{"fails": {3 * chunk, broken}, "ends early": {3 * chunk, io.EOF}} {
		dir, path := oldFile(t)
		err := Write(atomicfile.Scratch(path), meta(), []Item{blobItem("weights", tensor.NewBlob(f, 0, 5*chunk))}, WriteOptions{})
		if err == nil || !strings.Contains(err.Error(), `"weights"`) {
			t.Errorf("%s: got %v, want an error that names the tensor", name, err)
		}
		if f.err == broken && !errors.Is(err, broken) {
			t.Errorf("%s: got %v, want %v", name, err, broken)
		}
		onlyOld(t, dir)
	}
}

// fullAfter is a disk that takes a number of bytes.
type fullAfter struct {
	memory
	room int
}

var errFull = errors.New("no space")

func (f *fullAfter) WriteAt(p []byte, off int64) (int, error) {
	if f.room -= len(p); f.room < 0 {
		return 0, errFull
	}
	return f.memory.WriteAt(p, off)
}

// TestEveryWriteFails lets the disk end before each write in turn.
func TestEveryWriteFails(t *testing.T) {
	items := []Item{f32("a", 3), blobItem("big", tensor.BytesBlob(make([]byte, 2*chunk+1)))}
	failures := 0
	for room := 0; ; room += 61440 {
		h, _, err := compose("x", meta(), items)
		if err != nil {
			t.Fatal(err)
		}
		if err = h.write(t.Context(), &fullAfter{room: room}, nil); err == nil {
			break
		}
		failures++
		if !errors.Is(err, errFull) {
			t.Fatalf("room %d: got %v", room, err)
		}
	}
	if failures < 30 {
		t.Errorf("only %d sizes failed", failures)
	}
}

func TestDiskFullIsAnnounced(t *testing.T) {
	dir, path := oldFile(t)
	err := Write(atomicfile.Scratch(path), meta(), []Item{blobItem("huge", tensor.NewBlob(failing{}, 0, 1<<59))}, WriteOptions{})
	var full *atomicfile.DiskFullError
	if !errors.As(err, &full) || full.Needed < 1<<59 {
		t.Errorf("got %v, want a DiskFullError", err)
	}
	onlyOld(t, dir)
}

func TestWriterRefuses(t *testing.T) {
	noParts := f32("w", 1)
	noParts.Parts = nil
	noForm := f32("w", 1)
	noForm.Form = "liquid"
	noScheme := f32("w", 1)
	noScheme.Scheme = "q99"
	cases := []struct {
		name, says string
		meta       Meta
		items      []Item
	}{
		{"two of a name", "two tensors", meta(), []Item{f32("w", 1), f32("w", 1)}},
		{"no name", "empty name", meta(), []Item{f32("", 1)}},
		{"broken UTF-8", "not UTF-8", meta(), []Item{f32("a\xff", 1)}},
		{"no parts", "without parts", meta(), []Item{noParts}},
		{"no form", "form", meta(), []Item{noForm}},
		{"no scheme", `scheme "q99"`, meta(), []Item{noScheme}},
		{"two files of a name", "sort", meta(File{"a", nil}, File{"a", nil}), nil},
		{"climbing file", "segment", meta(File{"../a", nil}), nil},
		{"foreign reserved name", "reserved", meta(File{"nstf/other", nil}), nil},
		{"source without hash", "neither a hash nor a path", Meta{Model: []byte("{}"), Provenance: Provenance{Sources: []Source{{Role: "model", Name: "m"}}}}, nil},
		{"no model", "model", Meta{}, nil},
		{"model not JSON", "header", Meta{Model: []byte("{")}, nil},
		{"model with a tail", "twice", Meta{Model: []byte(`{},"tensors":[]`)}, nil},
	}
	for _, c := range cases {
		dir := t.TempDir()
		err := Write(atomicfile.Scratch(filepath.Join(dir, "x")), c.meta, c.items, WriteOptions{})
		if family(err) == "neither" || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.says)
		}
		if entries, _ := os.ReadDir(dir); len(entries) != 0 {
			t.Errorf("%s left %v", c.name, entries)
		}
	}
}

// TestSameBytes holds the writer to one result whatever the order of files
// and the number of cores.
func TestSameBytes(t *testing.T) {
	a, b := File{"a", bytes.Repeat([]byte("a"), 100)}, File{"b", bytes.Repeat([]byte("bc"), 5000)}
	items := []Item{f32("x", 33), blobItem("big", tensor.BytesBlob(bytes.Repeat([]byte{7}, 3*chunk+5)))}
	one := pack(t, meta(a, b), items...)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if two := pack(t, meta(b, a), items...); !bytes.Equal(one, two) {
		t.Error("different bytes")
	}
}

func TestSources(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "model.safetensors")
	content := bytes.Repeat([]byte("weights"), chunk/3)
	if err := os.WriteFile(src, content, 0o644); err != nil {
		t.Fatal(err)
	}
	m := meta()
	m.Provenance.Sources = []Source{{Role: "model", Name: "model.safetensors", Path: src}, {Role: "text", Name: "t", Size: 3, Hash: Hash{9}}}
	path := filepath.Join(dir, "x.nstf")
	if err := Write(atomicfile.Scratch(path), m, nil, WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if m.Provenance.Sources[0].Size != 0 {
		t.Error("Write changed the caller's sources")
	}
	p, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	want := []Source{{Role: "model", Name: "model.safetensors", Size: int64(len(content)), Hash: blake3.Sum256(content)}, m.Provenance.Sources[1]}
	for i, got := range p.Provenance().Sources {
		if got != want[i] {
			t.Errorf("source %d: got %+v, want %+v", i, got, want[i])
		}
	}
	m.Provenance.Sources[0].Path = filepath.Join(dir, "absent")
	if err := Write(atomicfile.Scratch(filepath.Join(dir, "y.nstf")), m, nil, WriteOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent source: %v", err)
	}
}

// TestWriterMemory bounds what streaming a large file allocates in all.
func TestWriterMemory(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "src")
	const size = 64 << 20
	if err := os.WriteFile(src, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(src, size); err != nil {
		t.Fatal(err)
	}
	f, err := tensor.OpenFile(src)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	items := []Item{blobItem("a", f.Blob(0, size/2)), blobItem("b", f.Blob(size/2, size/2))}
	path := filepath.Join(dir, "x")
	allocated := allocations(func() { err = Write(atomicfile.Scratch(path), meta(), items, WriteOptions{}) })
	if err != nil {
		t.Fatal(err)
	}
	if allocated > 8<<20 {
		t.Errorf("Write allocated %d bytes for a file of %d", allocated, size)
	}
	p, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var last, total int64
	allocated = allocations(func() {
		err = p.Verify(t.Context(), func(done, all int64) { last, total = done, all })
	})
	if err != nil {
		t.Error(err)
	}
	if limit := uint64(2+2*runtime.GOMAXPROCS(0)) * chunk; allocated > limit {
		t.Errorf("Verify allocated %d bytes, more than %d", allocated, limit)
	}
	if last != total || total != p.Size()-p.headerEnd {
		t.Errorf("progress ended at %d of %d", last, total)
	}
}

// allocations returns the bytes that f allocates on the heap in all.
func allocations(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestVerifyCollectsAll(t *testing.T) {
	data := pack(t, meta(File{"f", []byte("file")}), f32("a", 3), f32("b", 17), blobItem("big", tensor.BytesBlob(make([]byte, smallSize))))
	base := 4096
	for _, off := range []int{base + 1, base + 13, base + 64, base + 192, base + 4096, len(data) - 4096} {
		data[off] ^= 1
	}
	p, err := openAs(bytes.NewReader(data), int64(len(data)), "x", false)
	if err != nil {
		t.Fatal(err)
	}
	err = p.Verify(t.Context(), nil)
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("got %v", err)
	}
	var got []string
	last := int64(math.MinInt64)
	for _, e := range joined.Unwrap() {
		var f *formats.FormatError
		if !errors.As(e, &f) || f.Offset <= last {
			t.Fatalf("%v is no FormatError or out of order", e)
		}
		last = f.Offset
		got = append(got, f.Tensor)
	}
	if want := "a||b|f|big"; strings.Join(got, "|") != want {
		t.Errorf("damaged: %q, want %q", got, want)
	}
}

func TestVerifyStops(t *testing.T) {
	data := pack(t, meta(), f32("a", 3))
	p, err := openAs(bytes.NewReader(data), int64(len(data)), "x", false)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Verify(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestFileAbsent(t *testing.T) {
	data := filed(t)
	p, err := openAs(bytes.NewReader(data), int64(len(data)), "x", false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.File("c.txt"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
