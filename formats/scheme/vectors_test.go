package scheme_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/testdata/packed"
)

const vectors = "../../testdata/vectors"

// readF32 returns NAME.f32.gz unpacked, weights as decoded by somebody else's code.
func readF32(t testing.TB, name string) []float32 {
	t.Helper()
	raw := packed.Read(t, filepath.Join(vectors, name+".f32"))
	want := make([]float32, len(raw)/4)
	for i := range want {
		want[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return want
}

// sameBits fails at the first weight whose bits differ.
func sameBits(t *testing.T, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d weights, want %d", len(got), len(want))
	}
	for i := range got {
		if g, w := math.Float32bits(got[i]), math.Float32bits(want[i]); g != w {
			t.Fatalf("weight %d is %v (%#08x), want %v (%#08x)", i, got[i], g, want[i], w)
		}
	}
}

// decodeAll decodes a whole tensor.
func decodeAll(t *testing.T, x *formats.Tensor) []float32 {
	t.Helper()
	m, err := scheme.Open(x)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float32, m.N*m.K)
	m.DecodeRows(out, 0, m.N)
	return out
}

// TestGGMLVectors holds every block scheme to ggml's own decode, bit for bit.
func TestGGMLVectors(t *testing.T) {
	for _, s := range scheme.Table() {
		if s.BlockBytes == 0 {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			name := strings.ToUpper(s.Name)
			names := []string{name}
			if more, _ := filepath.Glob(filepath.Join(vectors, name+"_edges.blocks")); len(more) > 0 {
				names = append(names, name+"_edges")
			}
			for _, name := range names {
				packed, err := os.ReadFile(filepath.Join(vectors, name+".blocks"))
				if err != nil {
					t.Fatal(err)
				}
				want := readF32(t, name)
				k := int64(768)
				if len(want)%768 != 0 {
					k = int64(s.Block)
				}
				x, err := scheme.New("w", s, []int64{int64(len(want)) / k, k}, nil, tensor.BytesBlob(packed))
				if err != nil {
					t.Fatal(err)
				}
				sameBits(t, decodeAll(t, &x), want)
			}
		})
	}
}
