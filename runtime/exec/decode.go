package exec

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/runtime/cache"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/sample"
)

// A Decoding continues a sequence token by token. Where the device can run ahead
// of who reads the tokens, it does, as many passes as [Executor.Ahead] says. Many
// go on together by [Executor.Advance]; one alone by Next.
type Decoding struct {
	s       *Sequence
	choice  device.Choice
	host    Chooser
	mask    Masker
	scores  func(at int, logits []float32)
	bits    []uint32    // what mask has set
	prompt  []int32     // to be read in the order of prompts
	again   []int32     // behind them: to be read in the order of few
	length  int64       // of the prompt's pass
	reading device.Pass // that has the newest tokens read; nil: nobody waits for it
	under   []chosen
	last    int32 // that was returned, and is not in the sequence's history
	begun   bool  // there is a last one
	stopped bool
	err     error // that ended it
}

// A Chooser picks the token behind a sequence's tokens by its logits [Vocab], which
// it may change, among those of a mask, nil being all: on the host, by whatever a
// [sample.Sampler] does not do. An error ends the decoding.
type Chooser func(logits []float32, mask []uint32, tokens []int32) (int32, error)

// A Masker says which tokens may come next: it sets their bits, token i being bit i%32 of
// bits[i/32], clears the others and returns true, or it returns false: all may. Bits of
// tokens that the model has not are ignored. An error ends the decoding, as does a mask
// without a token.
type Masker func(bits []uint32) (bool, error)

// A chosen is a token that a pass has chosen, or will have.
type chosen struct {
	pass  device.Pass // nil: it is known
	index int         // among the pass's tokens
	id    int32
	err   error
}

// A Continuation says what a [Decoding] reads, and how it goes on.
type Continuation struct {
	// Prompt and Again are the tokens that are appended, one at least. A prompt's
	// rows are computed in the order of prompts, and those of Again in the order of
	// few, as if each had been chosen here: see [device.Batch].
	Prompt, Again []int32
	Sampler       *sample.Sampler
	// Choose, where given, chooses instead of the sampler. The device does not run
	// ahead then.
	Choose Chooser
	// Mask, where given, says which tokens may be chosen behind the sequence's tokens. It
	// is asked once for each, when those before have been read; the device does not run
	// ahead then.
	Mask Masker
	// Score, where given, is shown the logits [n][Vocab] that follow the tokens of Prompt
	// from position at of the sequence on, some at a time and each once, in order.
	Score func(at int, logits []float32)
}

// Decode appends at least one token and begins to choose those that follow, as
// the sampler does, which is shown the sequence's tokens beside the logits, among those
// that mask allows, where it is not nil. ctx is as in [Sequence.Prefill].
//
// Stop it before anything else is done with the sequence.
func (s *Sequence) Decode(ctx context.Context, tokens []int32, sampler *sample.Sampler, mask Masker) (*Decoding, error) {
	c := Continuation{Prompt: tokens, Sampler: sampler, Mask: mask}
	if len(tokens) <= device.FewRows {
		c.Prompt, c.Again = nil, tokens
	}
	d, err := s.Continue(c)
	if err != nil {
		return nil, err
	}
	unit := s.e.PromptUnit()
	keep := (s.Len() + s.e.keepAt(len(tokens))) / unit * unit
	for d.Unread() > 0 {
		if err := ctx.Err(); err != nil {
			return nil, errors.Join(err, d.Stop())
		}
		rows := s.e.MaxRows()
		if s.Len() < keep {
			rows = min(rows, keep-s.Len())
		}
		if err := s.e.Advance([]Turn{{d, rows}}); err != nil {
			return nil, err
		}
		if d.err != nil {
			return nil, d.err
		}
		if s.e.recurrent && s.Len() == keep && d.Unread() > 0 {
			s.e.mu.Lock()
			s.keep()
			s.e.mu.Unlock()
		}
	}
	return d, nil
}

