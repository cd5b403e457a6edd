package schedule

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/nstf/nstf/runtime/exec"
)

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
