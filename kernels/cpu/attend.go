package cpu

import "math"

// An Attention is what queries that share keys and values have in common.
type Attention struct {
	Format KVFormat
	Dim    int // D, numbers of a query and of a key
	Value  int // V, numbers of a value; 0: D
	Group  int // query heads of a key-value head
	Scale  float32
	// Softcap replaces the scaled score z by Softcap*tanh(z/Softcap); 0: not.
	Softcap float32
}

// values returns V.
func (a *Attention) values() int {
	if a.Value == 0 {
		return a.Dim
	}
	return a.Value
}

// width returns the numbers that sums of values take.
func (a *Attention) width() int { return KVWidth(a.values()) }

// A Reach is the positions that a query sees, Lo <= position < Hi.
type Reach struct{ Lo, Hi int }

// A Partial is attention over some of the positions, for R queries: the largest
// score, the sum of exp(score - Top), and the sum of the values weighted by
// that, Acc[R][KVWidth(V)]. Partials over other positions are put together by
// [Set.Combine].
type Partial struct{ Top, Sum, Acc []float32 }

// PartialFloats returns the numbers of a Partial of r queries.
func (a *Attention) PartialFloats(r int) int { return r * (2 + a.width()) }

// Partial cuts a Partial of r queries out of buf, which has PartialFloats.
func (a *Attention) Partial(buf []float32, r int) Partial {
	return Partial{buf[:r:r], buf[r : 2*r : 2*r], buf[2*r : a.PartialFloats(r)]}
}

// An AttendScratch is the memory that one worker attends in. The zero value is
// ready; it grows to the largest number of queries met.
type AttendScratch struct {
	scores []float32
	// Of coded keys or values: a block's levels and scales, and [R][KVPositions] scores
	// or weights of one group.
	levels       []byte
	scales, part []float32
	// Of AttendPages: [R][pages], and the blocks in progress.
	tops, sums []float32
	four       [scoreBlocks]KVBlock
	seen       [1]Reach
}

// Bytes returns the memory held.
func (sc *AttendScratch) Bytes() int64 {
	return int64(cap(sc.scores)+cap(sc.scales)+cap(sc.part)+cap(sc.tops)+cap(sc.sums))*4 + int64(cap(sc.levels))
}

// fit makes room for r queries.
func (sc *AttendScratch) fit(a *Attention, r int) {
	sc.scores = grown(sc.scores, r*scoreBlocks*KVPositions)
	if a.Format.Coded() {
		groups := codedGroups(max(a.Dim, a.values()))
		sc.levels = grownBytes(sc.levels, groups*codedGroup*KVPositions)
		sc.scales, sc.part = grown(sc.scales, groups*KVPositions), grown(sc.part, r*KVPositions)
	}
}

// scoreBlocks is how many blocks' scores are held at once.
const scoreBlocks = 4

// Attend computes, over the positions from <= p < to,
//
//	z[p]   = cap(Scale * sum over d of q[d] * key[p][d])
//	Top    = max over p of z[p]
//	Sum    = sum over p of exp(z[p] - Top)
//	Acc[d] = sum over p of exp(z[p] - Top) * value[p][d]
//
// for the queries q[R][D], R = len(reach)*Group: neighbours of a group belong
// to one token and see reach[token]. Where the format has keys and values turned,
// so are queries and sums: see [KVFormat.Turn]. It goes through the positions once, 256
// at a time, and corrects Sum and Acc where the maximum rises; no more scores
// than R*256 exist. Each block of keys and values is read once for all queries.
//
// Positions outside a token's reach have no influence on it, whatever they
// hold. blocks[0] begins at position 0. A query that sees nothing, or only
// scores of -Inf, has Sum 0; a NaN or +Inf among its scores makes Sum NaN. A
// query's bits depend on its numbers, its reach, from and to, and not on the other
// queries: positions are taken in their order, and the maximum is corrected where
// position 0 modulo 256 is, whatever the first that is seen. The error is that of plain float32 attention,
// with keys and values as they are stored.
func (s *Set) Attend(out Partial, a *Attention, blocks []KVBlock, q []float32, reach []Reach, from, to int, sc *AttendScratch) {
	r := len(reach) * a.Group
	want(len(q) == r*a.Dim && len(out.Top) == r && len(out.Sum) == r && len(out.Acc) == r*a.width() && to <= len(blocks)*KVPositions,
		"Attend", len(q), r, a.Dim, len(out.Top), len(out.Sum), len(out.Acc), to, len(blocks))
	for i := range r {
		out.Top[i], out.Sum[i] = -math.MaxFloat32, 0
	}
	clear(out.Acc)
	sc.fit(a, r)
	w := attending{Set: s, out: out, a: a, blocks: blocks, q: q, reach: reach, limits: Reach{from, to}, scores: sc.scores, sc: sc}
	all := w.union()
	for first := all.Lo / scoreStride * scoreBlocks; first*KVPositions < all.Hi; first += scoreBlocks {
		w.first, w.last = first, min(first+scoreBlocks, (all.Hi+KVPositions-1)/KVPositions)
		w.unseen = max(all.Lo/KVPositions-first, 0)
		w.score()
		for i := range r {
			w.weigh(i)
		}
		for b := w.first + w.unseen; b < w.last; b++ {
			if a.Format.Coded() {
				w.spreadValues(&blocks[b])
			}
			w.sumValues(b)
		}
	}
}

