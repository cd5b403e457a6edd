package cpu

import (
	"github.com/nstf/nstf/runtime/cache"
	"github.com/nstf/nstf/runtime/device"
)

// A carrier is the keys and values that blocks of one stage read of another's: rows
// as [graph.Graph.RowWidth] has them come in, and go out, behind the hidden states.
type carrier struct {
	layers   map[int]int // cache layer by block of the graph
	in, out  []int       // blocks
	inWidth  int         // of a row
	outWidth int
	rows     []float32 // [T][inWidth]
	passed   []float32 // [T][outWidth]
	keep     map[int]int
}

// placeKeys gives each block that has keys and values of its own a layer of the
// cache, and so each of an earlier stage that is read here.
func (e *Engine) placeKeys() {
	c := &e.carry
	c.layers, c.keep = map[int]int{}, map[int]int{}
	add := func(block int) {
		a := newAttending(&e.g.Blocks[block])
		c.layers[block] = len(e.layers)
		e.layers = append(e.layers, cache.Layer{KVHeads: a.kvHeads, HeadDim: a.dim, ValueDim: a.value, Format: e.kept.Of(block)})
	}
	c.in, c.out = e.g.Carried(e.span.Lo), e.g.Carried(e.span.Hi)
	c.inWidth, c.outWidth = int(e.g.RowWidth(e.span.Lo)), int(e.g.RowWidth(e.span.Hi))
	for _, block := range c.in {
		add(block)
	}
	for i := range e.blocks {
		block := e.span.Lo + i
		from, ok := e.g.KeysOf(block)
		if !ok {
			continue
		}
		if from == block {
			add(block)
		}
		e.blocks[i].kv = c.layers[from]
	}
	e.settled = e.g.Settled(e.span.Lo, e.span.Hi) - e.span.Lo
	at := int(e.g.Width)
	for _, block := range c.out {
		c.keep[block] = at
		at += e.keyWidth(block) * 2
	}
}

func (e *Engine) keyWidth(block int) int {
	a := e.g.Blocks[block].Attn
	return int(a.KVHeads * a.HeadDim)
}

// receive takes the rows that the stage before gives.
func (e *Engine) receive(h device.Hidden) error {
	c, p, d := &e.carry, &e.pass, int(e.g.Width)
	if c.inWidth == d {
		return h.Read(e.s.x[:p.rows*d])
	}
	c.rows = fit(c.rows, p.rows*c.inWidth)
	if err := h.Read(c.rows); err != nil {
		return err
	}
	for r := range p.rows {
		row := c.rows[r*c.inWidth : (r+1)*c.inWidth]
		copy(e.s.x[r*d:], row[:d])
		row = row[d:]
		for _, block := range c.in {
			n := e.keyWidth(block)
			p.segments[p.owner[r]].state.Put(c.layers[block], p.positions[r], row[:n], row[n:2*n])
			e.hand(block, r, row[:n], row[n:2*n])
			row = row[2*n:]
		}
	}
	return nil
}

// hand keeps a row's key and value of a block for the stage behind, where that
// reads them.
func (e *Engine) hand(block, row int, k, v []float32) {
	c := &e.carry
	if at, ok := c.keep[block]; ok {
		copy(c.passed[row*c.outWidth+at:], k)
		copy(c.passed[row*c.outWidth+at+len(k):], v)
	}
}

// handed returns what the stage behind gets.
func (e *Engine) handed() device.Host {
	c, p, d := &e.carry, &e.pass, int(e.g.Width)
	if c.outWidth == d {
		return device.Host(e.s.x[:p.rows*d])
	}
	for r := range p.rows {
		copy(c.passed[r*c.outWidth:], e.s.x[r*d:(r+1)*d])
	}
	return device.Host(c.passed[:p.rows*c.outWidth])
}
