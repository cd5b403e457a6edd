package gpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu/driver"
	"github.com/nstf/nstf/runtime/sample"
)

// A chooser is what the device needs to choose tokens by itself. What belongs to
// one sequence lies at its slot.
type chooser struct {
	slots   int
	stride  int         // tokens of a slot's history
	options hip.Address // hip.SampleOptions [slots]
	seeds   hip.Address // u64 [slots]
	history hip.Address // i32 [slots][stride]
	masks   hip.Address // u32 [slots][hip.MaskWords]
	masked  []bool      // [slots]: which have one there
	words   []int32     // of the mask that goes up
	output  hip.Address // i32 [ring][slots]: tokens that were chosen
	steps   hip.Address // i32: how many times tokens were
	token   hip.Address // i32 [fewRows]
	scratch hip.Address // of hip.Sample of fewRows
}

// ring is how many choices may be under way.
const ring = fewRows

// ahead is how many passes of one sequence: while the host reads a token, the
// device is at the next one.
const ahead = 2

func (c *chooser) place(slots, context, vocab int, scratch int64, a *arena) {
	c.slots, c.stride = slots, context+1
	c.token, c.output, c.steps = a.ints(fewRows), a.ints(ring*slots), a.ints(1)
	c.options, c.seeds, c.history = a.take(int64(hip.SampleOptionsBytes*slots)), a.take(int64(8*slots)), a.ints(slots*c.stride)
	c.masks, c.masked = a.ints(slots*hip.MaskWords(vocab)), make([]bool, slots)
	c.scratch = a.take(scratch)
}

// settings are a sampler's, as the device has them.
type settings struct {
	hip.SampleOptions
	seed uint64
	set  bool
}

func settingsOf(o sample.Options) settings {
	return settings{hip.SampleOptions{Temperature: o.Temperature, TopP: o.TopP, MinP: o.MinP, RepetitionPenalty: o.RepetitionPenalty,
		TopK: min(o.TopK, math.MaxInt32), RepetitionWindow: min(o.RepetitionWindow, math.MaxInt32)}, o.Seed, true}
}

func (s *settings) penalizes() bool { return s.RepetitionPenalty != 0 && s.RepetitionPenalty != 1 }
func (s *settings) greedy() bool    { return s.Temperature == 0 && !s.penalizes() }

// settle tells the device how the token behind a segment is chosen: once for a
// sampler, and the history where a penalty looks at it.
func (s *state) settle(segment *device.Segment) error {
	e, c, now := s.e, &s.e.s.chooser, settingsOf(segment.Choose.Sampler.Options())
	if now != s.sampler {
		slot := int64(s.slot)
		options := driver.Buffer{Address: c.options + hip.Address(hip.SampleOptionsBytes*slot), Size: hip.SampleOptionsBytes}
		if err := e.m.stream.Upload(options, now.Append(nil)); err != nil {
			return err
		}
		seed := driver.Buffer{Address: c.seeds + hip.Address(8*slot), Size: 8}
		if err := e.m.stream.Upload(seed, binary.LittleEndian.AppendUint64(nil, now.seed)); err != nil {
			return err
		}
		s.sampler = now
	}
	if err := s.mask(segment.Choose.Mask); err != nil {
		return err
	}
	if segment.Tokens == nil || !now.penalizes() {
		return nil
	}
	news := segment.Choose.History[s.told:]
	if len(news) == 0 {
		return nil
	}
	row := at(c.history, int(s.slot)*c.stride+int(s.told), 1)
	return upload(e, driver.Buffer{Address: row, Size: 4 * int64(len(news))}, news)
}

// mask tells the device which tokens may be chosen, where that has changed.
func (s *state) mask(bits []uint32) error {
	e, c := s.e, &s.e.s.chooser
	if bits == nil && !c.masked[s.slot] {
		return nil
	}
	words := hip.MaskWords(e.shape.vocab)
	to := driver.Buffer{Address: c.masks + hip.Address(4*words*int(s.slot)), Size: 4}
	c.words = append(c.words[:0], 0)
	if bits != nil {
		if len(bits) != words-1 {
			return fmt.Errorf("gpu: a mask of %d words for %d tokens", len(bits), e.shape.vocab)
		}
		c.words[0], to.Size = 1, 4*int64(words)
		for _, b := range bits {
			c.words = append(c.words, int32(b))
		}
	}
	c.masked[s.slot] = bits != nil
	return upload(e, to, c.words)
}

// A choice is a run of neighbouring rows of a pass whose next tokens are chosen.
type choice struct {
	lo, hi int
	greedy bool // all of them
	masked bool // some of them
}

