package exec

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/kerneltest"
	"github.com/nstf/nstf/runtime/device/devicetest"
	"github.com/nstf/nstf/runtime/place"
	"github.com/nstf/nstf/runtime/sample"
)

// teamed opens a model whose tensors devices share.
func teamed(t *testing.T, g *graph.Graph, source func(string) formats.Tensor, o Options, on ...place.Request) *Executor {
	t.Helper()
	o.Device.Request, o.Device.Behind, o.Device.Split = on[0], on[1:], place.Tensors
	e, err := newExecutor("tiny", g, source, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	if l := e.Layout(); l.Split != place.Tensors || len(l.Ranges) != len(on) || !(l.Seconds > 0) {
		t.Fatalf("laid out as %+v", l)
	}
	return e
}

// teamTinies are graphs of which ranks have shares: blocks of both orders, output gates,
// biases, sinks, a tied head, layers without a gate, recurrent mixers, latents, mixtures, inputs
// of each layer, uneven shares, fewer key-value heads or groups of a
// state space than ranks, norms of all heads at once.
func teamTinies() (all []tiny) {
	for _, c := range tinies() {
		plain := true
		for _, b := range c.graph.Blocks {
			plain = plain && (b.Attn == nil || !b.Attn.JointNorms || c.graph.Norm.Kind == graph.RMSNorm) && (b.Delta == nil || b.Delta.KeyHeads > 1)
		}
		if plain && c.graph.Width%4 == 0 {
			all = append(all, c)
		}
	}
	return all
}

// Two devices that share every tensor compute what one does, to the rounding of sums: prompts
// and steps, tokens chosen on them, sequences that fork, go back and keep company. They give
// the same bits again, and alone the bits that they give in company.
func TestTeamIsOne(t *testing.T) {
	a, b := twoGPUs(t)
	for _, c := range byTurns(teamTinies()) {
		t.Run(c.name, func(t *testing.T) {
			source, _ := fillWeights(t, c.graph, "f32", 7)
			o := onFlag(t, Options{Threads: 1, Exact: true, Context: 200})
			whole, err := newExecutor("tiny", c.graph, source, o)
			opened(t, err)
			defer whole.Close()
			e := teamed(t, c.graph, source, o, a, b)
			ids := tinyIDs(90) // two passes
			want, got := allLogits(t, sequence(t, whole), ids), allLogits(t, sequence(t, e), ids)
			checkLogits(t, "a prompt", got, want, logitTolerance)
			checkLogits(t, "steps", stepLogits(t, sequence(t, e), ids[:9]), stepLogits(t, sequence(t, whole), ids[:9]), logitTolerance)
			for i, again := range allLogits(t, sequence(t, e), ids) {
				if !slices.Equal(again, got[i]) {
					t.Fatalf("logits %d of a prompt differ the second time", i)
				}
			}
			for _, how := range []sample.Options{{}, {Temperature: 1, Seed: 2, RepetitionPenalty: 1.3}} {
				if got, want := decoded(t, sequence(t, e), newSampler(t, how), ids[:30], 9), decoded(t, sequence(t, whole), newSampler(t, how), ids[:30], 9); !slices.Equal(got, want) {
					t.Errorf("%+v: tokens %v, want %v", how, got, want)
				}
			}
			keepsCompany(t, e, ids[:21])
			if !c.graph.Recurrent() { // those are kept, for which there is no room here
				devicetest.TestWidth(t, e.last(), devicetest.Widths{Vocab: c.graph.Vocab, Few: []int{2, 3}, Prompts: []int{5}, Prompt: 20})
			}
		})
	}
}

// Mixtures and mixers in blocks of codes and in trellis codes, of which some ranks have more than others,
// or nothing, on as many devices as there are: experts with biases, groups of them, a shared layer
// with a gate of its own.
func TestTeamMixtures(t *testing.T) {
	a, _ := twoGPUs(t)
	some := shape{d: 64, heads: 4, kv: 4, dim: 32, inner: 160, norm: graph.RMSNorm, bias: true}
	turned := shape{d: 32, heads: 4, kv: 4, dim: 16, inner: 160, norm: graph.RMSNorm, bias: true}
	mixture := func(s shape) *graph.Graph {
		return s.graph(func(g *graph.Graph) {
			g.Vocab, g.Head.Out = 80, 80
			s.moe(g, 0, 6, 2, true)
			few := s // of blocks, than there may be ranks
			few.inner = s.inner * 2 / 5
			few.moe(g, 1, 6, 2, true)
			few.more(g, 1, func(int, *graph.Block) {})
			m := s.shared(g, 0, few.inner, true)
			m.Score, m.SelectBias, m.Groups, m.TopGroups, m.Scale = graph.ScoreSigmoid, "bias", 3, 2, 2.5
		})
	}
	// Of one block of columns all ranks but one have nothing.
	one := shape{d: 64, heads: 4, kv: 4, dim: 32, inner: 32, norm: graph.RMSNorm, bias: true}
	beside := one.graph(func(g *graph.Graph) {
		one.beside(g, 0, 4, 2)
		one.latentExperts(g, 1, 4, 2, 32)
		one.shared(g, 1, 32, false)
		g.Blocks[1].MoE.LatentUp.Bias = "1.x.latent up.bias"
	})
	plain := shape{d: 64, heads: 4, kv: 4, dim: 32, inner: 160, norm: graph.RMSNorm}
	mixers := plain.graph(func(g *graph.Graph) {
		plain.more(g, 2, func(int, *graph.Block) {})
		plain.delta(g, 0, graph.Delta{Heads: 8, KeyHeads: 4, KeyDim: 32, ValueDim: 32, Kernel: 32, Tiled: true, DecayLog: true}) // a block of codes in the convolution too
		plain.mamba(g, 1, graph.Mamba{Heads: 4, HeadDim: 32, Groups: 1, State: 32, Kernel: 32, DecayLog: true})
		plain.shortConv(g, 2, 160, 32)
		plain.latent(g, 3, 0, graph.Latent{Heads: 4, NopeDim: 32, RopeDim: 32, ValueDim: 32, Rank: 32, Rope: -1})
	})
	coded := func(codings ...string) func(g *graph.Graph) func(string) formats.Tensor {
		return func(g *graph.Graph) func(string) formats.Tensor {
			var all []kerneltest.Coding
			for _, c := range codings {
				all = append(all, kerneltest.Coding{Scheme: c})
			}
			return codedWeights(t, g, all)
		}
	}
	trellis := func(g *graph.Graph) func(string) formats.Tensor {
		source, _ := fillCodes(t, g, 3)
		return source
	}
	for _, c := range byTurns([]struct {
		name  string
		graph *graph.Graph
		fill  func(g *graph.Graph) func(string) formats.Tensor
	}{
		{"mxfp4", mixture(some), coded("mxfp4", "q8_0")},
		{"tcq", mixture(turned), trellis},
		{"beside, latents", beside, coded("q8_0")},
		{"mixers", mixers, coded("q8_0")},
		{"forms", mixture(some), func(g *graph.Graph) func(string) formats.Tensor { return fillForms(t, g) }},
		{"q4_k", mixture(shape{d: 256, heads: 4, kv: 4, dim: 256, inner: 1280, norm: graph.RMSNorm}), coded("q4_k", "q6_k")},
	}) {
		source, most := c.fill(c.graph), min(devices(t), 4)
		for ranks := 2; ranks <= most; ranks++ {
			if testing.Short() && ranks < most {
				continue
			}
			t.Run(fmt.Sprint(c.name, " on ", ranks), func(t *testing.T) {
				o := onFlag(t, Options{Threads: 1, Exact: true, Context: 200})
				whole, err := newExecutor("tiny", c.graph, source, o)
				opened(t, err)
				defer whole.Close()
				var on []place.Request
				for i := range ranks {
					on = append(on, place.Request{Kind: a.Kind, Ordinal: i})
				}
				e := teamed(t, c.graph, source, o, on...)
				ids := tinyIDs(40)
				want, got := allLogits(t, sequence(t, whole), ids), allLogits(t, sequence(t, e), ids)
				checkLogits(t, "a prompt", got, want, logitTolerance)
				checkLogits(t, "steps", stepLogits(t, sequence(t, e), ids[:5]), stepLogits(t, sequence(t, whole), ids[:5]), logitTolerance)
				for i, again := range allLogits(t, sequence(t, e), ids) {
					if !slices.Equal(again, got[i]) {
						t.Fatalf("logits %d of a prompt differ the second time", i)
					}
				}
			})
		}
	}
}

// Prompts that a team computes in two parts have the bits of those that it computes in passes too
// short for that, whichever rows are wanted, and again.
func TestTandem(t *testing.T) {
	a, b := twoGPUs(t)
	some := shape{d: 64, heads: 4, kv: 2, dim: 32, inner: 160, norm: graph.RMSNorm}
	g := some.graph(func(g *graph.Graph) {
		g.Context, g.Vocab, g.Head.Out = 1700, 80, 80
		some.more(g, 2, func(i int, b *graph.Block) {
			if i == 1 {
				b.Attn.Window = 100
			}
		})
	})
	for _, c := range []struct {
		name string
		fill func(t *testing.T) func(string) formats.Tensor
	}{
		{"codes", func(t *testing.T) func(string) formats.Tensor {
			return codedWeights(t, g, []kerneltest.Coding{{Scheme: "q8_0"}, {Scheme: "q4_0"}})
		}},
		{"tcq", func(t *testing.T) func(string) formats.Tensor {
			source, _ := fillCodes(t, g, 3)
			return source
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			source, o := c.fill(t), onFlag(t, Options{Threads: 1, Context: 1700})
			o.Device.Rows = 1600
			long := teamed(t, g, source, o, a, b)
			o.Device.Rows = 256
			short := teamed(t, g, source, o, a, b)
			ids := tinyIDs(1542)
			want := allLogits(t, sequence(t, short), ids)
			for range 2 {
				for i, got := range allLogits(t, sequence(t, long), ids) {
					if !slices.Equal(got, want[i]) {
						t.Fatalf("logits %d differ", i)
					}
				}
				last, err := sequence(t, long).PrefillLast(t.Context(), ids)
				if err != nil || !slices.Equal(last, want[len(ids)-1]) {
					t.Fatalf("the last logits differ: %v", err)
				}
			}
		})
	}
}

// fillForms makes random weights for a graph, those of layers and experts as codes beside two
// factors, or beside matrices that experts share.
func fillForms(t *testing.T, g *graph.Graph) func(string) formats.Tensor {
	t.Helper()
	const rank = 4
	plain, _ := fillWeights(t, g, "f32", 7)
	rng := rand.New(rand.NewPCG(9, 10))
	tensors := map[string]formats.Tensor{}
	for _, w := range g.Weights() {
		x := plain(w.Name)
		tensors[w.Name] = x
		last := len(w.Shape) - 1
		if last < 1 || w.Role == graph.RoleNorm || w.Role == graph.RoleRouter || w.Role == graph.RoleEmbed {
			continue
		}
		factor := func(name, how string, a, b int64) formats.Tensor {
			shape := append(slices.Clone(w.Shape[:last-1]), a, b)
			switch name {
			case "c":
				shape = []int64{a, b}
			case "u":
				shape = []int64{rank, a, b}
			}
			values := make([]float32, 0)
			n, err := tensor.Elements(shape)
			if err != nil {
				t.Fatal(err)
			}
			for range n {
				values = append(values, float32(rng.NormFloat64()/8))
			}
			f, _ := store(t, graph.Weight{Name: name, Shape: shape}, "f32", values)
			if how != "f32" {
				s, _ := scheme.ByName(how)
				if f, err = scheme.New(name, s, shape, nil, tensor.BytesBlob(kerneltest.RandomRows(rng, s, int(n/b), int(b)))); err != nil {
					t.Fatal(err)
				}
			}
			return f
		}
		n, k := w.Shape[last-1], w.Shape[last]
		id, factors := form.Corrected, []formats.Tensor{factor("q", "q8_0", n, k), factor("a", "f32", n, rank), factor("b", "f32", rank, k)}
		if w.Role == graph.RoleXUp {
			id, factors = form.Shared, []formats.Tensor{factor("c", "f32", w.Shape[0], rank), factor("u", "f32", n, k), factor("q", "q8_0", n, k)}
		}
		var err error
		if tensors[w.Name], err = form.New(w.Name, id, w.Shape, nil, factors...); err != nil {
			t.Fatal(err)
		}
	}
	return func(name string) formats.Tensor { return tensors[name] }
}

// Three devices, where there are as many, have uneven shares: of three heads over latents one
// each, of four query heads and two key-value heads one and one of the first, and two of the
// second.
func TestTeamOfMore(t *testing.T) {
	a, b := twoGPUs(t)
	on := []place.Request{a, b}
	if devices(t) > 2 {
		on = append(on, place.Request{Kind: a.Kind, Ordinal: 2})
	}
	all := slices.DeleteFunc(teamTinies(), func(c tiny) bool {
		return slices.ContainsFunc(c.graph.Blocks, func(b graph.Block) bool {
			return b.Delta != nil && b.Delta.KeyHeads < 3 || b.Mamba != nil && b.Mamba.Groups == 2 && b.Mamba.Heads == 2
		})
	})
	for _, c := range byTurns(all) {
		t.Run(c.name, func(t *testing.T) {
			source, _ := fillWeights(t, c.graph, "f32", 7)
			o := onFlag(t, Options{Threads: 1, Exact: true, Context: 200})
			whole, err := newExecutor("tiny", c.graph, source, o)
			opened(t, err)
			defer whole.Close()
			e, ids := teamed(t, c.graph, source, o, on...), tinyIDs(70)
			checkLogits(t, "a prompt", allLogits(t, sequence(t, e), ids), allLogits(t, sequence(t, whole), ids), logitTolerance)
			keepsCompany(t, e, ids[:21])
		})
	}
}

// What is not cut is refused by name where tensors are to be shared; where nobody asks for
// it the model is shared by layers.
func TestTeamRefuses(t *testing.T) {
	a, b := twoGPUs(t)
	all := tinies()
	uncut := all[slices.IndexFunc(all, func(c tiny) bool {
		return c.graph.Norm.Kind == graph.LayerNorm && slices.ContainsFunc(c.graph.Blocks, func(b graph.Block) bool { return b.Attn != nil && b.Attn.JointNorms })
	})].graph
	source, _ := fillWeights(t, uncut, "f32", 7)
	o := onFlag(t, Options{Threads: 1, Exact: true, Context: 200})
	o.Device.Request, o.Device.Behind, o.Device.Split = a, []place.Request{b}, place.Tensors
	_, err := newExecutor("tiny", uncut, source, o)
	var unsupported *formats.UnsupportedError
	apart := err != nil && strings.Contains(err.Error(), "no peer access") // as on many boards: AMDEMU_PEERS=0
	if !errors.As(err, &unsupported) || !apart && !strings.Contains(err.Error(), "a layer norm of all heads at once") || !strings.Contains(unsupported.Hint, "layers") {
		t.Errorf("%v", err)
	}
	o.Device.Split = ""
	e, err := newExecutor("tiny", uncut, source, o)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if l := e.Layout(); l.Split != "" {
		t.Errorf("laid out as %+v", l)
	}
}
