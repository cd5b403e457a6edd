package cpu

import "math"

// A LaneScales is where the scale of a group is looked for, and where it was
// found: y = Scale*level - Offset. The caller sets what is to be beaten.
type LaneScales struct {
	Scale, Offset Lane
	Gain          Lane // what of the sum of w*x*x the best explains
}

// LaneScales looks for the best scale of x[len(w)], without an offset. It sends
// Top to each of reach, rounds x by that, and takes the scale that suits these
// levels best where it gains more; then, refine times, what suits the levels of
// the best scale.
func (s *Set) LaneScales(best *LaneScales, top *Lane, x []Lane, w, reach []float32, refine int, g *LaneGrid) {
	want(len(x) == len(w) && len(w) > 0 && len(reach) > 0, "LaneScales", len(x), len(w), len(reach))
	s.lanes.scales(best, top, x, w, reach, refine, g)
}

// LaneOffsets is LaneScales with an offset: it sends low to level 0 and high
// to each of reach. total is the sum of w; where positive is 1, not 0, offsets
// are not negative. A refined scale is taken where it gains more.
func (s *Set) LaneOffsets(best *LaneScales, low, high *Lane, x []Lane, w, reach []float32, refine int, total, positive float32, g *LaneGrid) {
	want(len(x) == len(w) && len(w) > 0 && len(reach) > 0, "LaneOffsets", len(x), len(w), len(reach))
	s.lanes.offsets(best, low, high, x, w, reach, refine, &[2]float32{total, positive}, g)
}

// A LaneNear is a group with a whole scale and offset, times numbers of its
// block, that are to be improved.
type LaneNear struct {
	Scale, Offset Lane    // what to begin from
	D, M          Lane    // what one more of each adds
	Least, Most   float32 // of Scale; Offset is 0 to Most
}

// LaneNear tries the steps {scale, offset} from a group's whole numbers, limits
// them, and keeps what leaves the least error in sum, scale and offset, the first
// of equals; where all errors are NaN or infinite these stay.
func (s *Set) LaneNear(sum, scale, offset *Lane, x []Lane, w []float32, near *LaneNear, steps [][2]float32, g *LaneGrid) {
	want(len(x) == len(w) && len(w) > 0 && len(steps) > 0, "LaneNear", len(x), len(w), len(steps))
	s.lanes.near(sum, scale, offset, x, w, near, steps, g)
}

func laneScalesGeneric(best *LaneScales, top *Lane, x []Lane, w, reach []float32, refine int, g *LaneGrid) {
	grid := LaneGrid{Low: g.Low, High: g.High, Table: g.Table}
	var sums LaneSums
	for i := range len(reach) + refine {
		for l := range grid.Inverse {
			from := best.Scale[l]
			if i < len(reach) {
				from = top[l] / reach[i]
			}
			grid.Inverse[l] = finiteInverse(from)
		}
		laneSumsGeneric(&sums, x, w, &grid)
		for l, qq := range &sums.Square {
			if !(qq > 0) {
				continue
			}
			// The error is sum(w*x*x) - xq*xq/qq.
			xq := sums.Product[l]
			if i >= len(reach) {
				best.Scale[l] = xq / qq
			} else if v := float32(xq*xq) / qq; v > best.Gain[l] {
				best.Scale[l], best.Gain[l] = xq/qq, v
			}
		}
	}
}

func laneOffsetsGeneric(best *LaneScales, low, high *Lane, x []Lane, w, reach []float32, refine int, o *[2]float32, g *LaneGrid) {
	grid := LaneGrid{Low: g.Low, High: g.High, Table: g.Table}
	var sums LaneSums
	for i := range len(reach) + refine {
		for l := range grid.Inverse {
			if i < len(reach) {
				grid.Offset[l] = 0 - low[l]
				grid.Inverse[l] = finiteInverse((high[l] - low[l]) / reach[i])
			} else {
				grid.Offset[l] = best.Offset[l]
				grid.Inverse[l] = finiteInverse(best.Scale[l])
			}
		}
		laneSumsGeneric(&sums, x, w, &grid)
		for l := range &best.Gain {
			if s, m, v := sums.solve(l, o[0], o[1] != 0); v > best.Gain[l] {
				best.Scale[l], best.Offset[l], best.Gain[l] = s, m, v
			}
		}
	}
}

// solve returns the best scale and offset for the levels of row l, and how much
// of the sum of w*x*x they explain.
func (t *LaneSums) solve(l int, total float32, positive bool) (s, m, gain float32) {
	q, qq, xq, x := t.Level[l], t.Square[l], t.Product[l], t.Value[l]
	all := float32(total * qq)
	det := all - float32(q*q)
	s = (float32(total*xq) - float32(x*q)) / det
	m = (float32(q*xq) - float32(x*qq)) / det
	// With all levels alike the determinant is 0 but for rounding errors.
	if det <= float32(1e-5*all) || positive && m < 0 {
		if qq == 0 {
			return 0, 0, 0
		}
		s, m = xq/qq, 0
	}
	return s, m, float32(s*xq) - float32(m*x)
}

func laneNearGeneric(sum, scale, offset *Lane, x []Lane, w []float32, near *LaneNear, steps [][2]float32, g *LaneGrid) {
	for l := range sum {
		sum[l] = math.MaxFloat32
	}
	grid := LaneGrid{Low: g.Low, High: g.High, Table: g.Table}
	for _, c := range steps {
		var err, sc, mn Lane
		for l := range sc {
			sc[l] = clamped(near.Scale[l]+c[0], near.Least, near.Most)
			mn[l] = clamped(near.Offset[l]+c[1], 0, near.Most)
			grid.Scale[l], grid.Offset[l] = float32(near.D[l]*sc[l]), float32(near.M[l]*mn[l])
		}
		laneErrorGeneric(&err, x, w, &grid)
		for l, v := range err {
			if v < sum[l] {
				sum[l], scale[l], offset[l] = v, sc[l], mn[l]
			}
		}
	}
}

// finiteInverse is 1/v, 0 where that is not finite.
func finiteInverse(v float32) float32 {
	if i := 1 / v; i-i == 0 {
		return i
	}
	return 0
}
