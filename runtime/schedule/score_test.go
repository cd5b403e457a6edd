package schedule

import (
	"context"
	"testing"

	"github.com/nstf/nstf/runtime/exec"
)

// A prompt's probabilities are those of a sequence that reads it alone, to the bit, whoever is
// served beside, and also where the prompt is kept from before or waits for room in between.
func TestScores(t *testing.T) {
	for _, name := range []string{"llama-31", "qwen3_next"} {
		if emulated() && name != "llama-31" {
			continue
		}
		ex := executor(t, name, exec.Options{Positions: 512, Places: 40})
		vocab := ex.Graph().Vocab
		var all []Request
		for i := range 12 {
			q := Request{Prompt: prompt(i%6, 20+17*(i%6), vocab), Choices: []Choice{{MaxTokens: 100}}}
			if i%3 > 0 {
				q.Scored, q.Top = true, i%3
			}
			if i == 4 {
				q.Choices = []Choice{{MaxTokens: 1, Logprobs: true}, {MaxTokens: 100}}
			}
			all = append(all, q)
		}
		if emulated() {
			all = all[:5]
		}
		s, got := queued(t, ex, all)
		if m := s.Metrics(); m.Yields == 0 && !emulated() {
			t.Errorf("%s: nobody yielded: %+v", name, m)
		}
		closed(t, ex, s)
		for i, q := range all {
			if !q.Scored {
				if len(got[i][0].scores) > 0 {
					t.Errorf("%s: request %d has scores that nobody asked for", name, i)
				}
				continue
			}
			want := scoresAlone(t, ex, &q)
			if len(got[i][0].scores) != len(want) || len(want) != len(q.Prompt)-1 {
				t.Fatalf("%s: request %d has %d scores for %d tokens", name, i, len(got[i][0].scores), len(q.Prompt))
			}
			for k, w := range want {
				if g := got[i][0].scores[k]; !sameScore(g, w) {
					t.Errorf("%s: request %d, token %d: %+v, alone %+v", name, i, k+1, g, w)
					break
				}
				if len(w.Top) != q.Top || w.Top[0].Logprob < w.Logprob {
					t.Errorf("%s: request %d, token %d: the most probable ones of %+v", name, i, k+1, w)
				}
			}
		}
	}
}

func scoresAlone(t *testing.T, ex *exec.Executor, q *Request) (all []Score) {
	t.Helper()
	seq, err := ex.NewSequence()
	if err != nil {
		t.Fatal(err)
	}
	defer seq.Close()
	err = seq.Prefill(context.Background(), q.Prompt, func(pos int, row []float32) error {
		if pos+1 < len(q.Prompt) {
			norm := logSum(row)
			all = append(all, Score{float64(row[q.Prompt[pos+1]]) - norm, top(row, q.Top, norm)})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Of a step's rows the oldest prompt has half, and the shortest the others; behind a prompt's
// end the same step decodes.
func TestRowsOfAStep(t *testing.T) {
	ex := executor(t, "llama-31", exec.Options{Sequences: 8})
	s := newScheduler(ex, Options{PromptRows: 40, Kept: -1})
	vocab := ex.Graph().Vocab
	first := submit(t, s, context.Background(), Request{Prompt: prompt(1, 10, vocab), Choices: []Choice{{MaxTokens: 50}}})
	s.step()
	if s.ex.Ahead() == 1 && len(first.events) != 2 {
		t.Errorf("a step that reads a prompt gave %d tokens, and not the one behind and one more", len(first.events))
	}
	for i, n := range []int{100, 60, 15, 90} {
		submit(t, s, context.Background(), Request{Prompt: prompt(2+i, n, vocab), Choices: []Choice{{MaxTokens: 50}}})
	}
	for step, want := range [][]int{{80, 55, 0, 90}, {60, 35, 0, 90}, {40, 15, 0, 90}, {15, 0, 0, 90}, {0, 0, 0, 65}, {0, 0, 0, 25}, {0, 0, 0, 0}} {
		s.step()
		for i, n := range want {
			if got := s.running[1+i].d.Unread(); got != n {
				t.Errorf("step %d leaves %d of prompt %d, want %v", step, got, i, want)
			}
		}
	}
	go s.loop()
	closed(t, ex, s)
}
