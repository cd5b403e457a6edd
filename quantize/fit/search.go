package fit

import (
	"math"

	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/cpu"
)

const lanes = cpu.Lanes

// A search finds the scales of blocks of 16 rows at once, the same columns of
// each. It is the work space of one goroutine.
type search struct {
	*layout
	set   *cpu.Set
	count int // rows that are there
	chosen
	grids [16]cpu.LaneGrid // by group
	reach []float32        // levels that the largest weight of a group is sent to
	// What kernels get and return, kept here to cost no allocations.
	lows, highs, tops, sum cpu.Lane
	found                  cpu.LaneScales
	near                   cpu.LaneNear
	sums                   cpu.LaneSums
	probe                  cpu.LaneGrid
}

// A chosen is what a block stores beside its codes.
type chosen struct {
	d, m [lanes]uint16 // f16: of the block, or of the one group that it has
	sc   [16]cpu.Lane  // whole scales and offsets of groups
	mn   [16]cpu.Lane
}

func newSearch(l *layout, set *cpu.Set) *search {
	s := &search{layout: l, set: set}
	for _, end := range l.ends {
		if !l.offset && !s.even() {
			s.reach = append(s.reach, l.low-end)
		}
		s.reach = append(s.reach, l.high+end)
	}
	return s
}

// choose finds scales for x, a block, with weights w of squared
// errors by column.
func (s *search) choose(x []cpu.Lane, w []float32) {
	switch {
	case s.points != nil:
		s.choosePoints(x, w)
	case s.offset && s.whole():
		s.wholeOffsets(x, w)
	case s.offset:
		s.oneOffset(x, w)
	case s.whole():
		s.wholeScales(x, w)
	default:
		s.oneScale(x, w)
	}
}

// part returns the columns of group g.
func (s *search) part(x []cpu.Lane, w []float32, g int) ([]cpu.Lane, []float32) {
	return x[g*s.group : (g+1)*s.group], w[g*s.group : (g+1)*s.group]
}

// put makes the grid of group g from scales and offsets.
func (s *search) put(g int, scale, offset *cpu.Lane) {
	grid := s.grid()
	grid.Scale, grid.Offset = *scale, *offset
	s.grids[g] = grid
}

// extremes sets tops to the values of the largest magnitude.
func (s *search) extremes(x []cpu.Lane) {
	s.set.LaneRange(&s.lows, &s.tops, x)
	for l, v := range &s.lows {
		switch {
		case s.even():
			s.tops[l] = max(s.tops[l], -v)
		case -v > s.tops[l]:
			s.tops[l] = v
		}
	}
}

// even reports whether the levels reach as far down as up. Scales are positive
// then.
func (s *search) even() bool { return s.low == -s.high }

// scales returns the best scale of each row for x ~ d*level, not yet rounded to
// how it is stored. A candidate sends the largest weight to a level near one
// end of the range, either end, so that the longer side of an uneven range can
// serve either sign; rounding the others gives codes, and least squares gives
// the best scale for those.
func (s *search) scales(x []cpu.Lane, w []float32, refine int) cpu.Lane {
	s.extremes(x)
	s.found, s.probe = cpu.LaneScales{}, s.grid()
	s.set.LaneScales(&s.found, &s.tops, x, w, s.reach, refine, &s.probe)
	return s.found.Scale
}

// oneScale: a block is a group with a scale of its own. Values around the best are
// looked at, for the codes adapt to the rounded one.
func (s *search) oneScale(x []cpu.Lane, w []float32) {
	d := s.scales(x, w, 2)
	top := s.tops
	var least, zero, scale cpu.Lane
	for l := range least {
		least[l] = math.MaxFloat32
	}
	g, code := &s.probe, s.scale
	if code == nil {
		code = &halfScale
	}
	for step := range 5 {
		var h [lanes]uint16
		for l := range h {
			switch step {
			case 3:
				h[l] = code.of(top[l] / -s.low)
				if !s.even() {
					h[l] ^= 0x8000
				}
			case 4:
				h[l] = code.of(top[l] / s.high)
			default:
				h[l] = code.step(code.of(d[l]), [3]int{0, 1, -1}[step])
			}
			g.Scale[l] = code.value(h[l])
		}
		s.set.LaneError(&s.sum, x, w, g)
		for l, v := range s.sum {
			if v < least[l] {
				least[l], s.d[l], scale[l] = v, h[l], g.Scale[l]
			}
		}
	}
	s.put(0, &scale, &zero)
}

// stepHalf returns the f16 so many steps away from zero.
func stepHalf(h uint16, step int) uint16 {
	switch {
	case step < 0 && h&0x7FFF == 0, step > 0 && h&0x7FFF >= 0x7BFF:
		return h
	}
	return uint16(int(h) + step)
}

// finite is the value of an f16, the largest for an infinity.
func finite(h uint16) float32 { return clamp(tensor.F16ToF32(h), -maxHalf, maxHalf) }

