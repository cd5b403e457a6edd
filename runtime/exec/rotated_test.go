package exec

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/x448/float16"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// rotatedGraphs are graphs whose matrices are whole tiles.
func rotatedGraphs() []tiny {
	s := shape{d: 32, heads: 2, kv: 1, dim: 16, inner: 48, norm: graph.RMSNorm}
	biased := s
	biased.bias = true
	wide := func(g *graph.Graph) { g.Vocab, g.Head.Out = 48, 48 }
	return []tiny{
		{"tied", s.graph(func(g *graph.Graph) {
			wide(g)
			g.Head.Weight = "table"
			g.Blocks[1].FFN.Gate = nil
		})},
		{"mixture, biases, norms behind", biased.graph(func(g *graph.Graph) {
			wide(g)
			biased.moe(g, 1, 3, 2, true)
			g.Blocks[0].AttnPostNorm, g.Blocks[0].FFNPostNorm = biased.newNorm("ap"), biased.newNorm("fp")
		})},
		{"mixtures with shared layers", s.graph(func(g *graph.Graph) {
			wide(g)
			s.moe(g, 0, 4, 2, true)
			m := s.shared(g, 0, 64, true)
			m.Score, m.SelectBias, m.Groups, m.TopGroups = graph.ScoreSigmoid, "bias", 2, 1
			s.moe(g, 1, 3, 1, false)
			s.shared(g, 1, 32, false).Gate = nil
		})},
		{"delta net that fades by the channel", s.graph(func(g *graph.Graph) {
			wide(g)
			s.reduced(s.delta(g, 0, graph.Delta{Heads: 2, KeyHeads: 2, KeyDim: 16, ValueDim: 16, Kernel: 4, ByChannel: true, SigmoidGate: true}), 16, 16)
		})},
	}
}

// fillCodes makes random weights for a graph, matrices as trellis codes of the
// given bits with rotations as large as fit, and what they are.
func fillCodes(t testing.TB, g *graph.Graph, bits int) (func(string) formats.Tensor, map[string][]float64) {
	t.Helper()
	plain, values := fillWeights(t, g, "f32", 7)
	rng := rand.New(rand.NewPCG(8, uint64(bits)))
	tensors := map[string]formats.Tensor{}
	codes, _ := scheme.ByName("tcq")
	for _, w := range g.Weights() {
		tensors[w.Name] = plain(w.Name)
		if len(w.Shape) == 1 || w.Role == graph.RoleNorm || w.Role.Steers() || w.Name == "1.v" {
			continue
		}
		p := scheme.TCQ{Bits: bits, Codebook: scheme.TCQCodebookFor(bits), RotateIn: 16, RotateOut: 16, Seed: 3, OutScales: w.Name == "1.o", InScales: w.Name == "0.k"}
		if w.Role == graph.RoleUp || w.Role == graph.RoleXGate {
			p.RotateIn = 32
		}
		specs, err := codes.Parts(w.Shape, p.Params())
		if err != nil {
			t.Fatal(err)
		}
		var parts []tensor.Blob
		for _, spec := range specs {
			b := make([]byte, spec.Bytes)
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			if spec.DType == tensor.F16 {
				for i := 0; i < len(b); i += 2 {
					h := float16.Fromfloat32(0.5 + rng.Float32()/2)
					if spec.Name == "scales" {
						h = float16.Fromfloat32(0.2 + rng.Float32()/10)
					}
					b[i], b[i+1] = byte(h), byte(h>>8)
				}
			}
			parts = append(parts, tensor.BytesBlob(b))
		}
		x, err := scheme.New(w.Name, codes, w.Shape, p.Params(), parts...)
		if err != nil {
			t.Fatal(err)
		}
		tensors[w.Name] = x
		m, err := scheme.Open(&x)
		if err != nil {
			t.Fatal(err)
		}
		row := make([]float32, m.N*m.K)
		m.DecodeRows(row, 0, m.N)
		for i, v := range row {
			values[w.Name][i] = float64(v)
		}
	}
	return func(name string) formats.Tensor { return tensors[name] }, values
}

// TestRotatedWeights runs graphs of trellis codes against float64, in one pass, by
// steps and in parts of a few rows, exactly and with rounded activations.
func TestRotatedWeights(t *testing.T) {
	for i, c := range byTurns(rotatedGraphs()) {
		for j, exact := range []bool{true, false} {
			if testing.Short() && gpuTested(t) && (i+j)%2 != 0 {
				continue
			}
			t.Run(fmt.Sprintf("%s/exact=%v", c.name, exact), func(t *testing.T) {
				source, values := fillCodes(t, c.graph, 3+2*(i%2))
				e, err := newExecutor("tiny", c.graph, source, onFlag(t, Options{Exact: exact, KV: "f32", Threads: 2}))
				opened(t, err)
				defer e.Close()
				ids, tolerance := tinyIDs(30), 2*tinyTolerance
				if !exact {
					tolerance = 0.06
				}
				want := toFloat32((&reference{g: c.graph, weights: values}).logits(ids))
				s := sequence(t, e)
				checkLogits(t, "one pass", allLogits(t, s, ids), want, tolerance)
				s.Reset()
				parts := slices.Concat(allLogits(t, s, ids[:3]), stepLogits(t, s, ids[3:6]), allLogits(t, s, ids[6:]))
				checkLogits(t, "parts", parts, want, tolerance)
			})
		}
	}
}
