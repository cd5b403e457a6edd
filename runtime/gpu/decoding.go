package gpu

import (
	"encoding/binary"

	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu/driver"
	"github.com/nstf/nstf/runtime/sample"
)

// A decoding is tokens in the making.
type decoding struct {
	e       *Engine
	c       *kv
	sampler *sample.Sampler
	greedy  bool
	down    *driver.Pinned       // i32 [ahead]
	done    [ahead]*driver.Event // behind the copies to it
	queued  int                  // tokens that the device was asked for
	given   int                  // that Next has returned
	base    int64                // positions of the cache at the beginning
}

var _ device.Decoder = (*Engine)(nil)

// Decode implements device.Decoder. Frequencies that change from step to step
// are the host's business, and so is a penalty on tokens that the sequence has
// forgotten.
func (e *Engine) Decode(cache device.Cache, sampler *sample.Sampler, history []int32) (device.Decoding, error) {
	c, o := cache.(*kv), sampler.Options()
	penalty := o.RepetitionPenalty != 0 && o.RepetitionPenalty != 1
	if penalty && int64(len(history)) != c.len {
		return nil, nil
	}
	for i := range e.ropes {
		if e.ropes[i].byLength {
			return nil, nil
		}
	}
	d := &decoding{e: e, c: c, sampler: sampler, greedy: o.Temperature == 0 && !penalty, base: c.len}
	if err := d.prepare(history); err != nil {
		d.free()
		return nil, err
	}
	if err := d.first(); err != nil {
		d.free()
		return nil, err
	}
	return d, nil
}

// prepare tells the device what the tokens depend on.
func (d *decoding) prepare(history []int32) error {
	e, ch, o := d.e, &d.e.s.chooser, d.sampler.Options()
	var err error
	if d.down, err = e.m.device.Pinned(4 * ahead); err != nil {
		return err
	}
	for i := range d.done {
		if d.done[i], err = e.m.device.Event(); err != nil {
			return err
		}
	}
	s := &e.s.few
	words := make([]int32, 3*s.capacity)
	words[s.capacity], words[2*s.capacity] = int32(d.base-1), d.c.held.slot
	if err := upload(e, driver.Buffer{Address: s.tokens, Size: s.bytes()}, words); err != nil {
		return err
	}
	if err := upload(e, driver.Buffer{Address: ch.steps, Size: 4}, []int32{0}); err != nil || d.greedy {
		return err
	}
	options := hip.SampleOptions{Temperature: o.Temperature, TopP: o.TopP, MinP: o.MinP, RepetitionPenalty: o.RepetitionPenalty,
		TopK: o.TopK, RepetitionWindow: o.RepetitionWindow}
	if err := e.m.stream.Upload(driver.Buffer{Address: ch.options, Size: hip.SampleOptionsBytes}, options.Append(nil)); err != nil {
		return err
	}
	hi, lo := d.sampler.State()
	random := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, hi), lo)
	if err := e.m.stream.Upload(driver.Buffer{Address: ch.random, Size: 16}, random); err != nil {
		return err
	}
	return upload(e, driver.Buffer{Address: ch.history, Size: 4 * e.context}, history[:min(len(history), int(e.context))])
}

// first has the device choose from the last row of the last pass.
func (d *decoding) first() error {
	e, row := d.e, d.e.pass.rows-1
	w := &walk{e: e, t: 1, state: &e.s.few}
	w.head(row, row+1)
	w.choose(d.greedy)
	if err := e.m.launch(w.calls); err != nil {
		return err
	}
	e.pass = pass{rows: 1, state: &e.s.few}
	return d.fetch()
}

// step has it go on with the token that it chose.
func (d *decoding) step() error {
	if err := d.c.reserve(d.base + int64(d.queued)); err != nil {
		return err
	}
	if err := d.c.send(); err != nil {
		return err
	}
	key := graphKey{what: "step", rows: 1}
	if d.greedy {
		key.what = "greedy step"
	}
	err := d.e.run(key, true, func(w *walk) {
		w.forward()
		w.head(0, 1)
		w.choose(d.greedy)
	})
	if err != nil {
		return err
	}
	return d.fetch()
}

// choose picks the token that follows the state's only row, whose logits are
// the first, and makes it the next step's input.
func (w *walk) choose(greedy bool) {
	s, ch := &w.e.s, &w.e.s.chooser
	r := w.rows(0)
	r.Owner = ch.owner
	w.do(&hip.Sample{Rows: r, Vocab: w.e.shape.vocab, Logits: s.logits, Token: ch.token, Greedy: greedy, Options: ch.options, Random: ch.random,
		History: ch.history, Stride: int(w.e.context) + 1, Scratch: ch.scratch})
	w.do(&hip.Advance{Rows: r, Token: ch.token, Next: w.state.tokens, History: ch.history, Stride: int(w.e.context) + 1,
		Output: ch.output, Steps: ch.steps, Ring: ahead})
}

// fetch has the token come down that was just asked for.
func (d *decoding) fetch() error {
	i, m := d.queued%ahead, d.e.m
	d.queued++
	if err := m.stream.Download(d.down.Bytes()[4*i:4*i+4], driver.Buffer{Address: d.e.s.chooser.output + hip.Address(4*i), Size: 4}); err != nil {
		return err
	}
	return m.stream.Record(d.done[i])
}

// Next implements device.Decoding.
func (d *decoding) Next() (int32, error) {
	if d.given > 0 { // the token before is a part of the cache
		d.c.len = d.base + int64(d.given)
	}
	for d.queued < d.given+ahead && (d.queued <= d.given || d.base+int64(d.queued) <= d.c.capacity) {
		if err := d.step(); err != nil {
			return 0, err
		}
	}
	i := d.given % ahead
	if err := d.done[i].Wait(); err != nil {
		return 0, err
	}
	id := int32(binary.LittleEndian.Uint32(d.down.Bytes()[4*i:]))
	d.given++
	return id, nil
}

// Stop implements device.Decoding.
func (d *decoding) Stop() error {
	err := d.e.m.stream.Wait()
	if d.sampler != nil && d.sampler.Options().Temperature > 0 {
		for range d.given {
			d.sampler.Draw() // what the device has drawn
		}
	}
	d.sampler = nil
	d.free()
	return err
}

func (d *decoding) free() {
	if d.down != nil {
		d.down.Free()
	}
	for _, e := range d.done {
		if e != nil {
			e.Free()
		}
	}
	d.down, d.done = nil, [ahead]*driver.Event{}
}