// wholeScales: groups have whole scales times an f16 of the block.
func (s *search) wholeScales(x []cpu.Lane, w []float32) {
	n := len(w) / s.group
	var ideal [16]cpu.Lane
	var top cpu.Lane
	for g := range n {
		xs, ws := s.part(x, w, g)
		ideal[g] = s.scales(xs, ws, 1)
		for l, v := range ideal[g] {
			if math.Abs(float64(v)) > math.Abs(float64(top[l])) {
				top[l] = v
			}
		}
	}
	best := s.chosen
	var least cpu.Lane
	for l := range least {
		least[l] = math.MaxFloat32
	}
	for _, end := range [2]float32{s.least, s.most} {
		for l, v := range top {
			s.d[l] = finiteHalf(v / end)
		}
		for range 2 {
			err := s.pickScales(x, w, &ideal)
			best.take(&s.chosen, n, &err, &least)
			s.improveScale(x, w)
		}
	}
	s.chosen = best
	s.regrid(n)
}

// take copies the rows of from that have less error.
func (s *chosen) take(from *chosen, groups int, err, least *cpu.Lane) {
	for l, v := range err {
		if v < least[l] {
			least[l], s.d[l], s.m[l] = v, from.d[l], from.m[l]
			for g := range groups {
				s.sc[g][l], s.mn[g][l] = from.sc[g][l], from.mn[g][l]
			}
		}
	}
}

// regrid makes the grids of whole scales and offsets, in the order of the
// decode's operations.
func (s *search) regrid(groups int) {
	d, m := halves(&s.d), halves(&s.m)
	for g := range groups {
		s.regroup(g, &d, &m)
	}
}

// regroup makes the grid of group g; d and m are the block's scales.
func (s *search) regroup(g int, d, m *cpu.Lane) {
	grid := &s.grids[g]
	*grid = s.grid()
	for l := range d {
		grid.Scale[l] = d[l] * s.sc[g][l]
		grid.Offset[l] = float32(m[l] * s.mn[g][l])
	}
}

// pickScales chooses each group's whole scale among those nearest the ideal.
func (s *search) pickScales(x []cpu.Lane, w []float32, ideal *[16]cpu.Lane) (err cpu.Lane) {
	d, m := halves(&s.d), halves(&s.m)
	for g := range len(w) / s.group {
		var at cpu.Lane
		for l, v := range ideal[g] {
			at[l] = round(clamp(v*inverse(d[l]), s.least, s.most))
		}
		s.nearScales(x, w, g, &at, &d, &m, nearest)
		for l, v := range &s.sum {
			err[l] += v
		}
	}
	return err
}

// Steps from the nearest whole scale and offset.
var (
	nearest    = [][2]float32{{0}, {-1}, {1}}
	nearby     = [][2]float32{{0}, {-1}, {1}, {-2}, {2}}
	neighbours = [][2]float32{{0, 0}, {0, 1}, {0, -1}, {1, 0}, {1, 1}, {1, -1}, {-1, 0}, {-1, 1}, {-1, -1}}
)

// nearScales tries whole scales and offsets at steps from at and from where
// group g is, keeps the best, and leaves their errors in sum; d and m are the
// block's scales.
func (s *search) nearScales(x []cpu.Lane, w []float32, g int, at, d, m *cpu.Lane, steps [][2]float32) {
	xs, ws := s.part(x, w, g)
	s.near = cpu.LaneNear{Scale: *at, Offset: s.mn[g], D: *d, M: *m, Least: s.least, Most: s.most}
	s.probe = s.grid()
	s.set.LaneNear(&s.sum, &s.sc[g], &s.mn[g], xs, ws, &s.near, steps, &s.probe)
}

func halves(h *[lanes]uint16) (out cpu.Lane) {
	for l, v := range h {
		out[l] = tensor.F16ToF32(v)
	}
	return out
}

// invert prepares the grid of a group for sums.
func (s *search) invert(g int) {
	for l, v := range s.grids[g].Scale {
		s.grids[g].Inverse[l] = inverse(v)
	}
}

// improveScale solves for the scale of scales that suits the codes best.
func (s *search) improveScale(x []cpu.Lane, w []float32) {
	var xq, qq [lanes]float64
	n := len(w) / s.group
	s.regrid(n)
	sums := &s.sums
	for g := range n {
		xs, ws := s.part(x, w, g)
		s.invert(g)
		s.set.LaneSums(sums, xs, ws, &s.grids[g])
		for l := range xq {
			c := float64(s.sc[g][l])
			xq[l] += float64(float64(sums.Product[l]) * c)
			qq[l] += float64(float64(float64(sums.Square[l])*c) * c)
		}
	}
	for l, v := range qq {
		if v > 0 {
			s.d[l] = finiteHalf(float32(xq[l] / v))
		}
	}
}

// finiteHalf rounds to f16, stays finite, and does not lose a small number to
// zero: whole scales make up for a scale of scales that is too large.
func finiteHalf(d float32) uint16 {
	h := tensor.F32ToF16(clamp(d, -maxHalf, maxHalf))
	if h&0x7FFF == 0 && d != 0 {
		h |= 1
	}
	return h
}
