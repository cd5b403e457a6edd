package exec

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/runtime/device"
)

// A Sequence is a text in progress: its tokens, and their keys and values.
type Sequence struct {
	e       *Executor
	cache   device.Cache
	history []int32
	length  int64 // by which the cached keys were rotated
	logits  []float32
	one     [1]int32
}

// ErrContextFull is what errors.Is finds in every [ContextFullError].
var ErrContextFull = errors.New("context full")

// A ContextFullError says that tokens do not fit a sequence. The sequence has
// not changed.
type ContextFullError struct{ Used, New, Capacity int64 }

// Error implements error.
func (e *ContextFullError) Error() string {
	return fmt.Sprintf("context full: %d of %d positions used, %d more asked for", e.Used, e.Capacity, e.New)
}

// Is makes errors.Is(err, ErrContextFull) true.
func (e *ContextFullError) Is(target error) bool { return target == ErrContextFull }

// Len returns the number of tokens.
func (s *Sequence) Len() int { return len(s.history) }

// Tokens returns the tokens so far. The caller must not change them; the next
// call on the sequence may.
func (s *Sequence) Tokens() []int32 { return s.history }

// Bytes returns the memory of the keys and values.
func (s *Sequence) Bytes() int64 { return s.cache.Bytes() }

// Reset forgets all tokens and keeps the memory.
func (s *Sequence) Reset() { s.Truncate(0) }

// Truncate forgets all tokens from n on; it panics where n is negative or
// beyond Len. What follows is computed as if they had never been there.
func (s *Sequence) Truncate(n int) {
	s.cache.Truncate(int64(n))
	s.history = s.history[:n]
}

// Prefill appends tokens and calls logits, if it is not nil, with the logits
// [Vocab] that follow each of them, in order; pos is the token's position, row
// is valid during the call. Without logits only what later tokens need is
// computed.
//
// The call counts as one pass for rotary embeddings that depend on the length
// of the sequence: all its tokens are rotated by the length at its end.
// Longrope computes earlier tokens again when the length first exceeds the
// original context (or, after Truncate, no longer does), dynamic scaling keeps
// them: transformers' generation does the same.
//
// On an error of ctx, which is looked at between passes (of 512 tokens on the
// processor), or of logits, the tokens of finished passes stay; see Len.
func (s *Sequence) Prefill(ctx context.Context, tokens []int32, logits func(pos int, row []float32) error) error {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if logits == nil {
		return s.prefill(ctx, tokens, func(rows int) int { return rows }, nil)
	}
	return s.prefill(ctx, tokens, func(int) int { return 0 }, func(start, rows int, last bool) error {
		return s.e.eachLogits(0, rows, func(row int, l []float32) error { return logits(start+row, l) })
	})
}

// PrefillLast appends at least one token and returns the logits that follow
// the last, valid until the next call. ctx is as in [Sequence.Prefill].
func (s *Sequence) PrefillLast(ctx context.Context, tokens []int32) ([]float32, error) {
	if len(tokens) == 0 {
		panic("exec: PrefillLast of no tokens")
	}
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	err := s.prefill(ctx, tokens, func(rows int) int { return rows - 1 }, func(_, rows int, last bool) error {
		if last {
			return s.e.backend.Logits(rows-1, rows, s.logits)
		}
		return nil
	})
	return s.logits, err
}

// Step appends one token and returns the logits that follow it, valid until
// the next call.
func (s *Sequence) Step(token int32) ([]float32, error) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.one[0] = token
	if err := s.admit(s.one[:]); err != nil {
		return nil, err
	}
	length := s.cache.Len() + 1
	if err := s.rejoin(length); err != nil {
		return nil, err
	}
	if err := s.e.forward(s, s.one[:], 0, length); err != nil {
		return nil, err
	}
	return s.logits, s.e.backend.Logits(0, 1, s.logits)
}

// Shift drops the tokens [keep, keep+drop) and goes on with the rest at lower
// positions, as if the dropped ones had never been there: the logits that
// follow are those of a fresh sequence of the remaining tokens. The tokens
// behind the gap are computed again. Turning their cached keys back instead
// would be cheaper, but their keys and values were computed while attending
// to what was dropped, so nothing could be said about the result, and learned
// positions could not be turned back at all
// (docs/decisions/0006-a-shifted-context-is-computed-again.md).
func (s *Sequence) Shift(keep, drop int) error {
	if keep < 0 || drop < 0 || keep > len(s.history)-drop {
		panic(fmt.Sprintf("exec: shift by %d after %d of %d tokens", drop, keep, len(s.history)))
	}
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	rest := slices.Clone(s.history[keep+drop:])
	for i := range s.e.g.Ropes {
		if r := &s.e.g.Ropes[i]; r.Regime(s.length) != r.Regime(int64(keep+len(rest))) {
			rest = append(slices.Clone(s.history[:keep]), rest...)
			keep = 0
		}
	}
	s.Truncate(keep)
	return s.prefill(context.Background(), rest, func(rows int) int { return rows }, nil)
}

// prefill appends tokens in passes. from says which rows of a pass are wanted
// and done, if not nil, is called after each pass, with the position of its
// first row.
func (s *Sequence) prefill(ctx context.Context, tokens []int32, from func(rows int) int, done func(start, rows int, last bool) error) error {
	if err := s.admit(tokens); err != nil {
		return err
	}
	length := s.cache.Len() + int64(len(tokens))
	if err := s.rejoin(length); err != nil {
		return err
	}
	for len(tokens) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, start := min(len(tokens), s.e.maxRows), len(s.history)
		if err := s.e.forward(s, tokens[:n], from(n), length); err != nil {
			return err
		}
		tokens = tokens[n:]
		if done != nil {
			if err := done(start, n, len(tokens) == 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// admit checks that tokens are known and fit.
func (s *Sequence) admit(tokens []int32) error {
	if used, n := int64(len(s.history)), int64(len(tokens)); n > s.e.context-used {
		return &ContextFullError{Used: used, New: n, Capacity: s.e.context}
	}
	for i, id := range tokens {
		if id < 0 || int64(id) >= s.e.g.Vocab {
			return formats.Errorf("", "", "token %d at index %d is not one of the model's %d", id, i, s.e.g.Vocab)
		}
	}
	return nil
}

// rejoin computes the keys and values of the history again where the coming
// length makes them useless.
func (s *Sequence) rejoin(length int64) error {
	if len(s.history) == 0 {
		return nil
	}
	stale := false
	for i := range s.e.g.Ropes {
		r := &s.e.g.Ropes[i]
		stale = stale || r.Recomputes() && r.Regime(s.length) != r.Regime(length)
	}
	if !stale {
		return nil
	}
	tokens := s.history
	s.cache.Truncate(0)
	s.history = nil
	for lo := 0; lo < len(tokens); lo += s.e.maxRows {
		n := min(s.e.maxRows, len(tokens)-lo)
		if err := s.e.forward(s, tokens[lo:lo+n], n, length); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sequence) append(tokens []int32, length int64) {
	s.history = append(s.history, tokens...)
	s.length = length
}
