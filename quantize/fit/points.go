package fit

import (
	"cmp"
	"slices"
	"sync"

	"github.com/nstf/nstf/kernels/cpu"
)

// vector is the number of weights that are chosen together where codes name
// points of a grid: one point of 8 magnitudes, or two of 4, and the signs.
const vector = 8

// Points are the codes of a scheme whose weights come in points of a grid:
//
//	y = ±d*unit*(2s+1) * magnitude
//
// with s below 16 for each group. The rows of a point's halves are tables, so
// that a search adds two numbers for each point.
type points struct {
	width  int       // magnitudes of a point, 8 or 4
	levels []float32 // what magnitudes may be, ascending
	even   bool      // the number of negative weights of a vector is even
	unit   float32

	// The rest is made before the first search: no other command pays for it.
	once   sync.Once
	build  func()
	count  int         // of half points
	first  []pointHalf // ascending by half
	second []uint8     // half
	code   []uint16    // of each point, in the order of second
	values [][vector]float32
}

// A pointHalf is a first half with the places of the points that have it.
type pointHalf struct {
	half     uint8
	from, to uint16
}

// newPoints takes a grid of points, the first magnitude in the low byte.
func newPoints[T uint32 | uint64](width int, levels []float32, even bool, unit float32, grid []T) *points {
	p := &points{width: width, levels: levels, even: even, unit: unit}
	p.build = func() { addPoints(p, grid) }
	return p
}

// prepare makes what searches look up.
func (p *points) prepare() { p.once.Do(p.build) }

// addPoints lists the points of a grid by their halves.
func addPoints[T uint32 | uint64](p *points, grid []T) {
	width, levels := p.width, p.levels
	p.count = 1
	for range width / 2 {
		p.count *= len(levels)
	}
	type point struct{ a, b, code int }
	list := make([]point, len(grid))
	p.values = make([][vector]float32, len(grid))
	for i, g := range grid {
		at := 0
		for j := width - 1; j >= 0; j-- {
			v := float32(uint8(uint64(g) >> (8 * j)))
			p.values[i][j] = v
			at = at*len(levels) + slices.Index(levels, v)
		}
		list[i] = point{at % p.count, at / p.count, i}
	}
	slices.SortFunc(list, func(x, y point) int { return cmp.Or(cmp.Compare(x.a, y.a), cmp.Compare(x.code, y.code)) })
	for i, x := range list {
		if n := len(p.first); n == 0 || int(p.first[n-1].half) != x.a {
			p.first = append(p.first, pointHalf{half: uint8(x.a), from: uint16(i)})
		}
		p.first[len(p.first)-1].to = uint16(i + 1)
		p.second, p.code = append(p.second, uint8(x.b)), append(p.code, uint16(x.code))
	}
}

// A target is what a vector of one row aims at, prepared for searches: of each
// half of its points the sums of w*magnitude*level and of w*level*level.
type target struct {
	signs          uint8
	product, power [4][81]float32
}

// aim prepares x[vector] under weights w.
func (p *points) aim(t *target, x, w *[vector]float32) {
	m := *x
	t.signs = 0
	for j, v := range m {
		if v < 0 {
			m[j] = -v
			t.signs |= 1 << j
		}
	}
	if p.even && odd(t.signs) { // the one that costs least gets the wrong sign
		at := 0
		for j := range m {
			if float32(w[j]*m[j]) < float32(w[at]*m[at]) {
				at = j
			}
		}
		m[at] = -m[at]
		t.signs ^= 1 << at
	}
	half := p.width / 2
	for h := range vector / half {
		p.tables(&t.product[h], &t.power[h], m[h*half:(h+1)*half], w[h*half:(h+1)*half])
	}
}

func odd(signs uint8) bool {
	signs ^= signs >> 4
	signs ^= signs >> 2
	return (signs^signs>>1)&1 != 0
}

// tables sums over the magnitudes of a half, for all of its values.
func (p *points) tables(product, power *[81]float32, m, w []float32) {
	n := 1
	product[0], power[0] = 0, 0
	for j, v := range m {
		for i := len(p.levels) - 1; i >= 0; i-- {
			a := float32(w[j] * p.levels[i])
			b, c := float32(a*v), float32(a*p.levels[i])
			for k := range n {
				product[i*n+k], power[i*n+k] = product[k]+b, power[k]+c
			}
		}
		n *= len(p.levels)
	}
}

// nearest returns the codes of the points nearest to what t aims at, at a scale,
// and the sums of both kinds for them.
func (p *points) nearest(t *target, scale float32) (codes [2]uint16, product, power float32) {
	for i := range vector / p.width {
		at, x, y := p.best(t, 2*i, scale/2)
		codes[i] = at
		product += x
		power += y
	}
	return codes, product, power
}

// best looks for the largest product - half*power among the points of the
// halves h and h+1 of a target, the first of equals.
func (p *points) best(t *target, h int, half float32) (code uint16, product, power float32) {
	var second [81]float32
	p2, q2 := &t.product[h+1], &t.power[h+1]
	var top float32
	for i := range p.count {
		second[i] = p2[i] - float32(half*q2[i])
		if i == 0 || second[i] > top {
			top = second[i]
		}
	}
	a, at := 0, -1
	var most float32
	for i, f := range p.first {
		v := t.product[h][f.half] - float32(half*t.power[h][f.half])
		if at >= 0 && v+top <= most {
			continue
		}
		for k, b := range p.second[f.from:f.to] {
			if u := v + second[b%81]; at < 0 || u > most {
				most, a, at = u, i, int(f.from)+k
			}
		}
	}
	x, y := p.first[a].half, p.second[at]
	return p.code[at], t.product[h][x] + p2[y], t.power[h][x] + q2[y]
}

// value decodes a vector in the order of the decode's operations.
func (p *points) value(y *[vector]float32, codes [2]uint16, signs uint8, scale float32) {
	for i := range vector / p.width {
		for j, v := range p.values[codes[i]][:p.width] {
			y[i*p.width+j] = float32(scale * v)
		}
	}
	for j := range y {
		if signs>>j&1 != 0 {
			y[j] = -y[j]
		}
	}
}

// scale returns what magnitudes of a group are multiplied by.
func (p *points) scale(d, s float32) float32 { return float32(d*(float32(2*s)+1)) * p.unit }

// column takes a vector of one row.
func column(x *[vector]float32, from []cpu.Lane, l int) {
	for j := range x {
		x[j] = from[j][l]
	}
}
