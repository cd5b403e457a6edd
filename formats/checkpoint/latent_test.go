package checkpoint

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// coded returns a matrix of random bytes in a scheme, which every scheme here takes for
// numbers.
func coded(t *testing.T, r *rand.Rand, name string, params map[string]int64, shape ...int64) formats.Tensor {
	t.Helper()
	s, _ := scheme.ByName(name)
	specs, err := s.Parts(shape, params)
	if err != nil {
		t.Fatal(err)
	}
	var blobs []tensor.Blob
	for _, p := range specs {
		n, err := tensor.Elements(p.Shape)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, n*int64(p.DType.Bits())/8)
		for i := range b {
			b[i] = byte(r.Uint32()) & 0x3f // no infinities, nor what is not a number
		}
		blobs = append(blobs, tensor.BytesBlob(b))
	}
	x, err := scheme.New("kv_b.weight", s, shape, params, blobs...)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func numbers(t *testing.T, x formats.Tensor) []float32 {
	t.Helper()
	out, err := form.Decode(&x)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The stacks of latent attention have the numbers of kv_b_proj, whatever it is stored in.
func TestLatentParts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	id := func(name string) int64 {
		s, _ := scheme.ByName(name)
		return int64(s.ID)
	}
	for _, c := range []struct {
		scheme      string
		params      map[string]int64
		nope, value int64
		kb, vb      string // schemes of the stacks
	}{
		{"f32", nil, 5, 7, "f32", "f32"},
		{"bf16", nil, 6, 3, "bf16", "bf16"},
		{"q8_0", nil, 5, 7, "f32", "q8_0"},
		{"fp8", map[string]int64{"rows": 4, "cols": 16, "scale": id("f32")}, 8, 4, "fp8", "fp8"},
		{"fp8", map[string]int64{"rows": 4, "cols": 16, "scale": id("f32")}, 6, 5, "", ""}, // heads begin within a block
		{"fp8", map[string]int64{"rows": 1, "cols": 64, "scale": id("bf16")}, 6, 5, "", "fp8"},
	} {
		t.Run(fmt.Sprint(c.scheme, c.params, c.nope), func(t *testing.T) {
			a := &graph.Latent{Heads: 3, NopeDim: c.nope, ValueDim: c.value, Rank: 64}
			each := c.nope + c.value
			whole := coded(t, r, c.scheme, c.params, 3*each, 64)
			all := numbers(t, whole)
			kb, err := latentPart(whole, 0, a, graph.Weight{Name: "k_b", Shape: []int64{3, 64, c.nope}})
			if err != nil {
				t.Fatal(err)
			}
			vb, err := latentPart(whole, 1, a, graph.Weight{Name: "v_b", Shape: []int64{3, c.value, 64}})
			if err != nil {
				t.Fatal(err)
			}
			if c.kb != "" && kb.Scheme != c.kb || c.vb != "" && vb.Scheme != c.vb {
				t.Errorf("stacks in %s and %s, want %s and %s", kb.Scheme, vb.Scheme, c.kb, c.vb)
			}
			k, v := numbers(t, kb), numbers(t, vb)
			for h := range int64(3) {
				for i := range int64(64) {
					for j := range c.nope {
						if got, want := k[(h*64+i)*c.nope+j], all[(h*each+j)*64+i]; got != want {
							t.Fatalf("k_b[%d][%d][%d] is %v, want %v", h, i, j, got, want)
						}
					}
					for j := range c.value {
						if got, want := v[(h*c.value+j)*64+i], all[(h*each+c.nope+j)*64+i]; got != want {
							t.Fatalf("v_b[%d][%d][%d] is %v, want %v", h, j, i, got, want)
						}
					}
				}
			}
			if kb.Scheme != vb.Scheme || kb.Scheme == "fp8" {
				return
			}
			back, err := JoinLatent("kv_b.weight", kb, vb, a)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(numbers(t, back), all) {
				t.Error("joined again, the matrix has other numbers")
			}
		})
	}
	a := &graph.Latent{Heads: 3, NopeDim: 5, ValueDim: 7, Rank: 64}
	if _, err := latentPart(coded(t, r, "f32", nil, 35, 64), 0, a, graph.Weight{Name: "k_b", Shape: []int64{3, 64, 5}}); err == nil {
		t.Error("a matrix of 35 rows is taken for one of 36")
	}
}