// choices lists the rows behind which tokens are chosen, at most fewRows in each.
func choices(b *device.Batch) (out []choice) {
	row := 0
	for i := range b.Segments {
		s := &b.Segments[i]
		row += s.Rows()
		if s.Choose == nil {
			continue
		}
		now := settingsOf(s.Choose.Sampler.Options())
		greedy := now.greedy()
		if n := len(out) - 1; n >= 0 && out[n].hi == row-1 && out[n].hi-out[n].lo < fewRows {
			out[n].hi, out[n].greedy, out[n].masked = row, out[n].greedy && greedy, out[n].masked || s.Choose.Mask != nil
			continue
		}
		out = append(out, choice{row - 1, row, greedy, s.Choose.Mask != nil})
	}
	return out
}

// choose picks the tokens behind a run of rows, whose logits are the first, and
// makes them the rows' next input.
func (w *walk) choose(c choice) {
	s, ch := w.s, &w.s.chooser
	r := w.rows(c.lo)
	r.T = c.hi - c.lo
	masks := ch.masks
	if !c.masked {
		masks = 0
	}
	w.do(&hip.Sample{Masks: masks, Rows: r, Vocab: w.e.shape.vocab, Logits: s.logits, Token: ch.token, Greedy: c.greedy, Options: ch.options, Seeds: ch.seeds,
		History: ch.history, Stride: ch.stride, Scratch: ch.scratch})
	w.do(&hip.Advance{Rows: r, Token: ch.token, Next: at(w.state.tokens, c.lo, 1), History: ch.history, Stride: ch.stride,
		Output: ch.output, Outputs: ch.slots, Steps: ch.steps, Ring: ring})
}

// chosen is where the tokens of a pass come down to.
type chosen struct {
	e     *Engine
	first int     // number of the pass's first choice
	runs  []int   // how many tokens of each
	slots []int32 // of each token
	done  *driver.Event
	ids   []int32 // read; nil: not yet
	err   error
}

// fetch has the tokens come down that were just asked for.
func (e *Engine) fetch(runs []choice, slots []int32) (*chosen, error) {
	c := &chosen{e: e, first: e.steps, slots: slots}
	width := 4 * int64(e.s.chooser.slots)
	for i, r := range runs {
		c.runs = append(c.runs, r.hi-r.lo)
		at := int64((e.steps + i) % ring)
		if old := e.choices[at]; old != nil && old != c { // its memory is wanted
			old.read()
		}
		e.choices[at] = c
		if err := e.m.stream.Download(e.down.Bytes()[at*width:(at+1)*width], driver.Buffer{Address: e.s.chooser.output + hip.Address(at*width), Size: width}); err != nil {
			return nil, err
		}
	}
	e.steps += len(runs)
	c.done = e.events[c.first%ring]
	return c, e.m.stream.Record(c.done)
}

// read waits for the tokens.
func (c *chosen) read() ([]int32, error) {
	c.e.reading.Lock()
	defer c.e.reading.Unlock()
	if c.ids != nil || c.err != nil {
		return c.ids, c.err
	}
	if c.err = c.done.Wait(); c.err != nil {
		return nil, c.err
	}
	c.ids = make([]int32, 0, len(c.slots))
	width := 4 * c.e.s.chooser.slots
	for i, n := range c.runs {
		row := c.e.down.Bytes()[(c.first+i)%ring*width:]
		for range n {
			slot := c.slots[len(c.ids)]
			c.ids = append(c.ids, int32(binary.LittleEndian.Uint32(row[4*slot:])))
		}
	}
	return c.ids, nil
}

// steady reports whether a batch is the step that the device has prepared itself:
// each row is the token that was chosen behind the same row of the pass before.
func (e *Engine) steady(b *device.Batch) bool {
	if len(b.Segments) != len(e.prepared) {
		return false
	}
	for i := range b.Segments {
		s, p := b.Segments[i].State.(*state), e.prepared[i]
		if b.Segments[i].Tokens != nil || s != p.state || s.Len() != p.len {
			return false
		}
	}
	return true
}

// notePrepared notes which states' next rows the device has prepared, after a pass of
// one row each, all of which were chosen for.
func (e *Engine) notePrepared(b *device.Batch, runs []choice) {
	e.prepared = e.prepared[:0]
	if len(runs) != 1 || runs[0].hi-runs[0].lo != len(b.Segments) || b.Rows() != len(b.Segments) || !b.Few(e.FewRows()) {
		return
	}
	for i := range b.Segments {
		s := b.Segments[i].State.(*state)
		e.prepared = append(e.prepared, prepared{s, s.Len()})
	}
}

// prepared is a state whose next token lies in the device's rows.
type prepared struct {
	state *state
	len   int64
}

// waiting reports whether a segment's token has to be taken from the history.
func waiting(b *device.Batch) bool {
	return slices.ContainsFunc(b.Segments, func(s device.Segment) bool { return s.Tokens == nil })
}
