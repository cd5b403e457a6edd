package export_test

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/export"
	"github.com/nstf/nstf/formats/gguf"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// blocksOf makes a matrix of random nvfp4 blocks, without a factor.
func blocksOf(t *testing.T, name string, shape []int64) formats.Tensor {
	t.Helper()
	s := named(t, "nvfp4")
	size, err := s.Size(shape, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, uint64(size)))
	raw := make([]byte, size)
	for i := range raw {
		raw[i] = byte(r.Uint32())
	}
	x, err := scheme.New(name, s, shape, nil, tensor.BytesBlob(raw))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func numbers(t *testing.T, name string, values ...float32) formats.Tensor {
	t.Helper()
	var raw []byte
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	x, err := scheme.New(name, named(t, "f32"), []int64{int64(len(values))}, nil, tensor.BytesBlob(raw))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// replaced puts an nvfp4 matrix with factors in the place of one of an export.
func replaced(t *testing.T, x *export.Model, base string, factors ...float32) formats.Tensor {
	t.Helper()
	bare := blocksOf(t, base+".weight", take(t, x, base+".weight").Shape)
	x.Tensors = append(x.Tensors, bare, numbers(t, base+".scale", factors...), numbers(t, base+".input_scale", 3))
	return bare
}

// TestFactorsOfGGUF reads matrices with their factors, whose rows another order has, and
// writes them again, from GGUF and from a package.
func TestFactorsOfGGUF(t *testing.T) {
	x := exported(t, "llama-k256")
	q, down := replaced(t, x, "blk.0.attn_q", 0.375), replaced(t, x, "blk.0.ffn_down", -3)
	path := writeGGUF(t, x)
	m := open(t, path)
	for _, c := range []struct {
		name   string
		bare   formats.Tensor
		factor float32
		same   bool // order of rows
	}{{"blocks.0.attn.q.weight", q, 0.375, false}, {"blocks.0.ffn.down.weight", down, -3, true}} {
		got := m.Tensor(c.name)
		_, k := got.Rows()
		w, want := values(t, got), values(t, c.bare)
		if !c.same { // the first row stays, see rotaryOrder
			w, want = w[:k], want[:k]
		}
		for i := range w {
			if w[i] != want[i]*c.factor {
				t.Fatalf("%s: weight %d is %g, want %g times %g", c.name, i, w[i], want[i], c.factor)
			}
		}
	}
	back, err := export.GGUF(m, nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(writeGGUF(t, back))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	found := map[string]formats.Tensor{}
	for _, e := range f.Tensors() {
		found[e.Name] = e
	}
	for _, want := range x.Tensors {
		got, ok := found[want.Name]
		if !ok || got.Scheme != want.Scheme || len(got.Parts) != 1 {
			t.Errorf("%s became %v", want.Name, &got)
			continue
		}
		a, _ := got.Parts[0].Data.Bytes()
		b, _ := want.Parts[0].Data.Bytes()
		if string(a) != string(b) {
			t.Errorf("%s has other bytes", want.Name)
		}
	}
}

// TestFactorsThatAreRefused has none that would be left out.
func TestFactorsThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		extra       formats.Tensor
		says        string
		unsupported bool
	}{
		{numbers(t, "blk.0.attn_q.scale", 2), "a factor of a matrix in bf16", true},
		{numbers(t, "blk.0.attn_z.scale", 2), "which is missing", false},
	} {
		x := exported(t, "llama-k256")
		x.Tensors = append(x.Tensors, c.extra)
		_, err := checkpoint.Open(writeGGUF(t, x))
		var u *formats.UnsupportedError
		if err == nil || !strings.Contains(err.Error(), c.says) || errors.As(err, &u) != c.unsupported {
			t.Errorf("%s: %v", c.extra.Name, err)
		}
	}
	x := exported(t, "llama-k256")
	replaced(t, x, "blk.0.attn_q", 1, 2)
	if _, err := checkpoint.Open(writeGGUF(t, x)); err == nil || !strings.Contains(err.Error(), "is no factor") {
		t.Errorf("two factors: %v", err)
	}
}
