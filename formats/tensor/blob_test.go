package tensor_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"

	"github.com/nstf/nstf/formats/tensor"
)

// newSource returns a blob over bytes: in memory, in a file, computed, or a
// plain reader, by kind.
func newSource(t testing.TB, kind int, p []byte) tensor.Blob {
	t.Helper()
	switch kind % 4 {
	case 0:
		return tensor.BytesBlob(p)
	case 1:
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, p, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := tensor.OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f.Blob(0, f.Size())
	case 2:
		return tensor.Computed(int64(len(p)), func() ([]byte, error) { return p, nil })
	}
	return tensor.NewBlob(bytes.NewReader(p), 0, int64(len(p)))
}

// same compares a blob, read in every way, with the bytes it stands for.
func same(t testing.TB, b tensor.Blob, want []byte) {
	t.Helper()
	if b.Len() != int64(len(want)) {
		t.Fatalf("%d bytes, want %d", b.Len(), len(want))
	}
	got, err := b.Bytes()
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("Bytes: %q, %v, want %q", got, err, want)
	}
	var w bytes.Buffer
	if n, err := b.WriteTo(&w); err != nil || n != b.Len() || !bytes.Equal(w.Bytes(), want) {
		t.Fatalf("WriteTo: %q, %d, %v, want %q", w.Bytes(), n, err, want)
	}
	if got, err := io.ReadAll(b.Reader()); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("Reader: %q, %v, want %q", got, err, want)
	}
	if p, ok := b.Mapped(); ok && !bytes.Equal(p, want) {
		t.Fatalf("Mapped: %q, want %q", p, want)
	}
	for off := range len(want) + 2 {
		p := make([]byte, 3)
		n, err := b.ReadAt(p, int64(off))
		rest := want[min(off, len(want)):]
		if k := min(3, len(rest)); n != k || !bytes.Equal(p[:n], rest[:k]) || (err == nil) != (k == 3) || k < 3 && err != io.EOF {
			t.Fatalf("ReadAt(%d): %q, %v, want %q", off, p[:n], err, rest[:k])
		}
	}
}

// play builds a blob by the steps in script next to a slice of bytes.
func play(t testing.TB, script []byte) {
	type pair struct {
		blob tensor.Blob
		want []byte
	}
	pool := []pair{{}}
	for k := range 4 {
		p := []byte("0123456789abcdefghijklmnopqrstuvwxyz")[k*7:][:13-k]
		pool = append(pool, pair{newSource(t, k, p), p})
	}
	next := func(n int) int {
		if len(script) == 0 || n == 0 {
			return 0
		}
		v := int(script[0]) % n
		script = script[1:]
		return v
	}
	for range 12 {
		a := pool[next(len(pool))]
		var made pair
		switch next(4) {
		case 0:
			off := next(len(a.want) + 1)
			n := next(len(a.want) - off + 1)
			made = pair{a.blob.Slice(int64(off), int64(n)), a.want[off : off+n]}
		case 1:
			b, c := pool[next(len(pool))], pool[next(len(pool))]
			made.blob = tensor.Concat(a.blob, b.blob, c.blob)
			made.want = bytes.Join([][]byte{a.want, b.want, c.want}, nil)
		case 3:
			size := 1 + next(4)
			rows, off := len(a.want)/size, next(size)
			n := next(size - off + 1)
			for r := range rows {
				made.want = append(made.want, a.want[r*size+off:][:n]...)
			}
			made.blob = a.blob.Slice(0, int64(rows*size)).Strided(int64(size), int64(off), int64(n))
		case 2:
			size := 1 + next(4)
			rows := len(a.want) / size
			var index []int64
			for range next(5) {
				if rows > 0 {
					r := next(rows)
					index = append(index, int64(r))
					made.want = append(made.want, a.want[r*size:(r+1)*size]...)
				}
			}
			made.blob = a.blob.PickRows(int64(size), index)
		}
		if len(made.want) > 200 {
			continue
		}
		same(t, made.blob, made.want)
		pool = append(pool, made)
	}
}

// TestBlobModel plays random scripts against a model of plain bytes.
func TestBlobModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		script := make([]byte, 64)
		for i := range script {
			script[i] = byte(rng.Uint32())
		}
		play(t, script)
	}
}

func FuzzBlob(f *testing.F) {
	f.Add([]byte{1, 0, 3, 4, 5, 1, 2, 3, 6, 2, 1, 2, 3})
	f.Fuzz(func(t *testing.T, script []byte) { play(t, script) })
}

// TestJoin wants neighbouring runs of one source to become one, and mapped.
func TestJoin(t *testing.T) {
	for kind := range 3 {
		b := newSource(t, kind, []byte("hello, world"))
		joined := tensor.Concat(b.Slice(0, 5), b.Slice(5, 2), b.Slice(7, 5))
		if joined.Pieces() != 1 {
			t.Errorf("kind %d: %d pieces", kind, joined.Pieces())
		}
		if _, ok := joined.Mapped(); ok != (kind < 2) {
			t.Errorf("kind %d: mapped is %v", kind, ok)
		}
	}
}

// TestComputedOnce counts how often a computation runs.
func TestComputedOnce(t *testing.T) {
	calls := 0
	b := tensor.Computed(6, func() ([]byte, error) { calls++; return []byte("abcdef"), nil })
	shuffled := b.PickRows(1, []int64{5, 0, 3, 1})
	same := func(what string, f func() error, want int) {
		calls = 0
		if err := f(); err != nil || calls != want {
			t.Errorf("%s: %d computations, %v, want %d", what, calls, err, want)
		}
	}
	same("WriteTo", func() error { _, err := shuffled.WriteTo(io.Discard); return err }, 1)
	same("Bytes", func() error { _, err := shuffled.Bytes(); return err }, 1)
	same("ReadAt", func() error { _, err := shuffled.ReadAt(make([]byte, 4), 0); return err }, 1)
	same("Slice", func() error { b.Slice(0, 3); return nil }, 0)
	if n := shuffled.LargestComputed(); n != 6 {
		t.Errorf("LargestComputed is %d", n)
	}
	if n := tensor.BytesBlob([]byte("xyz")).LargestComputed(); n != 0 {
		t.Errorf("LargestComputed of memory is %d", n)
	}
}

