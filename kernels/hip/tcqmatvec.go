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
type tcqShape struct {
	lanes, waves int
	ahead        bool // a lane reads its next tile while it multiplies one
	mma          bool // by the matrix unit (tcqmma.hip)
	lds          int  // dynamic
}

// tcqStages is how many tiles of a lane are in LDS with the matrix unit.
const tcqStages = 2

// tcqShapeOf divides products of rows of x and so many strips of rows of W, all
// experts' included.
func tcqShapeOf(t Target, bits, rows, strips, across int, integer bool) tcqShape {
	if t.API != CUDA || !integer || rows > 1 && t.Matrix() != MMA {
		return tcqWholeStrips(t, across)
	}
	// Below K = 8192 one row has so few tiles that whole strips, of which a
	// multiprocessor takes several blocks at once, were 3 to 6 % faster in steps of
	// decoding on an H200.
	if rows == 1 && across < 8192/scheme.TCQTile {
		return tcqWholeStrips(t, across)
	}
	const waves = 16
	if rows > 1 {
		return tcqShape{mma: true}.streamed(t, rows, strips, across, min(waves, t.LDS/tcqStageBytes(bits)))
	}
	// For one row the matrix unit gains nothing: an H200 lowers its clock by a tenth
	// while it is used.
	return tcqShape{ahead: true}.streamed(t, rows, strips, across, waves)
}

// tcqStageBytes is the LDS that a wave takes with the matrix unit.
func tcqStageBytes(bits int) int { return tcqStages * (2*bits + 1) * 32 * 16 }

// streamed chooses the lanes of a strip so that the multiprocessors, one block each,
// have done all strips soonest: what comes before and after a block's tiles costs as
// much as another tile of each lane, as measured on an H200. waves is the most of a
// block.
func (s tcqShape) streamed(t Target, rows, strips, across, waves int) tcqShape {
	least := 0
	for lanes := 4; lanes <= t.Wave; lanes *= 2 {
		step := 1 // tiles that a lane takes together
		if s.mma {
			if step = 16 / lanes / tcqPadded(rows); step == 0 {
				break
			}
		}
		tiles := step * ceil(across, waves*lanes*step)
		cost := ceil(ceil(strips, t.Wave/lanes), t.Units) * (tiles + 1)
		if least == 0 || cost < least {
			least, s.lanes, s.waves = cost, lanes, ceil(across, tiles*lanes)
		}
	}
	return s
}

// tcqPadded is how many rows of x have columns of the matrix unit: 1, 2 or 4.
func tcqPadded(rows int) int {
	if rows > 2 {
		return 4
	}
	return rows
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
	slots, all := 1, 0
	if o.Experts != 0 {
		slots = o.T
	}
	for _, p := range group {
		all += p.W.N / scheme.TCQTile * slots
	}
	s := tcqShapeOf(t, w.Format.bits(), rows, all, w.K/scheme.TCQTile, integer)
	if s.mma {
		s.lds = s.waves * tcqStageBytes(w.Format.bits())
	}
	strips := t.Wave / s.lanes
	blocks := 0
	args := []Arg{Ptr(x), I32(w.K), Ptr(o.Experts), I32(max(o.Share, 1)), I64(int64(o.Stack) * int64(w.N))}
	for _, p := range group {
		blocks += ceil(p.W.N/scheme.TCQTile, strips)
		args = append(args, Ptr(p.W.Data), Ptr(p.Y+Address(from*p.W.N*4)), I32(p.W.N))
	}
	return Call{
		Unit: Unit{"tcqmatvec.hip", fmt.Sprintf("%s TCQ_T=%d TCQ_LANES=%d TCQ_WAVES=%d TCQ_RESIDENT=1 TCQ_AHEAD=%d TCQ_INT=%d TCQ_MMA=%d TCQ_STAGES=%d TCQ_MATRICES=%d TCQ_EXPERTS=%d",
			w.Format.defines, rows, s.lanes, s.waves, digit(s.ahead), digit(integer), digit(s.mma), tcqStages, len(group), digit(o.Experts != 0))},
		Symbol: symbol, LDS: uint32(s.lds), Grid: [3]uint32{uint32(blocks), uint32(slots), 1}, Block: [3]uint32{uint32(s.waves * t.Wave), 1, 1}, Early: true, Args: args,
	}
}
