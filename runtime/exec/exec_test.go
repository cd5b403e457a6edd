package exec

import (
	"context"
	"errors"
	"math"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
)

// tinyTolerance is of float32 against float64 arithmetic, as a share of the
// logits' range; measured figures are below 1e-6.
const tinyTolerance = 4e-6

// toleranceOf is larger for what carries errors on from position to position.
func toleranceOf(g *graph.Graph) float64 {
	if g.Recurrent() {
		return 3 * tinyTolerance
	}
	return tinyTolerance
}

// Every operation of a graph against float64, in one pass, in several, and
// token by token, beyond one page of the cache and every window.
func TestAgainstReference(t *testing.T) {
	schemes := []string{"f32", "bf16", "f16", "f64"}
	for i, c := range byTurns(tinies()) {
		for j, scheme := range schemes {
			if testing.Short() && j != i%len(schemes) {
				continue // each graph and each scheme, not each pair
			}
			t.Run(c.name+"/"+scheme, func(t *testing.T) {
				e, ref := newTiny(t, c.graph, scheme, Options{Threads: 2})
				ids := tinyIDs(150)
				want := toFloat32(ref.logits(ids))
				s := sequence(t, e)
				checkLogits(t, "one pass", allLogits(t, s, ids), want, toleranceOf(c.graph))
				if dependsOnLength(c.graph) {
					return
				}
				s.Reset()
				checkLogits(t, "steps", stepLogits(t, s, ids), want, toleranceOf(c.graph))
				s.Reset()
				parts := slices.Concat(allLogits(t, s, ids[:3]), allLogits(t, s, ids[3:70]), stepLogits(t, s, ids[70:75]), allLogits(t, s, ids[75:]))
				checkLogits(t, "parts", parts, want, toleranceOf(c.graph))
			})
		}
	}
}

// A longrope sequence is computed again when it passes the original context,
// in either direction; a dynamic one keeps the keys it has.
func TestLengthDependentRope(t *testing.T) {
	for _, c := range byTurns(tinies()) {
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
	for _, c := range byTurns(tinies()) {
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
	for _, c := range byTurns(tinies()) {
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
			rows, err := e.stepBatch(batch, next)
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
	for _, c := range byTurns(tinies()) {
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
			if dependsOnLength(c.graph) && c.graph.Ropes[0].Scaling.Kind == graph.ScaleDynamic {
				return // keeps keys of other lengths, as documented
			}
			checkLogits(t, c.name+": "+what, [][]float32{got}, [][]float32{want}, toleranceOf(c.graph))
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
	for i, c := range byTurns(tinies()) {
		if testing.Short() && i > 1 {
			break
		}
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
	if _, err := e.stepBatch([]*Sequence{other, s}, []int32{1, 1}); !errors.Is(err, ErrContextFull) || other.Len() != 0 {
		t.Errorf("batch: %v, %d tokens in the other sequence", err, other.Len())
	}
	if s.Len() != 10 {
		t.Errorf("%d tokens", s.Len())
	}
}

func TestLearnedPositionsBoundContext(t *testing.T) {
	for _, c := range byTurns(tinies()) {
		e, _ := newTiny(t, c.graph, "f32", Options{Threads: 1, Context: 401})
		_, err := e.NewSequence()
		var u *formats.UnsupportedError
		if learned := c.graph.Embed.Positions != ""; learned != errors.As(err, &u) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if gpuTested(t) {
		return // a GPU has room for what it is asked for, or refuses at once
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
	processorOnly(t, "passes of 512 tokens")
	e, _ := newTiny(t, tinies()[0].graph, "f32", Options{Threads: 1, Context: 1200})
	s := sequence(t, e)
	ctx, cancel := context.WithCancel(context.Background())
	err := s.Prefill(ctx, tinyIDs(1000), func(int, []float32) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) || s.Len() != e.maxRows {
		t.Errorf("error %v after %d tokens", err, s.Len())
	}
	stop := errors.New("stop")
	if err := s.Prefill(context.Background(), tinyIDs(5), func(int, []float32) error { return stop }); err != stop {
		t.Errorf("error %v", err)
	}
}

// A long context costs nothing until it is used.
func TestCacheGrows(t *testing.T) {
	processorOnly(t, "values padded to 16 numbers")
	e, _ := newTiny(t, tinies()[0].graph, "f32", Options{Threads: 1, Context: 1 << 40})
	s := sequence(t, e)
	if s.Bytes() != 0 {
		t.Errorf("%d bytes before the first token", s.Bytes())
	}
	allLogits(t, s, tinyIDs(65))
	want, err := e.StateBytes(65)
	if err != nil || s.Bytes() != want || want != 2*2*(10+16)*128*4 { // values are padded to 16
		t.Errorf("%d bytes for 65 tokens, %d foretold (%v)", s.Bytes(), want, err)
	}
}

// After the first passes decoding allocates nothing, not once in 60 tokens,
// while no page of the cache is new: the pages, and the history beside them,
// are the only things that grow. With several threads the first passes last
// until each has met every shape, which is up to chance.
func TestStepAllocatesNothing(t *testing.T) {
	processorOnly(t, "counting allocations")
	if testing.Short() {
		t.Skip("it does not depend on the machine")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector's own threads allocate as they start
	for _, c := range byTurns(tinies()) {
		for _, scheme := range []string{"bf16", "f64"} {
			for _, kv := range []string{"f32", "f16", "q8"} {
				for _, threads := range []int{1, 2} {
					e, _ := newTiny(t, c.graph, scheme, Options{Threads: threads, KV: kv})
					s := sequence(t, e)
					allLogits(t, s, tinyIDs(130))
					counts := []float64{}
					steps := 60
					if c.graph.Recurrent() {
						steps = 25 // twice within one page
					}
					for range 30 { // what the program itself allocates now and then is in one try, not in all
						if c.graph.Recurrent() { // it does not go back
							s.Reset()
							allLogits(t, s, tinyIDs(130))
						}
						counts = append(counts, testing.AllocsPerRun(1, func() { // once to warm up, once to count
							if !c.graph.Recurrent() {
								s.Truncate(130)
							}
							for range steps {
								if _, err := s.Step(1); err != nil {
									t.Fatal(err)
								}
							}
						}))
						if counts[len(counts)-1] == 0 {
							break
						}
					}
					if counts[len(counts)-1] != 0 {
						t.Errorf("%s, %s, %s, %d threads: %v allocations in %d tokens each", c.name, scheme, kv, threads, counts, steps)
					}
				}
			}
		}
	}
}

func TestLevels(t *testing.T) {
	processorOnly(t, "levels of SIMD")
	if _, err := newExecutor("", tinies()[0].graph, nil, Options{Level: "mmx"}); err == nil {
		t.Error("level mmx was accepted")
	}
	e, ref := newTiny(t, tinies()[0].graph, "bf16", Options{Level: "generic", Threads: 1})
	ids := tinyIDs(20)
	checkLogits(t, "generic", allLogits(t, sequence(t, e), ids), toFloat32(ref.logits(ids)), tinyTolerance)
}
