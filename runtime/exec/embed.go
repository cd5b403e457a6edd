package exec

import "github.com/nstf/nstf/runtime/device"

// Embed appends tokens, in the order of prompts however few they are, and calls f with
// the hidden state [D] behind the last norm of each of the last wanted ones, in order; row
// is valid during the call. A text may be cut anywhere, to the same bits, as far as its
// rotary embeddings do not depend on the length ([Sequence.Prefill]). Errors are those of
// Prefill.
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
	var rows []float32
	for len(tokens) > 0 {
		n := s.cut(len(tokens), s.e.maxRows)
		segment := device.Segment{Tokens: tokens[:n], Length: length, Wanted: max(0, min(n, wanted-len(tokens)+n))}
		tokens = tokens[n:]
		pass, err := s.forward(segment, true)
		if err != nil {
			return err
		}
		if segment.Wanted == 0 {
			continue
		}
		if rows == nil {
			rows = make([]float32, min(wanted, s.e.maxRows)*width)
		}
		if err := pass.Normed(0, segment.Wanted, rows[:segment.Wanted*width]); err != nil {
			return err
		}
		for i := range segment.Wanted {
			f(rows[i*width : (i+1)*width])
		}
	}
	return nil
}
