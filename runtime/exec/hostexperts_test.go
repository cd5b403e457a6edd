package exec

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/kerneltest"
	"github.com/nstf/nstf/runtime/cpu"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu"
	"github.com/nstf/nstf/runtime/place"
	"github.com/nstf/nstf/runtime/sample"
)

// hosted opens a model on one GPU, with the routed experts of blocks in the processor's memory.
func hosted(t *testing.T, g *graph.Graph, source func(string) formats.Tensor, o Options, streams bool, blocks ...int) *Executor {
	t.Helper()
	o.Device.Ranges = []place.Range{{Device: o.Device.Request, Hi: len(g.Blocks), HostExperts: blocks, Streams: streams}}
	e, err := newExecutor("tiny", g, source, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	if l := e.Layout(); len(l.Ranges) != 1 || !slices.Equal(l.Ranges[0].HostExperts, blocks) || l.Ranges[0].HostMemory == 0 || !(l.Ranges[0].HostSeconds > 0) {
		t.Fatalf("laid out as %+v", l)
	}
	return e
}

// bothWays opens a model with all on the GPU, and as hosted does.
func bothWays(t *testing.T, g *graph.Graph, source func(string) formats.Tensor, o Options, streams bool, blocks ...int) (whole, e *Executor) {
	t.Helper()
	whole, err := newExecutor("tiny", g, source, o)
	opened(t, err)
	t.Cleanup(func() { whole.Close() })
	return whole, hosted(t, g, source, o, streams, blocks...)
}

// mixtures are graphs with routed experts: their blocks that have some.
func mixtures() (all []tiny, blocks [][]int) {
	for _, c := range tinies() {
		var with []int
		for i := range c.graph.Blocks {
			if c.graph.Blocks[i].MoE != nil {
				with = append(with, i)
			}
		}
		if with != nil {
			all, blocks = append(all, c), append(blocks, with)
		}
	}
	return all, blocks
}

// A GPU that leaves routed experts to the processor computes what it does with all of them, to
// the rounding of sums: prompts of several passes, steps, tokens that are chosen, sequences that
// fork, go back and keep company. A row has the bits alone that it has in company.
func TestHostExperts(t *testing.T) {
	if !request(t).GPU() {
		t.Skip("no -device")
	}
	all, blocks := mixtures()
	for i, c := range byTurns(all) {
		t.Run(c.name, func(t *testing.T) {
			source, _ := fillWeights(t, c.graph, "f32", 7)
			o := onFlag(t, Options{Threads: 1, Exact: true, Context: 200})
			whole, e := bothWays(t, c.graph, source, o, false, blocks[i]...)
			ids := tinyIDs(90) // two passes
			checkLogits(t, "a prompt", allLogits(t, sequence(t, e), ids), allLogits(t, sequence(t, whole), ids), logitTolerance)
			checkLogits(t, "steps", stepLogits(t, sequence(t, e), ids[:9]), stepLogits(t, sequence(t, whole), ids[:9]), logitTolerance)
			for _, how := range []sample.Options{{}, {Temperature: 1, Seed: 2, RepetitionPenalty: 1.3}} {
				if got, want := decoded(t, sequence(t, e), newSampler(t, how), ids[:30], 9), decoded(t, sequence(t, whole), newSampler(t, how), ids[:30], 9); !slices.Equal(got, want) {
					t.Errorf("%+v: tokens %v, want %v", how, got, want)
				}
			}
			keepsCompany(t, e, ids[:21])
		})
	}
}

// torn is bytes that cannot be read any more.
type torn struct {
	io.ReaderAt
	now atomic.Bool
}

func (f *torn) ReadAt(p []byte, off int64) (int, error) {
	if f.now.Load() {
		return 0, errors.New("torn")
	}
	return f.ReaderAt.ReadAt(p, off)
}

// Weights that cannot be read on their way end a prompt with an error that names them, and nothing
// hangs; the next prompt is computed as ever.
func TestStreamedExpertsTorn(t *testing.T) {
	if !request(t).GPU() {
		t.Skip("no -device")
	}
	s := shape{d: 64, heads: 4, kv: 2, dim: 16, inner: 96, norm: graph.RMSNorm}
	g := s.graph(func(g *graph.Graph) { s.moe(g, 0, 4, 2, true) })
	whole, _ := fillWeights(t, g, "f32", 7)
	file, name := &torn{}, g.Blocks[0].MoE.Down.Weight
	source := func(n string) formats.Tensor {
		x := whole(n)
		if n == name {
			x.Parts = slices.Clone(x.Parts)
			file.ReaderAt = x.Parts[0].Data
			x.Parts[0].Data = tensor.NewBlob(file, 0, x.Size())
		}
		return x
	}
	e := hosted(t, g, source, onFlag(t, Options{Threads: 1, Exact: true, Context: 200}), true, 0)
	ids := tinyIDs(40)
	want := allLogits(t, sequence(t, e), ids)
	file.now.Store(true)
	if err := sequence(t, e).Prefill(context.Background(), ids, nil); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("%v does not name %q", err, name)
	}
	file.now.Store(false)
	for i, row := range allLogits(t, sequence(t, e), ids) {
		if !slices.Equal(row, want[i]) {
			t.Fatalf("row %d is another one than before", i)
		}
	}
}

