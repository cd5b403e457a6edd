package exec

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/kerneltest"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/device/devicetest"
)

// widths are what most models are tested on.
func widths(t testing.TB, g *graph.Graph) devicetest.Widths {
	w := devicetest.Widths{Vocab: g.Vocab, Few: []int{1, 2, 3, 4, 5, 7, 8, 9, 13, 16}, Prompts: []int{70, 1, 17, 5}, Prompt: 60, Recurrent: g.Recurrent()}
	if gpuTested(t) { // an emulated one needs its time
		w.Few, w.Prompts = []int{2, 5, 20}, []int{20, 3}
	}
	return w
}

// testWidth opens a graph's weights and holds the backend to [device.FewRows].
func testWidth(t *testing.T, g *graph.Graph, source func(string) formats.Tensor, o Options, w devicetest.Widths) {
	t.Helper()
	if w.Recurrent { // there are those that are kept
		o.Sequences = 24
	}
	e, err := newExecutor("tiny", g, source, onFlag(t, o))
	opened(t, err)
	defer e.Close()
	devicetest.TestWidth(t, e.last(), w)
}

// A row's bits do not depend on its company, in every graph and with every kind of
// plain weights, cache and activations.
func TestWidth(t *testing.T) {
	kinds := []struct {
		scheme string
		o      Options
	}{
		{"f32", Options{Exact: true}}, {"bf16", Options{KV: "f16"}}, {"f16", Options{KV: "q8"}},
		{"f64", Options{Exact: true, KV: "f16"}}, {"bf16", Options{Activations: llamaCPP}},
	}
	for _, kv := range []string{"q5", "q4", "q3"} {
		kinds = append(kinds, struct {
			scheme string
			o      Options
		}{"bf16", Options{KV: kv}})
	}
	for i, c := range byTurns(tinies()) {
		for j, k := range kinds {
			if j != i%len(kinds) && (testing.Short() || gpuTested(t)) {
				continue
			}
			if k.o.Activations != "" && gpuTested(t) {
				k.o.Activations = ""
			}
			t.Run(fmt.Sprintf("%s/%s exact=%v kv=%s %s", c.name, k.scheme, k.o.Exact, k.o.KV, k.o.Activations), func(t *testing.T) {
				source, _ := fillWeights(t, c.graph, k.scheme, 7)
				k.o.Threads = 2
				testWidth(t, c.graph, source, k.o, widths(t, c.graph))
			})
		}
	}
}

const llamaCPP = "llama.cpp"

// The same beyond the length at which attention is divided.
func TestWidthOfLongContexts(t *testing.T) {
	s := shape{d: 32, heads: 8, kv: 2, dim: 16, inner: 16, norm: graph.RMSNorm}
	for i, kv := range byTurns([]string{"f16", "q8", "f32", "q4"}) {
		g := s.graph(func(g *graph.Graph) { g.Context, g.Blocks[1].Attn.Window = 1400, 300 })
		w := widths(t, g)
		w.Prompts, w.Few = []int{510, 1270, 3, 1020}, []int{1, 2, 5, 16}
		if gpuTested(t) {
			if i > 0 {
				break
			}
			w.Prompts = []int{510, 700}
		} else if testing.Short() {
			w.Prompts, w.Few = []int{510, 1270}, []int{2, 5}
		}
		t.Run(kv, func(t *testing.T) {
			source, _ := fillWeights(t, g, "f32", 7)
			testWidth(t, g, source, Options{KV: kv, Threads: 2}, w)
		})
	}
}

// The same of trellis codes.
func TestWidthOfRotatedWeights(t *testing.T) {
	for i, c := range byTurns(rotatedGraphs()) {
		for _, exact := range []bool{false, true} {
			if exact && gpuTested(t) {
				continue
			}
			source, _ := fillCodes(t, c.graph, 3+2*(i%2))
			t.Run(fmt.Sprintf("%s/exact=%v", c.name, exact), func(t *testing.T) {
				testWidth(t, c.graph, source, Options{Exact: exact, Threads: 2}, widths(t, c.graph))
			})
		}
	}
}

