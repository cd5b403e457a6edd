package exec

import "github.com/nstf/nstf/runtime/device"

// stepBatch appends tokens[i] to seqs[i], in passes of up to [device.Stage.FewRows] of them, and
// returns the logits that follow each, valid until the next call on that sequence: what
// [Executor.Advance] does for decodings, for tokens that a test chooses. Where a sequence
// is full or a token unknown, no sequence has changed.
func (e *Executor) stepBatch(seqs []*Sequence, tokens []int32) ([][]float32, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, s := range seqs {
		if err := s.admit(tokens[i : i+1]); err != nil {
			return nil, err
		}
	}
	out := make([][]float32, len(seqs))
	for i, s := range seqs {
		if err := s.rejoin(s.len() + 1); err != nil {
			return nil, err
		}
		out[i] = s.logits
	}
	for step, lo := e.fewRows, 0; lo < len(seqs); lo += step {
		if err := e.stepRows(seqs[lo:min(lo+step, len(seqs))], tokens[lo:]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (e *Executor) stepRows(seqs []*Sequence, tokens []int32) error {
	f := &e.flight
	f.set(false)
	for i, s := range seqs {
		f.add(s, device.Segment{Tokens: tokens[i : i+1], Length: s.len() + 1, Wanted: 1})
	}
	if err := e.forward(f); err != nil {
		return err
	}
	for i, s := range seqs {
		s.append(tokens[i:i+1], s.len())
	}
	return e.eachLogits(f.pass, 0, len(seqs), func(row int, logits []float32) error {
		copy(seqs[row].logits, logits)
		return nil
	})
}
