package exec

import (
	"context"

	"github.com/nstf/nstf/runtime/device"
)

// Embed appends tokens, in the order of prompts however few they are, and calls f with
// the hidden state [D] behind the last norm of each of the last wanted ones, in order; row
// is valid during the call. A text may be cut at any multiple of [Executor.PromptUnit], to the
// same bits, as far as its rotary embeddings do not depend on the length
// ([Sequence.Prefill]). Errors are those of Prefill.
func (s *Sequence) Embed(tokens []int32, wanted int, f func(row []float32)) error {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if err := s.admit(tokens); err != nil {
		return err
	}
	length, width := s.len()+int64(len(tokens)), int(s.e.g.Width)
	if err := s.rejoin(length); err != nil {
		return err
	}
	rows := make([]float32, min(wanted, s.e.maxRows)*width)
	return s.read(context.Background(), tokens, length, true, func(segment *device.Segment, left int) {
		segment.Wanted = max(0, min(len(segment.Tokens), wanted-left))
	}, func(pass device.Pass, _, n, left int) error {
		n = max(0, min(n, wanted-left))
		if n == 0 {
			return nil
		}
		if err := pass.Normed(0, n, rows[:n*width]); err != nil {
			return err
		}
		for i := range n {
			f(rows[i*width : (i+1)*width])
		}
		return nil
	})
}
