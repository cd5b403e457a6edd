package exec

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nstf/nstf/runtime/device"
)

// A Sequence is a text in progress: its tokens, and what the stages remember of
// them.
type Sequence struct {
	e       *Executor
	states  []device.State // of each stage; they may hold fewer positions than the history
	kept    kept
	history []int32
	length  int64 // by which the keys were rotated
	// prompted is how many tokens at the beginning were computed in the order of prompts.
	prompted int
	logits   []float32
	one      [1]int32
	failed   error // of computing the history again; until it is forgotten
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

// Bytes returns the memory of what the stages remember.
func (s *Sequence) Bytes() (n int64) {
	for _, state := range s.states {
		n += state.Bytes()
	}
	return n
}

// Reset forgets all tokens.
func (s *Sequence) Reset() { s.Truncate(0) }

// Truncate forgets all tokens from n on; it panics where n is negative or
// beyond Len. What follows is computed as if they had never been there.
func (s *Sequence) Truncate(n int) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.truncate(n)
}

func (s *Sequence) truncate(n int) {
	s.history, s.prompted = s.history[:n], min(s.prompted, n)
	if n == 0 {
		s.failed = nil
	}
	if s.kept.len > n {
		s.kept.release()
	}
	if left := s.rewind(int64(n)); left < int64(s.kept.len) {
		for i, state := range s.states {
			if state.Restore(s.kept.states[i]) != nil { // there is no room: all is computed again
				s.rewind(0)
				return
			}
		}
	}
}

// rewind takes all states back to the same position, and returns it: n, or what is
// left where they cannot go there. What is missing of the history is computed again
// with what comes ([Sequence.rejoin]).
func (s *Sequence) rewind(n int64) int64 {
	for agreed := false; !agreed; {
		agreed = true
		for _, state := range s.states {
			left := min(n, state.Len())
			if left = state.Rewind(left); left < n {
				n, agreed = left, false
			}
		}
	}
	return n
}

// kept is the states of a sequence as they were behind its first tokens.
type kept struct {
	states []device.Snapshot
	len    int
}

func (k *kept) release() {
	release(k.states)
	*k = kept{}
}

// keep remembers the states as they are, in place of what was kept before. Where
// there is no room, nothing is kept.
func (s *Sequence) keep() {
	s.kept.release()
	if states, err := s.snapshots(); err == nil {
		s.kept.states, s.kept.len = states, len(s.history)
	}
}

