package gguf

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
)

// A raw builds GGUF bytes without any of the writer's checks.
type raw struct{ p []byte }

func header(version uint32, tensors, keys uint64) *raw {
	return (&raw{[]byte(magic)}).u32(version).u64(tensors).u64(keys)
}

func (r *raw) u32(v uint32) *raw { r.p = binary.LittleEndian.AppendUint32(r.p, v); return r }
func (r *raw) u64(v uint64) *raw { r.p = binary.LittleEndian.AppendUint64(r.p, v); return r }
func (r *raw) str(s string) *raw { r.p = appendString(r.p, s); return r }
func (r *raw) zeros(n int) *raw  { r.p = append(r.p, make([]byte, n)...); return r }

// info adds a tensor's entry, dimensions innermost first.
func (r *raw) info(name string, typ uint32, off uint64, dims ...uint64) *raw {
	r.str(name).u32(uint32(len(dims)))
	for _, d := range dims {
		r.u64(d)
	}
	return r.u32(typ).u64(off)
}

// data pads the header and adds n bytes.
func (r *raw) data(n int) *raw { return r.zeros(-len(r.p) & 31).zeros(n) }

// deep returns a value of arrays nested n deep.
func (r *raw) deep(n int) *raw {
	r.str("deep").u32(typeArray)
	for range n - 1 {
		r.u32(typeArray).u64(1)
	}
	return r.u32(typeUint8).u64(0)
}

