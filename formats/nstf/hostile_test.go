package nstf

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/zeebo/blake3"
)

// TestTruncations cuts packages at every KiB.
func TestTruncations(t *testing.T) {
	for _, name := range []string{"minimal", "shared-run", "files"} {
		whole := vector(t, "good/"+name+".nstf")
		path := filepath.Join(t.TempDir(), "cut.nstf")
		for n := 0; n < len(whole); n += 1024 {
			if err := os.WriteFile(path, whole[:n], 0o644); err != nil {
				t.Fatal(err)
			}
			p, err := Open(path)
			if err == nil {
				p.Close()
			}
			if family(err) != "format" {
				t.Errorf("%s cut to %d bytes: %v", name, n, err)
			}
		}
	}
}

// TestEveryBitCounts changes a bit of each byte of a package, of every fifth
// one of padding: all is covered by some check.
func TestEveryBitCounts(t *testing.T) {
	data := pack(t, meta(File{"f", []byte("file")}), f32("a", 3), multiPart())
	for i := range data {
		if data[i] == 0 && i%5 != 0 {
			continue // padding is long and all alike
		}
		data[i] ^= 4
		if layer, err := layerOf(data, "x"); family(err) == "neither" {
			t.Fatalf("byte %d changed: %s, %v", i, layer, err)
		}
		data[i] ^= 4
	}
}

// TestCounts exceeds the limits that are too large for a vector.
func TestCounts(t *testing.T) {
	many := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	hash := Hash(blake3.Sum256(nil)).String()
	head := func(files, model, tensors string) string {
		return `{"requires":[],"provenance":{"tool":"","flags":[],"sources":[]},"files":[` + files + `],"model":{` + model + `},"tensors":[` + tensors + `]}`
	}
	file := `{"name":"%08d","encoding":"none","decoded":0,"offset":0,"size":0,"hash":"` + hash + `"}`
	item := `{"name":"%d","shape":[0],"scheme":"u8","form":"dense","parts":[{"name":"data","dtype":"u8","shape":[0],"offset":0,"size":0}],"hash":"` + hash + `"}`
	cases := []struct {
		name, says string
		build      func(extra int) string
		limit      int
	}{
		{"keys", "keys in one object", func(n int) string { return head("", many(n, `"%d":0`), "") }, MaxKeys},
		{"files", "files", func(n int) string { return head(many(n, file), "", "") }, MaxFiles},
		{"tensors", "tensors", func(n int) string { return head("", "", many(n, item)) }, MaxTensors},
		{"depth", "nested", func(n int) string {
			return head("", `"a":`+strings.Repeat("[", n-2)+strings.Repeat("]", n-2), "")
		}, MaxDepth},
	}
	for _, c := range cases {
		if testing.Short() && c.limit > 1<<17 {
			continue
		}
		if layer, err := layerOf(seal(c.build(c.limit), nil), c.name); err != nil {
			t.Errorf("%d %s: %s: %v", c.limit, c.name, layer, err)
		}
		_, err := layerOf(seal(c.build(c.limit+1), nil), c.name)
		if family(err) != "format" || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%d %s: %v", c.limit+1, c.name, err)
		}
	}
}

