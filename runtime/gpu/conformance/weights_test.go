package conformance

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/hip"
)

var vectorsFlag = flag.String("vectors", "../../../testdata/vectors", "folder of the schemes' vectors")

// A stored is a tensor with its reference decode.
type stored struct {
	formats.Tensor
	matrix *scheme.Matrix
	scheme *scheme.Scheme
}

func (s *stored) n() int { return int(s.matrix.N) }
func (s *stored) k() int { return int(s.matrix.K) }

// floats returns all weights as the reference decodes them.
func (s *stored) floats() []float32 {
	w := make([]float32, s.matrix.N*s.matrix.K)
	s.matrix.DecodeRows(w, 0, s.matrix.N)
	return w
}

// store makes a tensor of parts that lie one after the other.
func store(t testing.TB, s *scheme.Scheme, shape []int64, params map[string]int64, raw []byte) *stored {
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
	w, err := scheme.New("w", s, shape, params, parts...)
	if err != nil {
		t.Fatal(err)
	}
	m, err := scheme.Open(&w)
	if err != nil {
		t.Fatal(err)
	}
	return &stored{w, m, s}
}

// place brings a tensor to the device as kernels read it. Rows of experts lie in
// one tensor; n is then the rows of one.
func (m *machine) place(t testing.TB, s *stored, n int) hip.Weight {
	t.Helper()
	f, err := hip.FormatOf(s.scheme, s.Params, s.matrix.K)
	if err != nil {
		t.Fatal(err)
	}
	parts, size, err := f.Parts(s.Shape, s.Params)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, size)
	for i, p := range parts {
		copy(data[p.Offset:], s.matrix.Data(i))
	}
	to := m.put(t, data)
	for i, p := range parts {
		if !p.Arranged || p.Bytes == 0 {
			continue
		}
		// In two pieces, as a stream would.
		table := m.put(t, f.Table())
		block := f.BlockBytes()
		blocks := p.Bytes / block
		for _, piece := range [][2]int64{{0, blocks / 3}, {blocks / 3, blocks - blocks/3}} {
			if piece[1] == 0 {
				continue
			}
			from := m.put(t, s.matrix.Data(i)[piece[0]*block:(piece[0]+piece[1])*block])
			m.run(t, (&hip.Arrange{Format: f, Rows: s.matrix.N, K: s.matrix.K, First: piece[0], Count: piece[1],
				From: from.address(), Table: table.address(), To: to.address() + hip.Address(p.Offset)}).Calls(m.target))
			from.release()
		}
		table.release()
	}
	return hip.Weight{Format: f, N: n, K: s.k(), Data: to.address()}
}

// apart are schemes whose products have tests of their own (tcq_test.go).
var apart = map[string]bool{"tcq": true}

// A vector is a tensor among the schemes' vectors, with its weights as decoded
// by somebody else's code.
type vector struct {
	Name, Scheme string
	Shape        []int64
	Params       map[string]int64
}

func vectors(t testing.TB) []vector {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(*vectorsFlag, "schemes.json"))
	if err != nil {
		t.Fatal(err)
	}
	var index struct{ Vectors []vector }
	if err := json.Unmarshal(raw, &index); err != nil {
		t.Fatal(err)
	}
	for _, s := range scheme.Table() {
		if s.BlockBytes == 0 {
			continue
		}
		names, _ := filepath.Glob(filepath.Join(*vectorsFlag, strings.ToUpper(s.Name)+"*.blocks"))
		for _, name := range names {
			name = strings.TrimSuffix(filepath.Base(name), ".blocks")
			if name != strings.ToUpper(s.Name) && name != strings.ToUpper(s.Name)+"_edges" {
				continue
			}
			info, err := os.Stat(filepath.Join(*vectorsFlag, name+".blocks"))
			if err != nil {
				t.Fatal(err)
			}
			weights := info.Size() / int64(s.BlockBytes) * int64(s.Block)
			k := int64(768)
			if weights%k != 0 {
				k = int64(s.Block)
			}
			index.Vectors = append(index.Vectors, vector{name, s.Name, []int64{weights / k, k}, nil})
		}
	}
	return index.Vectors
}

func (v *vector) read(t testing.TB) *stored {
	t.Helper()
	s, ok := scheme.ByName(v.Scheme)
	if !ok {
		t.Fatalf("no scheme %q", v.Scheme)
	}
	suffix := ".parts"
	if s.BlockBytes > 0 && v.Params == nil {
		suffix = ".blocks"
	}
	raw, err := os.ReadFile(filepath.Join(*vectorsFlag, v.Name+suffix))
	if err != nil {
		t.Fatal(err)
	}
	return store(t, s, v.Shape, v.Params, raw)
}

// A variety is a scheme with parameters, of which tensors of any size are made.
type variety struct {
	scheme *scheme.Scheme
	params map[string]int64
	blocks []byte // of a vector, for schemes of blocks
	number int    // among all
}

func (v *variety) String() string {
	if v.params == nil {
		return v.scheme.Name
	}
	return strings.NewReplacer("map[", "", "]", "", " ", ",").Replace(fmt.Sprintf("%s:%v", v.scheme.Name, v.params))
}

