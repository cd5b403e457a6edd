package cpu

import "math"

// A KVPages says of up to [KVPositions] blocks of one head what is known of them without
// reading them: of block i the mean of its keys, the variance of each number of a key, and
// the mean of its values. All are in half precision, keys by feature as in a [KVBlock], so
// that the kernels of attention read them. Where a format has keys and values turned, so
// are these. The zero value of a block says nothing of it.
type KVPages struct {
	means  KVBlock // KVF16
	spread []byte  // [D][KVPositions], half precision
}

// NewKVPages returns the summaries of blocks of keys of d numbers and values of v.
func NewKVPages(d, v int) KVPages {
	return KVPages{means: NewKVBlocks(KVF16, 1, d, v)[0], spread: make([]byte, 2*KVPositions*d)}
}

// KVPagesBytes returns the memory of a KVPages.
func KVPagesBytes(d, v int) int64 { return KVF16.BlockBytes(d, v) + 2*KVPositions*int64(d) }

// Clone returns a copy.
func (p *KVPages) Clone() KVPages {
	return KVPages{
		means:  KVBlock{keys: append([]byte(nil), p.means.keys...), values: append([]byte(nil), p.means.values...)},
		spread: append([]byte(nil), p.spread...),
	}
}

// mostHalf is the largest number in half precision.
const mostHalf = 65504

// Summarize writes what is known of a whole block b to place row, and reports whether all
// of it is finite: if not, the place is left 0, and only reading the block tells. Keys and
// values are taken as they are stored. Means and variances are those of float64 sums,
// rounded to half precision; what is beyond its range is not finite.
func (s *Set) Summarize(p *KVPages, row int, a *Attention, b *KVBlock, sc *AttendScratch) bool {
	d, v := a.Dim, a.values()
	want(0 <= row && row < KVPositions && len(p.spread) == 2*KVPositions*d && len(p.means.values) == 2*KVPositions*KVWidth(v), "Summarize", row, d, v)
	keys := s.StoredKeys(a, b, sc)
	means, spread := make([]float32, d), make([]float32, d)
	finite := true
	for i := range d {
		var sum, squares float64
		for _, x := range keys[i*KVPositions:][:KVPositions] {
			sum += float64(x)
		}
		mean := sum / KVPositions
		for _, x := range keys[i*KVPositions:][:KVPositions] {
			squares += (float64(x) - mean) * (float64(x) - mean)
		}
		means[i], spread[i] = float32(mean), float32(squares/KVPositions)
		finite = finite && math.Abs(mean) <= mostHalf && squares/KVPositions <= mostHalf
	}
	value := s.meanValue(a, b, sc)
	for _, x := range value {
		finite = finite && math.Abs(float64(x)) <= mostHalf
	}
	if !finite {
		clear(means)
		clear(spread)
		clear(value)
	}
	s.StoreKV(KVF16, &p.means, row, means, value)
	s.panel.scatterF16(p.spread[2*row:], KVPositions, spread)
	return finite
}

// identities is how many numbers of a key are found at once, by queries that pick one each.
const identities = 16

// StoredKeys decodes the keys of a block, [D][KVPositions]. The caller must not change them.
func (s *Set) StoredKeys(a *Attention, b *KVBlock, sc *AttendScratch) []float32 {
	switch a.Format {
	case KVF32:
		return b.keyFloats
	case KVF16:
		keys := make([]float32, a.Dim*KVPositions)
		s.decodeF16(keys, b.keys)
		return keys
	}
	keys := make([]float32, a.Dim*KVPositions)
	w := s.over(a, b, identities, sc)
	w.q = make([]float32, identities*a.Dim)
	for at := 0; at < a.Dim; at += identities {
		n := min(identities, a.Dim-at)
		clear(w.q)
		for i := range n {
			w.q[i*a.Dim+at+i] = 1
		}
		w.score()
		for i := range n {
			copy(keys[(at+i)*KVPositions:][:KVPositions], w.scores[i*scoreStride:])
		}
	}
	return keys
}

// meanValue returns the mean of the values of a block.
func (s *Set) meanValue(a *Attention, b *KVBlock, sc *AttendScratch) []float32 {
	w := s.over(a, b, 1, sc)
	for i := range KVPositions {
		w.scores[i] = 1. / KVPositions
	}
	switch {
	case a.Format == KVQ8:
		w.scaleValues(w.scores, Reach{0, KVPositions})
	case a.Format.Coded():
		w.spreadValues(b)
	}
	w.accumulate(0, 0, 1, Reach{0, KVPositions})
	return w.out.Acc[:a.values()]
}

// over returns an attending of so many queries to one block alone.
func (s *Set) over(a *Attention, b *KVBlock, queries int, sc *AttendScratch) *attending {
	one := *a
	one.Group = queries
	sc.fit(&one, queries)
	return &attending{Set: s, a: &one, out: one.Partial(make([]float32, one.PartialFloats(queries)), queries), blocks: []KVBlock{*b}, scores: sc.scores, sc: sc, last: 1}
}

// spreadTrust is how much of the variance of scores counts in what is foretold of a page.
// Normal scores would want 1; those of trained models have rounder tops, and too much of
// it gives pages that are far off most of a mean. Measured: docs/perf/attention.md.
const spreadTrust = 0.7

