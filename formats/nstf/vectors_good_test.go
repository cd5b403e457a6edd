package nstf

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// A goodVector is a package that must open and verify.
type goodVector struct {
	name, must, what string
	zstd             bool // bytes depend on the encoder's version
	build            func(t testing.TB) []byte
}

// memory is an io.WriterAt that grows.
type memory struct{ p []byte }

func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	if need := off + int64(len(p)); need > int64(len(m.p)) {
		m.p = append(m.p, make([]byte, need-int64(len(m.p)))...)
	}
	return copy(m.p[off:], p), nil
}

// pack writes a package into memory.
func pack(t testing.TB, m Meta, items ...Item) []byte {
	t.Helper()
	h, size, err := compose("vector", m, items)
	if err != nil {
		t.Fatal(err)
	}
	var out memory
	if err := h.write(context.Background(), &out, nil); err != nil {
		t.Fatal(err)
	}
	if int64(len(out.p)) != size {
		t.Fatalf("wrote %d bytes, announced %d", len(out.p), size)
	}
	return out.p
}

// meta is the least a package holds.
func meta(files ...File) Meta {
	return Meta{
		Model:      json.RawMessage(`{"arch":"none"}`),
		Files:      files,
		Provenance: Provenance{Tool: "nstf vectors"},
	}
}

// f32 makes a dense float32 tensor that counts 1, 2, 3 ...
func f32(name string, shape ...int64) Item {
	n, err := tensor.Elements(shape)
	if err != nil {
		panic(err)
	}
	var data []byte
	for i := range n {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(i+1)))
	}
	return Item{Tensor: formats.Tensor{Name: name, Shape: shape, Scheme: "f32",
		Parts: []formats.Part{{Name: "data", DType: tensor.F32, Shape: shape, Data: tensor.BytesBlob(data)}}}}
}

// coded makes a dense tensor of any scheme, its bytes counting from seed.
func coded(name, schemeName string, seed byte, params map[string]int64, shape ...int64) Item {
	s, ok := scheme.ByName(schemeName)
	if !ok {
		panic("no scheme " + schemeName)
	}
	specs, err := s.Parts(shape, params)
	if err != nil {
		panic(err)
	}
	it := Item{Tensor: formats.Tensor{Name: name, Shape: shape, Scheme: schemeName, Params: params}}
	for _, spec := range specs {
		data := make([]byte, spec.Bytes)
		for i := range data {
			data[i] = seed + byte(i)
		}
		it.Parts = append(it.Parts, formats.Part{Name: spec.Name, DType: spec.DType, Shape: spec.Shape, Data: tensor.BytesBlob(data)})
	}
	return it
}

// formed makes a tensor of a form other than dense.
func formed(name string, id form.ID, params map[string]int64, shape []int64, factors ...Item) Item {
	list := make([]formats.Tensor, len(factors))
	for i := range factors {
		list[i] = factors[i].Tensor
	}
	t, err := form.New(name, id, shape, params, list...)
	if err != nil {
		panic(err)
	}
	return Item{Tensor: t}
}

// factored has a tensor of each form that has factors.
func factored() []Item {
	return []Item{
		formed("low", form.LowRank, nil, []int64{4, 3}, f32("a", 4, 2), f32("b", 2, 3)),
		formed("corrected", form.Corrected, nil, []int64{2, 64}, coded("q", "q4_0", 1, nil, 2, 64), f32("a", 2, 32), coded("b", "q8_0", 3, nil, 32, 64)),
		formed("experts", form.Shared, nil, []int64{3, 2, 4}, f32("c", 3, 2), f32("u", 2, 2, 4), f32("q", 3, 2, 4)),
		formed("table", form.Train, map[string]int64{"cols1": 2, "rank1": 3, "cols2": 2}, []int64{5, 4}, f32("g1", 3, 6), f32("g2", 2, 6)),
	}
}

