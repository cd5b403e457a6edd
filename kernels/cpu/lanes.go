package cpu

// Lanes is the number of rows that the kernels of this file take at once: a
// value of each lies side by side, [column][Lanes]. They serve quantize/fit,
// which decides by what they return: every product and sum is rounded to
// float32 in one order, so that all levels give the same bits.
const Lanes = 16

// A Lane holds one value of each of 16 rows.
type Lane [Lanes]float32

// A LaneGrid is the values that codes may take, of each row its own:
//
//	y = Scale*level - Offset
//
// where levels are whole numbers from Low to High, or those of Table: the level
// nearest to t is Table[round(2t) + 256], 2t limited to [-256, 255].
type LaneGrid struct {
	Scale, Offset Lane
	Inverse       Lane // what LaneSums takes for 1/Scale, of a scale yet to be found
	Low, High     float32
	Table         *[512]float32 // nil: whole numbers
}

// LaneSums are sums over columns, weighted, of levels and values.
type LaneSums struct{ Level, Square, Product, Value Lane }

// LaneSums rounds x[len(w)] to the levels q nearest to (x+Offset)*Inverse
// and sums, over the columns in order, w*q, w*q*q, w*q*x and w*x.
func (s *Set) LaneSums(sums *LaneSums, x []Lane, w []float32, g *LaneGrid) {
	want(len(x) == len(w), "LaneSums", len(x), len(w))
	s.lanes.sums(sums, x, w, g)
}

// LaneError sums the squares of the errors that rounding to the level nearest
// to (x+Offset)/Scale leaves, weighted; a Scale whose inverse is not finite
// makes all levels the one nearest to 0.
func (s *Set) LaneError(sum *Lane, x []Lane, w []float32, g *LaneGrid) {
	want(len(x) == len(w), "LaneError", len(x), len(w))
	s.lanes.distortion(sum, x, w, g)
}

// LaneRange finds the least and the largest value of each row of at least one
// column.
func (s *Set) LaneRange(low, high *Lane, x []Lane) {
	want(len(x) > 0, "LaneRange", len(x))
	s.lanes.extent(low, high, x)
}

// LaneAnswer computes z[j] += sum over i of e[i] * m[j*ld+i], i ascending, for
// 16 columns j: what those owe to errors e before them.
func (s *Set) LaneAnswer(z *[Lanes]Lane, e []Lane, m []float32, ld int) {
	want(rowsFit(len(m), Lanes, ld, len(e)), "LaneAnswer", len(e), len(m), ld)
	if len(e) > 0 {
		s.lanes.answer(z, e, m, ld)
	}
}

// LaneRound rounds 16 columns, one after the other: column c of z becomes the
// nearest level q[c] with the value y, its error e[c] = e[c] - y is answered in
// the columns behind it, z[j] += e[c] * m[j*ld+c], and loss grows by
// d[c] * (z[c]-y)^2. z keeps what each column aimed at. Without m nothing is
// answered.
func (s *Set) LaneRound(q, z, e *[Lanes]Lane, loss *Lane, d *[Lanes]float32, m []float32, ld int, g *LaneGrid) {
	want(m == nil || rowsFit(len(m), Lanes, ld, Lanes), "LaneRound", len(m), ld)
	s.lanes.round(q, z, e, loss, d, m, ld, g)
}

// laneKernels are the kernels of one level.
type laneKernels struct {
	sums       func(sums *LaneSums, x []Lane, w []float32, g *LaneGrid)
	distortion func(sum *Lane, x []Lane, w []float32, g *LaneGrid)
	extent     func(low, high *Lane, x []Lane)
	answer     func(z *[Lanes]Lane, e []Lane, m []float32, ld int)
	round      func(q, z, e *[Lanes]Lane, loss *Lane, d *[Lanes]float32, m []float32, ld int, g *LaneGrid)
	scales     func(best *LaneScales, top *Lane, x []Lane, w, reach []float32, refine int, g *LaneGrid)
	offsets    func(best *LaneScales, low, high *Lane, x []Lane, w, reach []float32, refine int, o *[2]float32, g *LaneGrid)
	near       func(sum, scale, offset *Lane, x []Lane, w []float32, near *LaneNear, steps [][2]float32, g *LaneGrid)
}

func genericLanes() laneKernels {
	return laneKernels{laneSumsGeneric, laneErrorGeneric, laneRangeGeneric, laneAnswerGeneric, laneRoundGeneric,
		laneScalesGeneric, laneOffsetsGeneric, laneNearGeneric}
}

// inverse is 1/Scale, 0 where that is not finite.
func (g *LaneGrid) inverse() (inv Lane) {
	for l, v := range &g.Scale {
		inv[l] = finiteInverse(v)
	}
	return inv
}

// level rounds t.
func (g *LaneGrid) level(t float32) float32 {
	if g.Table != nil {
		return g.Table[int(clamped(nearest(t+t), -256, 255))+256]
	}
	return clamped(nearest(t), g.Low, g.High)
}

// nearest is the nearest whole number, ties to even, for |x| < 2^22.
func nearest(x float32) float32 {
	const magic = 3 << 22
	return float32(x+magic) - magic
}

func clamped(x, low, high float32) float32 {
	if x < low {
		x = low
	}
	if x > high {
		x = high
	}
	return x
}

func laneSumsGeneric(sums *LaneSums, x []Lane, w []float32, g *LaneGrid) {
	*sums = LaneSums{}
	for c, wc := range w {
		for l, v := range &x[c] {
			q := g.level(float32(float32(v+g.Offset[l]) * g.Inverse[l]))
			wq := float32(wc * q)
			sums.Level[l] += wq
			sums.Square[l] += float32(wq * q)
			sums.Product[l] += float32(wq * v)
			sums.Value[l] += float32(wc * v)
		}
	}
}

func laneErrorGeneric(sum *Lane, x []Lane, w []float32, g *LaneGrid) {
	*sum = Lane{}
	inverse := g.inverse()
	for c, wc := range w {
		for l, v := range &x[c] {
			v += g.Offset[l]
			e := v - float32(g.Scale[l]*g.level(float32(v*inverse[l])))
			sum[l] += float32(float32(wc*e) * e)
		}
	}
}

func laneRangeGeneric(low, high *Lane, x []Lane) {
	*low, *high = x[0], x[0]
	for c := range x {
		for l, v := range &x[c] {
			low[l], high[l] = min(low[l], v), max(high[l], v)
		}
	}
}

func laneAnswerGeneric(z *[Lanes]Lane, e []Lane, m []float32, ld int) {
	for j := range z {
		row := m[j*ld:]
		zj := &z[j]
		for i := range e {
			a := row[i]
			for l, v := range &e[i] {
				zj[l] += float32(a * v)
			}
		}
	}
}

func laneRoundGeneric(q, z, e *[Lanes]Lane, loss *Lane, d *[Lanes]float32, m []float32, ld int, g *LaneGrid) {
	inverse := g.inverse()
	for c := range z {
		for l, t := range &z[c] {
			v := g.level(float32(float32(t+g.Offset[l]) * inverse[l]))
			y := float32(g.Scale[l]*v) - g.Offset[l]
			r := t - y
			loss[l] += float32(float32(d[c]*r) * r)
			q[c][l] = v
			e[c][l] -= y
		}
		for j := c + 1; j < Lanes && m != nil; j++ {
			a := m[j*ld+c]
			for l, v := range &e[c] {
				z[j][l] += float32(a * v)
			}
		}
	}
}