// TestOpenAllocates bounds what opening costs by the size of the file: what
// stays to twice, with all garbage on the way to five times.
func TestOpenAllocates(t *testing.T) {
	var items []Item
	for i := range 20000 {
		items = append(items, f32(fmt.Sprintf("model.layers.%d.weight", i), 1))
	}
	many := pack(t, meta(), items...)
	items = nil
	const slack = 256 << 10
	for name, data := range map[string][]byte{"many tensors": many, "bomb": compressed(make([]byte, 1<<20), 1000)} {
		var err error
		var p *Package
		before := live()
		all := allocations(func() {
			if p, err = openAs(bytes.NewReader(data), int64(len(data)), name, false); err == nil {
				for _, f := range p.Files() {
					p.File(f.Name)
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		kept := live() - before
		runtime.KeepAlive(p)
		size := int64(len(data))
		t.Logf("%s: kept %d, allocated %d bytes for a file of %d", name, kept, all, size)
		if kept > 2*size+slack || int64(all) > 5*size+slack {
			t.Errorf("%s: opening kept %d and allocated %d bytes for a file of %d", name, kept, all, size)
		}
	}
}

// live returns the bytes on the heap that are in use.
func live() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// vectors adds every vector to a fuzzer's seeds.
func vectors(f *testing.F, add func(data []byte)) {
	for _, e := range readIndex(f) {
		add(vector(f, e.File))
	}
}

// use does everything that can be done with an open package.
func use(t *testing.T, p *Package) {
	verified := p.Verify(context.Background(), nil)
	for _, it := range p.Tensors() {
		for _, part := range it.Parts {
			if _, err := part.Data.Unchecked().Bytes(); err != nil {
				t.Errorf("%s: %v", it.Name, err)
			}
			if _, err := part.Data.Bytes(); err != nil && (verified == nil || family(err) != "format") {
				t.Errorf("%s: %v, but Verify says %v", it.Name, err, verified)
			}
		}
	}
	for _, f := range p.Files() {
		if data, err := p.File(f.Name); err == nil && int64(len(data)) != f.Size {
			t.Errorf("%s: %d bytes instead of %d", f.Name, len(data), f.Size)
		}
	}
	if !json.Valid(p.Model()) {
		t.Errorf("model is not JSON: %q", p.Model())
	}
	if verified != nil && family(verified) == "neither" {
		t.Errorf("Verify: %v", verified)
	}
}

// FuzzOpen opens any bytes, as they are and with a preamble that fits, so
// that the fuzzer gets past the root hash. Inputs are pages long: without
// -fuzzminimizetime=50x it spends its time making them smaller.
func FuzzOpen(f *testing.F) {
	vectors(f, func(data []byte) { f.Add(data) })
	f.Fuzz(func(t *testing.T, data []byte) {
		tryOpen(t, data)
		if len(data) < preambleSize {
			return
		}
		data = append([]byte(nil), data...)
		data = data[:max(len(data)&^(pageSize-1), preambleSize)]
		binary.LittleEndian.PutUint64(data[24:], uint64(len(data)))
		if n := binary.LittleEndian.Uint64(data[16:]); n <= uint64(len(data)-preambleSize) {
			tryOpen(t, rehash(data))
		}
	})
}

// FuzzHeader puts any JSON before a page of data.
func FuzzHeader(f *testing.F) {
	vectors(f, func(data []byte) {
		if len(data) >= preambleSize {
			if n := binary.LittleEndian.Uint64(data[16:]); n <= uint64(len(data)-preambleSize) {
				f.Add([]byte(headOf(data)))
			}
		}
	})
	f.Fuzz(func(t *testing.T, head []byte) {
		if len(head) < 2 {
			return
		}
		if tryOpen(t, seal(string(head), make([]byte, pageSize))) && !json.Valid(head) {
			t.Error("accepted what is not JSON")
		}
	})
}

// tryOpen opens a package and uses it, or holds the error to a family.
func tryOpen(t *testing.T, data []byte) bool {
	if stored, err := openAs(bytes.NewReader(data), int64(len(data)), "fuzz", true); err == nil {
		use(t, stored)
		for _, f := range stored.Files() {
			if _, err := stored.File(f.Name); f.Unknown != "" && err == nil {
				t.Errorf("%s: decoded, though its %s is not known", f.Name, f.Unknown)
			}
		}
	} else if family(err) == "neither" {
		t.Errorf("OpenStored: %v", err)
	}
	p, err := openAs(bytes.NewReader(data), int64(len(data)), "fuzz", false)
	if err != nil {
		if family(err) == "neither" {
			t.Errorf("Open: %v", err)
		}
		return false
	}
	use(t, p)
	return true
}