// The same of every scheme whose weights are coded, at every level: dense layers and
// experts.
func TestWidthOfCodedWeights(t *testing.T) {
	s := shape{d: 256, heads: 4, kv: 2, dim: 64, inner: 256, norm: graph.RMSNorm}
	levels := cpu.Levels()
	if gpuTested(t) {
		levels = levels[:1]
	}
	var codings []kerneltest.Coding
	for _, name := range cpu.Integers() {
		codings = append(codings, kerneltest.Coding{Name: name, Scheme: name})
	}
	codings = append(codings, kerneltest.Codings()...)
	for _, some := range byTurns(slices.Collect(slices.Chunk(codings, 9))) {
		g := s.graph(func(g *graph.Graph) { s.moe(g, 1, 4, 2, true) })
		source := codedWeights(t, g, some)
		for i, level := range levels {
			if testing.Short() && i > 0 && i < len(levels)-1 {
				continue
			}
			t.Run(fmt.Sprintf("%s and following/%v", some[0].Name, level), func(t *testing.T) {
				w := widths(t, g)
				w.Prompts, w.Prompt = []int{20, 3}, 40
				if level == cpu.LevelGeneric {
					w.Few = []int{2, 16}
				}
				o := Options{Threads: 2, Level: level.String()}
				if gpuTested(t) {
					o.Level, w.Few = "", []int{2, 16}
				}
				testWidth(t, g, source, o, w)
			})
		}
	}
}

// codedWeights makes random weights, matrices in codings by turns.
func codedWeights(t testing.TB, g *graph.Graph, codings []kerneltest.Coding) func(string) formats.Tensor {
	t.Helper()
	plain, _ := fillWeights(t, g, "f32", 7)
	r := rand.New(rand.NewPCG(9, 9))
	tensors, count := map[string]formats.Tensor{}, 0
	for _, w := range g.Weights() {
		tensors[w.Name] = plain(w.Name)
		if len(w.Shape) == 1 || w.Role == graph.RoleNorm || w.Role == graph.RoleEmbed {
			continue
		}
		c := codings[count%len(codings)]
		count++
		x := plain(w.Name)
		n, k := x.Rows()
		s, _ := scheme.ByName(c.Scheme)
		if c.Params == nil {
			rows := kerneltest.RandomRows(r, s, int(n), int(k))
			coded, err := scheme.New(w.Name, s, w.Shape, nil, tensor.BytesBlob(rows))
			if err != nil {
				t.Fatal(err)
			}
			tensors[w.Name] = coded
			continue
		}
		if len(w.Shape) > 2 { // which not all of them can be cut into
			continue
		}
		x, err := kerneltest.RandomTensor(r, c, int(n), int(k))
		if err != nil {
			t.Fatal(err)
		}
		x.Name, x.Shape = w.Name, w.Shape
		tensors[w.Name] = x
	}
	return func(name string) formats.Tensor { return tensors[name] }
}

// The same of checkpoints of every architecture.
func TestWidthOfMicroCheckpoints(t *testing.T) {
	for i, dir := range byTurns(microCheckpoints(t)) {
		for _, exact := range []bool{true, false} {
			if exact == (i%2 == 0) && (testing.Short() || gpuTested(t)) {
				continue
			}
			t.Run(fmt.Sprintf("%s/exact=%v", filepath.Base(dir), exact), func(t *testing.T) {
				e := open(t, dir, Options{Exact: exact, Threads: 2, Context: 64})
				w := widths(t, e.Graph())
				w.Prompts, w.Prompt = []int{20, 1, 7}, 40
				devicetest.TestWidth(t, e.last(), w)
			})
		}
	}
}

// Sequences that step together get the logits that each gets alone, to the bit,
// however many they are.
func TestStepBatchIsStep(t *testing.T) {
	e, _ := newTiny(t, tinies()[0].graph, "bf16", Options{Threads: 2})
	ids := tinyIDs(100)
	n := 2*device.FewRows + 5
	var seqs []*Sequence
	var want [][]float32
	for i := range n {
		for range 2 {
			s := sequence(t, e)
			if err := s.Prefill(context.Background(), ids[:1+2*i], nil); err != nil {
				t.Fatal(err)
			}
			seqs = append(seqs, s)
		}
		want = append(want, stepLogits(t, seqs[len(seqs)-1], ids[:1])...)
		seqs = seqs[:len(seqs)-1]
	}
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = ids[0]
	}
	rows, err := e.stepBatch(seqs, tokens)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		if !slices.Equal(rows[i], want[i]) {
			t.Errorf("sequence %d of %d has other logits than alone", i, n)
		}
	}
}
