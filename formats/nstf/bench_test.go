package nstf

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/zeebo/blake3"

	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/tensor"
)

// benchFile makes a file of random-looking bytes: 64 MiB, or NSTF_BENCH_MIB.
func benchFile(b *testing.B) *tensor.File {
	b.Helper()
	mib := int64(64)
	if s := os.Getenv("NSTF_BENCH_MIB"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		mib = n
	}
	path := filepath.Join(b.TempDir(), "src")
	out, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := io.CopyN(out, blake3.New().Digest(), mib<<20); err != nil {
		b.Fatal(err)
	}
	if err := out.Close(); err != nil {
		b.Fatal(err)
	}
	f, err := tensor.OpenFile(path)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	return f
}

// benchItems cuts a file into tensors of at most 128 MiB.
func benchItems(f *tensor.File) []Item {
	var items []Item
	for off := int64(0); off < f.Size(); off += 128 << 20 {
		items = append(items, blobItem("t"+strconv.FormatInt(off, 10), f.Blob(off, min(128<<20, f.Size()-off))))
	}
	return items
}

// BenchmarkCopy is what Write is compared with: read, write and flush with
// one buffer, then hash in a second pass.
func BenchmarkCopy(b *testing.B) {
	f := benchFile(b)
	dst := filepath.Join(b.TempDir(), "dst")
	b.SetBytes(f.Size())
	for b.Loop() {
		if err := copyFile(dst, f); err != nil {
			b.Fatal(err)
		}
	}
}

func copyFile(dst string, f *tensor.File) error {
	out, err := os.Create(dst)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := f.Blob(0, f.Size()).WriteTo(out); err != nil {
		return err
	}
	return out.Sync()
}

func BenchmarkHash(b *testing.B) {
	f := benchFile(b)
	b.SetBytes(f.Size())
	for b.Loop() {
		if _, _, err := HashFile(b.Context(), f.Path()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	f := benchFile(b)
	items := benchItems(f)
	path := filepath.Join(b.TempDir(), "x.nstf")
	b.SetBytes(f.Size())
	for b.Loop() {
		if err := Write(atomicfile.Scratch(path), meta(), items, WriteOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	f := benchFile(b)
	path := filepath.Join(b.TempDir(), "x.nstf")
	if err := Write(atomicfile.Scratch(path), meta(), benchItems(f), WriteOptions{}); err != nil {
		b.Fatal(err)
	}
	p, err := Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	b.SetBytes(f.Size())
	for b.Loop() {
		if err := p.Verify(b.Context(), nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpen opens a package of 1000 tensors.
func BenchmarkOpen(b *testing.B) {
	var items []Item
	for i := range 1000 {
		items = append(items, f32("model.layers."+strconv.Itoa(i)+".self_attn.q_proj.weight", 1))
	}
	path := filepath.Join(b.TempDir(), "x.nstf")
	if err := Write(atomicfile.Scratch(path), meta(), items, WriteOptions{}); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		p, err := Open(path)
		if err != nil {
			b.Fatal(err)
		}
		p.Close()
	}
}