// varieties lists every scheme, those with parameters in several forms. What no
// model's matrices have, and further forms, two targets may share.
func varieties(t testing.TB) []*variety {
	t.Helper()
	var all []*variety
	for i, v := range everyVariety(t) {
		v.number = i
		usual := v.params == nil && (v.blocks != nil || v.named("f32", "f16", "bf16"))
		if usual || dealt(i) {
			all = append(all, v)
		}
	}
	return all
}

func everyVariety(t testing.TB) []*variety {
	t.Helper()
	var all []*variety
	for _, s := range scheme.Table() {
		switch {
		case s.DType == tensor.C64, apart[s.Name]:
		case s.Plain():
			all = append(all, &variety{scheme: s})
		case s.BlockBytes > 0:
			blocks, err := os.ReadFile(filepath.Join(*vectorsFlag, strings.ToUpper(s.Name)+".blocks"))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, &variety{scheme: s, blocks: blocks})
			if s.Name == "nvfp4" {
				all = append(all, &variety{scheme: s, blocks: blocks, params: map[string]int64{"rows": 3}})
			}
		case s.Name == "affine":
			for _, p := range []map[string]int64{
				{"bits": 4, "group": 32, "scale": 2}, {"bits": 4, "group": 128, "scale": 3, "zero": 9}, {"bits": 4, "group": 1 << 20, "scale": 1, "zero": 6},
				{"bits": 8, "group": 128, "scale": 2}, {"bits": 8, "group": 64, "scale": 1, "zero": 2}, {"bits": 4, "group": 48, "scale": 2, "zero": 3},
				{"bits": 3, "group": 32, "scale": 2, "zero": 9}, {"bits": 4, "group": 32, "scale": 2, "zero": 1, "index": 3}, {"bits": 5, "group": 20, "scale": 3},
			} {
				all = append(all, &variety{scheme: s, params: p})
			}
		case s.Name == "fp8":
			for _, p := range []map[string]int64{{"rows": 1 << 30, "cols": 1 << 30, "scale": 1}, {"rows": 1, "cols": 1 << 30, "scale": 3}, {"rows": 128, "cols": 128, "scale": 2}, {"rows": 3, "cols": 40, "scale": 1}} {
				all = append(all, &variety{scheme: s, params: p})
			}
		case s.Name == "nf4":
			for _, p := range []map[string]int64{{"block": 64}, {"block": 64, "nested": 256}, {"block": 48}} {
				all = append(all, &variety{scheme: s, params: p})
			}
		default:
			t.Fatalf("no tensors of scheme %s are made", s.Name)
		}
	}
	return all
}

// fits reports whether rows of k weights exist.
func (v *variety) fits(k int) bool {
	switch v.scheme.DType {
	case tensor.F6E2M3, tensor.F6E3M2:
		return k%4 == 0
	case tensor.F4E2M1:
		return k%2 == 0
	}
	return v.scheme.Fits(int64(k))
}

// make makes n rows of k random weights of ordinary size.
func (v *variety) make(t testing.TB, r *rand.Rand, n, k int) *stored {
	t.Helper()
	shape := []int64{int64(n), int64(k)}
	specs, err := v.scheme.Parts(shape, v.params)
	if err != nil {
		t.Fatal(err)
	}
	var raw []byte
	for _, p := range specs {
		raw = append(raw, v.part(t, r, &p, k)...)
	}
	return store(t, v.scheme, shape, v.params, raw)
}

func (v *variety) part(t testing.TB, r *rand.Rand, p *scheme.PartSpec, k int) []byte {
	t.Helper()
	out := make([]byte, p.Bytes)
	for i := range out {
		out[i] = byte(r.Uint32())
	}
	switch {
	case v.blocks != nil && p.Name == "data":
		size := v.scheme.BlockBytes
		for i := 0; i < len(out); i += size {
			copy(out[i:i+size], v.blocks[r.IntN(len(v.blocks)/size)*size:])
		}
		return out
	case p.Name == "index":
		groups := (int64(k) + v.params["group"] - 1) / v.params["group"]
		for i := 0; i < len(out); i += 4 {
			copy(out[i:], bytesOf(int32(r.Int64N(groups))))
		}
		return out
	case p.DType == tensor.F8E8M0:
		for i := range out {
			out[i] = byte(120 + r.IntN(10))
		}
		return out
	case p.DType == tensor.F8E4M3:
		for i := range out {
			out[i] = byte(r.IntN(0x7f) | r.IntN(2)<<7)
		}
		return out
	}
	if p.DType != tensor.F32 && p.DType != tensor.F16 && p.DType != tensor.BF16 && p.DType != tensor.F64 {
		return out
	}
	elements, err := tensor.Elements(p.Shape)
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, elements)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	if err := tensor.FromFloat32(out, x, p.DType); err != nil {
		t.Fatal(err)
	}
	return out
}

// sameBits fails where numbers differ in more than which NaN they are.
func sameBits(t testing.TB, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) && (got[i] == got[i] || want[i] == want[i]) {
			t.Fatalf("%s: number %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}