// snapshots keeps all states as they are, or none.
func (s *Sequence) snapshots() (all []device.Snapshot, err error) {
	for _, state := range s.states {
		one, err := state.Snapshot()
		if err != nil {
			release(all)
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

func release(all []device.Snapshot) {
	for _, s := range all {
		s.Release()
	}
}

// Fork returns another sequence that begins with the same tokens, whose memory
// both share until they part.
func (s *Sequence) Fork() (*Sequence, error) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	f := &Sequence{e: s.e, history: slices.Clone(s.history), length: s.length, prompted: s.prompted, logits: make([]float32, len(s.logits))}
	for _, state := range s.states {
		other, err := state.Fork()
		if err != nil {
			f.release()
			return nil, err
		}
		f.states = append(f.states, other)
	}
	return f, nil
}

// Close gives the sequence's memory back. It is not used afterwards.
func (s *Sequence) Close() {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.release()
}

func (s *Sequence) release() {
	s.kept.release()
	for _, state := range s.states {
		state.Release()
	}
	s.states = nil
}

// len returns the positions of the sequence: with those of passes under way, of
// which the tokens are not known yet.
func (s *Sequence) len() int64 { return max(s.states[0].Len(), int64(len(s.history))) }

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
		return s.prefill(ctx, tokens, nothing, nil)
	}
	return s.prefill(ctx, tokens, everything, func(pass device.Pass, start, rows, _ int) error {
		return s.e.eachLogits(pass, 0, rows, func(row int, l []float32) error { return logits(start+row, l) })
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
	err := s.prefill(ctx, tokens, lastRow, func(pass device.Pass, _, _, left int) error {
		if left > 0 {
			return nil
		}
		return pass.Logits(0, 1, s.logits)
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
	length := s.len() + 1
	if err := s.rejoin(length); err != nil {
		return nil, err
	}
	f := &s.e.flight
	f.set(false)
	f.add(s, device.Segment{Tokens: s.one[:], Length: length, Wanted: 1})
	if err := s.e.forward(f); err != nil {
		return nil, err
	}
	s.took(s.one[:], length, false)
	return s.logits, f.pass.Logits(0, 1, s.logits)
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
	s.truncate(keep)
	return s.prefill(context.Background(), rest, nothing, nil)
}

// An output says what is wanted of a pass: it completes the segment of rows whose
// last is the one before the given number of tokens that are left.
type output func(s *device.Segment, left int)

func nothing(*device.Segment, int)           {}
func everything(s *device.Segment, left int) { s.Wanted = len(s.Tokens) }
func lastRow(s *device.Segment, left int) {
	if left == 0 {
		s.Wanted = 1
	}
}

// prefill appends tokens in passes: those of a prompt where they are not few. done, if
// not nil, is called after each, with the position of its first row and the tokens
// that are left.
func (s *Sequence) prefill(ctx context.Context, tokens []int32, want output, done func(pass device.Pass, start, rows, left int) error) error {
	if err := s.admit(tokens); err != nil {
		return err
	}
	length := s.len() + int64(len(tokens))
	if err := s.rejoin(length); err != nil {
		return err
	}
	return s.read(ctx, tokens, length, len(tokens) > device.FewRows, want, done)
}

// read appends tokens, that are admitted, in passes that are a prompt's or not; all of them have the length. ctx
// and done are as of prefill. Where there is no room, the tokens of the turns before stay.
func (s *Sequence) read(ctx context.Context, tokens []int32, length int64, prompt bool, want output, done func(pass device.Pass, start, rows, left int) error) error {
	for len(tokens) > 0 {
		n := s.cut(len(s.history), len(tokens), s.e.MaxRows())
		behind := len(tokens) - n
		if err := s.turn(ctx, tokens[:n], length, prompt, func(segment *device.Segment, left int) {
			want(segment, left+behind)
		}, func(pass device.Pass, start, rows, left int) error {
			if done == nil {
				return nil
			}
			return done(pass, start, rows, left+behind)
		}); err != nil {
			return err
		}
		tokens = tokens[n:]
	}
	return nil
}

// turn appends tokens for which there is to be room at once, as read does; where there is none, nothing has
// changed.
func (s *Sequence) turn(ctx context.Context, tokens []int32, length int64, prompt bool, want output, done func(pass device.Pass, start, rows, left int) error) error {
	if err := s.reserve(len(tokens)); err != nil {
		s.giveBack()
		return err
	}
	most, from := s.e.cut(len(tokens)), len(s.history)
	begun, landed := tokens, tokens
	var stopped error
	err := s.e.flow(func(f *flight) bool {
		if stopped = ctx.Err(); stopped != nil || len(begun) == 0 {
			return false
		}
		n := s.cut(from+len(tokens)-len(begun), len(begun), most)
		segment := device.Segment{Tokens: begun[:n], Length: length}
		begun = begun[n:]
		want(&segment, len(begun))
		f.set(prompt)
		f.add(s, segment)
		return true
	}, func(pass device.Pass) error {
		start := len(s.history)
		n := s.cut(start, len(landed), most)
		s.took(landed[:n], length, prompt)
		landed = landed[n:]
		return done(pass, start, n, len(landed))
	})
	if err == nil {
		err = stopped
	}
	if err != nil {
		s.truncate(len(s.history)) // what stages have counted, or hold room for
	}
	return err
}

// cut returns how many of the tokens of a prompt that are left at a position go into a pass that is
// given so many rows. Where blocks of queries choose pages, it ends where a page does, by fewer rows or
// by more: rows of a page that several passes share attend to all. The places at which sequences are
// kept are such ends too.
func (s *Sequence) cut(at, tokens, rows int) int {
	n := min(tokens, rows)
	if n == tokens || !s.e.policy.ForPrompts() {
		return n
	}
	at %= device.PolicyPage
	if whole := (at+n)/device.PolicyPage*device.PolicyPage - at; whole > 0 {
		return whole
	}
	return min(device.PolicyPage-at, tokens, s.e.maxRows)
}

// keepAt returns behind how many of the tokens of a prompt a recurrent sequence is
// kept, so that what comes next may go back there: a conversation that goes on ends
// otherwise than with what asked for an answer.
func (e *Executor) keepAt(tokens int) int {
	const least = device.FewRows + 1
	if !e.recurrent || tokens < 2*least {
		return 0
	}
	return tokens - least
}

// stale reports whether the coming length makes the keys of the history useless.
func (s *Sequence) stale(length int64) bool {
	if len(s.history) == 0 {
		return false
	}
	for i := range s.e.g.Ropes {
		if r := &s.e.g.Ropes[i]; r.Recomputes() && r.Regime(s.length) != r.Regime(length) {
			return true
		}
	}
	return false
}

// rejoin computes again what of the history the states do not hold, or not as the
// coming length wants it: what was a prompt's in the order of prompts. Where that fails,
// the sequence gives the error again until it is reset.
func (s *Sequence) rejoin(length int64) (err error) {
	held := min(int(s.states[0].Len()), len(s.history))
	if s.stale(length) {
		held = 0
	}
	if held == len(s.history) {
		return nil
	}
	tokens, prompted := s.history[held:], max(0, s.prompted-held)
	s.history = slices.Clone(s.history[:held])
	if held == 0 {
		s.truncate(0)
	}
	defer func() { s.failed = err }() // a rest of the history is another text
	prompt, rest := tokens[:prompted], tokens[prompted:]
	if err := s.read(context.Background(), prompt, length, true, nothing, nil); err != nil {
		return err
	}
	return s.read(context.Background(), rest, length, len(rest) > device.FewRows, nothing, nil)
}

// took records tokens of a pass, which was one of a prompt or not.
func (s *Sequence) took(tokens []int32, length int64, prompt bool) {
	if prompt && s.prompted == len(s.history) {
		s.prompted += len(tokens)
	}
	s.append(tokens, length)
}

func (s *Sequence) append(tokens []int32, length int64) {
	s.history = append(s.history, tokens...)
	s.length = length
}