// TestBlobErrors passes on what a source and a computation report, and a
// source that is shorter than it was said to be.
func TestBlobErrors(t *testing.T) {
	broken := errors.New("broken")
	for name, b := range map[string]tensor.Blob{
		"computed": tensor.Computed(4, func() ([]byte, error) { return nil, broken }),
		"reader":   tensor.NewBlob(readerAt{iotest.ErrReader(broken)}, 0, 4),
	} {
		if _, err := b.Bytes(); !errors.Is(err, broken) {
			t.Errorf("%s: Bytes: %v", name, err)
		}
		if _, err := b.ReadAt(make([]byte, 2), 0); !errors.Is(err, broken) {
			t.Errorf("%s: ReadAt: %v", name, err)
		}
	}
	short := tensor.NewBlob(bytes.NewReader([]byte("abc")), 0, 9)
	if _, err := short.Bytes(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("short source: %v", err)
	}
}

type readerAt struct{ io.Reader }

func (r readerAt) ReadAt(p []byte, _ int64) (int, error) { return r.Read(p) }

// TestBlobPanics: ranges outside a blob are a caller's bug.
func TestBlobPanics(t *testing.T) {
	b := tensor.BytesBlob([]byte("abcd"))
	for name, f := range map[string]func(){
		"negative offset": func() { b.Slice(-1, 1) },
		"negative size":   func() { b.Slice(0, -1) },
		"beyond":          func() { b.Slice(2, 3) },
		"overflow":        func() { b.Slice(1<<62, 1<<62) },
		"row beyond":      func() { b.PickRows(2, []int64{2}) },
		"new":             func() { tensor.NewBlob(nil, -1, 1) },
		"computed size": func() {
			tensor.Computed(2, func() ([]byte, error) { return nil, nil }).Bytes()
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s did not panic", name)
				}
			}()
			f()
		}()
	}
}

// TestFile checks sizes, mapping and the errors of opening.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	if _, err := tensor.OpenFile(filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := tensor.OpenFile(dir); err == nil {
		t.Error("a folder opened")
	}
	for _, content := range []string{"", "some bytes"} {
		path := filepath.Join(dir, "f"+content)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := tensor.OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if f.Size() != int64(len(content)) || f.Path() != path {
			t.Errorf("%q has size %d", f.Path(), f.Size())
		}
		p, err := f.Map(0, f.Size())
		if err != nil || string(p) != content {
			t.Errorf("mapped %q, %v", p, err)
		}
		for _, r := range [][2]int64{{0, f.Size() + 1}, {f.Size(), 1}, {-1, 1}, {0, -1}, {1 << 62, 1 << 62}} {
			if _, err := f.Map(r[0], r[1]); err == nil {
				t.Errorf("mapped [%d:+%d] of %d bytes", r[0], r[1], f.Size())
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestSize pins the arithmetic of sizes at its limits.
func TestSize(t *testing.T) {
	for _, c := range []struct {
		d     tensor.DType
		shape []int64
		want  int64
		ok    bool
	}{
		{tensor.F32, nil, 4, true},
		{tensor.F32, []int64{2, 3}, 24, true},
		{tensor.F4E2M1, []int64{3}, 2, true},
		{tensor.F6E2M3, []int64{5}, 4, true},
		{tensor.U8, []int64{1 << 62, 0, 1 << 62}, 0, true},
		{tensor.U8, []int64{1 << 32, 1 << 32}, 0, false},
		{tensor.U8, []int64{1 << 32, 1 << 31}, 0, false},
		{tensor.F64, []int64{1 << 60}, 0, false},
		{tensor.U8, []int64{-1}, 0, false},
		{tensor.Invalid, []int64{1}, 0, false},
		{200, []int64{1}, 0, false},
	} {
		got, err := tensor.Size(c.d, c.shape)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%v %v: %d, %v", c.d, c.shape, got, err)
		}
	}
}

// TestDTypeNames: every type's name leads back to it.
func TestDTypeNames(t *testing.T) {
	for d := tensor.F64; d.Bits() > 0; d++ {
		if tensor.ParseDType(d.String()) != d {
			t.Errorf("%v does not parse", d)
		}
	}
	if tensor.ParseDType("invalid") != tensor.Invalid || tensor.ParseDType("f31") != tensor.Invalid {
		t.Error("unknown names parse")
	}
}

// TestFloat32s views aligned bytes and refuses others.
func TestFloat32s(t *testing.T) {
	raw := make([]byte, 12)
	at := 0
	for ; at < 4; at++ {
		if _, ok := tensor.Float32s(raw[at : at+4]); ok {
			break
		}
	}
	if at == 4 {
		t.Skip("a big-endian machine")
	}
	v, _ := tensor.Float32s(raw[at : at+8])
	v[1] = 1
	if raw[at+7] != 0x3F || len(v) != 2 {
		t.Errorf("the view of % x is %v", raw[at:at+8], v)
	}
	for _, bad := range [][]byte{raw[at+1 : at+5], raw[at : at+3]} {
		if _, ok := tensor.Float32s(bad); ok {
			t.Error("an unaligned or odd view")
		}
	}
}
