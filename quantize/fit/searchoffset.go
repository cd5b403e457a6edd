package fit

import (
	"math"

	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/cpu"
)

// The search for a scale and an offset, y = s*level - m.

// offsets returns the best scale and offset of a group, not yet rounded to how
// they are stored. Offsets of layouts with whole ones are not negative.
func (s *search) offsets(x []cpu.Lane, w []float32) (scale, offset cpu.Lane) {
	s.set.LaneRange(&s.lows, &s.highs, x)
	var positive, total float32
	if s.whole() {
		positive = 1
		for l, v := range &s.lows {
			s.lows[l] = min(v, 0)
		}
	}
	for _, v := range w {
		total += v
	}
	s.found, s.probe = cpu.LaneScales{}, s.grid()
	s.set.LaneOffsets(&s.found, &s.lows, &s.highs, x, w, s.reach, 2, total, positive, &s.probe)
	s.orRange(x, w, &s.found.Scale, &s.found.Offset)
	return s.found.Scale, s.found.Offset
}

// orRange takes the plain range where it is better: gains are differences of
// sums.
func (s *search) orRange(x []cpu.Lane, w []float32, scale, offset *cpu.Lane) {
	g := &s.probe
	g.Scale, g.Offset = *scale, *offset
	s.set.LaneError(&s.sum, x, w, g)
	before := s.sum
	for l, v := range &s.lows {
		g.Scale[l], g.Offset[l] = (s.highs[l]-v)/s.high, -v
	}
	s.set.LaneError(&s.sum, x, w, g)
	for l, v := range &s.lows {
		if s.sum[l] < before[l] || s.highs[l] <= v {
			scale[l], offset[l] = g.Scale[l], -v
		}
	}
}

// wholeOffsets: groups have whole scales and offsets, times two f16 of the
// block.
func (s *search) wholeOffsets(x []cpu.Lane, w []float32) {
	n := len(w) / s.group
	var ideal, offset [16]cpu.Lane
	var topS, topM cpu.Lane
	for g := range n {
		xs, ws := s.part(x, w, g)
		ideal[g], offset[g] = s.offsets(xs, ws)
		for l := range topS {
			topS[l], topM[l] = max(topS[l], ideal[g][l]), max(topM[l], offset[g][l])
		}
	}
	best := s.chosen
	var least cpu.Lane
	for l := range least {
		least[l] = math.MaxFloat32
	}
	for _, start := range s.begin() {
		for l := range topS {
			s.d[l], s.m[l] = finiteHalf(topS[l]/start), finiteHalf(topM[l]/start)
		}
		for turn := range 3 {
			if turn > 0 {
				s.improveOffsets(x, w)
			}
			err := s.pickOffsets(x, w, &ideal, &offset)
			best.take(&s.chosen, n, &err, &least)
		}
	}
	s.chosen = best
	s.regrid(n)
}

// begin lists what the largest scale of a block is sent to.
func (s *search) begin() []float32 {
	if s.starts != nil {
		return s.starts
	}
	return []float32{s.most}
}

// pickOffsets chooses each group's whole scale and offset among the nearest to
// the ideal ones.
func (s *search) pickOffsets(x []cpu.Lane, w []float32, ideal, offset *[16]cpu.Lane) (err cpu.Lane) {
	d, m := halves(&s.d), halves(&s.m)
	var perD, perM cpu.Lane
	for l := range d {
		perD[l], perM[l] = inverse(d[l]), inverse(m[l])
	}
	for g := range len(w) / s.group {
		var at cpu.Lane
		for l, v := range ideal[g] {
			at[l] = round(clamp(v*perD[l], 0, s.most))
			s.mn[g][l] = round(clamp(offset[g][l]*perM[l], 0, s.most))
		}
		s.nearScales(x, w, g, &at, &d, &m, neighbours)
		for l, v := range &s.sum {
			err[l] += v
		}
	}
	return err
}

// improveOffsets solves for the two scales of scales that suit the codes best:
// the least sum of w*(x - d*a + m*c)^2 with a = sc*q and c = mn.
func (s *search) improveOffsets(x []cpu.Lane, w []float32) {
	n := len(w) / s.group
	s.regrid(n)
	var aa, ac, cc, xa, xc [lanes]float64
	sums := &s.sums
	for g := range n {
		xs, ws := s.part(x, w, g)
		var total float64
		for _, v := range ws {
			total += float64(v)
		}
		s.invert(g)
		s.set.LaneSums(sums, xs, ws, &s.grids[g])
		for l := range aa {
			a, c := float64(s.sc[g][l]), float64(s.mn[g][l])
			aa[l] += float64(float64(a*a) * float64(sums.Square[l]))
			ac[l] += float64(float64(a*c) * float64(sums.Level[l]))
			cc[l] += float64(float64(c*c) * total)
			xa[l] += float64(a * float64(sums.Product[l]))
			xc[l] += float64(c * float64(sums.Value[l]))
		}
	}
	for l := range aa {
		det := float64(aa[l]*cc[l]) - float64(ac[l]*ac[l])
		if det > 1e-9*float64(aa[l]*cc[l]) {
			s.d[l] = positiveHalf((float64(xa[l]*cc[l]) - float64(xc[l]*ac[l])) / det)
			s.m[l] = positiveHalf((float64(xa[l]*ac[l]) - float64(xc[l]*aa[l])) / det)
		} else if aa[l] > 0 {
			s.d[l] = positiveHalf((xa[l] + float64(float64(tensor.F16ToF32(s.m[l]))*ac[l])) / aa[l])
		}
	}
}

// positiveHalf rounds to a finite f16 that is not negative.
func positiveHalf(v float64) uint16 {
	return finiteHalf(clamp(float32(v), 0, maxHalf))
}

// oneOffset: a block is a group with an f16 scale and an f16 offset of either
// sign.
func (s *search) oneOffset(x []cpu.Lane, w []float32) {
	scale, offset := s.offsets(x, w)
	var d, m, least, bestD, bestM cpu.Lane
	for l := range least {
		least[l] = math.MaxFloat32
	}
	g := &s.probe
	for _, c := range neighbours {
		var hd, hm [lanes]uint16
		for l := range hd {
			hd[l] = stepHalf(tensor.F32ToF16(scale[l]), int(c[0]))
			hm[l] = stepHalf(tensor.F32ToF16(-offset[l]), int(c[1]))
			d[l], m[l] = finite(hd[l]), -finite(hm[l])
		}
		g.Scale, g.Offset = d, m
		s.set.LaneError(&s.sum, x, w, g)
		for l, v := range &s.sum {
			if v < least[l] {
				least[l], bestD[l], bestM[l] = v, d[l], m[l]
				s.d[l], s.m[l] = hd[l], hm[l]
			}
		}
	}
	s.put(0, &bestD, &bestM)
}
