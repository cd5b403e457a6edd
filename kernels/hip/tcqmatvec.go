package hip

import (
	"fmt"

	"github.com/nstf/nstf/formats/scheme"
)

// tcqRows is the most rows that one launch multiplies codewords with: as many as
// registers hold sums and exact products of.
func (s tcqShape) rows(t Target) int {
	if t.API == CUDA && s.waves*t.Wave > 256 {
		return 2
	}
	return 4
}

// tcqMatrices is the most matrices of one launch.
const tcqMatrices = 6

// A tcqShape is how a launch divides its work; see tcqmatvec.hip. It is one for all
// numbers of rows: lanes and waves decide in what order products are added.
type tcqShape struct {
	lanes, waves int
	ahead        bool // a lane reads its next tile while it multiplies one
}

// tcqShapeOf divides products of so many strips of rows of W.
func tcqShapeOf(t Target, strips, across int, integer bool) tcqShape {
	// Below K = 8192 one row has so few tiles that whole strips, of which a
	// multiprocessor takes several blocks at once, were 3 to 6 % faster in steps of
	// decoding on an H200.
	if t.API != CUDA || !integer || across < 8192/scheme.TCQTile {
		return tcqWholeStrips(t, across)
	}
	return tcqStreamed(t, strips, across)
}

// tcqStreamed chooses the lanes of a strip so that the multiprocessors, one block each,
// have done all strips soonest: what comes before and after a block's tiles costs as
// much as another tile of each lane, as measured on an H200.
func tcqStreamed(t Target, strips, across int) tcqShape {
	const waves = 16
	s, least := tcqShape{ahead: true}, 0
	for lanes := 4; lanes <= t.Wave; lanes *= 2 {
		tiles := ceil(across, waves*lanes)
		cost := ceil(ceil(strips, t.Wave/lanes), t.Units) * (tiles + 1)
		if least == 0 || cost < least {
			least, s.lanes, s.waves = cost, lanes, ceil(across, tiles*lanes)
		}
	}
	return s
}

// tcqWholeStrips gives every lane the same number of tiles, as nearly as can be, and
// every strip of rows to one block.
func tcqWholeStrips(t Target, across int) tcqShape {
	s := tcqShape{lanes: t.Wave, waves: 1}
	for s.lanes > 1 && s.lanes >= 2*across {
		s.lanes /= 2
	}
	least := across
	for waves := 1; waves <= 512/t.Wave && (waves-1)*s.lanes < across; waves++ {
		rounds := ceil(across, waves*s.lanes)
		// Lanes that wait cost as much as those that work; more waves hide more.
		if idle := rounds*waves*s.lanes - across; idle <= least || idle*8 < across {
			s.waves, least = waves, idle
		}
	}
	return s
}

// tcqCalls returns the launches for products of one format of trellis codes.
func (o *Matvec) tcqCalls(t Target, group []Product) (calls []Call) {
	if o.Gated || o.Norm.Weight != 0 || o.Rounded.Data != 0 {
		panic("hip: products of trellis codes do nothing else on the way")
	}
	for _, p := range group {
		if p.Bias != 0 || p.Residual != 0 {
			panic("hip: products of trellis codes are rotated before anything is added")
		}
	}
	if o.Experts != 0 {
		return []Call{o.tcqCall(t, group, 0, 1)}
	}
	most := o.tcqShape(t, group).rows(t)
	rows := ceil(o.T, ceil(o.T, most))
	for from := 0; from < o.T; from += rows {
		calls = append(calls, o.tcqCall(t, group, from, min(rows, o.T-from)))
	}
	return calls
}

// tcqShape is the division of a launch. Slots of experts do not count, of which a row has
// as many however many rows there are.
func (o *Matvec) tcqShape(t Target, group []Product) tcqShape {
	strips := 0
	for _, p := range group {
		strips += p.W.N / scheme.TCQTile
	}
	return tcqShapeOf(t, strips, group[0].W.K/scheme.TCQTile, !o.Exact && o.Acts.Data != 0)
}

// tcqCall is the launch for rows [from, from+rows).
func (o *Matvec) tcqCall(t Target, group []Product, from, rows int) Call {
	w := &group[0].W
	integer := !o.Exact && o.Acts.Data != 0
	x, symbol := o.X+Address(from*w.K*4), "nstf_matvec_tcq_f32"
	if integer {
		x, symbol = o.Acts.Data+Address(ActsSize(from, w.K)), "nstf_matvec_tcq_i8"
	}
	slots := 1
	if o.Experts != 0 {
		slots = o.T
	}
	s := o.tcqShape(t, group)
	strips := t.Wave / s.lanes
	blocks := 0
	args := []Arg{Ptr(x), I32(w.K), Ptr(o.Experts), I32(max(o.Share, 1)), I64(int64(o.Stack) * int64(w.N))}
	for _, p := range group {
		blocks += ceil(p.W.N/scheme.TCQTile, strips)
		args = append(args, Ptr(p.W.Data), Ptr(p.Y+Address(from*p.W.N*4)), I32(p.W.N))
	}
	return Call{
		Unit: Unit{"tcqmatvec.hip", fmt.Sprintf("%s TCQ_T=%d TCQ_LANES=%d TCQ_WAVES=%d TCQ_RESIDENT=1 TCQ_AHEAD=%d TCQ_INT=%d TCQ_MATRICES=%d TCQ_EXPERTS=%d",
			w.Format.defines, rows, s.lanes, s.waves, digit(s.ahead), digit(integer), len(group), digit(o.Experts != 0))},
		Symbol: symbol, Grid: [3]uint32{uint32(blocks), uint32(slots), 1}, Block: [3]uint32{uint32(s.waves * t.Wave), 1, 1}, Early: true, Args: args,
	}
}
