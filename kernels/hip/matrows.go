package hip

import (
	"fmt"
	"strings"
)

// mostRows is how many rows a launch of matrows.hip takes: for two matrices' sums of
// more, AMD's targets lack registers.
func (o *Matvec) mostRows(t Target) int {
	if o.Gated && t.Matrix() != MMA {
		return 16
	}
	return 32
}

// A rowsShape is how a launch of matrows.hip divides the work.
type rowsShape struct {
	lanes    int // of the launch with one row, whose sums are kept
	parts    int // of them a wave's
	teams    int // of waves that have all parts of a block
	features int // tiles of 16 rows of weights of a team
	tokens   int // tiles of rows of activations
	together int // units of a row that a wave takes at once
	blocks   int // of a unit, which registers are limited for
	inLDS    bool
}

// readsOnce reports whether products of so many rows, rounded beforehand, read their
// weights once for mostRows of them: the matrix unit has byte products, and there
// are more rows than a launch of matvec.hip multiplies as fast.
func (o *Matvec) readsOnce(t Target, products []Product, integer bool) bool {
	unit := t.Matrix()
	if !integer || unit == NoMatrix || o.Experts != 0 || o.Norm.Weight != 0 || o.Rounded.Data != 0 || corrected(products) || o.rounded(products[0].W.Format).Data == 0 {
		return false
	}
	if _, raw := o.rawShape(t, products, min(o.T, o.mostRows(t))); raw {
		return true
	}
	few := launchRows
	if o.Gated && unit == MMA && products[0].W.Format.Scheme == "q4_k" {
		few = 6 // two matrices' byte dot products of 8 rows take longer than a tile of the unit (docs/perf/gpu.md)
	}
	if o.Shape != nil && o.Shape.Features == 0 || o.T <= few && o.Shape == nil || o.rowsLanes(t, products) < 1+digit(o.Gated) {
		return false
	}
	if o.Shape != nil {
		return true
	}
	s, w := o.rowsShape(t, products, min(o.T, o.mostRows(t))), &products[0].W
	return s.room(t, w) <= t.LDS-s.table(w)
}

// rowsLanes is how many lanes share a row of weights where one row is multiplied.
func (o *Matvec) rowsLanes(t Target, products []Product) int {
	one := *o
	one.Shape = nil
	return one.shape(t, &products[0].W, true, 1, o.outputs(products)).Lanes
}

// rowsShape chooses the division for products of one format, which a launch of so many
// rows multiplies.
func (o *Matvec) rowsShape(t Target, products []Product, rows int) rowsShape {
	w, unit := &products[0].W, t.Matrix()
	s := rowsShape{lanes: o.rowsLanes(t, products), features: 1 + digit(o.Gated), blocks: 1, tokens: ceil(rows, rowsColumn(t))}
	if m := o.Shape; m != nil {
		s.parts, s.teams, s.features, s.together, s.blocks, s.inLDS = min(m.Rows, s.lanes), m.Waves, m.Features, m.Steps, m.Blocks, !m.Direct
		s.together = min(s.together, s.parts)
		return s
	}
	s.parts, s.teams = min(4, s.lanes), 1
	switch {
	case unit == MMA: // as measured on an H200: two tiles of 16 rows share what is read of activations
		s.features = 2
	case t.Wave == 64:
		s.parts = min(8, s.lanes)
	}
	for s.together = min(s.parts, 8/s.features); s.together > 1 && s.room(t, w) > t.LDS-s.table(w); {
		s.together /= 2
	}
	s.inLDS = unit == MMA && s.acts(t, w)+s.room(t, w) <= t.LDS-s.table(w)
	return s
}

// waves is how many a block has.
func (s *rowsShape) waves() int { return s.teams * s.lanes / s.parts }

// tiles is how many tiles there are of the products' rows.
func (s *rowsShape) tiles(o *Matvec, products []Product) (n int) {
	for i, p := range products {
		if i == 0 || !o.Gated {
			n += ceil(p.W.N*(1+digit(o.Gated)), 16*s.features*s.teams)
		}
	}
	return n
}

