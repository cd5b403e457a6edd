package exec

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/runtime/device"
)

// tinyTolerance is of float32 against float64 arithmetic, as a share of the
// logits' range; measured figures are below 1e-6.
const tinyTolerance = 4e-6

// Every operation of a graph against float64, in one pass, in several, and
// token by token, beyond one page of the cache and every window.
func TestAgainstReference(t *testing.T) {
	for _, c := range tinies() {
		for _, scheme := range []string{"f32", "bf16", "f16", "f64"} {
			t.Run(c.name+"/"+scheme, func(t *testing.T) {
				e, ref := newTiny(t, c.graph, scheme, Options{Threads: 2})
				ids := tinyIDs(150)
				want := toFloat32(ref.logits(ids))
				s := sequence(t, e)
				checkLogits(t, "one pass", allLogits(t, s, ids), want, tinyTolerance)
				if dependsOnLength(c.graph) {
					return
				}
				s.Reset()
				checkLogits(t, "steps", stepLogits(t, s, ids), want, tinyTolerance)
				s.Reset()
				parts := slices.Concat(allLogits(t, s, ids[:3]), allLogits(t, s, ids[3:70]), stepLogits(t, s, ids[70:75]), allLogits(t, s, ids[75:]))
				checkLogits(t, "parts", parts, want, tinyTolerance)
			})
		}
	}
}

// A longrope sequence is computed again when it passes the original context,
// in either direction; a dynamic one keeps the keys it has.
func TestLengthDependentRope(t *testing.T) {
	for _, c := range tinies() {
		if !dependsOnLength(c.graph) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			e, ref := newTiny(t, c.graph, "f32", Options{Threads: 1})
			ids := tinyIDs(30)
			lengths := make([]int, len(ids))
			longrope := c.graph.Ropes[0].Recomputes()
			s := sequence(t, e)
			got := [][]float32{}
			want := [][]float32{}
			row := func(logits []float32, from, n int) { // n tokens, the last pass began at from
				for i := from; i < n; i++ {
					lengths[i] = n
				}
				ref.length = func(pos int) int { return lengths[pos] }
				if longrope {
					ref.length = nil
				}
				got = append(got, slices.Clone(logits))
				want = append(want, toFloat32(ref.logits(ids[:n]))[n-1])
			}
			last, err := s.PrefillLast(context.Background(), ids[:17])
			if err != nil {
				t.Fatal(err)
			}
			row(last, 0, 17)
			for n := 18; n <= len(ids); n++ {
				row(stepLogits(t, s, ids[n-1:n])[0], n-1, n)
			}
			s.Truncate(12)
			row(stepLogits(t, s, ids[12:13])[0], 12, 13)
			checkLogits(t, "logits", got, want, tinyTolerance)
			if !slices.Equal(s.Tokens(), ids[:13]) {
				t.Errorf("tokens are %v", s.Tokens())
			}
		})
	}
}

// The number of threads changes no bit.
func TestThreadsAgree(t *testing.T) {
	for _, c := range tinies() {
		var first [][]float32
		for _, threads := range []int{1, 2, 5} {
			e, _ := newTiny(t, c.graph, "bf16", Options{Threads: threads})
			s := sequence(t, e)
			ids := tinyIDs(100)
			got := append(allLogits(t, s, ids), stepLogits(t, s, ids[:20])...)
			if first == nil {
				first = got
			}
			for r := range got {
				if !slices.Equal(got[r], first[r]) {
					t.Fatalf("%s: row %d differs between 1 and %d threads", c.name, r, threads)
				}
			}
		}
	}
}

// A batch of sequences gives each the logits that it would get alone.
func TestStepBatch(t *testing.T) {
	for _, c := range tinies() {
		e, _ := newTiny(t, c.graph, "f32", Options{Threads: 2})
		ids := tinyIDs(120)
		prompts := [][]int32{ids[:1], ids[5:75], ids[10:31], ids[2:9], ids[50:114]}
		var batch []*Sequence
		var want [][]float32
		for i, p := range prompts {
			s, alone := sequence(t, e), sequence(t, e)
			for _, q := range []*Sequence{s, alone} {
				if err := q.Prefill(context.Background(), p, nil); err != nil {
					t.Fatal(err)
				}
			}
			batch = append(batch, s)
			want = append(want, stepLogits(t, alone, ids[i:i+3])...)
		}
		got := make([][]float32, len(want))
		for step := range 3 {
			next := make([]int32, len(batch))
			for i := range next {
				next[i] = ids[i+step]
			}
			rows, err := e.StepBatch(batch, next)
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range rows {
				got[3*i+step] = slices.Clone(r)
			}
		}
		checkLogits(t, c.name, got, want, tinyTolerance)
	}
}

