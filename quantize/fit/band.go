package fit

import (
	"math"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/cpu"
)

// A band fits blocks of 16 rows side by side, as [column][16]. It is the work
// space of one goroutine.
type band struct {
	scheme *scheme.Scheme
	*search
	turns int // times that a block is searched, each on what the last aimed at

	w     []float32      // [columns] weights of a block
	z, e  []cpu.Lane     // columns of a panel: targets, and weights or errors
	tries [2][]cpu.Lane  // [columns] of a block: targets and errors of a turn
	kept  []cpu.Lane     // errors of each row's best turn
	q     []cpu.Lane     // levels of a turn
	loss  [lanes]float64 // what the rows cost so far, under D
	rows  [lanes]block
}

func newBand(s *scheme.Scheme, l *layout, set *cpu.Set, turns int) *band {
	if l.points != nil {
		l.points.prepare()
	}
	b := &band{scheme: s, search: newSearch(l, set), turns: turns}
	b.w = make([]float32, s.Block)
	b.z, b.e = make([]cpu.Lane, factorPanel), make([]cpu.Lane, factorPanel)
	b.tries = [2][]cpu.Lane{make([]cpu.Lane, s.Block), make([]cpu.Lane, s.Block)}
	b.kept, b.q = make([]cpu.Lane, s.Block), make([]cpu.Lane, s.Block)
	return b
}

// load spreads columns of up to 16 rows at distance ld over lanes, zeros for
// rows that are not there.
func load(dst []cpu.Lane, src []float32, rows, cols, ld int) {
	for l := range lanes {
		if l >= rows {
			for c := range cols {
				dst[c][l] = 0
			}
			continue
		}
		for c, v := range src[l*ld : l*ld+cols] {
			dst[c][l] = v
		}
	}
}

// rounded fits rows to dst without feedback, w[rows][k] with importance by
// column or nil, and leaves their errors in e[rows][k] unless it is nil.
func (b *band) rounded(dst []byte, w, e, importance []float32, rows, k int) {
	size, n := b.scheme.BlockBytes, b.scheme.Block
	rowBytes := k / n * size
	b.count = rows
	for at := 0; at < k; at += n {
		load(b.z, w[at:], rows, n, k)
		weights(b.w, importance, at)
		b.choose(b.z[:n], b.w)
		copy(b.tries[0], b.z[:n])
		copy(b.tries[1], b.z[:n])
		b.turn(nil, nil, 0)
		for l := range rows {
			b.write(dst[l*rowBytes+at/n*size:][:size], l)
		}
		if e != nil {
			store(e[at:], b.tries[1], rows, k)
		}
	}
}

// store is the inverse of load.
func store(dst []float32, src []cpu.Lane, rows, ld int) {
	for l := range rows {
		row := dst[l*ld : l*ld+len(src)]
		for c := range src {
			row[c] = src[c][l]
		}
	}
}

// weights copies a block's importances, scaled so that the largest is 1; where
// there are none, or all are zero, every weight counts alike.
func weights(dst, importance []float32, at int) {
	var top float32
	if importance != nil {
		for _, v := range importance[at : at+len(dst)] {
			top = max(top, v)
		}
	}
	for i := range dst {
		dst[i] = 1
		if top > 0 {
			dst[i] = importance[at+i] / top
		}
	}
}

// answered fits the blocks of a panel, columns from to to of the factor. z[c]
// holds what errors before the panel owe to its columns, e the weights; e gets
// the errors. dst begins at the rows' first block of the panel.
func (b *band) answered(dst []byte, rowBytes, rows int, f *factor, p int) {
	from, to := f.bounds(p)
	size, n := b.scheme.BlockBytes, b.scheme.Block
	square, ld := f.own(p), squareStride
	for c := range to - from {
		for l, v := range &b.e[c] {
			b.z[c][l] += v
		}
	}
	for at := 0; at < to-from; at += n {
		m := square[at*ld:]
		for t := 0; t < n; t += lanes {
			b.set.LaneAnswer((*[lanes]cpu.Lane)(b.z[at+t:]), b.e[:at], m[t*ld:], ld)
		}
		weights(b.w, f.d, from+at)
		b.best(dst[at/n*size:], rowBytes, rows, f.d[from+at:], m[at:], ld, b.z[at:at+n], b.e[at:at+n])
	}
}

