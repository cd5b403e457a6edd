package hip

import (
	"fmt"
	"strings"
)

// A rawShape is how a launch of matrowsraw.hip divides the work.
type rawShape struct {
	eights int // of rows of activations
	split  int // waves that share a tile of 16 rows of weights
	waves  int // of a block
	slab   int // steps of a slab of activations
	slabs  int // there are, those included that are on their way
	depth  int // steps of weights of a wave, those included that are on their way
}

// lds is the LDS of a block: slabs of activations; for each wave steps of weights, scales, and
// sums that wait for those of other groups or waves.
func (s *rawShape) lds() int {
	waiting := 1
	switch s.split {
	case 1:
		waiting = 3
	case 2:
		waiting = 2
	}
	return s.slabs*s.slab*s.split*ceil(s.eights, 2)*2560 + s.waves*(s.depth*1024+512+waiting*s.eights*512)
}

// rawWaves is how many a block has at most: registers hold four on a quarter of a multiprocessor.
const rawWaves = 16

// rawQuarters is how many turns of a wave a quarter of a multiprocessor has that is given so many
// tiles, if so many waves share each.
func rawQuarters(tiles, split int) int {
	abreast := rawWaves / split
	return tiles/abreast*(rawWaves/4) + ceil(tiles%abreast*split, 4)
}

// turns is how many steps a tile's waves take.
func (s *rawShape) turns(k int) int { return 8 / s.split * ceil(k, 1024) }

// rawShape chooses the division of matrowsraw.hip for products of one format, which a
// launch of so many rows multiplies; it reports whether that kernel can.
func (o *Matvec) rawShape(t Target, products []Product, rows int) (rawShape, bool) {
	w := &products[0].W
	s := rawShape{eights: ceil(rows, 8)}
	if t.Matrix() != MMA || w.Format.Scheme != "q4_k" || w.K < 1024 || o.rowsLanes(t, products) != 32 {
		return s, false
	}
	tiles := ceil(rawTiles(o, products), t.Units)
	if m := o.Shape; m != nil {
		s.split, s.waves, s.depth = m.Split, m.Waves, m.Depth
	} else {
		// Where it was faster on an H200 (docs/perf/gpu.md): blocks that have some tiles each.
		if o.T <= launchRows || tiles > 16 || !strings.HasPrefix(t.Arch, "sm_90") {
			return s, false
		}
		for s.split = 8; s.split > 1 && tiles*s.split > rawWaves; {
			s.split /= 2
		}
		for s.split < 8 && 10*rawQuarters(tiles, 2*s.split) <= 9*2*rawQuarters(tiles, s.split) {
			s.split *= 2
		}
		s.waves, s.depth = s.split*min(tiles, rawWaves/s.split), 4
	}
	if s.depth < 2 {
		return s, false
	}
	// Slabs of a group, or of what LDS holds, or less where a block waits for the first one with
	// little to do; as many as weights are ahead.
	most := 4
	if tiles > 4 {
		most = 8
	}
	for s.slab = 4; ; s.slab /= 2 {
		s.slabs = 1 + ceil(s.depth-1, s.slab)
		if s.slab == 1 || s.turns(w.K)%s.slab == 0 && s.lds() <= t.LDS && s.slab*s.split <= most {
			break
		}
	}
	for o.Shape == nil && s.depth > 2 && s.lds() > t.LDS {
		s.depth--
		s.slabs = 1 + ceil(s.depth-1, s.slab)
	}
	return s, s.lds() <= t.LDS
}

// rawTiles is how many tiles there are of the products' rows.
func rawTiles(o *Matvec, products []Product) (n int) {
	for i, p := range products {
		if i == 0 || !o.Gated {
			n += ceil(p.W.N*(1+digit(o.Gated)), 16)
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
		Unit: Unit{"matrowsraw.hip", fmt.Sprintf("%s RAW_K=%d RAW_EIGHTS=%d RAW_SPLIT=%d RAW_WAVES=%d RAW_SLAB=%d RAW_SLABS=%d RAW_DEPTH=%d RAW_MATRICES=%d RAW_GATED=%d%s",
			w.Format.defines, w.K, s.eights, s.split, s.waves, s.slab, s.slabs, s.depth, len(products), digit(o.Gated), gated)},
		Symbol: "nstf_matrowsraw_" + w.Format.Name() + "_i8", LDS: uint32(s.lds()),
		Grid: [3]uint32{uint32(min(rawTiles(o, products), t.Units)), 1, 1}, Block: [3]uint32{uint32(s.waves * t.Wave), 1, 1}, Early: true,
		Args: args,
	}
}
