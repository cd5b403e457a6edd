package graph

import "fmt"

// Memory returns the numbers that a sequence remembers of a block beside keys and
// values.
func (b *Block) Memory() int64 {
	switch {
	case b.Delta != nil:
		return b.Delta.Memory()
	case b.Mamba != nil:
		return b.Mamba.Memory()
	case b.ShortConv != nil:
		return b.ShortConv.Memory()
	}
	return 0
}

// Recurrent reports whether sequences remember more than keys and values, so that
// they cannot go back to any position.
func (g *Graph) Recurrent() bool {
	for i := range g.Blocks {
		if g.Blocks[i].Memory() > 0 {
			return true
		}
	}
	return false
}

// Bounds of recurrent mixers, far above any model, so that what a sequence remembers
// can be counted.
const (
	maxStateDim = 1 << 10
	maxKernel   = 64
)

// A size is a field with its bound.
type size struct {
	name     string
	v, limit int64
}

// checkSizes reports the first that is out of its bounds.
func checkSizes(sizes ...size) error {
	for _, f := range sizes {
		if f.v < 1 || f.v > f.limit {
			return fmt.Errorf("%s: %d is not between 1 and %d", f.name, f.v, f.limit)
		}
	}
	return nil
}
