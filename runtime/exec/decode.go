package exec

import (
	"context"

	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/sample"
)

// A Decoding continues a sequence token by token. Where the device can choose
// tokens by itself it does, one or more ahead of who reads them.
type Decoding struct {
	s       *Sequence
	sampler *sample.Sampler
	history []int32
	device  device.Decoding // nil: tokens are chosen here
	logits  []float32       // that the next token is chosen from
	begun   bool            // a token was returned
}

// Decode appends at least one token and begins to choose those that follow, as
// the sampler does; history is the tokens that it is shown beside the logits, to
// which those that are chosen are added in memory of its own. ctx is as in
// [Sequence.Prefill].
//
// Until [Decoding.Stop], calls on the executor wait where the device chooses:
// stop it before anything else is done with the sequence.
func (s *Sequence) Decode(ctx context.Context, tokens []int32, sampler *sample.Sampler, history []int32) (*Decoding, error) {
	if len(tokens) == 0 {
		panic("exec: Decode behind no tokens")
	}
	d := &Decoding{s: s, sampler: sampler, history: append([]int32(nil), history...)}
	s.e.mu.Lock()
	err := s.prefill(ctx, tokens, func(rows int) int { return rows - 1 }, func(_, rows int, last bool) error {
		if !last {
			return nil
		}
		return d.begin(rows)
	})
	if err != nil || d.device == nil {
		s.e.mu.Unlock()
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

// begin lets the device choose, or gets the logits of the last of rows.
func (d *Decoding) begin(rows int) (err error) {
	s := d.s
	if b, ok := s.e.backend.(device.Decoder); ok {
		if d.device, err = b.Decode(s.cache, d.sampler, d.history); err != nil || d.device != nil {
			return err
		}
	}
	d.logits = s.logits
	return s.e.backend.Logits(rows-1, rows, s.logits)
}

// Next returns the next token. The one that it returned before is then a part
// of the sequence; where that is full, the error matches [ErrContextFull], and
// nothing has changed.
func (d *Decoding) Next() (id int32, err error) {
	if d.device != nil {
		id, err = d.nextOnDevice()
	} else {
		id, err = d.next()
	}
	if err == nil {
		d.history, d.begun = append(d.history, id), true
	}
	return id, err
}

func (d *Decoding) next() (int32, error) {
	if d.begun {
		var err error
		if d.logits, err = d.s.Step(d.last()[0]); err != nil {
			return 0, err
		}
	}
	return d.sampler.Next(d.logits, d.history), nil
}

func (d *Decoding) nextOnDevice() (int32, error) {
	if d.begun {
		if err := d.s.admit(d.last()); err != nil {
			return 0, err
		}
	}
	id, err := d.device.Next()
	if err == nil && d.begun {
		d.s.append(d.last(), d.s.cache.Len())
	}
	return id, err
}

// last is the token that was returned before.
func (d *Decoding) last() []int32 { return d.history[len(d.history)-1:] }

// Stop ends the decoding; a second time it does nothing.
func (d *Decoding) Stop() error {
	if d.device == nil {
		return nil
	}
	defer d.s.e.mu.Unlock()
	b := d.device
	d.device = nil
	return b.Stop()
}