// best searches one block in some turns and keeps the best for each row.
func (b *band) best(dst []byte, rowBytes, rows int, d, m []float32, ld int, z, e []cpu.Lane) {
	b.count = rows
	var least cpu.Lane
	for l := range least {
		least[l] = math.MaxFloat32
	}
	b.choose(z, b.w)
	for turn := range b.turns {
		if turn > 0 {
			b.choose(b.tries[0], b.w)
		}
		copy(b.tries[0], z)
		copy(b.tries[1], e)
		loss := b.turn(d, m, ld)
		for l, v := range loss[:rows] {
			if v < least[l] || turn == 0 {
				least[l] = v
				b.write(dst[l*rowBytes:][:b.scheme.BlockBytes], l)
				for c := range b.kept {
					b.kept[c][l] = b.tries[1][c][l]
				}
			}
		}
	}
	copy(e, b.kept)
	for l, v := range least[:rows] {
		b.loss[l] += float64(v)
	}
}

// turn rounds the targets in tries[0], column by column, and answers errors
// within the block. It returns what the rows cost.
func (b *band) turn(d, m []float32, ld int) (loss cpu.Lane) {
	if b.points != nil {
		return b.turnPoints(d, m, ld)
	}
	z, e := b.tries[0], b.tries[1]
	dv, mv := halves(&b.search.d), halves(&b.search.m)
	var none [lanes]float32
	for t := 0; t < len(z); t += lanes {
		if m == nil {
			b.set.LaneRound((*[lanes]cpu.Lane)(b.q[t:]), (*[lanes]cpu.Lane)(z[t:]), (*[lanes]cpu.Lane)(e[t:]), &loss, &none, nil, 0, &b.grids[t/b.group])
			continue
		}
		if t > 0 && t%b.group == 0 {
			for u := t; u < t+b.group; u += lanes {
				b.set.LaneAnswer((*[lanes]cpu.Lane)(z[u:]), e[:t], m[u*ld:], ld)
			}
			b.again(t/b.group, &dv, &mv)
		} else if t > 0 {
			first := t / b.group * b.group
			b.set.LaneAnswer((*[lanes]cpu.Lane)(z[t:]), e[first:t], m[t*ld+first:], ld)
		}
		b.set.LaneRound((*[lanes]cpu.Lane)(b.q[t:]), (*[lanes]cpu.Lane)(z[t:]), (*[lanes]cpu.Lane)(e[t:]), &loss,
			(*[lanes]float32)(d[t:]), m[t*ld+t:], ld, &b.grids[t/b.group])
	}
	return loss
}

// again chooses the whole scale and offset of a group once more, among the
// nearest, when what it aims at is known.
func (b *band) again(g int, d, m *cpu.Lane) {
	steps := nearby
	if b.offset {
		steps = neighbours
	}
	at := b.sc[g]
	b.nearScales(b.tries[0], b.w, g, &at, d, m, steps)
	b.regroup(g, d, m)
}

// write packs the block of row l.
func (b *band) write(dst []byte, l int) {
	out := &b.rows[l]
	out.d, out.m = b.search.d[l], b.search.m[l]
	for g := range len(b.q) / b.group {
		out.sc[g], out.mn[g] = int8(b.sc[g][l]), int8(b.mn[g][l])
	}
	if b.points == nil {
		for c := range b.q {
			out.q[c] = b.code(b.q[c][l])
		}
	}
	b.pack(dst, out)
}
