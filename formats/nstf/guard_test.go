package nstf

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// counted counts what is read of a file.
type counted struct {
	*tensor.File
	mu sync.Mutex
	n  int64
}

func (c *counted) ReadAt(p []byte, off int64) (int, error) {
	c.mu.Lock()
	c.n += int64(len(p))
	c.mu.Unlock()
	return c.File.ReadAt(p, off)
}

// guarded writes a tensor of two parts and opens it, damaged in one bit or whole.
func guarded(t *testing.T, damage bool) (formats.Tensor, *counted) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.nstf")
	data := make([]byte, 3<<20)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(data)
	scales := make([]byte, 3<<20/32*2)
	r.Read(scales)
	weights := formats.Part{Name: "codes", DType: tensor.U8, Shape: []int64{1 << 10, 3 << 10}, Data: tensor.BytesBlob(data)}
	item := Item{Tensor: formats.Tensor{Name: "w", Shape: []int64{1 << 10, 3 << 10}, Scheme: "u8", Parts: []formats.Part{weights}}}
	item.Parts[0].Name = "data"
	if err := Write(atomicfile.Scratch(path), meta(), []Item{item}, WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if damage {
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		whole[bytes.Index(whole, data[:64])+2<<20] ^= 1
		if err := os.WriteFile(path, whole, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := tensor.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	c := &counted{File: f}
	p, err := openAs(c, f.Size(), path, false)
	if err != nil {
		t.Fatal(err)
	}
	it, ok := p.Tensor("w")
	if !ok {
		t.Fatal("no tensor")
	}
	c.n = 0
	return it.Tensor, c
}

// However a tensor is read, damage is found by its last byte at the latest, and bytes
// that are whole are read.
func TestGuard(t *testing.T) {
	ways := map[string]func(x formats.Tensor) error{
		"in order": func(x formats.Tensor) error { _, err := x.Parts[0].Data.WriteTo(io.Discard); return err },
		"mapped":   func(x formats.Tensor) error { _, err := x.Parts[0].Data.Bytes(); return err },
		"cast":     func(x formats.Tensor) error { return cast(x) },
		"checked":  func(x formats.Tensor) error { return x.Check() },
		"backwards": func(x formats.Tensor) error {
			p := make([]byte, 1<<16)
			for off := x.Size() - int64(len(p)); off >= 0; off -= int64(len(p)) {
				if _, err := x.Parts[0].Data.ReadAt(p, off); err != nil {
					return err
				}
			}
			return nil
		},
		"one byte far behind": func(x formats.Tensor) error {
			_, err := x.Parts[0].Data.ReadAt(make([]byte, 1), 100)
			return err
		},
		"by many": func(x formats.Tensor) error {
			var wait sync.WaitGroup
			errs := make([]error, 8)
			for i := range errs {
				wait.Go(func() {
					_, errs[i] = x.Parts[0].Data.WriteTo(io.Discard)
				})
			}
			wait.Wait()
			for _, err := range errs {
				if err == nil {
					return nil
				}
			}
			return errs[0]
		},
	}
	for name, read := range ways {
		t.Run(name, func(t *testing.T) {
			whole, _ := guarded(t, false)
			if err := read(whole); err != nil {
				t.Errorf("whole: %v", err)
			}
			broken, _ := guarded(t, true)
			for range 2 { // it stays found
				if err := read(broken); err == nil || family(err) != "format" || !strings.Contains(err.Error(), `"w"`) {
					t.Errorf("damaged: %v", err)
				}
			}
			loose := broken.Unchecked()
			if err := read(loose); err != nil {
				t.Errorf("damaged and unchecked: %v", err)
			}
		})
	}
}

// cast reads a tensor as a cast to f16 does.
func cast(x formats.Tensor) error {
	f16, _ := scheme.ByName("f16")
	y, err := scheme.Cast(x, f16)
	if err == nil {
		_, err = y.Parts[0].Data.WriteTo(io.Discard)
	}
	return err
}

// A stream over a tensor reads it once, hash and all.
func TestGuardReadsOnce(t *testing.T) {
	x, c := guarded(t, false)
	if _, err := x.Parts[0].Data.WriteTo(io.Discard); err != nil || c.n != x.Size() {
		t.Errorf("%d bytes read of %d, %v", c.n, x.Size(), err)
	}
	if _, err := x.Parts[0].Data.WriteTo(io.Discard); err != nil || c.n != 2*x.Size() {
		t.Errorf("%d bytes read of two times %d, %v", c.n, x.Size(), err)
	}
	if x, c = guarded(t, false); cast(x) != nil || c.n != x.Size() {
		t.Errorf("a cast read %d bytes of %d", c.n, x.Size())
	}
}

// What is copied as it is, is read once and hashed once: one hash is of what was read and of
// what is written.
func TestCopyHashesOnce(t *testing.T) {
	x, c := guarded(t, false)
	out := filepath.Join(t.TempDir(), "copy.nstf")
	if err := Write(atomicfile.Scratch(out), meta(), []Item{{Tensor: x}}, WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if c.n != x.Size() {
		t.Errorf("%d bytes read of %d", c.n, x.Size())
	}
	if src, _, _ := x.Parts[0].Data.Source(); !src.(*guard).good.Load() {
		t.Error("the copy did not say that the tensor is whole")
	}
	broken, _ := guarded(t, true)
	bad := filepath.Join(t.TempDir(), "bad.nstf")
	if err := Write(atomicfile.Scratch(bad), meta(), []Item{{Tensor: broken}}, WriteOptions{}); err == nil || family(err) != "format" || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("damaged: %v", err)
	}
	if _, err := os.Stat(bad); err == nil {
		t.Error("a file of damaged weights is there")
	}
}