// Continue is Decode with nothing computed yet. The tokens must not change until
// they are read.
func (s *Sequence) Continue(c Continuation) (*Decoding, error) {
	if len(c.Prompt)+len(c.Again) == 0 {
		panic("exec: Decode behind no tokens")
	}
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if err := s.admit(c.Prompt, c.Again); err != nil {
		return nil, err
	}
	return &Decoding{s: s, choice: device.Choice{Sampler: c.Sampler}, host: c.Choose, mask: c.Mask, scores: c.Score, prompt: c.Prompt, again: c.Again,
		length: s.len() + int64(len(c.Prompt))}, nil
}

// Force has tokens follow the one that was read last, as if each had been chosen: they are
// computed together and not given by Read again. It returns how many of them there are
// positions for; none are taken while tokens are under way.
func (d *Decoding) Force(ids []int32) int {
	if d.err != nil || d.stopped || !d.begun || len(d.under) > 0 || d.Unread() > 0 {
		return 0
	}
	n := min(int64(len(ids)), d.s.e.context-int64(len(d.s.history))-1)
	if n <= 0 {
		return 0
	}
	d.again = append([]int32{d.last}, ids[:n]...)
	d.begun = false
	return int(n)
}

// Unread returns how many tokens are still to be appended before one is chosen.
func (d *Decoding) Unread() int { return len(d.prompt) + len(d.again) }

// Underway returns how many tokens Read has to give.
func (d *Decoding) Underway() int { return len(d.under) }

// Ahead returns how many tokens may be under way: as many as [Executor.Ahead] says, and one
// where what is chosen depends on the host.
func (d *Decoding) Ahead() int {
	if d.host != nil || d.mask != nil {
		return 1
	}
	return d.s.e.Ahead()
}

// Wait waits until what was read so far has been: the device goes on with a prompt by itself,
// as far as it is told to.
func (d *Decoding) Wait() error {
	if d.reading == nil {
		return nil
	}
	_, err := d.reading.Tokens()
	d.reading = nil
	return err
}

// Err returns the error that ended the decoding, nil while it goes on. Tokens that are
// under way are still to be read.
func (d *Decoding) Err() error { return d.err }

// Next returns the next token. The one that it returned before is then a part
// of the sequence; where that is full, the error matches [ErrContextFull], and
// nothing has changed.
func (d *Decoding) Next() (int32, error) {
	if d.stopped {
		panic("exec: a token of a decoding that was stopped")
	}
	for d.Unread() > 0 || len(d.under) < d.Ahead() && d.err == nil {
		n := len(d.under)
		err := d.s.e.Advance([]Turn{{d, d.s.e.MaxRows()}})
		var full *cache.FullError
		if errors.As(err, &full) && n > 0 {
			break // there is a token to give before
		}
		if err != nil {
			return 0, err
		}
		if d.Unread() == 0 && len(d.under) == n {
			break
		}
	}
	return d.Read()
}

// Read waits for the oldest token that is under way; where there is none, it returns
// the error that ended the decoding. Other than Next it begins nothing.
func (d *Decoding) Read() (int32, error) {
	if len(d.under) == 0 {
		if d.err == nil {
			panic("exec: a token is read that nothing has chosen")
		}
		return 0, d.err
	}
	c := &d.under[0]
	if c.pass != nil && c.err == nil {
		var ids []int32
		if ids, c.err = c.pass.Tokens(); c.err == nil {
			c.id = ids[c.index]
		}
		c.pass = nil
	}
	if c.err != nil {
		return 0, c.err
	}
	if d.begun {
		d.s.append([]int32{d.last}, int64(len(d.s.history)+1))
	}
	d.last, d.begun = c.id, true
	d.under = slices.Delete(d.under, 0, 1)
	return d.last, nil
}

// Stop ends it; a second time it does nothing. The sequence forgets what the
// device has computed ahead.
func (d *Decoding) Stop() error {
	if d.stopped {
		return nil
	}
	d.stopped, d.under = true, nil
	if d.s.states != nil {
		d.s.Truncate(len(d.s.history))
	}
	return nil
}

