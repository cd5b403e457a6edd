package schedule

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/exec"
)

// Embeddings of texts whose blocks of queries choose pages are the same to the bit however many rows a step
// takes, and whatever text was read before.
func TestEmbedByPromptPolicy(t *testing.T) {
	if emulated() {
		t.Skip("prompts of more than a thousand tokens; runtime/exec has shorter ones by a policy")
	}
	p := &device.Policy{Pages: 0.1, Mass: 1, Least: 64, Refresh: 10}
	ex := executor(t, "llama-31", exec.Options{Sequences: 4, Context: 1600, Policy: p})
	for range ex.Graph().Blocks {
		p.Prompts = append(p.Prompts, make([]float64, ex.Graph().Blocks[0].Attn.KVHeads))
	}
	texts := [][]int32{prompt(1, 1500, ex.Graph().Vocab), prompt(2, 1490, ex.Graph().Vocab)}
	collector := func(tokens []int32, rows *[][]float32) *embedding {
		return &embedding{ctx: context.Background(), tokens: tokens, wanted: func(int) bool { return true }, done: make(chan error, 1),
			f: func(row []float32) { *rows = append(*rows, slices.Clone(row)) }}
	}
	var alone [2][][]float32
	s := newScheduler(ex, Options{Kept: -1})
	for i, tokens := range texts {
		e := collector(tokens, &alone[i])
		if n, err := s.embedRows(e, len(tokens)); n != len(tokens) || err != nil {
			t.Fatal(n, err)
		}
		e.release()
	}
	if read, held := ex.PagesRead(); read == 0 || read >= held {
		t.Errorf("%d of %d pages read", read, held)
	}
	for _, rows := range []int{0, 100, 7} {
		var got [2][][]float32
		s := newScheduler(ex, Options{Kept: -1})
		for i, tokens := range texts {
			e := collector(tokens, &got[i])
			if s.embeddings = append(s.embeddings, e); rows == 0 {
				continue // steps cut the second behind what the first has left of them
			}
			s.embeddings = nil
			for e.at < len(tokens) {
				if _, err := s.embedRows(e, rows); err != nil {
					t.Fatal(err)
				}
			}
			e.release()
		}
		for len(s.embeddings) > 0 {
			if err := s.embed(); err != nil {
				t.Fatal(err)
			}
		}
		for i := range got {
			if !slices.EqualFunc(got[i], alone[i], slices.Equal[[]float32]) {
				t.Errorf("text %d by %d rows: other rows than alone, %d of %d", i, rows, len(got[i]), len(alone[i]))
			}
		}
	}
}

// Embeddings are the same to the bit alone and beside requests that leave little room.
func TestEmbedBesideOthers(t *testing.T) {
	ex := executor(t, "llama-2", exec.Options{Positions: 256, Places: 6})
	all := requests(8, ex.Graph().Vocab)
	embed := func(s *Scheduler, tokens []int32, last bool) (rows [][]float32) {
		t.Helper()
		wanted := func(i int) bool { return !last || i == len(tokens)-1 }
		if err := s.Embed(context.Background(), tokens, wanted, func(row []float32) { rows = append(rows, slices.Clone(row)) }); err != nil {
			t.Error(err)
		}
		return rows
	}
	texts := [][]int32{all[0].Prompt, all[1].Prompt, all[3].Prompt, append(slices.Clone(all[0].Prompt), all[6].Prompt[:40]...)}
	alone := make([][][]float32, len(texts))
	s := New(ex, Options{})
	for i, tokens := range texts {
		alone[i] = embed(s, tokens, false)
		if last := embed(s, tokens, true); len(alone[i]) != len(tokens) || len(last) != 1 || !slices.Equal(last[0], alone[i][len(tokens)-1]) {
			t.Fatalf("text %d: %d rows of %d, %d last ones", i, len(alone[i]), len(tokens), len(last))
		}
	}
	s.Close()
	s = New(ex, Options{PromptRows: 16})
	var wg sync.WaitGroup
	for _, r := range all {
		wg.Add(1)
		go func() {
			defer wg.Done()
			st, err := s.Submit(context.Background(), r)
			if err != nil {
				t.Error(err)
				return
			}
			for {
				if _, err := st.Next(context.Background()); err != nil {
					return
				}
			}
		}()
	}
	for i, tokens := range texts {
		wg.Add(1)
		go func() {
			defer wg.Done()
			got := embed(s, tokens, false)
			if !slices.EqualFunc(got, alone[i], slices.Equal[[]float32]) {
				t.Errorf("text %d: other rows beside others, %d of %d", i, len(got), len(alone[i]))
			}
		}()
	}
	wg.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	none := func([]float32) { t.Error("a row of a text that nobody wants") }
	every := func(int) bool { return true }
	if err := s.Embed(ctx, texts[0], every, none); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := s.Embed(context.Background(), []int32{-1}, every, none); err == nil {
		t.Error("an unknown token is read")
	}
	if err := s.Embed(context.Background(), make([]int32, 1000), every, none); !errors.Is(err, exec.ErrContextFull) {
		t.Errorf("too long a text: %v", err)
	}
	closed(t, ex, s)
	if err := s.Embed(context.Background(), texts[0], every, none); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
