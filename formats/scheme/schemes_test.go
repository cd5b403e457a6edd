package scheme_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// A vector is an entry of schemes.json: a tensor made by the library that
// owns its scheme.
type vector struct {
	Name, Scheme string
	Shape        []int64
	Params       map[string]int64
}

func readIndex(t testing.TB) []vector {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(vectors, "schemes.json"))
	if err != nil {
		t.Fatal(err)
	}
	var index struct{ Vectors []vector }
	if err := json.Unmarshal(raw, &index); err != nil {
		t.Fatal(err)
	}
	return index.Vectors
}

// split cuts the parts of a scheme out of bytes that hold them end to end.
func split(t testing.TB, name string, s *scheme.Scheme, shape []int64, params map[string]int64, raw []byte) formats.Tensor {
	t.Helper()
	specs, err := s.Parts(shape, params)
	if err != nil {
		t.Fatal(err)
	}
	var parts []tensor.Blob
	for _, p := range specs {
		parts = append(parts, tensor.BytesBlob(raw[:p.Bytes:p.Bytes]))
		raw = raw[p.Bytes:]
	}
	if len(raw) != 0 {
		t.Fatalf("%s: %d bytes more than the parts of %s %v", name, len(raw), s.Name, shape)
	}
	x, err := scheme.New(name, s, shape, params, parts...)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func (v vector) tensor(t testing.TB) formats.Tensor {
	t.Helper()
	s, ok := scheme.ByName(v.Scheme)
	if !ok {
		t.Fatalf("no scheme %q", v.Scheme)
	}
	raw, err := os.ReadFile(filepath.Join(vectors, v.Name+".parts"))
	if err != nil {
		t.Fatal(err)
	}
	return split(t, v.Name, s, v.Shape, v.Params, raw)
}

// TestLibraryVectors holds affine, fp8 and nf4 to the libraries that own
// them, and tcq to a program written from its page, bit for bit.
func TestLibraryVectors(t *testing.T) {
	for _, v := range readIndex(t) {
		t.Run(v.Name, func(t *testing.T) {
			x := v.tensor(t)
			sameBits(t, decodeAll(t, &x), readF32(t, v.Name))
		})
	}
}

// TestPackMXFP4 takes gpt-oss's order of nibbles and decodes it as
// compressed-tensors does.
func TestPackMXFP4(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(vectors, "mxfp4_pairs.parts"))
	if err != nil {
		t.Fatal(err)
	}
	codes, scales := raw[:256], raw[256:]
	packed := make([]byte, 17*len(scales))
	scheme.PackMXFP4(packed, codes, scales)
	s, _ := scheme.ByName("mxfp4")
	x := split(t, "w", s, []int64{4, 128}, nil, packed)
	got, want := decodeAll(t, &x), readF32(t, "mxfp4_pairs")
	for i := range got {
		// Code 8 is -0 there and +0 here, as in ggml.
		if got[i] != want[i] {
			t.Fatalf("weight %d is %v, want %v", i, got[i], want[i])
		}
	}
}

// TestCodes walks every width and length about a byte's end.
func TestCodes(t *testing.T) {
	for bits := 1; bits <= 8; bits++ {
		for n := range 40 {
			codes := make([]uint8, n)
			for i := range codes {
				codes[i] = uint8(i*37+11) & (1<<bits - 1)
			}
			packed := make([]byte, (n*bits+7)/8)
			for i, c := range codes {
				v := uint16(c) << (i * bits % 8)
				packed[i*bits/8] |= byte(v)
				if v > 255 {
					packed[i*bits/8+1] |= byte(v >> 8)
				}
			}
			got := make([]uint8, n)
			scheme.UnpackCodes(got, packed, bits)
			if !bytes.Equal(got, codes) {
				t.Fatalf("%d codes of %d bits: %v became %v", n, bits, codes, got)
			}
		}
	}
}

// TestTable holds the rules of the table that a later edit could break.
func TestTable(t *testing.T) {
	ids, last := map[uint16]string{}, uint16(0)
	for _, s := range scheme.Table() {
		if other, ok := ids[s.ID]; ok || s.ID <= last {
			t.Errorf("id %d of %s: taken by %q or out of order", s.ID, s.Name, other)
		}
		ids[s.ID], last = s.Name, s.ID
		if got, ok := scheme.ByName(s.Name); !ok || got != s {
			t.Errorf("ByName(%q) does not find its row", s.Name)
		}
		if s.GGML >= 0 {
			if got, ok := scheme.ByGGML(s.GGML); !ok || got != s {
				t.Errorf("ByGGML(%d) does not find %s", s.GGML, s.Name)
			}
			if name := strings.ToLower(scheme.GGMLName(s.GGML)); name != s.Name {
				t.Errorf("ggml calls %s %s", s.Name, name)
			}
		}
		if s.Plain() && scheme.ByDType(s.DType) != s {
			t.Errorf("ByDType(%v) is not %s", s.DType, s.Name)
		}
	}
}

// TestIDs pins ids and names: a package written today is read by them for
// ever.
func TestIDs(t *testing.T) {
	const want = "1 f32, 2 f16, 3 bf16, 4 f64, 5 i8, 6 i16, 7 i32, 8 i64, 9 u8, 10 u16, 11 u32, 12 u64, 13 bool, " +
		"14 f8_e4m3, 15 f8_e5m2, 16 f8_e4m3fnuz, 17 f8_e5m2fnuz, 18 f8_e8m0, 19 f6_e2m3, 20 f6_e3m2, 21 f4_e2m1, 22 c64, " +
		"32 q4_0, 33 q4_1, 34 q5_0, 35 q5_1, 36 q8_0, 37 q2_k, 38 q3_k, 39 q4_k, 40 q5_k, 41 q6_k, " +
		"42 iq1_s, 43 iq1_m, 44 iq2_xxs, 45 iq2_xs, 46 iq2_s, 47 iq3_xxs, 48 iq3_s, 49 iq4_nl, 50 iq4_xs, " +
		"51 tq1_0, 52 tq2_0, 53 mxfp4, 54 nvfp4, 55 q1_0, 56 q2_0, 96 affine, 97 fp8, 98 nf4, 99 tcq"
	have := map[string]bool{}
	for _, s := range scheme.Table() {
		have[itoa(int64(s.ID))+" "+s.Name] = true
	}
	for _, row := range strings.Split(want, ", ") {
		if !have[row] {
			t.Errorf("the table lost or changed %q", row)
		}
	}
}

func TestGGMLName(t *testing.T) {
	for id, want := range map[int32]string{4: "Q4_2", 31: "Q4_0_4_4", 38: "IQ4_NL_8_8", 9: "Q8_1", 99: "type 99", -3: "type -3"} {
		if got := scheme.GGMLName(id); got != want {
			t.Errorf("type %d is %q, want %q", id, got, want)
		}
		if _, ok := scheme.ByGGML(id); ok {
			t.Errorf("type %d has a scheme", id)
		}
	}
}
