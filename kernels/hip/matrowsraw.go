package hip

import (
	"fmt"
	"strings"
)

// A rawShape is how a launch of matrowsraw.hip divides the work.
type rawShape struct {
	tokens int // tiles of 8 rows of activations
	depth  int // slots of weights of a wave, for steps that are on their way
	blocks int // of a unit, which registers are limited for
	whole  bool
}

// rawWaves is how many a block has, of two parts each.
const rawWaves = 16

// lds is the LDS of a block: chunks of activations, slots and scales of weights, what waves
// exchange.
func (s *rawShape) lds(k int) int {
	chunks := s.depth + 1
	if s.whole {
		chunks = ceil(k, 1024)
	}
	rows := 8 * s.tokens
	return chunks*rows*1280 + rawWaves*(s.depth*1536+512) + rawWaves/2*rows*128
}

// rawShape chooses the division of matrowsraw.hip for products of one format, which a
// launch of so many rows multiplies; it reports whether that kernel can.
func (o *Matvec) rawShape(t Target, products []Product, rows int) (rawShape, bool) {
	w := &products[0].W
	s := rawShape{tokens: ceil(rows, 8), depth: 2, blocks: 1, whole: true}
	if t.Matrix() != MMA || w.Format.Scheme != "q4_k" || w.K < 1024 || o.rowsLanes(t, products) != 2*rawWaves {
		return s, false
	}
	if m := o.Shape; m != nil {
		s.depth, s.blocks, s.whole = m.Depth, m.Blocks, !m.Direct
		return s, m.Depth > 0 && s.blocks*(s.lds(w.K)+1024) <= t.LDS+1024
	}
	// Where it was faster on an H200 (docs/perf/gpu.md): blocks that have one tile or two, of
	// more rows than 16 or of activations that LDS does not hold.
	if o.T <= launchRows || o.Gated || !strings.HasPrefix(t.Arch, "sm_90") || ceil(rawTiles(o, products), t.Units) > 2 {
		return s, false
	}
	for _, whole := range []bool{true, false} {
		for s.whole, s.depth = whole, 2; s.depth > 0; s.depth-- {
			if s.lds(w.K) <= t.LDS {
				return s, rows > 16 || !whole
			}
		}
	}
	return s, false
}

// rawTiles is how many tiles there are of the products' rows.
func rawTiles(o *Matvec, products []Product) (n int) {
	for i, p := range products {
		if i == 0 || !o.Gated {
			n += ceil(p.W.N*(1+digit(o.Gated)), 32)
		}
	}
	return n
}

// Raw reports whether matrowsraw.hip multiplies the products, with the Shape that is given if one is.
func (o *Matvec) Raw(t Target) bool {
	_, ok := o.rawShape(t, o.Products, min(o.T, o.mostRows(t)))
	return ok
}

// rawCall is a launch of it.
func (o *Matvec) rawCall(t Target, products []Product, s rawShape, args []Arg) Call {
	w := &products[0].W
	gated := ""
	if o.Gated {
		gated = " " + activation(o.Act, o.Gating)
	}
	return Call{
		Unit: Unit{"matrowsraw.hip", fmt.Sprintf("%s RAW_K=%d RAW_TOKENS=%d RAW_DEPTH=%d RAW_WHOLE=%d RAW_RESIDENT=%d RAW_MATRICES=%d RAW_GATED=%d%s",
			w.Format.defines, w.K, s.tokens, s.depth, digit(s.whole), s.blocks, len(products), digit(o.Gated), gated)},
		Symbol: "nstf_matrowsraw_" + w.Format.Name() + "_i8", LDS: uint32(s.lds(w.K)),
		Grid: [3]uint32{uint32(min(rawTiles(o, products), s.blocks*t.Units)), 1, 1}, Block: [3]uint32{rawWaves * 32, 1, 1}, Early: true,
		Args: args,
	}
}
