package exec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

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
			want := allLogits(t, sequence(t, whole), ids)
			sampler := newSampler(t, sample.Options{Temperature: 1, Seed: 2, RepetitionPenalty: 1.3})
			tokens := decoded(t, sequence(t, whole), sampler, ids, 9)
			for range 2 {
				got := allLogits(t, sequence(t, e), ids)
				for i := range want {
					if !slices.Equal(got[i], want[i]) {
						t.Fatalf("%s, %v, abreast %v: logits %d differ", c.name, spans, e.abreast, i)
					}
				}
				if got := decoded(t, sequence(t, e), sampler, ids, 9); !slices.Equal(got, tokens) {
					t.Errorf("%s, %v, abreast %v: tokens %v, want %v", c.name, spans, e.abreast, got, tokens)
				}
				e.abreast, e.leastAbreast = true, 8
			}
		}
	}
}

// failing is a stage whose passes fail from one on; begun is told before each.
type failing struct {
	device.Stage
	left  int
	begun func()
}

var errFailing = errors.New("the device is lost")

func (f *failing) Forward(b *device.Batch) (device.Pass, error) {
	if f.left--; f.left < 0 {
		return nil, errFailing
	}
	if f.begun != nil {
		f.begun()
	}
	return f.Stage.Forward(b)
}

// Prompts of several sequences go through stages that are abreast, and where a stage fails, or who asks has
// enough, each sequence has what went through all of them and goes on from there.
func TestStagesAbreast(t *testing.T) {
	for _, c := range byTurns(tinies()) {
		source, _ := fillWeights(t, c.graph, "f32", 7)
		o := onFlag(t, Options{Threads: 1, Exact: true, Sequences: 3})
		whole, err := newExecutor("tiny", c.graph, source, o)
		opened(t, err)
		defer whole.Close()
		n := len(c.graph.Blocks)
		at := n / 2
		for at < n && len(c.graph.Carried(at)) > 0 { // keys and values stay in their stage
			at++
		}
		front, _, err := newStage(c.graph, device.Span{Hi: at, Embed: true}, source, &o)
		opened(t, err)
		back, _, err := newStage(c.graph, device.Span{Lo: at, Hi: n, Head: true}, source, &o)
		opened(t, err)
		stages := []*failing{{Stage: front, left: 1 << 30}, {Stage: back, left: 1 << 30}}
		e := join(c.graph, whole.context, stages[0], stages[1])
		defer e.Close()
		e.abreast, e.leastAbreast = true, 4

		prompts := [][]int32{tinyIDs(37), tinyIDs(18), tinyIDs(29)}
		var turns []Turn
		var want [][]int32
		for _, ids := range prompts {
			want = append(want, decoded(t, sequence(t, whole), newSampler(t, sample.Options{}), ids, 3))
			d, err := sequence(t, e).Continue(Continuation{Prompt: ids, Sampler: newSampler(t, sample.Options{})})
			if err != nil {
				t.Fatal(err)
			}
			turns = append(turns, Turn{d, e.MaxRows()})
		}
		if err := e.Advance(turns); err != nil {
			t.Fatal(err)
		}
		for i := range turns {
			var got []int32
			for range want[i] {
				id, err := turns[i].Next()
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, id)
			}
			if !slices.Equal(got, want[i]) {
				t.Errorf("%s: sequence %d has tokens %v, alone %v", c.name, i, got, want[i])
			}
		}

		// A pass of the last stage waits for the first stage's next one.
		ids := tinyIDs(40)
		logits := allLogits(t, sequence(t, whole), ids)
		ahead, begun, waited := make(chan struct{}, len(ids)), 0, 0
		passes := len(ids) / e.cut(len(ids))
		stages[0].begun = func() { ahead <- struct{}{} }
		stages[1].begun = func() {
			for begun++; waited < min(begun+1, passes); waited++ {
				select {
				case <-ahead:
				case <-time.After(time.Minute):
					t.Errorf("%s: the last stage's pass %d has nothing beside it", c.name, begun)
				}
			}
		}
		s := sequence(t, e)
		if err := s.Prefill(context.Background(), ids, nil); err != nil || begun != passes {
			t.Fatalf("%s: error %v behind %d of %d passes", c.name, err, begun, passes)
		}
		stages[0].begun, stages[1].begun = nil, nil
		s.Reset()
		check := func(what string, err, wanted error) {
			t.Helper()
			stages[0].left, stages[1].left = 1<<30, 1<<30
			if !errors.Is(err, wanted) || s.Len() >= len(ids) {
				t.Fatalf("%s, %s: error %v behind %d tokens", c.name, what, err, s.Len())
			}
			behind := s.Len()
			for i, row := range allLogits(t, s, ids[behind:]) {
				if !slices.Equal(row, logits[behind+i]) {
					t.Fatalf("%s, %s: the logits of position %d differ behind %d", c.name, what, behind+i, behind)
				}
			}
			s.Reset()
		}
		for k, stage := range stages {
			stage.left = 2
			check(fmt.Sprintf("stage %d lost", k), s.Prefill(context.Background(), ids, nil), errFailing)
		}
		enough := errors.New("enough")
		check("enough", s.Prefill(context.Background(), ids, func(pos int, _ []float32) error {
			if pos == 6 {
				return enough
			}
			return nil
		}), enough)
		ctx, cancel := context.WithCancel(context.Background())
		check("cancelled", s.Prefill(ctx, ids, func(int, []float32) error { cancel(); return nil }), context.Canceled)
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

// A prompt asks for the room of its turns one after the other: of as many passes as stages that are abreast have
// beside one another, but of one where the newest positions are kept in a pool of their own.
func TestPromptsAskForRoomByTurns(t *testing.T) {
	processorOnly(t, "passes of 512 tokens")
	g := tinies()[0].graph
	source, _ := fillWeights(t, g, "f32", 7)
	for _, kv := range []string{"f16", "q4"} {
		o := Options{Threads: 1, Context: 17 * cache.PageSize, KV: kv}
		front, _, err := newStage(g, device.Span{Hi: 1, Embed: true}, source, &o)
		opened(t, err)
		back, _, err := newStage(g, device.Span{Lo: 1, Hi: len(g.Blocks), Head: true}, source, &o)
		opened(t, err)
		e := join(g, o.Context, front, back)
		defer e.Close()
		e.abreast = true
		first, second := sequence(t, e), sequence(t, e)
		if err := first.Prefill(context.Background(), tinyIDs(512), nil); err != nil {
			t.Fatal(err)
		}
		var full *cache.FullError
		want := 0
		if kv == "q4" {
			want = 512
		}
		if err := second.Prefill(context.Background(), tinyIDs(1000), nil); !errors.As(err, &full) || second.Len() != want {
			t.Errorf("%s: error %v behind %d tokens, want %d", kv, err, second.Len(), want)
		}
		if room := e.Room(); room.Free != room.Pages-8-int64(second.Len()+63)/64 {
			t.Errorf("%s: %d of %d pages are free", kv, room.Free, room.Pages)
		}
	}
}