var malformed = []struct {
	name        string
	file        *raw
	unsupported bool
	say         string
}{
	{"empty", &raw{}, false, "truncated"},
	{"magic", &raw{[]byte("GGUX\x03\x00\x00\x00")}, false, `magic "GGUX"`},
	{"magic swapped", &raw{[]byte("FUGG\x00\x00\x00\x03")}, true, "byte-swapped"},
	{"before GGUF", &raw{[]byte("tjgg\x03\x00\x00\x00")}, true, "before GGUF"},
	{"version 0", header(0, 0, 0), false, "version 0"},
	{"version 1", header(1, 0, 0), true, "version 1"},
	{"version 4", header(4, 0, 0), true, "version 4"},
	{"big-endian", header(0x03000000, 0, 0), true, "big-endian"},
	{"header cut", &raw{header(3, 0, 0).p[:20]}, false, "truncated"},
	{"keys beyond file", header(3, 0, 1<<60).zeros(100), false, "metadata keys"},
	{"more keys than read", header(3, 0, 1<<15).zeros(14 << 15), false, "at most 16384"},
	{"tensors beyond file", header(3, 1<<60, 0).zeros(100), false, "tensors in"},
	{"key length", header(3, 0, 1).u64(1 << 63).zeros(20), false, "metadata key of"},
	{"key empty", header(3, 0, 1).str("").u32(0).zeros(20), false, "metadata key of 0 bytes"},
	{"key too long", header(3, 0, 1).str(strings.Repeat("k", 1<<16)).u32(0).zeros(20), false, "metadata key of 65536"},
	{"key twice", header(3, 0, 2).str("k").u32(0).zeros(1).str("k").u32(0).zeros(1), false, "duplicate metadata key"},
	{"value type", header(3, 0, 1).str("k").u32(13).zeros(20), false, "metadata type 13"},
	{"value cut", header(3, 0, 1).str("k").u32(typeUint64).zeros(4), false, "truncated"},
	{"string beyond file", header(3, 0, 1).str("k").u32(typeString).u64(1 << 40).zeros(20), false, "truncated"},
	{"string length overflow", header(3, 0, 1).str("k").u32(typeString).u64(1<<64 - 1).zeros(20), false, "truncated"},
	{"bool 2", header(3, 0, 1).str("kk").u32(typeBool).zeros(0).u32(2), false, "bool value 2"},
	{"array type", header(3, 0, 1).str("k").u32(typeArray).u32(99).u64(1).zeros(20), false, "metadata type 99"},
	{"array beyond file", header(3, 0, 1).str("k").u32(typeArray).u32(typeFloat64).u64(1 << 61).zeros(20), false, "array of"},
	{"array of strings beyond file", header(3, 0, 1).str("k").u32(typeArray).u32(typeString).u64(1 << 40).zeros(20), false, "array of"},
	{"array of bad bools", header(3, 0, 1).str("k").u32(typeArray).u32(typeBool).u64(4).u32(0x02010001), false, "bool value 2"},
	{"arrays 5 deep", header(3, 0, 1).deep(5), true, "nested more than 4 deep"},
	{"arrays 20000 deep", header(3, 0, 1).deep(20000), true, "nested more than 4 deep"},
	{"alignment 0", header(3, 0, 1).str(keyAlignment).u32(typeUint32).u32(0), false, "not a power of two"},
	{"alignment 48", header(3, 0, 1).str(keyAlignment).u32(typeUint32).u32(48), false, "not a power of two"},
	{"alignment of another type", header(3, 0, 1).str(keyAlignment).u32(typeUint64).u64(32), false, "not a uint32"},
	{"tensor name empty", header(3, 1, 0).info("", 0, 0, 1).data(4), false, "tensor name of 0"},
	{"tensor name too long", header(3, 1, 0).info(strings.Repeat("n", 1025), 0, 0, 1).data(4), false, "tensor name of 1025"},
	{"tensor twice", header(3, 2, 0).info("t", 0, 0, 1).info("t", 0, 32, 1).data(64), false, "duplicate tensor name"},
	{"five dimensions", header(3, 1, 0).info("t", 0, 0, 1, 1, 1, 1, 1).data(4), true, "5 dimensions"},
	{"dimensions beyond file", header(3, 1, 0).str("t").u32(1 << 31).zeros(40), false, "2147483648 dimensions"},
	{"dimension negative", header(3, 1, 0).info("t", 0, 0, 1<<63).data(4), false, "dimension 9223372036854775808"},
	{"dimensions overflow", header(3, 1, 0).info("t", 0, 0, 1<<33, 1<<33).data(4), false, "2^63"},
	{"bytes overflow", header(3, 1, 0).info("t", 28, 0, 1<<61).data(4), false, "larger than"},
	{"blocks overflow", header(3, 1, 0).info("t", 8, 0, 1<<62, 1).data(4), false, "larger than"},
	{"type 99", header(3, 1, 0).info("t", 99, 0, 1).data(4), true, "ggml type 99"},
	{"type dropped", header(3, 1, 0).info("t", 4, 0, 32).data(4), true, "Q4_2"},
	{"type newer", header(3, 1, 0).info("t", 43, 0, 64).data(36), true, "type 43"},
	{"half a block", header(3, 1, 0).info("t", 8, 0, 48).data(64), false, "not a multiple of the 32"},
	{"half a block twice", header(3, 1, 0).info("t", 8, 0, 16, 2).data(64), false, "not a multiple of the 32"},
	{"scalar of blocks", header(3, 1, 0).info("t", 8, 0).data(64), false, "not a multiple of the 32"},
	{"offset unaligned", header(3, 1, 0).info("t", 0, 4, 1).data(64), false, "no multiple of the alignment"},
	{"offset beyond file", header(3, 1, 0).info("t", 0, 1<<40, 1).data(64), false, "behind the file's"},
	{"offset overflow", header(3, 1, 0).info("t", 0, 1<<64-32, 8).data(64), false, "behind the file's"},
	{"data cut", header(3, 1, 0).info("t", 0, 32, 9).data(64), false, "behind the file's"},
	{"no data", header(3, 1, 0).info("t", 0, 0, 1), false, "behind the file's"},
	{"overlap", header(3, 2, 0).info("a", 0, 0, 9).info("b", 0, 32, 1).data(64), false, "overlaps"},
	{"same place", header(3, 2, 0).info("a", 0, 0, 1).info("b", 0, 0, 1).data(64), false, "overlaps"},
}

