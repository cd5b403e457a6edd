package exec

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/runtime/cache"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/sample"
)

// A model cut into stages gives the bits of the model in one: logits of prompts and
// steps, of several sequences, and tokens.
func TestStagesInARow(t *testing.T) {
	for _, c := range byTurns(tinies()) {
		source, _ := fillWeights(t, c.graph, "f32", 7)
		o := onFlag(t, Options{Threads: 1, Exact: true})
		whole, err := newExecutor("tiny", c.graph, source, o)
		opened(t, err)
		defer whole.Close()
		n := len(c.graph.Blocks)
		for _, spans := range [][]device.Span{
			{{Hi: n, Embed: true}, device.Head(c.graph)},
			{device.Embedding(), device.Block(0), {Lo: 1, Hi: n, Head: true}},
		} {
			var stages []device.Stage
			for _, span := range spans {
				s, _, err := newStage(c.graph, span, source, &o)
				opened(t, err)
				stages = append(stages, s)
			}
			e := join(c.graph, whole.context, stages...)
			defer e.Close()
			ids := tinyIDs(30)
			want, got := allLogits(t, sequence(t, whole), ids), allLogits(t, sequence(t, e), ids)
			for i := range want {
				if !slices.Equal(got[i], want[i]) {
					t.Fatalf("%s, %v: logits %d differ", c.name, spans, i)
				}
			}
			sampler := newSampler(t, sample.Options{Temperature: 1, Seed: 2, RepetitionPenalty: 1.3})
			if got, want := decoded(t, sequence(t, e), sampler, ids, 9), decoded(t, sequence(t, whole), sampler, ids, 9); !slices.Equal(got, want) {
				t.Errorf("%s, %v: tokens %v, want %v", c.name, spans, got, want)
			}
		}
	}
}

// Sequences that decode by turns get the tokens that each gets alone, whatever the
// device has computed ahead, also where one ends, one is forked and one rewinds.
func TestDecodingsTakeTurns(t *testing.T) {
	options := []sample.Options{{}, {Temperature: 1, Seed: 3}, {Temperature: 0.7, TopK: 9, RepetitionPenalty: 1.5, Seed: 4}}
	for i, c := range byTurns(tinies()) {
		if i%3 != 0 && testing.Short() && *partsFlag == 1 {
			continue
		}
		e, _ := newTiny(t, c.graph, "f32", Options{Threads: 1})
		prompts := [][]int32{tinyIDs(13), tinyIDs(7), tinyIDs(20)}
		var want [][]int32
		for k, o := range options {
			want = append(want, decoded(t, sequence(t, e), newSampler(t, o), prompts[k], 16))
		}
		var all []*Decoding
		for k, o := range options {
			s := sequence(t, e)
			if k == 1 { // its beginning is another's
				first := sequence(t, e)
				if err := first.Prefill(context.Background(), append(prompts[1][:5:5], 3, 3, 3), nil); err != nil {
					t.Fatal(err)
				}
				var err error
				if s, err = first.Fork(); err != nil {
					t.Fatal(err)
				}
				s.Truncate(5)
				first.Close()
				prompts[1] = prompts[1][5:]
			}
			d, err := s.Decode(context.Background(), prompts[k], newSampler(t, o), nil)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, d)
		}
		got := make([][]int32, len(all))
		for turn := range 16 {
			for k, d := range all {
				for range 1 + (turn+k)%2 {
					if len(got[k]) == 16 {
						continue
					}
					id, err := d.Next()
					if err != nil {
						t.Fatal(err)
					}
					got[k] = append(got[k], id)
				}
			}
		}
		for k, d := range all {
			if !slices.Equal(got[k], want[k]) {
				t.Errorf("%s, %+v: tokens %v, alone %v", c.name, options[k], got[k], want[k])
			}
			if err := d.Stop(); err != nil {
				t.Fatal(err)
			}
			d.s.Close()
		}
	}
}

// Where the pool is full a sequence says so and stays as it was; another's end makes
// room.
func TestFullPool(t *testing.T) {
	g := shape{d: 24, heads: 4, kv: 2, dim: 10, inner: 33, norm: graph.RMSNorm}.graph(func(g *graph.Graph) { g.Context = 256 })
	e, _ := newTiny(t, g, "f32", Options{Threads: 1, Sequences: 1})
	a, b := sequence(t, e), sequence(t, e)
	ids := tinyIDs(190) // three pages of four
	if err := a.Prefill(context.Background(), ids, nil); err != nil {
		t.Fatal(err)
	}
	first := sequence(t, e)
	want := stepLogits(t, first, ids[:1])
	first.Close()
	var full *cache.FullError
	if err := b.Prefill(context.Background(), ids, nil); !errors.As(err, &full) || b.Len() > 64 {
		t.Errorf("%v with %d tokens", err, b.Len())
	}
	a.Close()
	b.Reset()
	got := stepLogits(t, b, ids[:1])
	if err := b.Prefill(context.Background(), ids, nil); err != nil {
		t.Error(err)
	}
	if !slices.Equal(got[0], want[0]) {
		t.Error("other logits than before")
	}
}