// Foretell estimates, for queries q[R][D] and the blocks of all pages, what [Set.Attend]
// would sum up of each: dst[R][ld], of which KVPositions for each of pages are written, = log
// sum over p of exp(z[p]), taking scores as normal with the mean and the variance of the keys.
// squares[R][D] is room. Of places that Summarize has not written the number means nothing.
func (s *Set) Foretell(dst []float32, ld int, a *Attention, pages []KVPages, q, squares []float32) {
	d, r := a.Dim, len(q)/a.Dim
	want(len(q) == r*d && len(squares) >= r*d && rowsFit(len(dst), r, ld, len(pages)*KVPositions), "Foretell", len(q), d, len(squares), len(dst), ld, len(pages))
	factor := spreadTrust / 2 * a.Scale * a.Scale
	for i, x := range q {
		squares[i] = factor * x * x
	}
	for i := range pages {
		s.PanelF16(dst[i*KVPositions:], ld, q, d, pages[i].means.keys, KVPositions, r, KVPositions, d, false)
	}
	for i := range r {
		row := dst[i*ld:][:len(pages)*KVPositions]
		s.scale(row, a.Scale)
		if a.Softcap != 0 {
			s.softCap(row, a.Softcap)
		}
		for j := range row {
			row[j] += logKVPositions
		}
	}
	for i := range pages {
		s.PanelF16(dst[i*KVPositions:], ld, squares, d, pages[i].spread, KVPositions, r, KVPositions, d, true)
	}
}

// logKVPositions is ln 64.
const logKVPositions = 4.158883083359672

// AttendPages adds to out what the positions below hi in some blocks give, for queries
// q[R][D] of one token: [Set.Attend] of those blocks, ascending, four at a time. What the
// positions of each block alone sum up to is logs[R][ld] at the block's number,
// log sum over p of exp(z[p]), at least 1e-38 of what the largest score of the four would.
func (s *Set) AttendPages(out Partial, a *Attention, blocks []KVBlock, q []float32, pages []int32, hi int, logs []float32, ld int, sc *AttendScratch) {
	r, n := len(out.Top), len(pages)
	want(len(q) == r*a.Dim && r == a.Group && len(out.Sum) == r && len(out.Acc) == r*a.width() && rowsFit(len(logs), r, ld, 1),
		"AttendPages", len(q), r, a.Dim, a.Group, len(out.Sum), len(out.Acc), len(logs), ld)
	sc.fit(a, r)
	padded := (r*n + 15) &^ 15
	sc.tops, sc.sums = grown(sc.tops, padded), grown(sc.sums, padded)
	four, reach := &sc.four, &sc.seen
	w := attending{Set: s, out: out, a: a, q: q, reach: reach[:], scores: sc.scores, sc: sc}
	for at := 0; at < n; at += scoreBlocks {
		w.last = min(scoreBlocks, n-at)
		first, last := int(pages[at]), int(pages[at+w.last-1])
		if w.blocks = blocks[first : last+1]; last-first >= w.last {
			for i, page := range pages[at : at+w.last] {
				four[i] = blocks[page]
			}
			w.blocks = four[:w.last]
		}
		end := (w.last-1)*KVPositions + min(KVPositions, hi-last*KVPositions)
		w.limits, reach[0] = Reach{0, end}, Reach{0, end}
		w.score()
		for i := range r {
			w.weighPages(i, end, sc.tops[i*n+at:], sc.sums[i*n+at:])
		}
		for b := range w.last {
			if a.Format.Coded() {
				w.spreadValues(&w.blocks[b])
			}
			w.sumValues(b)
		}
	}
	clear(four[:]) // the scratch keeps no page
	s.logAdd(sc.tops[:padded], sc.sums[:padded])
	for i := range r {
		to, from := logs[i*ld:], sc.tops[i*n:][:n]
		for j := 0; j < n; {
			run := 1
			for j+run < n && pages[j+run] == pages[j]+int32(run) {
				run++
			}
			copy(to[pages[j]:], from[j:j+run])
			j += run
		}
	}
}

// leastSum is the least that the sum of a page counts as: its logarithm is finite.
const leastSum = 0x1p-126

// weighPages is weigh of the first n positions, with the sum of each block and what that
// is counted from.
func (w *attending) weighPages(i, n int, tops, sums []float32) {
	row, scale := w.scores[i*scoreStride:][:scoreStride], w.a.Scale
	if w.a.Softcap != 0 {
		w.scale(row[:n], scale)
		w.softCap(row[:n], w.a.Softcap)
		scale = 1
	}
	for j := n; j < scoreStride; j++ {
		row[j] = float32(math.Inf(-1))
	}
	var each [scoreBlocks]float32
	was := w.out.Top[i]
	top := w.panel.expPages(row, &each, scale, was)
	if top != was && w.out.Sum[i] != 0 {
		c := float32(exp64(float64(was) - float64(top)))
		w.out.Sum[i] *= c
		width := w.a.width()
		w.scale(w.out.Acc[i*width:(i+1)*width], c)
	}
	w.out.Top[i] = top
	w.out.Sum[i] += each[0] + each[1] + each[2] + each[3]
	for b, x := range each[:w.last] {
		tops[b] = top + (x - x) // NaN where x is none, which logAdd does not tell
		if x < leastSum {
			x = leastSum
		}
		sums[b] = x
	}
	if w.a.Format == KVQ8 {
		w.scaleValues(row, Reach{0, n})
	}
}

// StandIn adds the means of the first n values of p to dst[R][KVWidth(V)], weighted by
// weights[R][KVPositions].
func (s *Set) StandIn(dst []float32, a *Attention, p *KVPages, weights []float32, n int) {
	r, width := len(weights)/KVPositions, a.width()
	want(len(weights) == r*KVPositions && 0 <= n && n <= KVPositions && len(dst) == r*width, "StandIn", len(weights), n, len(dst), width)
	s.PanelF16(dst, width, weights, KVPositions, p.means.values, width, r, width, n, true)
}