func TestMalformed(t *testing.T) {
	for _, c := range malformed {
		_, err := Parse(c.name, c.file.p)
		var bad *formats.FormatError
		var unsupported *formats.UnsupportedError
		if c.unsupported && !errors.As(err, &unsupported) || !c.unsupported && !errors.As(err, &bad) {
			t.Errorf("%s: error %v of the wrong family", c.name, err)
		} else if !strings.Contains(err.Error(), c.say) || !strings.HasPrefix(err.Error(), c.name) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestOdd holds what looks wrong and is right.
func TestOdd(t *testing.T) {
	for name, file := range map[string]*raw{
		"nothing":              header(3, 0, 0),
		"arrays 4 deep":        header(3, 0, 1).deep(4),
		"scalar":               header(3, 1, 0).info("t", 0, 0).data(4),
		"no weights":           header(3, 1, 0).info("t", 0, 0, 0, 5).data(0),
		"no weights, no data":  header(3, 1, 0).info("t", 0, 1<<40, 0, 5),
		"gap between tensors":  header(3, 2, 0).info("a", 0, 64, 1).info("b", 0, 0, 1).data(68),
		"string not UTF-8":     header(3, 0, 1).str("k").u32(typeString).str("\xff\xfe"),
		"array of no elements": header(3, 0, 1).str("k").u32(typeArray).u32(typeString).u64(0),
	} {
		if f, err := Parse(name, file.p); err != nil {
			t.Error(err)
		} else {
			readAll(t, f)
		}
	}
}

// readAll decodes every value and reads every tensor.
func readAll(t testing.TB, f *File) {
	for _, kv := range f.KVs() {
		if kv.Value == nil {
			t.Errorf("%s has no value", kv.Key)
		}
	}
	for _, x := range f.Tensors() {
		n, err := x.Parts[0].Data.WriteTo(discard{})
		if err != nil || n != x.Size() {
			t.Errorf("%v: read %d of %d bytes, %v", &x, n, x.Size(), err)
		}
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// TestTruncated cuts a file at every byte.
func TestTruncated(t *testing.T) {
	whole, err := os.ReadFile(testdata + "types.gguf")
	if err != nil {
		t.Fatal(err)
	}
	f, err := Parse("whole", whole)
	if err != nil {
		t.Fatal(err)
	}
	padding := f.tensors[len(f.tensors)-1].Size() % f.Alignment()
	end := len(whole) - int((f.Alignment()-padding)%f.Alignment())
	path := filepath.Join(t.TempDir(), "cut.gguf")
	for n := range len(whole) {
		_, err := Parse("cut", whole[:n])
		var bad *formats.FormatError
		if errors.As(err, &bad) != (n < end) {
			t.Fatalf("cut at %d of %d: %v", n, len(whole), err)
		}
		if n%1024 != 0 {
			continue
		}
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); !errors.As(err, &bad) {
			t.Fatalf("file cut at %d: %v", n, err)
		}
	}
}

func FuzzGGUF(f *testing.F) {
	for _, c := range malformed {
		if len(c.file.p) < 1<<16 {
			f.Add(c.file.p)
		}
	}
	for _, name := range []string{"types.gguf", "v2.gguf", "align64.gguf", "split-00001-of-00003.gguf"} {
		p, err := os.ReadFile(testdata + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		file, err := Parse("fuzz", p)
		runtime.ReadMemStats(&after)
		if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(2*len(p)+1<<18); got > limit {
			t.Errorf("%d bytes allocated for a file of %d", got, len(p))
		}
		if err != nil {
			checkFamily(t, err)
			return
		}
		readAll(t, file)
		rewrite(t, file)
	})
}

func checkFamily(t *testing.T, err error) {
	var bad *formats.FormatError
	var unsupported *formats.UnsupportedError
	if !errors.As(err, &bad) && !errors.As(err, &unsupported) {
		t.Errorf("error of neither family: %v", err)
	}
}

// rewrite checks that what was read survives writing, where GGUF can be
// written at all: names may be longer than the writer allows.
func rewrite(t *testing.T, file *File) {
	meta, err := file.Metadata()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("metadata", meta)
	if err != nil || len(again.Keys()) != len(file.Keys()) {
		t.Fatalf("metadata: %v", err)
	}
	w, err := NewWriter(file.KVs(), file.Tensors())
	if err != nil {
		checkFamily(t, err)
		return
	}
	if w.Size() > 1<<24 {
		return // a huge alignment
	}
	out := &raw{}
	if _, err := w.WriteTo(out); err != nil {
		t.Fatal(err)
	}
	copied, err := Parse("copy", out.p)
	if err != nil {
		t.Fatal(err)
	}
	if string(copied.shards[0].raw) != string(file.shards[0].raw) || len(copied.tensors) != len(file.tensors) {
		t.Error("a copy differs")
	}
}

func (r *raw) Write(p []byte) (int, error) {
	r.p = append(r.p, p...)
	return len(p), nil
}

// TestTables opens the headers that take the most memory for their size:
// nothing but tensors without weights, nothing but keys.
func TestTables(t *testing.T) {
	tensors, keys := header(3, maxTensors, 0), header(3, 0, maxKeys)
	for i := range maxTensors {
		tensors.info(strconv.Itoa(i), 0, 0, 0)
	}
	for i := range maxKeys {
		keys.str(strconv.Itoa(i)).u32(typeUint8).zeros(1)
	}
	for name, file := range map[string]*raw{"tensors": tensors, "keys": keys} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Parse(name, file.p)
		runtime.ReadMemStats(&after)
		if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(2*len(file.p)+20<<20); err != nil || got > limit {
			t.Errorf("%s: %d bytes allocated for a file of %d, %v", name, got, len(file.p), err)
		}
	}
}
