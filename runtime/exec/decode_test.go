package exec

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/nstf/nstf/runtime/sample"
)

// Wherever tokens are chosen, they are those that a sampler chooses from the
// logits of steps; also after a stop in the middle, which leaves the sequence
// as it says and the sampler where it was.
func TestDecode(t *testing.T) {
	settings := []sample.Options{
		{},
		{Temperature: 1.5, Seed: 3},
		{Temperature: 1, TopK: 5, TopP: 0.8, MinP: 0.05, Seed: 4},
		{RepetitionPenalty: 2, RepetitionWindow: 6},
		{Temperature: 2, RepetitionPenalty: 1.5, Seed: 5},
	}
	for i, c := range byTurns(tinies()) {
		for j, o := range settings {
			if testing.Short() && (i+j)%3 != 0 {
				continue
			}
			e, _ := newTiny(t, c.graph, "f32", Options{Threads: 1})
			prompt := tinyIDs(13)
			want := chosenFromSteps(t, e, o, prompt, 20)
			s, sampler := sequence(t, e), newSampler(t, o)
			got := decoded(t, s, sampler, prompt, 8)
			got = append(got, decoded(t, s, sampler, got[7:], 12)...)
			if !slices.Equal(got, want) {
				t.Errorf("%s, %+v: tokens %v, from steps %v", c.name, o, got, want)
			}
			if n := len(prompt) + 19; s.Len() != n || !slices.Equal(s.Tokens(), slices.Concat(prompt, got)[:n]) {
				t.Errorf("%s, %+v: the sequence is %v", c.name, o, s.Tokens())
			}
		}
	}
}

func newSampler(t *testing.T, o sample.Options) *sample.Sampler {
	t.Helper()
	s, err := sample.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// chosenFromSteps chooses n tokens the long way.
func chosenFromSteps(t *testing.T, e *Executor, o sample.Options, prompt []int32, n int) []int32 {
	t.Helper()
	s, sampler, history := sequence(t, e), newSampler(t, o), slices.Clone(prompt)
	logits, err := s.PrefillLast(context.Background(), prompt)
	for range n {
		if err != nil {
			t.Fatal(err)
		}
		history = append(history, sampler.Next(logits, history, int64(len(history))))
		logits, err = s.Step(history[len(history)-1])
	}
	return history[len(prompt):]
}

// decoded appends tokens to a sequence and lets n more be chosen.
func decoded(t *testing.T, s *Sequence, sampler *sample.Sampler, tokens []int32, n int) (ids []int32) {
	t.Helper()
	d, err := s.Decode(context.Background(), tokens, sampler, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		id, err := d.Next()
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	for range 2 {
		if err := d.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	return ids
}

// At the end of the context the token that does not fit is not lost: it was
// returned.
func TestDecodeContextFull(t *testing.T) {
	e, _ := newTiny(t, tinies()[0].graph, "f32", Options{Threads: 1, Context: 10})
	s := sequence(t, e)
	d, err := s.Decode(context.Background(), tinyIDs(7), newSampler(t, sample.Options{}), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Stop()
	for range 4 { // three of them fit
		if _, err := d.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Next(); !errors.Is(err, ErrContextFull) || s.Len() != 10 {
		t.Errorf("%v with %d tokens", err, s.Len())
	}
}

// Tokens that are forced count as if each had been chosen, by a mask that allows it alone,
// and come in one pass; as many as there are positions for.
func TestForce(t *testing.T) {
	run := []int32{5, 6, 7, 8, 9, 10, 11, 5, 6, 7, 8, 9, 10, 11, 5, 6, 7, 8, 9}
	for i, c := range byTurns(tinies()) {
		if testing.Short() && i%3 != 0 {
			continue
		}
		e, _ := newTiny(t, c.graph, "f32", Options{Threads: 1, Context: 96})
		prompt := tinyIDs(13)
		decode := func(force bool) (ids []int32, chosen int) {
			var next []int32 // to be chosen alone
			mask := func(bits []uint32) (bool, error) {
				chosen++
				if len(next) == 0 {
					return false, nil
				}
				clear(bits)
				bits[next[0]/32] = 1 << (next[0] % 32)
				return true, nil
			}
			s := sequence(t, e)
			d, err := s.Decode(context.Background(), prompt, newSampler(t, sample.Options{Temperature: 2, RepetitionPenalty: 1.5, Seed: 3}), mask)
			if err != nil {
				t.Fatal(err)
			}
			for len(ids) < 96-len(prompt) {
				id, err := d.Next()
				if err != nil {
					t.Fatalf("%s: behind %d tokens: %v", c.name, len(ids), err)
				}
				ids = append(ids, id)
				if len(next) > 0 {
					next = next[1:]
				} else if force {
					ids = append(ids, run[:d.Force(run)]...)
				} else {
					next = run
				}
			}
			if d.Unread() > 0 && d.Force(run) != 0 {
				t.Errorf("%s: more is forced before it is read", c.name)
			}
			if err := d.Stop(); err != nil {
				t.Fatal(err)
			}
			return ids[:96-len(prompt)], chosen
		}
		want, each := decode(false)
		got, few := decode(true)
		if !slices.Equal(got, want) || few*10 > each {
			t.Errorf("%s: %d choices gave %v; %d with jumps %v", c.name, each, want, few, got)
		}
	}
}
