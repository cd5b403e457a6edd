package fit

import (
	"math"

	"github.com/nstf/nstf/formats/tensor"
)

// The search for a scale and an offset, x ~ s*q - m with whole q in [0, top]
// and m >= 0, and its arrangement in blocks of 8 groups of 32 with 6-bit
// scales and offsets: q4_k and q5_k.

// offsetSums are the weighted sums over a group's codes that least squares
// needs.
type offsetSums struct{ w, x, q, qq, xq float32 }

// sums rounds (x+m)/s to codes.
func sums(x, w []float32, inv, m, top float32) (t offsetSums) {
	w = w[:len(x)]
	for i, v := range x {
		q := clamp(round(float32(v+m)*inv), 0, top)
		wq, wx := float32(w[i]*q), float32(w[i]*v)
		t.w += w[i]
		t.x += wx
		t.q += wq
		t.qq += float32(wq * q)
		t.xq += float32(wx * q)
	}
	return t
}

// solve returns the best s and m for given codes, and how much of the sum of
// w*x*x they explain.
func (t offsetSums) solve() (s, m, gain float32) {
	det := float32(t.w*t.qq) - float32(t.q*t.q)
	// With all codes alike the determinant is 0 but for rounding errors.
	single := det <= 1e-5*float32(t.w*t.qq)
	if !single {
		s = (float32(t.w*t.xq) - float32(t.x*t.q)) / det
		m = (float32(t.q*t.xq) - float32(t.x*t.qq)) / det
	}
	if single || m < 0 {
		if t.qq == 0 {
			return 0, 0, 0
		}
		s, m = t.xq/t.qq, 0
	}
	return s, m, float32(s*t.xq) - float32(m*t.x)
}

// searchOffset returns the best s and m for a group.
func searchOffset(x, w []float32, top float32, ends []float32) (s, m float32) {
	low, high := float32(0), float32(math.Inf(-1))
	for _, v := range x {
		low, high = min(low, v), max(high, v)
	}
	if high <= low {
		// All weights are one number that is not positive.
		return 0, -low
	}
	var gain float32
	for _, end := range ends {
		s1, m1, g := sums(x, w, (top+end)/(high-low), -low, top).solve()
		if g > gain {
			s, m, gain = s1, m1, g
		}
	}
	for range 2 {
		s1, m1, g := sums(x, w, inverse(s), m, top).solve()
		if g <= gain {
			break
		}
		s, m, gain = s1, m1, g
	}
	// The gain above is a difference of sums; the plain range is what it
	// must beat in the end.
	s1, m1 := (high-low)/top, -low
	if offsetError(x, w, s1, m1, top) < offsetError(x, w, s, m, top) {
		s, m = s1, m1
	}
	return s, m
}

// offsetError is the weighted squared error of a group coded with s and m.
func offsetError(x, w []float32, s, m, top float32) float32 {
	w = w[:len(x)]
	inv := inverse(s)
	var sum float32
	for i, v := range x {
		vm := v + m
		e := vm - float32(s*clamp(round(vm*inv), 0, top))
		sum += float32(float32(w[i]*e) * e)
	}
	return sum
}

// offsetBlock is a block of q4_k or q5_k in the making.
type offsetBlock struct {
	top    float32
	d, min uint16 // f16 scale of scales and of offsets
	sc, mn [8]uint8
	err    float64
}

// fitOffset finds scales and offsets for 256 weights.
func fitOffset(x, w []float32, top float32, ends []float32) offsetBlock {
	var s, m [8]float32
	var maxS, maxM float32
	for g := range s {
		s[g], m[g] = searchOffset(x[32*g:32*g+32], w[32*g:32*g+32], top, ends)
		maxS, maxM = max(maxS, s[g]), max(maxM, m[g])
	}
	b := offsetBlock{top: top, d: finiteHalf(maxS / 63), min: finiteHalf(maxM / 63)}
	best := offsetBlock{err: math.Inf(1)}
	for turn := range 3 {
		if turn > 0 {
			b.improve(x, w)
		}
		b.pick(x, w, &s, &m)
		if b.err >= best.err {
			break
		}
		best = b
	}
	return best
}