// What is forgotten leaves no trace: the logits that follow are those of a
// fresh sequence.
func TestForget(t *testing.T) {
	for _, c := range tinies() {
		e, _ := newTiny(t, c.graph, "f32", Options{Threads: 1})
		ids := tinyIDs(110)
		s, fresh := sequence(t, e), sequence(t, e)
		follow := func(what string, keep ...int32) {
			t.Helper()
			fresh.Reset()
			want, err := fresh.PrefillLast(context.Background(), append(keep, 5))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(s.Tokens(), keep) || s.Len() != len(keep) {
				t.Errorf("%s: %d tokens %v", what, s.Len(), s.Tokens())
			}
			got, err := s.PrefillLast(context.Background(), []int32{5})
			if err != nil {
				t.Fatal(err)
			}
			if dependsOnLength(c.graph) && c.graph.Ropes[0].Scaling.Kind == model.ScaleDynamic {
				return // keeps keys of other lengths, as documented
			}
			checkLogits(t, c.name+": "+what, [][]float32{got}, [][]float32{want}, tinyTolerance)
		}
		fill := func() {
			s.Reset()
			if err := s.Prefill(context.Background(), ids, nil); err != nil {
				t.Fatal(err)
			}
		}
		fill()
		s.Truncate(66)
		follow("truncated", ids[:66]...)
		fill()
		if err := s.Shift(4, 50); err != nil {
			t.Fatal(err)
		}
		follow("shifted", slices.Concat(ids[:4], ids[54:])...)
		fill()
		if err := s.Shift(0, 110); err != nil {
			t.Fatal(err)
		}
		follow("shifted to nothing")
	}
}

// PrefillLast and the last row of Prefill are one thing; so is what follows a
// Prefill without logits, whatever was left out.
func TestPrefillLast(t *testing.T) {
	for _, c := range tinies() {
		e, _ := newTiny(t, c.graph, "bf16", Options{Threads: 2, Context: 1200})
		if c.graph.Embed.Positions != "" {
			continue
		}
		ids := tinyIDs(700) // two passes
		s := sequence(t, e)
		all := allLogits(t, s, ids)
		s.Reset()
		last, err := s.PrefillLast(context.Background(), ids)
		if err != nil {
			t.Fatal(err)
		}
		checkLogits(t, c.name+": last", [][]float32{last}, all[699:], tinyTolerance)
		if dependsOnLength(c.graph) {
			continue
		}
		s.Reset()
		if err := s.Prefill(context.Background(), ids[:699], nil); err != nil {
			t.Fatal(err)
		}
		checkLogits(t, c.name+": step", stepLogits(t, s, ids[699:]), all[699:], tinyTolerance)
	}
}

