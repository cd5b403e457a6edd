package hip

import (
	"fmt"

	"github.com/nstf/nstf/formats/scheme"
)

// tcqRows is the most rows that one launch multiplies codewords with.
const tcqRows = 4

// tcqMatrices is the most matrices of one launch.
const tcqMatrices = 6

// A tcqShape is how a launch divides its work; see tcqmatvec.hip.
type tcqShape struct{ lanes, waves int }

// tcqShapeOf gives every lane the same number of tiles, as nearly as can be, and
// every strip of rows to one block.
func tcqShapeOf(t Target, across int) tcqShape {
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
	rows := min(o.T, tcqRows)
	if o.Experts != 0 {
		return []Call{o.tcqCall(t, group, 0, 1)}
	}
	for from := 0; from < o.T; from += rows {
		calls = append(calls, o.tcqCall(t, group, from, min(rows, o.T-from)))
	}
	return calls
}

// tcqCall is the launch for rows [from, from+rows).
func (o *Matvec) tcqCall(t Target, group []Product, from, rows int) Call {
	w := &group[0].W
	integer := !o.Exact && o.Acts.Data != 0
	x, symbol := o.X+Address(from*w.K*4), "nstf_matvec_tcq_f32"
	if integer {
		x, symbol = o.Acts.Data+Address(ActsSize(from, w.K)), "nstf_matvec_tcq_i8"
	}
	s := tcqShapeOf(t, w.K/scheme.TCQTile)
	strips := t.Wave / s.lanes
	blocks := 0
	args := []Arg{Ptr(x), I32(w.K), Ptr(o.Experts), I32(max(o.Share, 1)), I64(int64(o.Stack) * int64(w.N))}
	for _, p := range group {
		blocks += ceil(p.W.N/scheme.TCQTile, strips)
		args = append(args, Ptr(p.W.Data), Ptr(p.Y+Address(from*p.W.N*4)), I32(p.W.N))
	}
	slots := 1
	if o.Experts != 0 {
		slots = o.T
	}
	return Call{
		Unit: Unit{"tcqmatvec.hip", fmt.Sprintf("%s TCQ_T=%d TCQ_LANES=%d TCQ_WAVES=%d TCQ_RESIDENT=%d TCQ_INT=%d TCQ_MATRICES=%d TCQ_EXPERTS=%d",
			w.Format.defines, rows, s.lanes, s.waves, 1, digit(integer), len(group), digit(o.Experts != 0))},
		Symbol: symbol, Grid: [3]uint32{uint32(blocks), uint32(slots), 1}, Block: [3]uint32{uint32(s.waves * t.Wave), 1, 1}, Early: true, Args: args,
	}
}