// What a layout counts on the processor for experts is what is taken there: weights, rows on their
// way and room to compute them, whatever pieces on the GPU take beside.
func TestHostMemory(t *testing.T) {
	if !request(t).GPU() {
		t.Skip("no -device")
	}
	s := shape{d: 64, heads: 4, kv: 2, dim: 16, inner: 96, norm: graph.RMSNorm}
	g := s.graph(func(g *graph.Graph) { s.moe(g, 1, 4, 2, true) })
	source, _ := fillWeights(t, g, "f32", 7)
	for _, streams := range []bool{false, true} {
		e := hosted(t, g, source, onFlag(t, Options{Threads: 1, Exact: true, Context: 200}), streams, 1)
		stage := e.stages[0].(*gpu.Engine)
		memory := e.sites.experts.Memory()
		if got, want := e.Layout().Ranges[0].HostMemory, cpu.ExpertBytes(g, device.Blocks{1: true}, source)+memory.Scratch+stage.Handed(); got != want || stage.Handed() == 0 || memory.Scratch == 0 {
			t.Errorf("streams %t: %d bytes on the processor, of which %d to compute in and %d on the way; %d are planned", streams, want, memory.Scratch, stage.Handed(), got)
		}
	}
}

// Weights of experts in the processor's memory that stream through a GPU for prompts give a
// prompt the bits that it has where they lie there, however it is cut, and steps those of the
// processor.
func TestStreamedExperts(t *testing.T) {
	if !request(t).GPU() {
		t.Skip("no -device")
	}
	all, blocks := mixtures()
	for i, c := range byTurns(all) {
		t.Run(c.name, func(t *testing.T) {
			source, _ := fillWeights(t, c.graph, "f32", 7)
			checkStreamed(t, c.graph, source, onFlag(t, Options{Threads: 1, Exact: true, Context: 200}), blocks[i])
		})
	}
}

// counted counts the bytes that are read.
type counted struct {
	io.ReaderAt
	bytes atomic.Int64
}

func (f *counted) ReadAt(p []byte, off int64) (int, error) {
	f.bytes.Add(int64(len(p)))
	return f.ReaderAt.ReadAt(p, off)
}

// Of experts that stream those come that rows chose, and no others; bits are those of all on the GPU.
func TestStreamedExpertsChosen(t *testing.T) {
	if !request(t).GPU() {
		t.Skip("no -device")
	}
	const experts, topK, rows = 40, 2, 18
	s := shape{d: 256, heads: 4, kv: 2, dim: 64, inner: 256, norm: graph.RMSNorm}
	g := s.graph(func(g *graph.Graph) { s.moe(g, 1, experts, topK, true) })
	whole := codedWeights(t, g, []kerneltest.Coding{{Scheme: "q8_0"}, {Scheme: "q4_k"}})
	file, name := &counted{}, g.Blocks[1].MoE.Down.Weight
	each := int64(0)
	source := func(n string) formats.Tensor {
		x := whole(n)
		if n == name {
			x.Parts, each = slices.Clone(x.Parts), x.Size()/experts
			file.ReaderAt = x.Parts[0].Data
			x.Parts[0].Data = tensor.NewBlob(file, 0, x.Size())
		}
		return x
	}
	o := onFlag(t, Options{Threads: 1, Context: 200})
	all, err := newExecutor("tiny", g, whole, o)
	opened(t, err)
	defer all.Close()
	e := hosted(t, g, source, o, true, 1)
	for _, ids := range [][]int32{tinyIDs(rows), slices.Repeat([]int32{3}, rows)} {
		before := file.bytes.Load()
		got, want := allLogits(t, sequence(t, e), ids), allLogits(t, sequence(t, all), ids)
		for i := range want {
			if !slices.Equal(got[i], want[i]) {
				t.Fatalf("row %d of a prompt is off by %.3g of its size", i, relativeError(got[i], want[i]))
			}
		}
		if n := file.bytes.Load() - before; n%each != 0 || n < topK*each || n > min(rows*topK, experts-1)*each {
			t.Errorf("%d bytes come for %d rows, %d of an expert", n, len(ids), each)
		}
	}
}

