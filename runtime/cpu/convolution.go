package cpu

import "github.com/nstf/nstf/runtime/load"

// A convolution is causal and of every channel by itself. A sequence remembers what it
// still sees of the rows before.
type convolution struct {
	taps [][]float32 // [Kernel][C], the oldest position first
	bias []float32   // [C], or nil
	at   int         // of the columns in what a sequence remembers, [Kernel-1][C]
}

// newConvolution takes a table [C][Kernel], whose columns in a sequence's memory begin
// at the given number.
func newConvolution(w *load.Weights[*matrix, *norm, []float32], table, bias string, kernel int64, at int) convolution {
	c, conv := convolution{bias: w.Vector(bias), at: at}, w.Vector(table)
	for j := range int(kernel) {
		tap := make([]float32, len(conv)/int(kernel))
		for i := range tap {
			tap[i] = conv[i*int(kernel)+j]
		}
		c.taps = append(c.taps, tap)
	}
	return c
}

func (c *convolution) channels() int { return len(c.taps[0]) }

// size is the numbers of its columns.
func (c *convolution) size() int { return (len(c.taps) - 1) * c.channels() }

// columns are the rows before those that come, the oldest first.
func (c *convolution) columns(s *state) []float32 {
	if len(c.taps) == 1 { // the state may have no numbers at all
		return nil
	}
	return s.numbers()[c.at : c.at+c.size()]
}

// row convolves a row of e.s.mixed into x.
func (c *convolution) row(e *Engine, x []float32, row int) {
	p, n := &e.pass, c.channels()
	segment := &p.segments[p.owner[row]]
	before := c.columns(segment.state)
	if clear(x); c.bias != nil {
		copy(x, c.bias)
	}
	for j, tap := range c.taps {
		from := row - len(c.taps) + 1 + j
		in := e.s.mixed
		if from < segment.first {
			in, from = before, from-segment.first+len(c.taps)-1
		}
		e.set.MulAdd(x, tap, in[from*n:(from+1)*n])
	}
}

// keep puts the columns that the next pass needs of a segment's rows in place.
func (c *convolution) keep(e *Engine, segment *segment) {
	kept, n := c.columns(segment.state), c.channels()
	for j := range len(c.taps) - 1 {
		from := segment.rows - len(c.taps) + 1 + j // in the segment
		in := kept
		if from >= 0 {
			in, from = e.s.mixed, segment.first+from
		} else {
			from += len(c.taps) - 1
		}
		copy(kept[j*n:(j+1)*n], in[from*n:(from+1)*n])
	}
}