func TestContextFull(t *testing.T) {
	e, _ := newTiny(t, tinies()[0].graph, "f32", Options{Threads: 1, Context: 10})
	s := sequence(t, e)
	for _, bad := range [][]int32{tinyIDs(11), {1, 37}, {-1}} {
		err := s.Prefill(context.Background(), bad, nil)
		var f *formats.FormatError
		if full := errors.Is(err, ErrContextFull); full != (len(bad) == 11) || !full && !errors.As(err, &f) {
			t.Errorf("%d tokens: %v", len(bad), err)
		}
	}
	if err := s.Prefill(context.Background(), tinyIDs(9), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Step(3); err != nil {
		t.Fatal(err)
	}
	_, err := s.Step(3)
	var full *ContextFullError
	if !errors.As(err, &full) || *full != (ContextFullError{Used: 10, New: 1, Capacity: 10}) {
		t.Errorf("error is %v", err)
	}
	other := sequence(t, e)
	if _, err := e.StepBatch([]*Sequence{other, s}, []int32{1, 1}); !errors.Is(err, ErrContextFull) || other.Len() != 0 {
		t.Errorf("batch: %v, %d tokens in the other sequence", err, other.Len())
	}
	if s.Len() != 10 {
		t.Errorf("%d tokens", s.Len())
	}
}

func TestLearnedPositionsBoundContext(t *testing.T) {
	for _, c := range tinies() {
		e, _ := newTiny(t, c.graph, "f32", Options{Threads: 1, Context: 401})
		_, err := e.NewSequence()
		var u *formats.UnsupportedError
		if learned := c.graph.Embed.Positions != ""; learned != errors.As(err, &u) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	for _, context := range []int64{-1, math.MaxInt64} {
		e, _ := newTiny(t, tinies()[0].graph, "f32", Options{Threads: 1, Context: context})
		if _, err := e.NewSequence(); err == nil {
			t.Errorf("a context of %d positions was granted", context)
		}
	}
}

// Between passes a cancelled context stops, finished passes stay.
func TestCancel(t *testing.T) {
	e, _ := newTiny(t, tinies()[0].graph, "f32", Options{Threads: 1, Context: 1200})
	s := sequence(t, e)
	ctx, cancel := context.WithCancel(context.Background())
	err := s.Prefill(ctx, tinyIDs(1000), func(int, []float32) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) || s.Len() != maxRows {
		t.Errorf("error %v after %d tokens", err, s.Len())
	}
	stop := errors.New("stop")
	if err := s.Prefill(context.Background(), tinyIDs(5), func(int, []float32) error { return stop }); err != stop {
		t.Errorf("error %v", err)
	}
}

// A long context costs nothing until it is used.
func TestCacheGrows(t *testing.T) {
	e, _ := newTiny(t, tinies()[0].graph, "f32", Options{Threads: 1, Context: 1 << 40})
	s := sequence(t, e)
	if s.Bytes() != 0 {
		t.Errorf("%d bytes before the first token", s.Bytes())
	}
	allLogits(t, s, tinyIDs(65))
	want, err := e.CacheBytes(65)
	if err != nil || s.Bytes() != want || want != 2*2*2*10*128*4 {
		t.Errorf("%d bytes for 65 tokens, %d foretold (%v)", s.Bytes(), want, err)
	}
}

// After the first passes decoding allocates nothing: pages, buffers that
// double and the history are the only things that grow, each in one piece for
// many tokens, which the average of whole numbers rounds away.
func TestStepAllocatesNothing(t *testing.T) {
	for _, c := range tinies() {
		for _, scheme := range []string{"bf16", "f64"} {
			e, _ := newTiny(t, c.graph, scheme, Options{Threads: 2})
			s := sequence(t, e)
			allLogits(t, s, tinyIDs(130))
			if n := testing.AllocsPerRun(60, func() {
				if _, err := s.Step(1); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("%s, %s: %v allocations per token", c.name, scheme, n)
			}
		}
	}
}

// The hook sees every linear once per pass, with all rows.
func TestHook(t *testing.T) {
	for _, c := range tinies() {
		seen := map[*model.Linear]int{}
		var first []float32
		hook := func(in device.Input) {
			if len(in.X) != in.T*int(in.Linear.In) {
				t.Errorf("%s: %d numbers for %d rows of %d", in.Linear.Weight, len(in.X), in.T, in.Linear.In)
			}
			if in.Linear == &c.graph.Blocks[0].Attn.Q {
				first = slices.Clone(in.X)
			}
			if (in.Expert >= 0) != (in.Block >= 0 && c.graph.Blocks[in.Block].MoE != nil && in.Linear.Role != model.RoleRouter && in.Linear.Role[:4] == "moe_") {
				t.Errorf("%s of block %d is said to be expert %d's", in.Linear.Weight, in.Block, in.Expert)
			}
			seen[in.Linear] += in.T
		}
		e, ref := newTiny(t, c.graph, "f32", Options{Threads: 2, Hook: hook})
		ids := tinyIDs(12)
		if _, err := sequence(t, e).PrefillLast(context.Background(), ids); err != nil {
			t.Fatal(err)
		}
		for i := range c.graph.Blocks {
			for _, l := range c.graph.Blocks[i].Linears() {
				want := len(ids)
				if m := c.graph.Blocks[i].MoE; m != nil && (l == &m.Gate || l == &m.Up || l == &m.Down) {
					want *= int(m.TopK)
				}
				if seen[l] != want {
					t.Errorf("%s: %s was seen with %d rows, not %d", c.name, l.Weight, seen[l], want)
				}
			}
		}
		if seen[&c.graph.Head.Linear] != 1 {
			t.Errorf("%s: the head was seen with %d rows", c.name, seen[&c.graph.Head.Linear])
		}
		d := int(c.graph.Width)
		x := make([]float64, d)
		for i := range x {
			x[i] = ref.weights["table"][int(ids[0])*d+i] * float64(c.graph.Embed.Scale)
			if c.graph.Embed.Positions != "" {
				x[i] += ref.weights["positions"][i]
			}
		}
		checkLogits(t, c.name+": first input", [][]float32{first[:d]}, toFloat32([][]float64{ref.norm(c.graph.Blocks[0].AttnNorm, x)}), 1e-6)
	}
}

// Graphs that lie are refused, with the place.
func TestMalformedGraphs(t *testing.T) {
	rms := shape{d: 8, heads: 2, kv: 1, dim: 4, inner: 6, norm: model.RMSNorm}
	cases := []struct {
		name        string
		edit        func(g *model.Graph)
		unsupported bool
	}{
		{"no blocks", func(g *model.Graph) { g.Blocks = nil }, false},
		{"vocab", func(g *model.Graph) { g.Vocab = 0 }, false},
		{"table of another shape", func(g *model.Graph) { g.Embed.Table = "0.attn_norm" }, false},
		{"no table", func(g *model.Graph) { g.Embed.Table = "" }, false},
		{"no norm", func(g *model.Graph) { g.Norm = nil }, false},
		{"norm of another width", func(g *model.Graph) { g.Norm.Weight = "0.up" }, false},
		{"norm kind", func(g *model.Graph) { g.Norm.Kind = "batch" }, true},
		{"bias on rms", func(g *model.Graph) { g.Norm.Bias = "b" }, true},
		{"ffn norm without a name", func(g *model.Graph) { g.Blocks[0].FFNNorm.Weight = "" }, false},
		{"post norm without a name", func(g *model.Graph) { g.Blocks[0].FFNPostNorm = &model.Norm{Kind: model.RMSNorm} }, false},
		{"query norm without a name", func(g *model.Graph) { g.Blocks[0].Attn.QNorm = &model.Norm{Kind: model.RMSNorm} }, false},
		{"no ffn norm", func(g *model.Graph) { g.Blocks[0].FFNNorm = nil }, false},
		{"no ffn", func(g *model.Graph) { g.Blocks[0].FFN = nil }, false},
		{"activation", func(g *model.Graph) { g.Blocks[1].FFN.Act = "swosh" }, true},
		{"heads", func(g *model.Graph) { g.Blocks[0].Attn.Heads = 3 }, false},
		{"kv heads", func(g *model.Graph) { g.Blocks[0].Attn.KVHeads = 0 }, false},
		{"huge head", func(g *model.Graph) { g.Blocks[0].Attn.HeadDim = 1 << 62 }, false},
		{"window", func(g *model.Graph) { g.Blocks[0].Attn.Window = -1 }, false},
		{"rope index", func(g *model.Graph) { g.Blocks[0].Attn.Rope = 1 }, false},
		{"rope dim", func(g *model.Graph) { g.Ropes[0].Dim = 6 }, false},
		{"odd rope dim", func(g *model.Graph) { g.Ropes[0].Dim = 3 }, false},
		{"rope style", func(g *model.Graph) { g.Ropes[0].Style = "spiral" }, true},
		{"rope scaling", func(g *model.Graph) { g.Ropes[0].Scaling.Kind = "warp" }, true},
		{"longrope without factors", func(g *model.Graph) { g.Ropes[0].Scaling.Kind = model.ScaleLongRope }, false},
		{"linear between other sizes", func(g *model.Graph) { g.Blocks[0].Attn.O.Out = 9 }, false},
		{"two linears in one tensor", func(g *model.Graph) { g.Blocks[0].Attn.K.Weight = "0.q" }, false},
		{"too many experts", func(g *model.Graph) { rms.moe(g, 0, 2, 3, false) }, false},
		{"expert that is no stack", func(g *model.Graph) { rms.moe(g, 0, 2, 1, false); g.Blocks[0].MoE.Up.Role = model.RoleUp }, false},
	}
	for _, c := range cases {
		g := rms.graph(c.edit)
		source := func(name string) formats.Tensor {
			for _, w := range g.Weights() {
				if w.Name == name {
					n, err := tensor.Elements(w.Shape)
					if err != nil || n > 1e6 {
						t.Fatalf("%s: weight %s of shape %v was asked for", c.name, name, w.Shape)
					}
					x, _ := store(t, w, "f32", make([]float32, n))
					return x
				}
			}
			panic("no tensor " + name)
		}
		_, err := newExecutor("tiny.file", g, source, Options{Threads: 1})
		var f *formats.FormatError
		var u *formats.UnsupportedError
		switch {
		case c.unsupported && (!errors.As(err, &u) || u.File != "tiny.file"),
			!c.unsupported && (!errors.As(err, &f) || f.File != "tiny.file"):
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestLevels(t *testing.T) {
	if _, err := newExecutor("", tinies()[0].graph, nil, Options{Level: "mmx"}); err == nil {
		t.Error("level mmx was accepted")
	}
	e, ref := newTiny(t, tinies()[0].graph, "bf16", Options{Level: "generic", Threads: 1})
	ids := tinyIDs(20)
	checkLogits(t, "generic", allLogits(t, sequence(t, e), ids), toFloat32(ref.logits(ids)), tinyTolerance)
}