// The same with codes that are arranged on their way, in pieces of a few experts.
func TestStreamedCodes(t *testing.T) {
	if !request(t).GPU() {
		t.Skip("no -device")
	}
	s := shape{d: 256, heads: 4, kv: 2, dim: 64, inner: 256, norm: graph.RMSNorm}
	g := s.graph(func(g *graph.Graph) { s.moe(g, 1, 4, 2, true) })
	for _, codings := range [][]kerneltest.Coding{{{Scheme: "q8_0"}, {Scheme: "q4_k"}}, {{Scheme: "mxfp4"}, {Scheme: "q6_k"}}} {
		checkStreamed(t, g, codedWeights(t, g, codings), onFlag(t, Options{Threads: 1, Context: 200}), []int{1})
	}
}

func checkStreamed(t *testing.T, g *graph.Graph, source func(string) formats.Tensor, o Options, blocks []int) {
	t.Helper()
	whole, e := bothWays(t, g, source, o, true, blocks...)
	ids := tinyIDs(90)
	for range 2 {
		got, want := allLogits(t, sequence(t, e), ids), allLogits(t, sequence(t, whole), ids)
		for i := range want {
			if !slices.Equal(got[i], want[i]) {
				t.Fatalf("row %d of a prompt is off by %.3g of its size", i, relativeError(got[i], want[i]))
			}
		}
	}
	keepsCompany(t, e, ids[:21])
}

// codedMixture is a mixture in block 1 whose matrices are codes.
func codedMixture(t *testing.T) (*graph.Graph, func(string) formats.Tensor) {
	s := shape{d: 256, heads: 4, kv: 2, dim: 64, inner: 256, norm: graph.RMSNorm}
	g := s.graph(func(g *graph.Graph) { s.moe(g, 1, 4, 2, true) })
	return g, codedWeights(t, g, []kerneltest.Coding{{Scheme: "q8_0"}, {Scheme: "q4_k"}})
}

// The same with codes, and with what products of them read rounded to bytes by whoever computes
// them: what differs is the grain of that, and a row has the bits alone that it has in company.
func TestHostExpertsOfCodes(t *testing.T) {
	if !request(t).GPU() {
		t.Skip("no -device")
	}
	g, source := codedMixture(t)
	o := onFlag(t, Options{Threads: 1, Context: 200})
	whole, e := bothWays(t, g, source, o, false, 1)
	ids := tinyIDs(70)
	for _, run := range []func(*Sequence) [][]float32{
		func(s *Sequence) [][]float32 { return allLogits(t, s, ids) },
		func(s *Sequence) [][]float32 { return stepLogits(t, s, ids[:9]) },
	} {
		got, want := run(sequence(t, e)), run(sequence(t, whole))
		for i := range want {
			if off := relativeError(got[i], want[i]); !(off < 0.05) {
				t.Errorf("row %d is off by %.4f of its size", i, off)
			}
		}
	}
	keepsCompany(t, e, ids[:21])
}

// keepsCompany holds sequences that fork behind a prompt, and share passes, to what each gives
// alone when it goes back, and an executor to give back all that they held.
func keepsCompany(t *testing.T, e *Executor, prompt []int32) {
	t.Helper()
	before := e.Room()
	first := sequence(t, e)
	if err := first.Prefill(context.Background(), prompt, nil); err != nil {
		t.Fatal(err)
	}
	kept, err := first.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	second, err := first.Fork()
	if err != nil {
		t.Fatal(err)
	}
	rows, err := e.stepBatch([]*Sequence{first, second}, []int32{3, 1})
	if err != nil {
		t.Fatal(err)
	}
	company := [][]float32{slices.Clone(rows[0]), slices.Clone(rows[1])}
	for i, id := range []int32{3, 1} {
		if n, err := second.Restore(kept, len(prompt)); err != nil || n != len(prompt) {
			t.Fatalf("%d tokens are restored, %v", n, err)
		}
		if alone := stepLogits(t, second, []int32{id}); !slices.Equal(alone[0], company[i]) {
			t.Errorf("sequence %d has other logits alone", i)
		}
	}
	kept.Release()
	first.Close()
	second.Close()
	if after := e.Room(); after != before {
		t.Errorf("there is room for %+v, before %+v", after, before)
	}
}

