package gguf

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
)

const testdata = "../../testdata/gguf/"

func open(t *testing.T, path string) *File {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func data(t *testing.T, x formats.Tensor) []byte {
	t.Helper()
	p, err := x.Parts[0].Data.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// oracle is types.json, what the gguf package of PyPI reads in types.gguf.
type oracle struct {
	Keys    map[string]any
	Tensors []struct {
		Name, Type, Hex string
		NE              []int64
	}
}

func TestTypesAgainstPython(t *testing.T) {
	raw, err := os.ReadFile(testdata + "types.json")
	if err != nil {
		t.Fatal(err)
	}
	var want oracle
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&want); err != nil {
		t.Fatal(err)
	}
	f := open(t, testdata+"types.gguf")
	if f.Version() != 3 || f.Alignment() != 32 {
		t.Errorf("version %d, alignment %d", f.Version(), f.Alignment())
	}
	if got := f.Keys(); len(got) != len(want.Keys) {
		t.Errorf("keys %q", got)
	}
	for key, w := range want.Keys {
		v, ok := f.Get(key)
		if _, isF32 := v.(float32); isF32 {
			v = float64(v.(float32)) // Python prints it widened
		}
		if b, isBytes := v.([]uint8); isBytes { // JSON prints those as base64
			v = []int{int(b[0]), int(b[1])}
		}
		got, err := json.Marshal(v)
		ws, _ := json.Marshal(w)
		if !ok || err != nil || string(got) != string(ws) && !(strings.Contains(key, "float") && sameJSON(got, ws)) {
			t.Errorf("%s = %s, want %s", key, got, ws)
		}
	}
	ts := f.Tensors()
	nTypes := 0
	for _, s := range scheme.Table() {
		if s.GGML >= 0 {
			nTypes++
		}
	}
	if len(ts) != len(want.Tensors) || len(ts) != nTypes {
		t.Fatalf("%d tensors, want %d of %d types", len(ts), len(want.Tensors), nTypes)
	}
	for i, w := range want.Tensors {
		slices.Reverse(w.NE)
		got := ts[i]
		if got.Name != w.Name || got.Scheme != w.Type || !slices.Equal(got.Shape, w.NE) || hex.EncodeToString(data(t, got)) != w.Hex {
			t.Errorf("tensor %v, want %s %s %v", &got, w.Name, w.Type, w.NE)
		}
	}
}

func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

func TestVersionAndAlignment(t *testing.T) {
	for name, version := range map[string]uint32{"v2.gguf": 2, "align64.gguf": 3} {
		f := open(t, testdata+name)
		if f.Version() != version || f.Alignment() != 64 {
			t.Errorf("%s: version %d, alignment %d", name, f.Version(), f.Alignment())
		}
		cube := f.Tensors()[1]
		if cube.Name != "cube" || !slices.Equal(cube.Shape, []int64{2, 3, 4}) {
			t.Errorf("%s: %v", name, &cube)
		}
		if p := data(t, cube); len(p) != 48 || p[2] != 1 || p[46] != 23 {
			t.Errorf("%s: data %v", name, p)
		}
	}
}

func TestGetters(t *testing.T) {
	f := open(t, testdata+"types.gguf")
	if n, err := f.Int("t.int8"); n != -128 || err != nil {
		t.Error(n, err)
	}
	if n, err := f.Uint("t.uint64"); n != 1<<64-1 || err != nil {
		t.Error(n, err)
	}
	if x, err := f.Float("t.float64"); x != 0.1 || err != nil {
		t.Error(x, err)
	}
	if s, err := f.String("general.architecture"); s != "test" || err != nil {
		t.Error(s, err)
	}
	if b, err := f.Bool("t.bool"); !b || err != nil {
		t.Error(b, err)
	}
	if s, err := f.Strings("a.string"); !slices.Equal(s, []string{"a", "", "é"}) || err != nil {
		t.Error(s, err)
	}
	if x, err := f.Floats("a.float32"); !slices.Equal(x, []float32{0.5, -1.25}) || err != nil {
		t.Error(x, err)
	}
	for _, key := range []string{"a.uint8", "a.int8", "a.uint16", "a.int16", "a.uint32", "a.int32", "a.int64"} {
		if n, err := f.Ints(key); len(n) != 2 || err != nil {
			t.Error(key, n, err)
		}
	}
	for what, err := range map[string]error{
		"a uint64 beyond int64":   second(f.Int("t.uint64")),
		"an array beyond int64":   second(f.Ints("a.uint64")),
		"a negative uint":         second(f.Uint("t.int64")),
		"a string as integer":     second(f.Int("t.string")),
		"an integer as float":     second(f.Float("t.int32")),
		"a bool as string":        second(f.String("t.bool")),
		"an array as bool":        second(f.Bool("a.bool")),
		"a missing key":           second(f.Int("nothing")),
		"a string as strings":     second(f.Strings("t.string")),
		"float64 as float32":      second(f.Floats("a.float64")),
		"strings as integers":     second(f.Ints("a.string")),
		"an unsigned from string": second(f.Uint("t.string")),
	} {
		var bad *formats.FormatError
		if !errors.As(err, &bad) || bad.Tensor == "" || bad.File == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestSplitOpensFromAnyPart(t *testing.T) {
	for no := range 3 {
		f := open(t, SplitName(testdata+"split", no, 3))
		if len(f.Parts()) != 3 || len(f.Tensors()) != 5 {
			t.Fatalf("from part %d: parts %q, %d tensors", no, f.Parts(), len(f.Tensors()))
		}
		if name, err := f.String("general.name"); name != "split in three" || err != nil {
			t.Error(name, err)
		}
		for i, x := range f.Tensors() {
			if p := data(t, x); x.Name != "blk."+string(rune('0'+i))+".weight" || len(p) != 32 {
				t.Errorf("%v has %d bytes", &x, len(p))
			}
		}
	}
}

func TestSplitErrors(t *testing.T) {
	copyTo := func(dir string, to string, no int) {
		p, err := os.ReadFile(SplitName(testdata+"split", no, 3))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), p, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	name := func(no int) string { return SplitName("m", no, 3) }
	for what, c := range map[string]struct {
		files []string // the file that gets each part
		say   string
	}{
		"missing":   {[]string{name(0), name(1)}, "m-00003-of-00003.gguf: part 3 of 3 is missing"},
		"swapped":   {[]string{name(0), name(2), name(1)}, "split.no"},
		"renamed":   {[]string{"m.gguf"}, "the other parts cannot be found"},
		"miscount":  {[]string{"m-00001-of-00002.gguf"}, "the file's name says 00002"},
		"duplicate": {[]string{name(0), name(1), name(2), name(1)}, "split.no"},
	} {
		dir := t.TempDir()
		for no, to := range c.files {
			copyTo(dir, to, no%3)
		}
		_, err := Open(filepath.Join(dir, c.files[0]))
		var bad *formats.FormatError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestMetadataOfASplitOpensAlone(t *testing.T) {
	f := open(t, SplitName(testdata+"split", 1, 3))
	meta, err := f.Metadata()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "meta.gguf")
	if err := os.WriteFile(path, meta, 0o600); err != nil {
		t.Fatal(err)
	}
	if alone := open(t, path); !slices.Equal(alone.Keys(), f.Keys()) {
		t.Errorf("keys %q", alone.Keys())
	}
}

// TestWriteIsWhatPythonWrote reads files that the gguf package wrote and
// writes them again.
func TestWriteIsWhatPythonWrote(t *testing.T) {
	for _, name := range []string{"types.gguf", "align64.gguf"} {
		want, err := os.ReadFile(testdata + name)
		if err != nil {
			t.Fatal(err)
		}
		f := open(t, testdata+name)
		w, err := NewWriter(f.KVs(), f.Tensors())
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		n, err := w.WriteTo(&out)
		if err != nil || n != w.Size() || n != int64(out.Len()) {
			t.Errorf("%s: wrote %d of %d, %v", name, n, w.Size(), err)
		}
		if !bytes.Equal(out.Bytes(), want) {
			t.Errorf("%s: other bytes than the original", name)
		}
	}
}

func TestNestedArraysRoundTrip(t *testing.T) {
	nested := []any{[]int32{1, 2}, []any{[]string{"x"}, []bool{true}}, []float64{}}
	w, err := NewWriter([]KV{{"n", nested}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := w.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	f, err := Parse("nested", out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := f.Get("n"); !ok || !reflect.DeepEqual(got, nested) {
		t.Errorf("%#v", got)
	}
}

// TestShared reads the trained models and the vocabularies of real ones.
func TestShared(t *testing.T) {
	shared := os.Getenv("NSTF_SHARED")
	if shared == "" {
		t.Skip("NSTF_SHARED names no folder of trained models")
	}
	vocabularies, _ := filepath.Glob(filepath.Join(shared, "vocab", "*.gguf"))
	models, _ := filepath.Glob(filepath.Join(shared, "models", "*.gguf"))
	if len(vocabularies) == 0 || len(models) == 0 {
		t.Fatalf("no GGUF files in %s", shared)
	}
	for _, path := range vocabularies {
		f := open(t, path)
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := f.Metadata(); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: the metadata of a vocabulary is not the file (%v)", path, err)
		}
		if toks, err := f.Strings("tokenizer.ggml.tokens"); err != nil || len(toks) < 30000 {
			t.Errorf("%s: %d tokens, %v", path, len(toks), err)
		}
	}
	for _, path := range models {
		f := open(t, path)
		w, err := NewWriter(f.KVs(), f.Tensors())
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if _, err := w.WriteTo(&out); err != nil || !bytes.Equal(out.Bytes(), want) {
			t.Errorf("%s: written again it differs (%v)", path, err)
		}
	}
}
