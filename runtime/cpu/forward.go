package cpu

import (
	"errors"
	"fmt"

	"github.com/nstf/nstf/runtime/device"
)

// Forward implements device.Stage. All is done when it returns.
func (e *Engine) Forward(b *device.Batch) (device.Pass, error) {
	if b.Rows() == 0 || (b.Hidden == nil) != e.span.Embed {
		return nil, errors.New("cpu: a batch without rows, or of another stage's input")
	}
	for i := range b.Segments {
		if _, ok := b.Segments[i].State.(*state); !ok || len(b.Segments[i].Tokens) == 0 {
			return nil, fmt.Errorf("cpu: segment %d has %d tokens and the state %T", i, len(b.Segments[i].Tokens), b.Segments[i].State)
		}
	}
	e.begin(b)
	if e.span.Embed {
		e.embed(e.s.x)
	} else if err := e.receive(b.Hidden); err != nil {
		return nil, err
	}
	e.perLayerInputs()
	for i := range e.blocks {
		e.runBlock(i)
	}
	for i := range e.pass.segments {
		s := &e.pass.segments[i]
		s.state.Advance(int64(s.rows))
	}
	if !e.span.Head {
		return &e.passed, nil
	}
	if n := len(e.pass.wanted); e.gathering != nil && n > 0 {
		e.gathering.see(e.head.linear, noExpert, e.wantedRows(0, n), n)
	}
	if ids := e.choose(b); ids != nil {
		return &passed{e, ids}, nil
	}
	return &e.passed, nil
}

// choose picks the tokens behind segments, with all their logits computed at
// once; nil: none are.
func (e *Engine) choose(b *device.Batch) []int32 {
	p, d, vocab := &e.pass, int(e.g.Width), e.head.n
	h, n, last := e.s.h, 0, -1
	for i := range b.Segments {
		s := &b.Segments[i]
		last += s.Wanted
		if s.Choose != nil {
			copy(h[n*d:(n+1)*d], e.s.x[p.wanted[last]*d:])
			n++
		}
	}
	if n == 0 {
		return nil
	}
	e.normRows(h[:n*d], h[:n*d], e.norm)
	e.logits = fit(e.logits, n*vocab)
	e.headRows(n, h[:n*d], e.logits)
	p.choosing, p.chosen = p.choosing[:0], make([]int32, n)
	for i := range b.Segments {
		if b.Segments[i].Choose != nil {
			p.choosing = append(p.choosing, &b.Segments[i])
		}
	}
	e.eachRow(n, e.part.sample)
	return p.chosen
}

// sampleRow picks the token of one row of logits.
func (e *Engine) sampleRow(row int) {
	s, vocab := e.pass.choosing[row], e.head.n
	logits := e.logits[row*vocab : (row+1)*vocab]
	if s.Choose.Mask != nil {
		e.pass.chosen[row] = s.Choose.Sampler.NextOf(s.Choose.Mask, logits, s.Choose.History, s.State.Len())
		return
	}
	e.pass.chosen[row] = s.Choose.Sampler.Next(logits, s.Choose.History, s.State.Len())
}

// wantedRows returns wanted rows lo to hi, normalised for the head.
func (e *Engine) wantedRows(lo, hi int) []float32 {
	d, rows := int(e.g.Width), e.pass.wanted[lo:hi]
	h := e.s.h[:len(rows)*d]
	for i, row := range rows {
		copy(h[i*d:(i+1)*d], e.s.x[row*d:])
	}
	e.normRows(h, h, e.norm)
	return h
}

// A passed is a pass that is over.
type passed struct {
	e   *Engine
	ids []int32 // chosen
}

// Logits implements device.Pass.
func (p *passed) Logits(lo, hi int, dst []float32) error {
	e := p.e
	if lo < 0 || hi > len(e.pass.wanted) || lo >= hi || len(dst) != (hi-lo)*e.head.n {
		panic(fmt.Sprintf("cpu: logits of wanted rows %d to %d of %d into %d numbers", lo, hi, len(e.pass.wanted), len(dst)))
	}
	e.headRows(hi-lo, e.wantedRows(lo, hi), dst)
	return nil
}

// Normed implements device.Pass.
func (p *passed) Normed(lo, hi int, dst []float32) error {
	if d := int(p.e.g.Width); lo < 0 || hi > len(p.e.pass.wanted) || lo >= hi || len(dst) != (hi-lo)*d {
		panic(fmt.Sprintf("cpu: wanted rows %d to %d of %d into %d numbers", lo, hi, len(p.e.pass.wanted), len(dst)))
	}
	copy(dst, p.e.wantedRows(lo, hi))
	return nil
}

// Tokens implements device.Pass.
func (p *passed) Tokens() ([]int32, error) { return p.ids, nil }

// Hidden implements device.Pass.
func (p *passed) Hidden() device.Hidden {
	return p.e.handed()
}