// Of experts in the processor's memory those that lie on the GPU too are computed there for steps: logits are those of
// one GPU to the rounding of sums, and its bits where it has all of them; rows of prompts are as without.
func TestPinnedExperts(t *testing.T) {
	if !request(t).GPU() {
		t.Skip("no -device")
	}
	type pinnable struct {
		tiny
		source func(string) formats.Tensor
		blocks []int
	}
	var some []pinnable
	all, blocks := mixtures()
	for i, c := range all {
		source, _ := fillWeights(t, c.graph, "f32", 7)
		if !slices.ContainsFunc(blocks[i], func(b int) bool { return !gpu.Pins(c.graph.Blocks[b].MoE, source) }) {
			some = append(some, pinnable{c, source, blocks[i]})
		}
	}
	if len(some) == 0 {
		t.Error("no mixture has experts that can lie on both devices")
	}
	for _, c := range byTurns(some) {
		t.Run(c.name, func(t *testing.T) {
			checkPinned(t, c.graph, c.source, onFlag(t, Options{Threads: 1, Exact: true, Context: 200}), c.blocks, logitTolerance)
		})
	}
	t.Run("codes", func(t *testing.T) {
		g, source := codedMixture(t)
		checkPinned(t, g, source, onFlag(t, Options{Threads: 1, Context: 200}), []int{1}, 0.05)
	})
}

func checkPinned(t *testing.T, g *graph.Graph, source func(string) formats.Tensor, o Options, blocks []int, tolerance float64) {
	whole, hosted := bothWays(t, g, source, o, false, blocks...)
	ids := tinyIDs(30)
	want, prompt := stepLogits(t, sequence(t, whole), ids[:9]), allLogits(t, sequence(t, hosted), ids)
	for _, every := range []int{1, 2} {
		r := place.Range{Device: o.Device.Request, Hi: len(g.Blocks), HostExperts: blocks, Pinned: map[int][]int{}}
		for _, b := range blocks {
			for x := every - 1; x < int(g.Blocks[b].MoE.Experts); x += every {
				r.Pinned[b] = append(r.Pinned[b], x)
			}
		}
		on := o
		on.Device.Ranges = []place.Range{r}
		e, err := newExecutor("tiny", g, source, on)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if l := e.Layout(); len(l.Ranges[0].Pinned) != len(blocks) || l.Ranges[0].Memory <= hosted.Layout().Ranges[0].Memory || l.Ranges[0].HostRead >= hosted.Layout().Ranges[0].HostRead {
			t.Fatalf("laid out as %+v, without as %+v", l, hosted.Layout())
		}
		got := stepLogits(t, sequence(t, e), ids[:9])
		for i := range want {
			if off := relativeError(got[i], want[i]); !(off < tolerance) || every == 1 && !slices.Equal(got[i], want[i]) {
				t.Fatalf("one of %d experts here: step %d is off by %.3g of its size", every, i, off)
			}
		}
		for i, row := range allLogits(t, sequence(t, e), ids) {
			if !slices.Equal(row, prompt[i]) {
				t.Fatalf("one of %d experts here: row %d of a prompt is another one", every, i)
			}
		}
		keepsCompany(t, e, ids[:21])
	}
}

// What routers choose of experts in the processor's memory is kept when a model is closed, and is what the next layout
// goes by.
func TestUsesAreKept(t *testing.T) {
	if !request(t).GPU() {
		t.Skip("no -device")
	}
	s := shape{d: 64, heads: 4, kv: 2, dim: 16, inner: 96, norm: graph.RMSNorm}
	g := s.graph(func(g *graph.Graph) { s.moe(g, 1, 4, 2, true) })
	source, _ := fillWeights(t, g, "f32", 7)
	o := onFlag(t, Options{Threads: 1, Exact: true, Context: 200})
	o.Device.Measured = t.TempDir()
	e := hosted(t, g, source, o, false, 1)
	ids := tinyIDs(30)
	allLogits(t, sequence(t, e), ids)
	stepLogits(t, sequence(t, e), ids[:9])
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	u, err := place.LoadUses(o.Device.Measured, routers(g, source))
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for _, n := range u.Blocks[1] {
		sum += n
	}
	if sum != 2*39 || len(u.Blocks) != 1 {
		t.Errorf("%v are %d choices, want %d", u.Blocks, sum, 2*39)
	}
	if shares := (&learned{uses: u}).use(1, nil, 4); len(shares) != 4 {
		t.Errorf("shares %v", shares)
	}
	g.Blocks[1].MoE.TopK = 1
	if other := routers(g, source); other == u.Model || other == "" {
		t.Errorf("%q is another model's, and %q", other, u.Model)
	}
}