// attending is an Attend in progress.
type attending struct {
	*Set
	out    Partial
	a      *Attention
	blocks []KVBlock
	q      []float32
	reach  []Reach
	limits Reach
	scores []float32 // [R][scoreBlocks*KVPositions]
	sc     *AttendScratch

	first, last int // the blocks whose scores are held,
	unseen      int // but for so many, which no token sees
}

// within returns the part of a token's reach from position lo to hi, counted
// from lo; it is empty where Lo >= Hi.
func (w *attending) within(token, lo, hi int) Reach {
	r := w.reach[token]
	return Reach{max(r.Lo, w.limits.Lo, lo) - lo, min(r.Hi, w.limits.Hi, hi) - lo}
}

// union returns the positions that any token sees.
func (w *attending) union() Reach {
	all := Reach{w.limits.Hi, w.limits.Lo}
	for t := range w.reach {
		if r := w.within(t, 0, math.MaxInt); r.Lo < r.Hi {
			all.Lo, all.Hi = min(all.Lo, r.Lo), max(all.Hi, r.Hi)
		}
	}
	return all
}

const scoreStride = scoreBlocks * KVPositions

// score multiplies all queries with the keys. Positions that were never written
// give scores that are not used.
func (w *attending) score() {
	d, r := w.a.Dim, len(w.out.Top)
	for i := w.first + w.unseen; i < w.last; i++ {
		b, c := &w.blocks[i], w.scores[(i-w.first)*KVPositions:]
		switch w.a.Format {
		case KVF32:
			w.PanelF32(c, scoreStride, w.q, d, b.keyFloats, KVPositions, r, KVPositions, d, false)
		case KVF16:
			w.PanelF16(c, scoreStride, w.q, d, b.keys, KVPositions, r, KVPositions, d, false)
		case KVQ8:
			w.scoreQ8(b, c)
		default:
			w.scoreCoded(b, c)
		}
	}
}

// scoreQ8 goes from one scale of the keys to the next.
func (w *attending) scoreQ8(b *KVBlock, c []float32) {
	d, r := w.a.Dim, len(w.out.Top)
	for g := range keyGroups(d) {
		lo := g * keyGroup
		w.PanelQ8(c, scoreStride, w.q[lo:], d, b.keys[lo*KVPositions:], KVPositions, r, KVPositions, min(keyGroup, d-lo), g > 0)
		scales := b.keyScales[g*KVPositions:][:KVPositions]
		for i := range r {
			w.mul(c[i*scoreStride:][:KVPositions], scales)
		}
	}
}

// weigh turns the scores of query i into weights and corrects what was summed
// with smaller ones.
func (w *attending) weigh(i int) {
	start := w.first * KVPositions
	seen := w.within(i/w.a.Group, start, w.last*KVPositions)
	if seen.Lo >= seen.Hi {
		return
	}
	row := w.scores[i*scoreStride:][:scoreStride]
	x, scale := row[seen.Lo:seen.Hi], w.a.Scale
	if w.a.Softcap != 0 {
		w.scale(x, scale)
		w.softCap(x, w.a.Softcap)
		scale = 1
	}
	was := w.out.Top[i]
	top, sum := w.panel.expPart(x, scale, was)
	if top != was && w.out.Sum[i] != 0 {
		c := float32(exp64(float64(was) - float64(top)))
		w.out.Sum[i] *= c
		width := w.a.width()
		w.scale(w.out.Acc[i*width:(i+1)*width], c)
	}
	w.out.Top[i] = top
	w.out.Sum[i] += sum
	if w.a.Format == KVQ8 {
		w.scaleValues(row, seen)
	}
}

