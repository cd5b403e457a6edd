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
	count int           // rows that are there
	d, m  [lanes]uint16 // f16: of the block, or of the one group that it has
	sc    [16]cpu.Lane  // whole scales and offsets of groups
	mn    [16]cpu.Lane
	grids [16]cpu.LaneGrid // by group
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

// extremes returns the values of the largest magnitude.
func (s *search) extremes(x []cpu.Lane) (top cpu.Lane) {
	var low cpu.Lane
	s.set.LaneRange(&low, &top, x)
	for l, v := range low {
		switch {
		case s.even():
			top[l] = max(top[l], -v)
		case -v > top[l]:
			top[l] = v
		}
	}
	return top
}

// even reports whether the levels reach as far down as up. Scales are positive
// then.
func (s *search) even() bool { return s.low == -s.high }

// scales returns the best scale of each row for x ~ d*level, not yet rounded to
// how it is stored. A candidate sends the largest weight to a level near one
// end of the range, either end, so that the longer side of an uneven range can
// serve either sign; rounding the others gives codes, and least squares gives
// the best scale for those.
func (s *search) scales(x []cpu.Lane, w []float32, refine int) (best cpu.Lane) {
	top := s.extremes(x)
	g := s.grid()
	var sums cpu.LaneSums
	var gain cpu.Lane
	for _, end := range s.ends {
		for _, level := range [2]float32{s.low - end, s.high + end} {
			if level < 0 && s.even() {
				continue
			}
			for l, v := range top {
				g.Inverse[l] = inverse(v / level)
			}
			s.set.LaneSums(&sums, x, w, &g)
			for l, qq := range sums.Square {
				// The error is sum(w*x*x) - xq*xq/qq.
				xq := sums.Product[l]
				if v := float32(xq*xq) / qq; qq > 0 && v > gain[l] {
					best[l], gain[l] = xq/qq, v
				}
			}
		}
	}
	for range refine {
		for l, v := range best {
			g.Inverse[l] = inverse(v)
		}
		s.set.LaneSums(&sums, x, w, &g)
		for l, qq := range sums.Square {
			if qq > 0 {
				best[l] = sums.Product[l] / qq
			}
		}
	}
	return best
}

// oneScale: a block is a group with an f16 scale. Values around the best are
// looked at, for the codes adapt to the rounded one.
func (s *search) oneScale(x []cpu.Lane, w []float32) {
	d := s.scales(x, w, 2)
	top := s.extremes(x)
	var least, zero, scale cpu.Lane
	for l := range least {
		least[l] = math.MaxFloat32
	}
	g := s.grid()
	for step := range 5 {
		var h [lanes]uint16
		for l := range h {
			switch step {
			case 3:
				h[l] = tensor.F32ToF16(top[l] / -s.low)
				if !s.even() {
					h[l] ^= 0x8000
				}
			case 4:
				h[l] = tensor.F32ToF16(top[l] / s.high)
			default:
				h[l] = stepHalf(tensor.F32ToF16(d[l]), [3]int{0, 1, -1}[step])
			}
			g.Scale[l] = finite(h[l])
		}
		var sum cpu.Lane
		s.set.LaneError(&sum, x, w, &g)
		for l, v := range sum {
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
	best := *s
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
			best.take(s, n, &err, &least)
			s.improveScale(x, w)
		}
	}
	best.set = s.set
	*s = best
	s.regrid(n)
}

// take copies the rows of from that have less error.
func (s *search) take(from *search, groups int, err, least *cpu.Lane) {
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
	for g := range groups {
		s.regroup(g)
	}
}

func (s *search) regroup(g int) {
	var scale, offset cpu.Lane
	for l := range scale {
		scale[l] = tensor.F16ToF32(s.d[l]) * s.sc[g][l]
		offset[l] = float32(tensor.F16ToF32(s.m[l]) * s.mn[g][l])
	}
	s.put(g, &scale, &offset)
}

// pickScales chooses each group's whole scale among those nearest the ideal.
func (s *search) pickScales(x []cpu.Lane, w []float32, ideal *[16]cpu.Lane) (err cpu.Lane) {
	for g := range len(w) / s.group {
		var at cpu.Lane
		for l, v := range ideal[g] {
			at[l] = round(clamp(v*inverse(tensor.F16ToF32(s.d[l])), s.least, s.most))
		}
		sum := s.nearScales(x, w, g, &at, [][2]float32{{0}, {-1}, {1}})
		for l, v := range sum {
			err[l] += v
		}
	}
	return err
}

// nearScales tries whole scales and offsets at steps from where group g is and
// keeps the best; it returns the errors that these leave.
func (s *search) nearScales(x []cpu.Lane, w []float32, g int, at *cpu.Lane, steps [][2]float32) (least cpu.Lane) {
	xs, ws := s.part(x, w, g)
	from, d, m := s.mn[g], halves(&s.d), halves(&s.m)
	for l := range least {
		least[l] = math.MaxFloat32
	}
	grid := s.grid()
	sc, mn := &s.sc[g], &s.mn[g]
	for _, c := range steps {
		var sum, sc1, mn1 cpu.Lane
		for l, v := range at {
			sc1[l] = clamp(v+c[0], s.least, s.most)
			grid.Scale[l] = d[l] * sc1[l]
		}
		if s.offset {
			for l, v := range &from {
				mn1[l] = clamp(v+c[1], 0, s.most)
				grid.Offset[l] = float32(m[l] * mn1[l])
			}
		}
		s.set.LaneError(&sum, xs, ws, &grid)
		for l, v := range sum {
			if v < least[l] {
				least[l], sc[l], mn[l] = v, sc1[l], mn1[l]
			}
		}
	}
	return least
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
	var sums cpu.LaneSums
	for g := range n {
		xs, ws := s.part(x, w, g)
		s.invert(g)
		s.set.LaneSums(&sums, xs, ws, &s.grids[g])
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