// next returns what the decoding adds to the next pass, at most so many rows of what
// is unread; no tokens and no choice is nothing.
func (d *Decoding) next(rows int) (p part, err error) {
	s := d.s
	p.d, p.s = d, s
	switch {
	case s.failed != nil:
		return part{}, s.failed
	case len(d.prompt) > 0:
		n := s.cut(len(s.history), len(d.prompt), min(rows, s.e.MaxRows()))
		p.prompt, p.segment.Tokens, p.segment.Length = true, d.prompt[:n], d.length
	case len(d.again) > 0:
		n := min(rows, len(d.again), device.FewRows)
		if n > 1 && s.e.byLength() {
			n = 1 // each has the frequencies that it had
		}
		p.segment.Tokens, p.segment.Length = d.again[:n], s.len()+int64(n)
	case len(d.under) >= d.Ahead():
		return part{}, nil
	default:
		p.segment.Length = s.len() + 1
		known := len(d.under) == 0 // the token that goes in is the one that was returned
		if p.segment.Length > s.e.context {
			if known {
				err = &ContextFullError{Used: s.len(), New: 1, Capacity: s.e.context}
			}
			return part{}, err
		}
		if known {
			s.one[0] = d.last
			p.segment.Tokens = s.one[:]
		} else if s.stale(p.segment.Length) {
			return part{}, nil
		}
		p.chooses = true
	}
	if len(p.segment.Tokens) > 0 {
		if err := s.rejoin(p.segment.Length); err != nil {
			return part{}, err
		}
		p.chooses = p.chooses || len(p.segment.Tokens) == d.Unread()
	}
	if p.scored = p.prompt && d.scores != nil; p.scored {
		p.segment.Wanted = len(p.segment.Tokens)
	}
	if !p.chooses {
		return p, nil
	}
	p.segment.Wanted = max(p.segment.Wanted, 1)
	if d.mask != nil {
		if err := d.masked(); err != nil {
			return part{}, err
		}
	}
	if d.host == nil {
		p.segment.Choose = &d.choice
	}
	if len(p.segment.Tokens) > 0 {
		d.choice.History = append(s.history, p.segment.Tokens...)
	}
	return p, nil
}

// masked asks which tokens may come next.
func (d *Decoding) masked() error {
	vocab := int(d.s.e.g.Vocab)
	if d.bits == nil {
		d.bits = make([]uint32, (vocab+31)/32)
	}
	some, err := d.mask(d.bits)
	if d.choice.Mask = nil; !some || err != nil {
		return err
	}
	if rest := vocab % 32; rest > 0 {
		d.bits[len(d.bits)-1] &= 1<<rest - 1
	}
	if !slices.ContainsFunc(d.bits, func(w uint32) bool { return w != 0 }) {
		return fmt.Errorf("exec: a mask allows no token behind %d", d.s.len())
	}
	d.choice.Mask = d.bits
	return nil
}

// done notes that a part has been computed in a pass.
func (p *part) done(pass device.Pass, index int) {
	d, n := p.d, len(p.segment.Tokens)
	if d.Unread() > 0 {
		d.reading = pass
		p.s.took(p.segment.Tokens, p.segment.Length, p.prompt)
		if p.prompt {
			d.prompt = d.prompt[n:]
		} else {
			d.again = d.again[n:]
		}
	}
	if p.segment.Choose != nil {
		d.under = append(d.under, chosen{pass: pass, index: index})
	}
}

// choose has the host choose the token behind a part's last row.
func (p *part) choose(logits []float32) {
	c := chosen{}
	if c.id, c.err = p.d.host(logits, p.d.choice.Mask, p.d.choice.History); c.err == nil && (c.id < 0 || int64(c.id) >= p.s.e.g.Vocab) {
		c.err = fmt.Errorf("exec: token %d was chosen of %d", c.id, p.s.e.g.Vocab)
	}
	p.d.under = append(p.d.under, c)
}

// admit checks that tokens are known and fit.
func (s *Sequence) admit(tokens ...[]int32) error {
	if s.failed != nil {
		return s.failed
	}
	n := int64(0)
	for _, t := range tokens {
		n += int64(len(t))
	}
	if used := int64(len(s.history)); n > s.e.context-used {
		return &ContextFullError{Used: used, New: n, Capacity: s.e.context}
	}
	for _, t := range tokens {
		for i, id := range t {
			if id < 0 || int64(id) >= s.e.g.Vocab {
				return formats.Errorf("", "", "token %d at index %d is not one of the model's %d", id, i, s.e.g.Vocab)
			}
		}
	}
	return nil
}