// scaleValues multiplies a row of weights with the values' scales.
func (w *attending) scaleValues(row []float32, seen Reach) {
	for i := seen.Lo / KVPositions; i*KVPositions < seen.Hi; i++ {
		lo, hi := max(seen.Lo-i*KVPositions, 0), min(seen.Hi-i*KVPositions, KVPositions)
		w.mul(row[i*KVPositions+lo:i*KVPositions+hi], w.blocks[w.first+i].valueScales[lo:hi])
	}
}

// sumValues adds the values of a block, to each token in the order of positions.
// Those that all tokens see are taken for all at once; the others, at the diagonal
// and at the edge of a window, by the tokens that see them, so that 0 times an
// infinity does not arise.
func (w *attending) sumValues(block int) {
	lo, hi := block*KVPositions, (block+1)*KVPositions
	shared := Reach{0, KVPositions}
	for t := range w.reach {
		r := w.within(t, lo, hi)
		shared.Lo, shared.Hi = max(shared.Lo, r.Lo), min(shared.Hi, r.Hi)
	}
	if shared.Lo >= shared.Hi {
		shared = Reach{KVPositions, KVPositions}
	}
	for t := range w.reach {
		r := w.within(t, lo, hi)
		w.accumulate(block, t, t+1, Reach{r.Lo, min(r.Hi, shared.Lo)})
	}
	w.accumulate(block, 0, len(w.reach), shared)
	for t := range w.reach {
		r := w.within(t, lo, hi)
		w.accumulate(block, t, t+1, Reach{max(r.Lo, shared.Hi), r.Hi})
	}
}

// accumulate adds the values at positions r of a block for the tokens t0 to t1.
func (w *attending) accumulate(block, t0, t1 int, r Reach) {
	if r.Lo >= r.Hi {
		return
	}
	b, width, i := &w.blocks[block], w.a.width(), t0*w.a.Group
	rows, k := (t1-t0)*w.a.Group, r.Hi-r.Lo
	c, p := w.out.Acc[i*width:], w.scores[i*scoreStride+(block-w.first)*KVPositions+r.Lo:]
	switch w.a.Format {
	case KVF32:
		w.PanelF32(c, width, p, scoreStride, b.valueFloats[r.Lo*width:], width, rows, width, k, true)
	case KVF16:
		w.PanelF16(c, width, p, scoreStride, b.values[2*r.Lo*width:], width, rows, width, k, true)
	case KVQ8:
		w.PanelQ8(c, width, p, scoreStride, b.values[r.Lo*width:], width, rows, width, k, true)
	default:
		w.accumulateCoded(c, p, rows, r)
	}
}

// Combine computes the attention dst[V] of query i from what Attend left for it
// in parts, in their order, and turns back what the format has turned. sink is a score that counts in the denominator
// alone, -Inf for none. A query that saw nothing gets zeros.
func (s *Set) Combine(dst []float32, a *Attention, parts []Partial, i int, sink float32) {
	n, width := len(dst), KVWidth(len(dst))
	top := max(-math.MaxFloat32, sink)
	for j := range parts {
		top = max(top, parts[j].Top[i])
	}
	clear(dst)
	sum := float32(exp64(float64(sink) - float64(top)))
	for j := range parts {
		p := &parts[j]
		if p.Sum[i] == 0 {
			continue
		}
		c := float32(exp64(float64(p.Top[i]) - float64(top)))
		sum += c * p.Sum[i]
		s.axpy(dst, c, p.Acc[i*width:i*width+n])
	}
	if sum != 0 {
		s.scale(dst, 1/sum)
	}
	a.Format.Turn(dst, a.Dim, a.values())
}

// Merge adds what Attend left of other positions to into.
func (s *Set) Merge(into Partial, a *Attention, from Partial) {
	width := a.width()
	for i := range into.Top {
		if from.Sum[i] == 0 {
			continue
		}
		s.Raise(into, a, i, from.Top[i])
		c := float32(exp64(float64(from.Top[i]) - float64(into.Top[i])))
		into.Sum[i] += c * from.Sum[i]
		s.axpy(into.Acc[i*width:(i+1)*width], c, from.Acc[i*width:(i+1)*width])
	}
}

// Raise has query i of a Partial counted from a score that is at least top.
func (s *Set) Raise(p Partial, a *Attention, i int, top float32) {
	was := p.Top[i]
	if top <= was {
		return
	}
	p.Top[i] = top
	c := float32(exp64(float64(was) - float64(top)))
	p.Sum[i] *= c
	s.scale(p.Acc[i*a.width():(i+1)*a.width()], c)
}

// Clear makes a Partial one of no positions.
func (p *Partial) Clear() {
	for i := range p.Top {
		p.Top[i], p.Sum[i] = -math.MaxFloat32, 0
	}
	clear(p.Acc)
}
