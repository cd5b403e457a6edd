package fit

import (
	"encoding/binary"
	"math"

	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/cpu"
)

var le = binary.LittleEndian

// A layout says how the blocks of a scheme are searched and written. A weight
// is stored as
//
//	y = s*level - m
//
// where a group of columns shares s and m. Either both are f16 values, or whole
// numbers of few bits times an f16 of the block.
type layout struct {
	limit     float32 // magnitude up to which nothing overflows: see [fitter]
	group     int     // columns that share a scale
	low, high float32 // the levels' ends
	table     *levelTable
	// ends are the distances beyond the levels' ends to which the largest weight
	// of a group is sent; negative ones leave room, positive ones clip.
	ends []float32
	// Whole scales, ends included; both 0: each group has an f16 scale.
	least, most float32
	// What the largest scale of a block is sent to; nil: most.
	starts []float32
	scale  *scaleCode // of a group that has a scale of its own; nil: f16
	points *points    // of a grid, where codes name these
	offset bool       // m is stored; where scales are whole it is not negative
	pack   func(dst []byte, b *block)
}

// A block is what is written for one row: d and m as f16, whole scales and
// offsets by group, and codes, which count levels from the lowest.
type block struct {
	d, m   uint16
	sc, mn [16]int8
	q      [256]uint8
	at     [64]uint16 // of points: their codes
	signs  [32]uint8  // and the signs of 8 weights each
}

// A scaleCode is how a scale is stored: its code for a number, the code so many steps
// away from zero, and what a code stands for, which is finite.
type scaleCode struct {
	of    func(d float32) uint16
	step  func(h uint16, by int) uint16
	value func(h uint16) float32
}

// halfScale are scales that are f16.
var halfScale = scaleCode{tensor.F32ToF16, stepHalf, finite}

// whole reports whether scales are whole numbers times the block's.
func (l *layout) whole() bool { return l.most != 0 }

// A levelTable serves levels that are not evenly spaced.
type levelTable struct {
	nearest [512]float32 // see [cpu.LaneGrid]
	code    [256]uint8   // by level + 128
}

// newLevelTable takes ascending whole levels within [-128, 127].
func newLevelTable(levels []float32) *levelTable {
	t := &levelTable{}
	for i := range t.nearest {
		at, best := float32(float32(i-256)/2), 0
		for c, v := range levels {
			if math.Abs(float64(v-at)) < math.Abs(float64(levels[best]-at)) {
				best = c
			}
		}
		t.nearest[i] = levels[best]
	}
	for c, v := range levels {
		t.code[int(v)+128] = uint8(c)
	}
	return t
}

// grid returns the values of a group, without its scale.
func (l *layout) grid() cpu.LaneGrid {
	g := cpu.LaneGrid{Low: l.low, High: l.high}
	if l.table != nil {
		g.Table = &l.table.nearest
	}
	return g
}

// code returns the code of a level.
func (l *layout) code(level float32) uint8 {
	if l.table != nil {
		return l.table.code[int(level)+128]
	}
	return uint8(level - l.low)
}

// clamp limits q to [low, high].
func clamp(q, low, high float32) float32 {
	if q < low {
		return low
	}
	if q > high {
		return high
	}
	return q
}

// round is the nearest whole number, ties to even, for |x| < 2^22.
func round(x float32) float32 {
	const magic = 3 << 22
	return float32(float32(x)+magic) - magic
}

// inverse is 1/d, 0 where that is not finite: then every code is 0.
func inverse(d float32) float32 {
	if inv := 1 / d; inv-inv == 0 {
		return inv
	}
	return 0
}
