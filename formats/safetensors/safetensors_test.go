package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/tensor"
)

const testdata = "../../testdata/safetensors/"

// file returns the bytes of a safetensors file with that header and n bytes
// of data.
func file(header string, n int) []byte {
	p := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(p, header...), make([]byte, n)...)
}

func open(t *testing.T, path string) *File {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestTypesAgainstReference(t *testing.T) {
	raw, err := os.ReadFile(testdata + "types.json")
	if err != nil {
		t.Fatal(err)
	}
	var want []struct {
		Name, DType, Hex string
		Shape            []int64
	}
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	f := open(t, testdata+"types.safetensors")
	if m := f.Metadata(); len(m) != 1 || m["format"] != "pt" {
		t.Errorf("metadata %v", m)
	}
	if len(f.Tensors()) != len(want) {
		t.Errorf("%d tensors, want %d", len(f.Tensors()), len(want))
	}
	for _, w := range want {
		i := slices.IndexFunc(f.Tensors(), func(x formats.Tensor) bool { return x.Name == w.Name })
		if i < 0 {
			t.Errorf("%s is missing", w.Name)
			continue
		}
		x := f.Tensors()[i]
		p, err := x.Parts[0].Data.Bytes()
		if err != nil || hex.EncodeToString(p) != w.Hex || !slices.Equal(x.Shape, w.Shape) ||
			x.Parts[0].DType != dtypeByName(w.DType) || x.Scheme != x.Parts[0].DType.String() {
			t.Errorf("%v: %x, want %+v (%v)", &x, p, w, err)
		}
	}
}

// TestWriteIsWhatTheReferenceWrote reads a file of the reference
// implementation and writes it again, from tensors in another order.
func TestWriteIsWhatTheReferenceWrote(t *testing.T) {
	want, err := os.ReadFile(testdata + "types.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	f := open(t, testdata+"types.safetensors")
	tensors := f.Tensors()
	slices.Reverse(tensors)
	if got := write(t, f.Metadata(), tensors); !bytes.Equal(got, want) {
		t.Errorf("other bytes:\n%q\n%q", got[:1000], want[:1000])
	}
}

func write(t testing.TB, metadata map[string]string, tensors []formats.Tensor) []byte {
	t.Helper()
	w, err := NewWriter(metadata, tensors)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	n, err := w.WriteTo(&out)
	if err != nil || n != w.Size() || n != int64(out.Len()) {
		t.Fatalf("wrote %d of %d, %v", n, w.Size(), err)
	}
	return out.Bytes()
}

// every dtype of the format has an example; F6 has none in the reference's
// Python and is written by hand.
func TestEveryDType(t *testing.T) {
	for i, d := range dtypes {
		bytes := 4 * d.dtype.Bits() / 8
		f, err := Parse("x", file(fmt.Sprintf(`{"x":{"dtype":%q,"shape":[4],"data_offsets":[0,%d]}}`, d.name, bytes), bytes))
		if err != nil {
			t.Errorf("%s: %v", d.name, err)
		} else if x := f.Tensors()[0]; rank(x.Parts[0].DType) != i || x.Scheme != d.dtype.String() {
			t.Errorf("%s: read as %v", d.name, &x)
		}
	}
}

var malformed = []struct {
	name string
	file []byte
	say  string
}{
	{"empty", nil, "no header length"},
	{"seven bytes", make([]byte, 7), "no header length"},
	{"no header", make([]byte, 8), "header of 0 bytes"},
	{"header huge", append([]byte{0, 0, 0, 0, 0, 0, 0, 0x80}, "{}"...), "header of 9223372036854775808 bytes"},
	{"header over 100 MB", append([]byte{1, 0xe1, 0xf5, 5, 0, 0, 0, 0}, "{}"...), "more than 100000000"},
	{"header beyond file", append([]byte{3, 0, 0, 0, 0, 0, 0, 0}, "{}"...), "truncated"},
	{"no brace", file(` {}`, 0), "starts with"},
	{"an array", file(`[]`, 0), "starts with"},
	{"no JSON", file(`{"x"`, 0), `":" expected`},
	{"text behind", file(`{} {}`, 0), "behind the JSON value"},
	{"not UTF-8", file("{\"\xff\":{}}", 0), "UTF-8"},
	{"deep", file(`{"x":`+strings.Repeat("[", 100000), 0), `"{" expected`},
	{"deep shape", file(`{"x":{"shape":`+strings.Repeat("[", 100000), 0), "number expected"},
	{"metadata no strings", file(`{"__metadata__":{"a":1}}`, 0), "not a string"},
	{"metadata deep", file(`{"__metadata__":{"a":{"b":"c"}}}`, 0), "not a string"},
	{"metadata twice", file(`{"__metadata__":{},"__metadata__":{}}`, 0), "duplicate name"},
	{"metadata key twice", file(`{"__metadata__":{"a":"b","a":"c"}}`, 0), "duplicate key"},
	{"name twice", file(`{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), "duplicate name"},
	{"field twice", file(`{"x":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), "duplicate field"},
	{"field unknown", file(`{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"q":1}}`, 1), `unknown field "q"`},
	{"field missing", file(`{"x":{"dtype":"U8","data_offsets":[0,1]}}`, 1), "is missing"},
	{"dtype a number", file(`{"x":{"dtype":8,"shape":[1],"data_offsets":[0,1]}}`, 1), "expected"},
	{"dimension negative", file(`{"x":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}`, 1), "-1 is no size"},
	{"dimension -0", file(`{"x":{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}}`, 0), "-0 is no size"},
	{"dimension fraction", file(`{"x":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}`, 1), "1.0 is no size"},
	{"dimension 2^63", file(`{"x":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]}}`, 1), "no size"},
	{"65 dimensions", file(`{"x":{"dtype":"U8","shape":[`+strings.Repeat("1,", 64)+`1],"data_offsets":[0,1]}}`, 1), "more than 64"},
	{"shape overflow", file(`{"x":{"dtype":"U8","shape":[8589934592,8589934592],"data_offsets":[0,1]}}`, 1), "2^63"},
	{"bytes overflow", file(`{"x":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}}`, 0), "larger than"},
	{"offsets one", file(`{"x":{"dtype":"U8","shape":[1],"data_offsets":[0]}}`, 1), "no range"},
	{"offsets three", file(`{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}}`, 1), "more than 2"},
	{"offsets reversed", file(`{"x":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}}`, 1), "no range"},
	{"size wrong", file(`{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, 4), "needs 8"},
	{"half a byte", file(`{"x":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}}`, 2), "whole bytes"},
	{"overlap", file(`{"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"y":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}`, 6), "overlap"},
	{"same place", file(`{"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"y":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4), "overlap"},
	{"hole", file(`{"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"y":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}}`, 9), "hole"},
	{"hole first", file(`{"x":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}}`, 5), "hole"},
	{"data missing", file(`{"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 3), "truncated"},
	{"data left", file(`{"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 5), "the tensors cover 4"},
}

func TestMalformed(t *testing.T) {
	for _, c := range malformed {
		_, err := Parse(c.name, c.file)
		var bad *formats.FormatError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), c.say) || bad.File != c.name {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	_, err := Parse("f", file(`{"x":{"dtype":"F3","shape":[1],"data_offsets":[0,1]}}`, 1))
	var unsupported *formats.UnsupportedError
	if !errors.As(err, &unsupported) || unsupported.Tensor != "x" || !strings.Contains(err.Error(), `"F3"`) {
		t.Errorf("an unknown dtype: %v", err)
	}
}

func TestTruncated(t *testing.T) {
	whole, err := os.ReadFile(testdata + "types.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "cut")
	for n := range len(whole) {
		_, err := Parse("cut", whole[:n])
		var bad *formats.FormatError
		if !errors.As(err, &bad) {
			t.Fatalf("cut at %d: %v", n, err)
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

// values returns n tensors of size bytes each, all alike but for the name.
func values(n, size int) []formats.Tensor {
	var out []formats.Tensor
	for i := range n {
		shape := []int64{int64(size)}
		out = append(out, formats.Tensor{Name: fmt.Sprintf("t%d", i), Shape: shape, Scheme: "u8", Parts: []formats.Part{
			{Name: "data", DType: tensor.U8, Shape: shape, Data: tensor.BytesBlob(bytes.Repeat([]byte{byte(i)}, size))}}})
	}
	return out
}

func TestShardedRoundTrip(t *testing.T) {
	dir := t.TempDir()
	shards := Shards(values(7, 10), 25)
	for _, s := range shards {
		if err := os.WriteFile(filepath.Join(dir, s.Name), write(t, map[string]string{"format": "pt"}, s.Tensors), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), Index(shards), 0o600); err != nil {
		t.Fatal(err)
	}
	f := open(t, filepath.Join(dir, "model.safetensors.index.json"))
	if len(f.Parts()) != 4 || len(f.Tensors()) != 7 || len(f.Unlisted()) != 0 || f.Metadata()["format"] != "pt" {
		t.Fatalf("parts %q, %d tensors, unlisted %q", f.Parts(), len(f.Tensors()), f.Unlisted())
	}
	for i, x := range f.Tensors() {
		if p, err := x.Parts[0].Data.Bytes(); err != nil || len(p) != 10 || p[9] != byte(i) {
			t.Errorf("%v: %v, %v", &x, p, err)
		}
	}
	if s := Shards(values(7, 10), 70); len(s) != 1 || s[0].Name != "model.safetensors" || len(s[0].Tensors) != 7 {
		t.Errorf("what one file holds: %+v", s)
	}
}

func TestShardsKeepsTooLargeTensorsAlone(t *testing.T) {
	s := Shards(values(3, 100), 50)
	if len(s) != 3 || s[2].Name != "model-00003-of-00003.safetensors" || len(s[0].Tensors) != 1 {
		t.Errorf("%+v", s)
	}
}

func TestIndexErrors(t *testing.T) {
	dir := t.TempDir()
	for name, tensors := range map[string][]formats.Tensor{"a.safetensors": values(2, 1), "b.safetensors": values(3, 1)} {
		if err := os.WriteFile(filepath.Join(dir, name), write(t, nil, tensors), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	openWith := func(index string) (*File, error) {
		path := filepath.Join(dir, "index.json")
		if err := os.WriteFile(path, []byte(index), 0o600); err != nil {
			t.Fatal(err)
		}
		return Open(path)
	}
	for index, say := range map[string]string{
		``:                        "expected",
		`{}`:                      "no weight_map",
		`{"weight_map":{}}`:       "no weight_map",
		`{"weight_map":[]}`:       `"{" expected`,
		`{"weight_map":{"t0":1}}`: "expected",
		`{"weight_map":{"t0":"../a.safetensors"}}`:                   "not a plain file name",
		`{"weight_map":{"t0":"/etc/passwd"}}`:                        "not a plain file name",
		`{"weight_map":{"t0":"x\\y"}}`:                               "not a plain file name",
		`{"weight_map":{"t0":"c:y"}}`:                                "not a plain file name",
		`{"weight_map":{"t0":".."}}`:                                 "not a plain file name",
		`{"weight_map":{"t0":"."}}`:                                  "not a plain file name",
		`{"weight_map":{"t0":""}}`:                                   "not a plain file name",
		`{"weight_map":{"t0":"c.safetensors"}}`:                      `shard "c.safetensors" is missing`,
		`{"weight_map":{"t0":"a.safetensors","t0":"b.safetensors"}}`: "duplicate name",
		`{"weight_map":{"t0":"a.safetensors"},"weight_map":{}}`:      "duplicate weight_map",
		`{"weight_map":{"t2":"a.safetensors"}}`:                      `"t2": the index has it in "a.safetensors", which does not hold it`,
	} {
		_, err := openWith(index)
		var bad *formats.FormatError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v", index, err)
		}
	}
	f, err := openWith(`{"weight_map":{"t0":"a.safetensors","t1":"b.safetensors"}}`)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if want := []string{"a.safetensors: t1", "b.safetensors: t0", "b.safetensors: t2"}; !slices.Equal(f.Unlisted(), want) {
		t.Errorf("unlisted %q", f.Unlisted())
	}
	if len(f.Tensors()) != 3 {
		t.Errorf("%d tensors: t0 of a, t1 and t2 of b are wanted", len(f.Tensors()))
	}
}

func TestWriterRefuses(t *testing.T) {
	good := values(1, 4)[0]
	twice := []formats.Tensor{good, good}
	quantized, short, reserved := good, good, good
	quantized.Scheme = "q4_k"
	short.Shape = []int64{5}
	reserved.Name = "__metadata__"
	var unsupported *formats.UnsupportedError
	if _, err := NewWriter(nil, []formats.Tensor{quantized}); !errors.As(err, &unsupported) {
		t.Errorf("a quantized tensor: %v", err)
	}
	for what, tensors := range map[string][]formats.Tensor{"twice": twice, "short": {short}, "reserved": {reserved}} {
		var bad *formats.FormatError
		if _, err := NewWriter(nil, tensors); !errors.As(err, &bad) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestShared writes the trained models again: the reference wrote them.
func TestShared(t *testing.T) {
	shared := os.Getenv("NSTF_SHARED")
	if shared == "" {
		t.Skip("NSTF_SHARED names no folder of trained models")
	}
	paths, _ := filepath.Glob(filepath.Join(shared, "models", "tiny-*", "*.safetensors"))
	if len(paths) < 5 {
		t.Fatalf("models in %s: %q", shared, paths)
	}
	for _, path := range paths {
		f := open(t, path)
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(write(t, f.Metadata(), f.Tensors()), want) {
			t.Errorf("%s: written again it differs", path)
		}
	}
	f := open(t, filepath.Join(shared, "models", "tiny-qwen3", "model.safetensors.index.json"))
	if len(f.Parts()) != 4 || len(f.Unlisted()) != 0 || len(f.Tensors()) == 0 {
		t.Errorf("parts %q, unlisted %q", f.Parts(), f.Unlisted())
	}
}

func checkFamily(t *testing.T, err error) {
	var bad *formats.FormatError
	var unsupported *formats.UnsupportedError
	if !errors.As(err, &bad) && !errors.As(err, &unsupported) {
		t.Errorf("error of neither family: %v", err)
	}
}

// allocated runs f and returns the bytes it took.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func FuzzSafetensors(f *testing.F) {
	for _, c := range malformed {
		if len(c.file) < 1<<12 {
			f.Add(c.file)
		}
	}
	whole, err := os.ReadFile(testdata + "types.safetensors")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Fuzz(func(t *testing.T, p []byte) {
		var file *File
		var err error
		got := allocated(func() { file, err = Parse("fuzz", p) })
		if limit := uint64(2*len(p) + 1<<18); got > limit {
			t.Errorf("%d bytes allocated for a file of %d", got, len(p))
		}
		if err != nil {
			checkFamily(t, err)
			return
		}
		again, err := Parse("again", write(t, file.Metadata(), file.Tensors()))
		if err != nil || len(again.Tensors()) != len(file.Tensors()) {
			t.Errorf("a copy differs: %v", err)
		}
	})
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":1},"weight_map":{"t0":"a.safetensors"}}`))
	f.Add(Index(Shards(values(3, 5), 5)))
	f.Fuzz(func(t *testing.T, p []byte) {
		var x *index
		var err error
		got := allocated(func() { x, err = parseIndex("fuzz", p) })
		if limit := uint64(2*len(p) + 1<<18); got > limit {
			t.Errorf("%d bytes allocated for a file of %d", got, len(p))
		}
		if err != nil {
			checkFamily(t, err)
			return
		}
		for _, shard := range x.shards {
			if filepath.Base(shard) != shard || !filepath.IsLocal(shard) {
				t.Errorf("shard %q leaves the folder", shard)
			}
		}
	})
}

// TestTables opens the headers that take the most memory for their size.
func TestTables(t *testing.T) {
	var head, index strings.Builder
	head.WriteString("{")
	for i := range maxTensors {
		fmt.Fprintf(&head, `"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},`, i)
	}
	whole := file(strings.TrimSuffix(head.String(), ",")+"}", 0)
	index.WriteString(`{"weight_map":{`)
	for i := range maxIndexed {
		fmt.Fprintf(&index, `"%d":"a",`, i)
	}
	list := []byte(strings.TrimSuffix(index.String(), ",") + "}}")
	var err1, err2 error
	if got := allocated(func() { _, err1 = Parse("tensors", whole) }); got > uint64(2*len(whole)+32<<20) || err1 != nil {
		t.Errorf("%d bytes allocated for a file of %d, %v", got, len(whole), err1)
	}
	if got := allocated(func() { _, err2 = parseIndex("index", list) }); got > uint64(2*len(list)+64<<20) || err2 != nil {
		t.Errorf("%d bytes allocated for an index of %d, %v", got, len(list), err2)
	}
}
