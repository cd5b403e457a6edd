package gpu_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/device/devicetest"
	"github.com/nstf/nstf/runtime/gpu"
)

var timesFlag = flag.String("times", "", "what to time, as SCHEME or SCHEME+RANK:SCHEME, with commas: q4_k,q4_k+64:q8_0; default: nothing")

const promptRows = 512

// A shape is that of a llama's layers.
type shape struct{ width, kv, inner, layers int64 }

// timed makes a model of random bytes: each matrix in a scheme, corrected or not.
type timed struct {
	t       *testing.T
	shape   shape
	codes   string
	rank    int64
	factors string
	random  []byte
	tensors map[string]formats.Tensor
}

// matrix makes one whose bytes matter to nobody.
func (m *timed) matrix(name, of string, n, k int64) formats.Tensor {
	m.t.Helper()
	var params map[string]int64
	if bits, ok := strings.CutPrefix(of, "tcq"); ok {
		of = "tcq"
		turn := func(n int64) int { return int(min(n&-n, scheme.TCQMaxRotate)) }
		params = scheme.TCQ{Bits: int(bits[0] - '0'), Codebook: scheme.TCQCodebookFor(int(bits[0] - '0')), RotateIn: turn(k), RotateOut: turn(n), Seed: 1}.Params()
	}
	s, ok := scheme.ByName(of)
	if !ok {
		m.t.Fatalf("no scheme %q", of)
	}
	specs, err := s.Parts([]int64{n, k}, params)
	if err != nil {
		m.t.Fatal(err)
	}
	var parts []tensor.Blob
	for _, p := range specs {
		for int64(len(m.random)) < p.Bytes {
			m.random = append(m.random, m.random...)
		}
		parts = append(parts, tensor.BytesBlob(m.random[:p.Bytes]))
	}
	x, err := scheme.New(name, s, []int64{n, k}, params, parts...)
	if err != nil {
		m.t.Fatal(err)
	}
	return x
}

func (m *timed) linear(name string, n, k int64) graph.Linear {
	m.t.Helper()
	x := m.matrix(name, m.codes, n, k)
	if m.rank > 0 {
		x.Name = "q"
		var err error
		x, err = form.New(name, form.Corrected, []int64{n, k}, nil, x, m.matrix("a", m.factors, n, m.rank), m.matrix("b", m.factors, m.rank, k))
		if err != nil {
			m.t.Fatal(err)
		}
	}
	m.tensors[name] = x
	return graph.Linear{Weight: name, In: k, Out: n, Input: name}
}

func (m *timed) norm(name string) *graph.Norm {
	m.tensors[name] = m.matrix(name, "f32", 1, m.shape.width)
	return &graph.Norm{Kind: graph.RMSNorm, Weight: name, Eps: 1e-5}
}

func (m *timed) graph() *graph.Graph {
	s := m.shape
	m.tensors = map[string]formats.Tensor{"table": m.matrix("table", "q4_k", 32000, s.width)}
	g := &graph.Graph{Context: 2048, Vocab: 32000, Width: s.width, Embed: graph.Embedding{Table: "table", Scale: 1}, Norm: m.norm("norm"),
		Ropes: []graph.Rope{{Style: graph.RopeHalf, Dim: 128, Theta: 10000, Scaling: graph.RopeScaling{Kind: graph.ScaleNone}}}}
	g.Head.Linear = graph.Linear{Weight: "table", In: s.width, Out: 32000, Input: "head"}
	for i := range s.layers {
		name := func(n string) string { return fmt.Sprintf("%d.%s", i, n) }
		gate, k, v := m.linear(name("gate"), s.inner, s.width), m.linear(name("k"), s.kv, s.width), m.linear(name("v"), s.kv, s.width)
		g.Blocks = append(g.Blocks, graph.Block{AttnNorm: m.norm(name("attn_norm")), FFNNorm: m.norm(name("ffn_norm")),
			Attn: &graph.Attention{Heads: s.width / 128, KVHeads: s.kv / 128, HeadDim: 128, Scale: 0.1, Q: m.linear(name("q"), s.width, s.width),
				K: &k, V: &v, O: m.linear(name("o"), s.width, s.width)},
			FFN: &graph.FFN{Act: graph.SiLU, Gate: &gate, Up: m.linear(name("up"), s.inner, s.width), Down: m.linear(name("down"), s.width, s.inner)}})
	}
	return g
}

// TestFormsTimes times a step of decoding and a prompt through layers of two sizes, whose
// matrices are corrected or not.
func TestFormsTimes(t *testing.T) {
	if *timesFlag == "" {
		t.Skip("no -times")
	}
	random := make([]byte, 1<<20)
	for i, r := 0, rand.New(rand.NewPCG(1, 1)); i < len(random); i++ {
		random[i] = byte(r.Uint32())
	}
	folder := *kernelsFlag
	if folder == "" {
		folder = t.TempDir()
	}
	for _, s := range []shape{{4096, 1024, 14336, 8}, {2048, 256, 5632, 22}} {
		for _, what := range strings.Split(*timesFlag, ",") {
			m := &timed{t: t, shape: s, random: random}
			m.codes, m.factors, _ = strings.Cut(what, "+")
			if m.factors != "" {
				if _, err := fmt.Sscanf(strings.Replace(m.factors, ":", " ", 1), "%d %s", &m.rank, &m.factors); err != nil {
					t.Fatalf("%q: %v", what, err)
				}
			}
			g := m.graph()
			e, err := gpu.New(g, device.Whole(g), func(name string) formats.Tensor { return m.tensors[name] },
				gpu.Options{API: hip.API(*deviceFlag), Context: 2048, Rows: promptRows, Kernels: folder})
			if err != nil {
				t.Fatal(err)
			}
			c := devicetest.State(t, e, 1024)
			for _, rows := range []int{promptRows, 1} { // whose positions are timed
				devicetest.Run(t, e, c, make([]int32, rows), promptRows+1, 1, g.Vocab)
			}
			times, err := e.Profile(1)
			if err != nil {
				t.Fatal(err)
			}
			prompt, err := e.Profile(promptRows)
			if err != nil {
				t.Fatal(err)
			}
			plan := e.Plan()
			t.Logf("%d x %d, %d layers, %s: %.1f us a step, %.1f us for a prompt, %.1f MB", s.width, s.inner, s.layers, what,
				times[0].Microseconds, prompt[0].Microseconds, float64(plan.Weights)/1e6)
			for _, k := range times {
				t.Logf("    %8.1f us %4d calls  %s", k.Microseconds, k.Calls, k.Name)
			}
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
