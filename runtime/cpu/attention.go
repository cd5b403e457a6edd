package cpu

import (
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/runtime/cache"
)

// placeRow finishes one row's query (from rowWork.base on), key and value:
// head norms, rotation, storage in the cache.
func (e *Engine) placeRow(row int) {
	p := &e.pass
	b := &e.blocks[p.layer]
	k := e.s.k[row*b.k.n : (row+1)*b.k.n]
	e.turnHeads(k, row, b.kNorm, &b.Attn)
	if row >= p.rowWork.base {
		e.turnHeads(e.s.q[row*b.q.n:(row+1)*b.q.n], row, b.qNorm, &b.Attn)
	}
	kv := p.segments[p.owner[row]].kv
	kv.Put(p.layer, p.positions[row], k, e.s.v[row*b.v.n:(row+1)*b.v.n])
}

// turnHeads normalises and rotates the heads of one row.
func (e *Engine) turnHeads(x []float32, row int, n *norm, a *model.Attention) {
	d := int(a.HeadDim)
	for ; len(x) > 0; x = x[d:] {
		head := x[:d]
		if n != nil {
			e.normalize(head, head, n)
		}
		if a.Rope < 0 {
			continue
		}
		r := &e.pass.angles[a.Rope]
		cos, sin := r.cos[row*r.pairs:(row+1)*r.pairs], r.sin[row*r.pairs:(row+1)*r.pairs]
		if e.g.Ropes[a.Rope].Style == model.RopeInterleaved {
			e.set.RopeInterleaved(head, cos, sin)
		} else {
			e.set.RopeHalf(head, cos, sin)
		}
	}
}

// attendRows is the number of queries, over rows and the heads of a group,
// that share the reading of a page: their scores are all that is ever held.
const attendRows = 16

// attendWork is the attention in progress: part i is key-value head
// i%KVHeads of tile i/KVHeads.
type attendWork struct {
	tiles []tile
	heads int
}

// A tile is neighbouring rows of one segment.
type tile struct{ segment, first, rows int }

// attend computes e.s.att from the queries and the cache, for the rows from
// lo on.
func (e *Engine) attend(lo int) {
	p := &e.pass
	a := &e.blocks[p.layer].Attn
	w := &p.attend
	w.heads, w.tiles = int(a.KVHeads), w.tiles[:0]
	step := max(attendRows/int(a.Heads/a.KVHeads), 1)
	for i, s := range p.segments {
		for first := max(s.first, lo); first < s.first+s.rows; first += step {
			w.tiles = append(w.tiles, tile{i, first, min(step, s.first+s.rows-first)})
		}
	}
	e.pool.RunWorkers(len(w.tiles)*w.heads, e.part.attend)
}

// A reach is the positions that a query sees, [lo, hi).
type reach struct{ lo, hi int64 }

func (p *pass) reach(row int, window int64) reach {
	r := reach{0, p.positions[row] + 1}
	if window > 0 {
		r.lo = max(r.hi-window, 0)
	}
	return r
}

// within returns the part of r in a page, counted from the page's start.
func (r reach) within(page int64) (lo, hi int) {
	start := page * cache.PageSize
	return int(max(r.lo-start, 0)), int(min(r.hi-start, cache.PageSize))
}

// attendPart computes the rows of one tile for the query heads of one
// key-value head: all scores, their softmax, then the sum of values. Pages are
// read once for the whole tile.
func (e *Engine) attendPart(worker, part int) {
	p := &e.pass
	tl, head := p.attend.tiles[part/p.attend.heads], part%p.attend.heads
	a := &e.blocks[p.layer].Attn
	first := p.reach(tl.first, a.Window).lo
	width := int(p.reach(tl.first+tl.rows-1, a.Window).hi - first)
	group := int(a.Heads / a.KVHeads)
	l := &e.local[worker]
	l.scores = fit(l.scores, tl.rows*group*width)
	e.score(tl, head, first, width, l.scores)
	for q := range tl.rows * group {
		r := p.reach(tl.first+q/group, a.Window)
		s := l.scores[q*width+int(r.lo-first) : q*width+int(r.hi-first)]
		e.set.Scale(s, a.Scale)
		if a.Softcap != 0 {
			e.set.SoftCap(s, a.Softcap)
		}
		e.set.Softmax(s)
	}
	e.sumValues(tl, head, first, width, l.scores)
}

// score computes q·k for each query of the tile and each position it reaches,
// scores[query][position-first].
func (e *Engine) score(tl tile, head int, first int64, width int, scores []float32) {
	p := &e.pass
	a := &e.blocks[p.layer].Attn
	d, group := int(a.HeadDim), int(a.Heads/a.KVHeads)
	kv := p.segments[tl.segment].kv
	for page := first / cache.PageSize; page*cache.PageSize < first+int64(width); page++ {
		keys, _ := kv.Page(p.layer, int(page), head)
		for r := range tl.rows {
			lo, hi := p.reach(tl.first+r, a.Window).within(page)
			if lo >= hi {
				continue
			}
			at := int(page*cache.PageSize-first) + lo
			for g := range group {
				q := e.query(e.s.q, tl.first+r, head*group+g, a)
				e.set.DotRows(scores[(r*group+g)*width+at:][:hi-lo], keys[lo*d:hi*d], d, q)
			}
		}
	}
}

// sumValues computes the attention's output from the softmax of the scores.
func (e *Engine) sumValues(tl tile, head int, first int64, width int, scores []float32) {
	p := &e.pass
	a := &e.blocks[p.layer].Attn
	d, group := int(a.HeadDim), int(a.Heads/a.KVHeads)
	kv := p.segments[tl.segment].kv
	for r := range tl.rows {
		for g := range group {
			clear(e.query(e.s.att, tl.first+r, head*group+g, a))
		}
	}
	for page := first / cache.PageSize; page*cache.PageSize < first+int64(width); page++ {
		_, values := kv.Page(p.layer, int(page), head)
		for r := range tl.rows {
			lo, hi := p.reach(tl.first+r, a.Window).within(page)
			if lo >= hi {
				continue
			}
			at := int(page*cache.PageSize-first) + lo
			for g := range group {
				out := e.query(e.s.att, tl.first+r, head*group+g, a)
				e.set.AccumRows(out, scores[(r*group+g)*width+at:][:hi-lo], values[lo*d:hi*d], d)
			}
		}
	}
}

// query returns one head of one row of x[T][Heads][HeadDim].
func (e *Engine) query(x []float32, row, head int, a *model.Attention) []float32 {
	d := int(a.HeadDim)
	at := (row*int(a.Heads) + head) * d
	return x[at : at+d]
}