// goodVectors lists them.
func goodVectors() []goodVector {
	return []goodVector{
		{name: "minimal", must: "P1 W1", what: "one float32 tensor; the annotated hex of docs/nstf.md",
			build: func(t testing.TB) []byte { return pack(t, meta(), f32("w", 1, 2)) }},
		{name: "empty", must: "L4", what: "no tensor and no file: the header alone",
			build: func(t testing.TB) []byte { return pack(t, meta()) }},
		{name: "shared-run", must: "L3 W2", what: "small tensors share a run, 64 bytes apart at least; a file follows; the large tensor has pages of its own",
			build: func(t testing.TB) []byte {
				return pack(t, meta(File{"notes.txt", []byte("short")}),
					f32("large", 64, 257), f32("a", 3), f32("b", 17), f32("c", 2, 2))
			}},
		{name: "multi-part", must: "L2 T7", what: "a tensor of several parts, each at the next multiple of 64",
			build: func(t testing.TB) []byte { return pack(t, meta(), multiPart(), f32("after", 1)) }},
		{name: "files", must: "F2 F3 F6", zstd: true, what: "attached files: zstd, stored as they are, empty, in folders, of reserved names",
			build: func(t testing.TB) []byte {
				return pack(t, meta(
					File{"tokenizer.json", []byte(strings.Repeat(`{"token": "word"}`+"\r\n", 40))},
					File{"chat_template.jinja", []byte("{{ m }}")},
					File{"empty", nil},
					File{"original/config.json", []byte("\x00\xff not text\n")},
					File{PlanFile, []byte("{}")}, File{LedgerFile, []byte("[]")}))
			}},
		{name: "unicode-names", must: "T1 F1 H5", what: "names beyond ASCII, with quotes and backslashes, and 512 bytes long",
			build: func(t testing.TB) []byte {
				return pack(t, meta(File{"模型/😀 é.txt", []byte("x")}),
					f32("слой.0.вес", 1), f32(`say "\\"`, 1), f32("😀\u2028", 1), f32(strings.Repeat("n", MaxName), 1))
			}},
		{name: "passthrough", must: "T9", what: "a tensor that the graph does not know",
			build: func(t testing.TB) []byte {
				it := coded("vision.position_ids", "i64", 0, nil, 4)
				it.Passthrough = true
				return pack(t, meta(), f32("w", 1), it)
			}},
		{name: "shapes", must: "T3", what: "a scalar, a tensor without elements, eight dimensions",
			build: func(t testing.TB) []byte {
				return pack(t, meta(), f32("scalar"), f32("none", 0, 4), f32("eight", 1, 2, 1, 2, 1, 2, 1, 2), f32("nothing", 7, 0))
			}},
		{name: "empty-extents", must: "L3", what: "tensors and a file of no bytes, several at one offset, behind and before others",
			build: func(t testing.TB) []byte {
				return pack(t, meta(File{"empty.txt", nil}), f32("first", 0), f32("a", 3), f32("none", 0, 4), f32("nothing", 7, 0), f32("large", 64, 257))
			}},
		{name: "odd-counts", must: "T7", what: "three elements of 4 bits in two bytes, five of 6 bits in four",
			build: func(t testing.TB) []byte {
				return pack(t, meta(), coded("nibbles", "f4_e2m1", 5, nil, 3), coded("sixes", "f6_e2m3", 0, nil, 1, 5))
			}},
		{name: "schemes", must: "T4", what: "block schemes next to plain ones",
			build: func(t testing.TB) []byte {
				return pack(t, meta(), coded("q", "q4_0", 1, nil, 2, 64), coded("k", "q4_k", 2, nil, 1, 256), coded("h", "bf16", 3, nil, 3))
			}},
		{name: "factors", must: "T10 T11", what: "a low-rank tensor, a corrected one whose factors have schemes of their own, experts of a shared basis, and a tensor train",
			build: func(t testing.TB) []byte { return pack(t, meta(), factored()...) }},
		{name: "provenance", must: "H7", what: "everything that provenance can hold",
			build: func(t testing.TB) []byte {
				m := meta()
				m.Provenance = Provenance{
					Tool: "nstf 1.0", Flags: []string{"--dtype", "bf16", "größe", `a\x01`},
					Sources: []Source{{Role: "model", Name: "model.safetensors", Size: 123, Hash: Hash{1, 2, 3}},
						{Role: "text", Name: "calib.jsonl", Size: 0, Hash: Hash{31: 255}}},
					Notes: []string{"the source was quantized already"}, Created: "2026-01-02T03:04:05Z"}
				return pack(t, m)
			}},
		{name: "unknown-keys", must: "H8", what: "keys that this version does not know, in every object",
			build: func(t testing.TB) []byte {
				return edit(t, minimal(t),
					`{"requires"`, `{"x-top":[1.5e-3,null,true,{"a":"\ud83d\ude00"}],"requires"`,
					`{"tool"`, `{"x":{},"tool"`, `{"name":"w"`, `{"x":[],"name":"w"`,
					`{"name":"data"`, `{"x":-0.0,"name":"data"`)
			}},
		{name: "other-order", must: "H2", what: "keys in another order and white space anywhere: readers take both",
			build: func(t testing.TB) []byte {
				return reseal(t, minimal(t), func(head string) string {
					tensors := head[strings.Index(head, `"tensors"`):strings.LastIndex(head, "}")]
					rest := strings.TrimPrefix(head[:strings.Index(head, ",\n\"tensors\"")], "{")
					rest = strings.ReplaceAll(rest, `"model":{`, "\"model\"\t:\r\n {")
					return " {\n" + strings.ReplaceAll(tensors, `,"scheme"`, ` , "scheme"`) + " , " + rest + "\t}\n\n"
				})
			}},
		{name: "model-verbatim", must: "H10", what: "the model's JSON keeps its spelling, white space included",
			build: func(t testing.TB) []byte {
				m := meta()
				m.Model = json.RawMessage("{ \"f\" : 1.50E+01,\n\t\"s\":\"\\u0041\\/\" }")
				return pack(t, m)
			}},
	}
}

