package eval

import (
	"context"
	"fmt"
	"math"
	goruntime "runtime"
	"sync"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/logprob"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/sample"
)

// chunkFloats bounds the logits that wait to be scored: 16 MiB.
const chunkFloats = 4 << 20

// chunkRows returns how many rows are scored at a time. Both models of a
// comparison use it, so that their rows arrive in the same steps.
func chunkRows(vocab int) int { return min(max(chunkFloats/vocab, 1), 64) }

// A scorer turns rows of logits into figures.
type scorer struct {
	file  string // the model's, for messages
	w     *windows
	vocab int
	ref   reference       // or nil
	save  *logprob.Writer // or nil

	window int
	rows   rowReader // the reference's rows of this window, or nil
	chunk  []float32 // rows waiting
	n      int       // their number
	done   int       // rows of this window before them

	nll, refNLL, kl []float64 // by scored row
	same            []bool
	workers         []worker
}

// A worker has space for two rows of log-probabilities.
type worker struct{ own, ref []float64 }

func newScorer(file string, w *windows, vocab int, ref reference, save *logprob.Writer) *scorer {
	n := w.scored()
	s := &scorer{file: file, w: w, vocab: vocab, ref: ref, save: save, nll: make([]float64, n),
		chunk: make([]float32, min(chunkRows(vocab), w.rows())*vocab), workers: make([]worker, goruntime.GOMAXPROCS(0))}
	if ref != nil {
		s.refNLL, s.kl, s.same = make([]float64, n), make([]float64, n), make([]bool, n)
	}
	for i := range s.workers {
		s.workers[i].own = make([]float64, vocab)
		if ref != nil {
			s.workers[i].ref = make([]float64, vocab)
		}
	}
	return s
}

// run scores all windows.
func (s *scorer) run(ctx context.Context, ex *exec.Executor, progress func(done, total int64)) error {
	seq, err := ex.NewSequence()
	if err != nil {
		return err
	}
	total := int64(len(s.w.list)) * int64(s.w.size)
	for i := range s.w.list {
		if err := s.scoreWindow(ctx, seq, i); err != nil {
			return err
		}
		if progress != nil {
			progress(int64(i+1)*int64(s.w.size), total)
		}
	}
	return nil
}

func (s *scorer) scoreWindow(ctx context.Context, seq *exec.Sequence, window int) error {
	s.window, s.done, s.n = window, 0, 0
	if s.ref != nil {
		// The reference may be computing: it ends with the window, whatever
		// becomes of ours.
		refCtx, cancel := context.WithCancel(ctx)
		defer cancel()
		var err error
		if s.rows, err = s.ref.window(refCtx, window); err != nil {
			return err
		}
		defer func() { cancel(); s.rows.close() }()
	}
	err := s.w.run(ctx, seq, window, func(row []float32) error {
		copy(s.chunk[s.n*s.vocab:], row)
		if s.n++; s.n*s.vocab == len(s.chunk) || s.done+s.n == s.w.rows() {
			return s.flush(ctx)
		}
		return nil
	})
	if err == nil && s.save != nil {
		err = s.save.Flush()
	}
	return err
}

// flush scores the rows that wait, on all cores.
func (s *scorer) flush(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.rows != nil {
		if err := s.rows.next(s.n); err != nil {
			return err
		}
	}
	errs := make([]error, s.n)
	var wait sync.WaitGroup
	for i := range s.workers {
		wait.Go(func() {
			for row := i; row < s.n; row += len(s.workers) {
				errs[row] = s.score(&s.workers[i], row)
			}
		})
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	s.done += s.n
	s.n = 0
	return nil
}

// score scores one waiting row.
func (s *scorer) score(w *worker, row int) error {
	logits := s.chunk[row*s.vocab : (row+1)*s.vocab]
	inWindow := s.done + row
	target := s.w.list[s.window][s.w.first+inWindow+1]
	logSoftmax(w.own, logits)
	at := s.window*s.w.rows() + inWindow
	if s.nll[at] = -w.own[target]; math.IsNaN(s.nll[at]) || math.IsInf(s.nll[at], 0) {
		return formats.Errorf(s.file, "", "the logits of window %d, position %d are not finite: the weights are damaged, or too large for their precision",
			s.window, s.w.first+inWindow)
	}
	if s.save != nil {
		s.save.Put(inWindow, w.own, int(target))
	}
	if s.rows == nil {
		return nil
	}
	argmax := s.rows.logp(row, w.ref)
	s.refNLL[at] = -w.ref[target]
	s.kl[at] = divergence(w.ref, w.own)
	s.same[at] = argmax == sample.Greedy(logits)
	return nil
}

// logSoftmax writes the logarithm of the softmax of logits into dst, in
// float64.
func logSoftmax(dst []float64, logits []float32) {
	top := math.Inf(-1)
	for _, v := range logits {
		top = max(top, float64(v))
	}
	var sum float64
	for i, v := range logits {
		dst[i] = float64(v) - top
		sum += math.Exp(dst[i])
	}
	norm := math.Log(sum)
	for i := range dst {
		dst[i] -= norm
	}
}

// divergence returns the KL divergence of own from ref, both
// log-probabilities. Rounding may leave a hair below zero, which is kept: a
// mean of clipped numbers would be biased.
func divergence(ref, own []float64) float64 {
	var sum float64
	for i, lp := range ref {
		if p := math.Exp(lp); p > 0 {
			sum += p * (lp - own[i])
		}
	}
	return sum
}

// result sums up.
func (s *scorer) result() *Result {
	nll := mean(s.nll)
	r := &Result{Protocol: s.w.protocol, Context: s.w.size, Windows: len(s.w.list), Tokens: s.w.tokens,
		Scored: s.w.scored(), NLL: nll, Perplexity: nll.exp()}
	if s.ref == nil {
		return r
	}
	ratio := make([]float64, len(s.nll))
	for i := range ratio {
		ratio[i] = s.nll[i] - s.refNLL[i]
	}
	kl := sorted(s.kl)
	r.Ref = &Comparison{Perplexity: mean(s.refNLL).exp(), LogRatio: mean(ratio), KL: mean(s.kl), Median: quantile(kl, 0.5),
		P90: quantile(kl, 0.9), P99: quantile(kl, 0.99), Top1: share(s.same)}
	return r
}

// checkVocab refuses a reference whose rows are of another size.
func checkVocab(name string, got, want int) error {
	if got != want {
		return fmt.Errorf("%s has a vocabulary of %d tokens, the model one of %d: they cannot be compared", name, got, want)
	}
	return nil
}
