package cpu

import (
	"fmt"

	"github.com/nstf/nstf/runtime/cache"
	"github.com/nstf/nstf/runtime/device"
)

// Embed writes the hidden states of the tokens of one sequence, at positions
// from 0 on, before the first block to x[T][D].
func (e *Engine) Embed(x []float32, tokens []int32) error {
	return e.hidden(x, tokens, func() { e.embed() }, func() {})
}

// Transform runs all blocks over x[T][D], the hidden states of one sequence at
// positions from 0 on, in place. It fails where memory for keys and values
// cannot be had.
func (e *Engine) Transform(x []float32) error {
	d := int(e.g.Width)
	if len(x)%d != 0 {
		panic(fmt.Sprintf("cpu: %d numbers are no hidden states of %d", len(x), d))
	}
	return e.hidden(x, make([]int32, len(x)/d), nil, func() {
		for i := range e.blocks {
			e.runBlock(i)
		}
	})
}

// Normalize applies the graph's last norm to x[T][D] in place, and shows the
// result to the hook as the head's input.
func (e *Engine) Normalize(x []float32) error {
	d := int(e.g.Width)
	e.normRows(x, x, e.norm)
	if e.hook != nil {
		e.hook(device.Input{Linear: e.head.linear, Block: noBlock, Expert: noExpert, X: x, T: len(x) / d})
	}
	return nil
}

// hidden walks a sequence in passes: start fills the work space's hidden
// states (nil: from x), run changes them, and what came out goes to x.
func (e *Engine) hidden(x []float32, tokens []int32, start, run func()) error {
	d, t := int(e.g.Width), len(tokens)
	if len(x) != t*d {
		panic(fmt.Sprintf("cpu: %d hidden states of %d in %d numbers", t, d, len(x)))
	}
	c, err := e.NewCache(int64(t))
	if err != nil {
		return err
	}
	kv := c.(*cache.KV)
	for at := 0; at < t; {
		n := min(maxRows, t-at)
		kv.Grow(int64(n))
		e.begin(&device.Batch{Segments: []device.Segment{{Cache: kv, Tokens: tokens[at : at+n], Length: int64(t)}}})
		rows := x[at*d : (at+n)*d]
		if start != nil {
			start()
		} else {
			copy(e.s.x, rows)
		}
		run()
		kv.Advance(int64(n))
		copy(rows, e.s.x[:n*d])
		at += n
	}
	return nil
}

// Head writes the logits of normalised hidden states x[T][D] to dst[T][Vocab].
// The hook does not see x: Normalize has shown it.
func (e *Engine) Head(dst, x []float32) error {
	d := int(e.g.Width)
	t := len(x) / d
	if len(x) != t*d || len(dst) != t*e.head.n {
		panic(fmt.Sprintf("cpu: logits of %d numbers into %d", len(x), len(dst)))
	}
	hook := e.hook
	e.hook = nil
	for at := 0; at < t; at += maxRows {
		n := min(maxRows, t-at)
		e.headRows(n, x[at*d:(at+n)*d], dst[at*e.head.n:(at+n)*e.head.n])
	}
	e.hook = hook
	return nil
}
