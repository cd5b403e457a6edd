package eval

import (
	"context"
	"errors"
	"fmt"

	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/logprob"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/sample"
)

// A reference gives the distributions that a model is measured against.
type reference interface {
	// window starts to give the scored rows of a window, in order. The rows
	// end with ctx.
	window(ctx context.Context, window int) (rowReader, error)
	close() error
}

// A rowReader gives rows in steps of [chunkRows].
type rowReader interface {
	// next makes the next n rows available.
	next(n int) error
	// logp writes the log-probabilities of one of them into dst and returns
	// the most likely token. Several goroutines may call it.
	logp(row int, dst []float64) int32
	close()
}

// openReference opens stored log-probabilities or a model, and checks that it
// is about the same windows.
func openReference(o Options, texts []string, w *windows, vocab int) (reference, error) {
	if logprob.Is(o.Ref) {
		return openStored(o.Ref, w, vocab)
	}
	m, err := checkpoint.Open(o.Ref)
	if err != nil {
		return nil, err
	}
	r, err := newModelReference(m, o, texts, w, vocab)
	if err != nil {
		m.Close()
		return nil, err
	}
	return r, nil
}

// storedReference reads a file of formats/logprob.
type storedReference struct{ r *logprob.Reader }

func openStored(path string, w *windows, vocab int) (reference, error) {
	r, err := logprob.Open(path)
	if err != nil {
		return nil, err
	}
	if err := checkStored(path, r.Header, w.header(vocab)); err != nil {
		r.Close()
		return nil, err
	}
	return &storedReference{r}, nil
}

// ErrOtherText says that a stored reference is about something else.
var ErrOtherText = errors.New("the stored reference was made with another text, tokenizer, context, number of tokens or protocol")

func checkStored(path string, got, want logprob.Header) error {
	if err := checkVocab(path, got.Vocab, want.Vocab); err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("%s: %w (%d windows of %d tokens there, %d of %d here)", path, ErrOtherText,
			got.Windows, got.Window, want.Windows, want.Window)
	}
	return nil
}

func (s *storedReference) close() error { return s.r.Close() }

func (s *storedReference) window(_ context.Context, window int) (rowReader, error) {
	rows, err := s.r.Read(int64(window))
	if err != nil {
		return nil, err
	}
	return &storedRows{rest: rows}, nil
}

type storedRows struct{ now, rest []logprob.Row }

func (s *storedRows) next(n int) error {
	s.now, s.rest = s.rest[:n], s.rest[n:]
	return nil
}

func (s *storedRows) logp(row int, dst []float64) int32 {
	s.now[row].Decode(dst)
	return s.now[row].Argmax
}

func (s *storedRows) close() {}

// modelReference runs another model beside the one that is measured.
type modelReference struct {
	m  *model.Model
	ex *exec.Executor
	w  *windows
	// seq serves one window after the other.
	seq *exec.Sequence
}

func newModelReference(m *model.Model, o Options, texts []string, w *windows, vocab int) (*modelReference, error) {
	if err := checkVocab(m.Path, int(m.Graph.Vocab), vocab); err != nil {
		return nil, err
	}
	tok, err := m.Tokenizer()
	if err != nil {
		return nil, err
	}
	own, err := cut(tok, texts, o.Protocol, o.Context, o.MaxTokens)
	if err != nil {
		return nil, err
	}
	if own.hash() != w.hash() {
		return nil, fmt.Errorf("%s turns %s into other tokens than the model: they cannot be compared", m.Path, o.Text)
	}
	o.Policy, o.Device.KVHost = nil, 0
	ex, seq, err := exec.Alone(m, o.exec(int64(w.size)))
	if err != nil {
		return nil, err
	}
	return &modelReference{m: m, ex: ex, w: w, seq: seq}, nil
}

func (r *modelReference) close() error { return errors.Join(r.ex.Close(), r.m.Close()) }

// window computes rows in a goroutine of its own that stays at most one chunk
// ahead.
func (r *modelReference) window(ctx context.Context, window int) (rowReader, error) {
	vocab := int(r.ex.Graph().Vocab)
	c := &computedRows{vocab: vocab, full: make(chan []float32), free: make(chan []float32, 2), failed: make(chan error, 1), end: make(chan struct{})}
	size := min(chunkRows(vocab), r.w.rows()) * vocab
	c.free <- make([]float32, 0, size)
	c.free <- make([]float32, 0, size)
	go func() {
		defer close(c.end)
		if err := c.compute(ctx, r, window); err != nil {
			c.failed <- err
		}
	}()
	return c, nil
}

type computedRows struct {
	vocab  int
	now    []float32
	full   chan []float32 // chunks of rows
	free   chan []float32 // space for them
	failed chan error
	end    chan struct{} // closed when the goroutine has ended
}

func (c *computedRows) compute(ctx context.Context, r *modelReference, window int) error {
	done, chunk := 0, <-c.free
	return r.w.run(ctx, r.seq, window, func(row []float32) error {
		chunk = append(chunk, row...)
		if done++; len(chunk) < cap(chunk) && done < r.w.rows() {
			return nil
		}
		select {
		case c.full <- chunk:
		case <-ctx.Done():
			return ctx.Err()
		}
		if done == r.w.rows() {
			return nil
		}
		select {
		case chunk = <-c.free:
			chunk = chunk[:0]
		case <-ctx.Done():
			return ctx.Err()
		}
		return nil
	})
}

func (c *computedRows) next(n int) error {
	if c.now != nil {
		c.free <- c.now
	}
	select {
	case c.now = <-c.full:
	case err := <-c.failed:
		return err
	}
	if len(c.now) != n*c.vocab {
		panic(fmt.Sprintf("eval: %d numbers of the reference where %d rows were due", len(c.now), n))
	}
	return nil
}

func (c *computedRows) logp(row int, dst []float64) int32 {
	logits := c.now[row*c.vocab : (row+1)*c.vocab]
	logSoftmax(dst, logits)
	return sample.Greedy(logits)
}

// close waits for the goroutine, whose context has ended or which is done.
func (c *computedRows) close() { <-c.end }