func minimal(t testing.TB) []byte { return pack(t, meta(), f32("w", 1, 2)) }

// TestModelVerbatim holds the reader to return the vector's spelling.
func TestModelVerbatim(t *testing.T) {
	p, err := Open(vectorFile(t, "good/model-verbatim.nstf"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if want := "{ \"f\" : 1.50E+01,\n\t\"s\":\"\\u0041\\/\" }"; string(p.Model()) != want {
		t.Errorf("got %q, want %q", p.Model(), want)
	}
}

// TestSharedRun holds the writer to the places that docs/nstf.md gives.
func TestSharedRun(t *testing.T) {
	p, err := Open(vectorFile(t, "good/shared-run.nstf"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	got := map[string]int64{}
	for _, r := range p.header.tensors {
		got[r.Name] = r.offsets[0]
	}
	want := map[string]int64{"a": 0, "b": 64, "c": 192, "large": 4096}
	for name, offset := range want {
		if got[name] != offset {
			t.Errorf("%s lies at %d, want %d", name, got[name], offset)
		}
	}
	if f := p.header.files[0]; f.offset != 256 || f.encoding != encodingNone {
		t.Errorf("file: %+v, want offset 256 and no encoding", f)
	}
	if p.dataStart != 4096 || p.size != 4096+4096+alignUp(64*257*4, 4096) {
		t.Errorf("data from %d, %d bytes", p.dataStart, p.size)
	}
}

// TestRoundTrip reads back what goodVectors write.
func TestRoundTrip(t *testing.T) {
	items := []Item{f32("large", 64, 257), f32("a", 3), coded("q", "q4_0", 9, nil, 2, 64), multiPart(), f32("none", 0)}
	items = append(items, factored()...)
	items[1].Passthrough = true
	m := meta(File{"b", bytes.Repeat([]byte("b"), 1000)}, File{"a", []byte("1")})
	data := pack(t, m, items...)
	p, err := openAs(bytes.NewReader(data), int64(len(data)), "x", false)
	if err != nil {
		t.Fatal(err)
	}
	for i, got := range p.Tensors() {
		want := items[i]
		if got.Name != want.Name || got.Scheme != want.Scheme || got.Form != want.Form || got.Passthrough != want.Passthrough {
			t.Errorf("item %d: got %v, want %v", i, got, want)
		}
		for j := range want.Parts {
			g, err := got.Parts[j].Data.Bytes()
			if err != nil {
				t.Fatal(err)
			}
			if w, _ := want.Parts[j].Data.Bytes(); !bytes.Equal(g, w) {
				t.Errorf("%s: part %d differs", want.Name, j)
			}
		}
		if one, ok := p.Tensor(want.Name); !ok || one.Name != want.Name {
			t.Errorf("Tensor(%q) = %v, %v", want.Name, one, ok)
		}
	}
	for _, f := range m.Files {
		if got, err := p.File(f.Name); err != nil || !bytes.Equal(got, f.Data) {
			t.Errorf("file %s: %q, %v", f.Name, got, err)
		}
	}
	if _, ok := p.Tensor("absent"); ok {
		t.Error("found a tensor that is not there")
	}
	if err := p.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
}