// pick chooses each group's whole scale and offset among the nearest to the
// ideal ones.
func (b *offsetBlock) pick(x, w []float32, s, m *[8]float32) {
	d, dmin := tensor.F16ToF32(b.d), tensor.F16ToF32(b.min)
	invD, invMin := inverse(d), inverse(dmin)
	b.err = 0
	for g := range b.sc {
		xs, ws := x[32*g:32*g+32], w[32*g:32*g+32]
		sc, mn := round(clamp(s[g]*invD, 0, 63)), round(clamp(m[g]*invMin, 0, 63))
		least := float32(math.MaxFloat32)
		for _, c := range neighbours {
			s1, m1 := clamp(sc+c[0], 0, 63), clamp(mn+c[1], 0, 63)
			if e := offsetError(xs, ws, d*s1, float32(dmin*m1), b.top); e < least {
				least, b.sc[g], b.mn[g] = e, uint8(s1), uint8(m1)
			}
		}
		b.err += float64(least)
	}
}

// neighbours are the steps from the nearest whole scale and offset.
var neighbours = [9][2]float32{{0, 0}, {0, 1}, {0, -1}, {1, 0}, {1, 1}, {1, -1}, {-1, 0}, {-1, 1}, {-1, -1}}

// improve solves for the two scales of scales that suit the codes best.
func (b *offsetBlock) improve(x, w []float32) {
	d, dmin := tensor.F16ToF32(b.d), tensor.F16ToF32(b.min)
	// Minimise the sum of w*(x - d*a + dmin*c)^2 with a = sc*q and c = mn.
	var aa, ac, cc, xa, xc float64
	for g := range b.sc {
		s, m := float64(b.sc[g]), float64(b.mn[g])
		t := sums(x[32*g:32*g+32], w[32*g:32*g+32], inverse(d*float32(b.sc[g])), float32(dmin*float32(b.mn[g])), b.top)
		aa += float64(float64(s*s) * float64(t.qq))
		ac += float64(float64(s*m) * float64(t.q))
		cc += float64(float64(m*m) * float64(t.w))
		xa += float64(s * float64(t.xq))
		xc += float64(m * float64(t.x))
	}
	det := float64(aa*cc) - float64(ac*ac)
	if det > 1e-9*float64(aa*cc) {
		b.d = positiveHalf((float64(xa*cc) - float64(xc*ac)) / det)
		b.min = positiveHalf((float64(xa*ac) - float64(xc*aa)) / det)
	} else if aa > 0 {
		b.d = positiveHalf((xa + float64(float64(dmin)*ac)) / aa)
	}
}

// positiveHalf rounds to a finite f16 that is not negative.
func positiveHalf(v float64) uint16 {
	return finiteHalf(clamp(float32(v), 0, maxHalf))
}

// header packs the two scales and the 12 bytes of 6-bit numbers: see
// docs/schemes/q4k.md.
func (b *offsetBlock) header(dst []byte) {
	le.PutUint16(dst, b.d)
	le.PutUint16(dst[2:], b.min)
	p := dst[4:16]
	for j := range 4 {
		p[j] = b.sc[j] | b.sc[j+4]>>4<<6
		p[j+4] = b.mn[j] | b.mn[j+4]>>4<<6
		p[j+8] = b.sc[j+4]&15 | b.mn[j+4]<<4
	}
}

// codes rounds the weights of group g.
func (b *offsetBlock) codes(q *[32]uint8, x []float32, g int) {
	s := tensor.F16ToF32(b.d) * float32(b.sc[g])
	m := float32(tensor.F16ToF32(b.min) * float32(b.mn[g]))
	inv := inverse(s)
	for j, v := range x[32*g : 32*g+32] {
		q[j] = uint8(clamp(round(float32(v+m)*inv), 0, b.top))
	}
}