// rowsColumn is how many rows of activations are a tile.
func rowsColumn(t Target) int {
	if t.Matrix() == MMA {
		return 8
	}
	return 16
}

// table is the static LDS of a format, at most.
func (s *rowsShape) table(w *Weight) int {
	if strings.HasPrefix(w.Format.Scheme, "iq") {
		return matvecStatic
	}
	return 64
}

// groupsOf returns the groups of a unit that share a scale, and the bytes of a scale in
// LDS: minimums lie beside.
func (w *Weight) groupsOf() (groups, bytes int) {
	groups, bytes = 1, 4
	if w.Format.fine && w.Format.unit == 32 {
		groups = 2
	}
	if w.Format.mins {
		bytes = 8
	}
	return groups, bytes
}

// acts is the LDS that the rows of activations take.
func (s *rowsShape) acts(t Target, w *Weight) int {
	groups, scale := w.groupsOf()
	units := ceil(w.K/w.Format.unit, s.lanes) * s.lanes
	return s.tokens * rowsColumn(t) * ((units*w.Format.unit/16|1)*16 + units*groups*scale)
}

// room is the LDS of all waves.
func (s *rowsShape) room(t Target, w *Weight) int {
	groups, scale := w.groupsOf()
	features := 16 * s.features
	unit := w.Format.unit*features + groups*features*scale
	stage := s.together * (unit + (128/s.together+128-unit%128)%128)
	return s.waves() * max(stage, s.tokens*rowsColumn(t)*features*4)
}

// rowsCalls are the launches for products of one format.
func (o *Matvec) rowsCalls(t Target, products []Product) (calls []Call) {
	rows := ceil(o.T, ceil(o.T, o.mostRows(t)))
	for from := 0; from < o.T; from += rows {
		calls = append(calls, o.rowsCall(t, products, from, min(rows, o.T-from)))
	}
	return calls
}

func (o *Matvec) rowsCall(t Target, products []Product, from, rows int) Call {
	w := &products[0].W
	args := []Arg{Ptr(o.rounded(w.Format).Data), I32(rows), I32(from)}
	for _, p := range products {
		args = append(args, Ptr(p.W.Data), Ptr(rowOf(p.Y, from, p.W.N)), Ptr(p.Bias), Ptr(rowOf(p.Residual, from, p.W.N)), I32(p.W.N))
	}
	if s, raw := o.rawShape(t, products, rows); raw {
		return o.rawCall(t, products, s, args)
	}
	s := o.rowsShape(t, products, rows)
	lds := s.room(t, w)
	if s.inLDS {
		lds += s.acts(t, w)
	}
	gated := ""
	if o.Gated {
		gated = " " + activation(o.Act, o.Gating)
	}
	return Call{
		Unit: Unit{"matrows.hip", fmt.Sprintf("%s MATROWS_K=%d MATROWS_LANES=%d MATROWS_PARTS=%d MATROWS_TEAMS=%d MATROWS_FEATURES=%d MATROWS_TOKENS=%d MATROWS_TOGETHER=%d MATROWS_RESIDENT=%d MATROWS_LDS=%d MATROWS_GROUP=%d MATROWS_NARROW=%d MATROWS_MATRICES=%d MATROWS_GATED=%d%s",
			w.Format.defines, w.K, s.lanes, s.parts, s.teams, s.features, s.tokens, s.together, s.blocks, digit(s.inLDS), group(w.Format.fine), digit(w.Format.narrow), len(products), digit(o.Gated), gated)},
		Symbol: "nstf_matrows_" + w.Format.Name() + "_i8", LDS: uint32(lds),
		Grid: [3]uint32{uint32(min(s.tiles(o, products), s.blocks*t.Units)), 1, 1}, Block: [3]uint32{uint32(s.waves() * t.Wave), 1, 1}, Early: true,
		Args: args,
	}
}

// rowOf is where a row of numbers lies; 0 stays none.
func rowOf(a Address, row, n int) Address {
	if a == 0 {
		return 0
	}
	return a + Address(4*row*n)
}
