package cpu

import (
	"sync/atomic"

	"github.com/nstf/nstf/formats/graph"
	kernels "github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/cache"
)

// Sizes of a part of attention. Like those of a linear they depend on shapes
// and lengths alone, so that results do not depend on the number of threads.
const (
	attendQueries = 24  // queries of a tile, over rows and the heads of a group
	splitLength   = 512 // few rows are cut along the positions too, every so many
)

// An attending is what attention of a block has in common, over keys and values or
// over latents.
type attending struct {
	heads      int // query heads
	kvHeads    int
	dim, value int // numbers of a key and of a value
	// together is how many query heads of a key-value head share a tile.
	together       int
	window, chunk  int64
	scale, softcap float32
}

// newAttending returns a block's, the zero one where it does not attend.
func newAttending(b *graph.Block) attending {
	switch a, n := b.Attn, b.Latent; {
	case a != nil:
		return attending{heads: int(a.Heads), kvHeads: int(a.KVHeads), dim: int(a.HeadDim), value: int(a.HeadDim),
			together: together(int(a.Heads / a.KVHeads)), window: a.Window, chunk: a.Chunk, scale: a.Scale, softcap: a.Softcap}
	case n != nil:
		return attending{heads: int(n.Heads), kvHeads: 1, dim: int(n.KeyDim()), value: int(n.Rank), together: together(int(n.Heads)), scale: n.Scale}
	}
	return attending{}
}

// mostTogether is the most heads of a group in one tile: many heads of one key are
// work for several threads.
const mostTogether = 12

// together returns how many heads of a group share a tile: all, or as many as divide
// the group.
func together(group int) int {
	if group <= mostTogether {
		return group
	}
	n := mostTogether
	for group%n != 0 {
		n--
	}
	return n
}

// attendWork is the attention in progress. Tiles of many rows are parts as they
// are; those of few are cut into chunks of positions, at places that depend on no
// row, and whoever finishes a tile's last chunk combines them, in order.
type attendWork struct {
	tiles    []tile
	parts    []attendPart
	partials []float32           // [part] of the tiles that are cut
	cut      [][]kernels.Partial // [tile and head][chunk] into partials
	all      []kernels.Partial   // what cut is made of
	left     []atomic.Int32      // [tile and head]: chunks that are not finished
	shape    kernels.Attention
	heads    int // runs of query heads that share tiles
}

// A tile is neighbouring rows of one segment, and its chunks of positions,
// first to last.
type tile struct {
	segment, first, rows  int
	firstChunk, lastChunk int
	cut                   int // place of head 0 in attendWork.cut, or -1
}

// An attendPart is one chunk of one tile for one run of query heads.
type attendPart struct{ tile, head, chunk int }

// attendLocal is one worker's memory: the queries of a tile and what they see.
type attendLocal struct {
	q, partial []float32
	reach      []kernels.Reach
	one        [1]kernels.Partial
	spans      spans
}

func (l *attendLocal) bytes() int64 {
	return 4*int64(cap(l.q)+cap(l.partial)) + l.spans.bytes()
}

// attend computes e.s.att from the queries and the cache, for the rows from
// lo on. It turns the queries where the cache has keys turned.
func (e *Engine) attend(lo int) {
	p := &e.pass
	a := &e.blocks[p.layer].attends
	w := &p.attend
	w.heads = a.heads / a.together
	w.shape = kernels.Attention{Format: e.formatOf(p.layer), Dim: a.dim, Value: a.value, Group: a.together, Scale: a.scale, Softcap: a.softcap}
	if w.shape.Format.Coded() {
		p.rowWork = rowWork{base: lo}
		e.eachRow(p.rows-lo, e.part.queries)
	}
	e.tile(lo, a)
	if len(w.tiles) > 0 {
		w.divide()
		e.pool.RunWorkers(len(w.parts), e.part.attend)
	}
	if len(p.followed) > 0 {
		e.pool.RunWorkers(len(p.followed)*a.kvHeads, e.part.follow)
	}
	if len(p.queryBlocks) > 0 {
		e.chooseAll(a)
	}
}

// formatOf returns how the keys and values that a block attends to are stored.
func (e *Engine) formatOf(block int) kernels.KVFormat { return e.layers[e.blocks[block].kv].Format }

// turnQueries turns the queries of a row, counted from rowWork.base.
func (e *Engine) turnQueries(row int) {
	a := &e.blocks[e.pass.layer].attends
	row += e.pass.rowWork.base
	n := a.heads * a.dim
	e.formatOf(e.pass.layer).Turn(e.s.q[row*n:(row+1)*n], a.dim, a.value)
}

// tile cuts the rows from lo on, and lists those that attend by a policy, one by one or as
// blocks of a prompt.
func (e *Engine) tile(lo int, a *attending) {
	p := &e.pass
	w := &p.attend
	w.tiles, p.followed, p.queryBlocks = w.tiles[:0], p.followed[:0], p.queryBlocks[:0]
	step := max(attendQueries/w.shape.Group, 1)
	for i, s := range p.segments {
		end := s.first + s.rows
		for end > max(s.first, lo) && e.follows(end-1) {
			end--
		}
		if first := max(s.first, lo, end); first < s.first+s.rows {
			p.followed = append(p.followed, followed{i, first, s.first + s.rows - first})
		}
		for first := max(s.first, lo); first < end; {
			if e.chooses(first, end) {
				p.queryBlocks = append(p.queryBlocks, queryBlock{i, first})
				first += cache.PageSize
				continue
			}
			t := tile{segment: i, first: first, rows: min(step, end-first), cut: -1}
			if e.policy.ForPrompts() {
				t.rows = min(t.rows, p.toPage(first))
			}
			if !p.many {
				t.firstChunk = p.reach(t.first, a).Lo / splitLength
				t.lastChunk = (p.reach(t.first+t.rows-1, a).Hi - 1) / splitLength
			}
			w.tiles = append(w.tiles, t)
			first += t.rows
		}
	}
}

// divide lists the parts, the longest first, and finds room for the partials
// of tiles with several chunks.
func (w *attendWork) divide() {
	w.parts, w.all, w.cut = w.parts[:0], w.all[:0], w.cut[:0]
	var floats, chunks, cuts int
	for i := range w.tiles {
		if t := &w.tiles[i]; t.lastChunk > t.firstChunk {
			n := (t.lastChunk - t.firstChunk + 1) * w.heads
			t.cut, cuts, chunks = cuts, cuts+w.heads, chunks+n
			floats += n * w.shape.PartialFloats(t.rows*w.shape.Group)
		}
	}
	w.partials, w.all = fit(w.partials, floats), fit(w.all, chunks)
	w.left = fit(w.left, cuts)
	rest, all := w.partials, w.all
	for i := len(w.tiles) - 1; i >= 0; i-- {
		t := &w.tiles[i]
		for h := range w.heads {
			for c := t.firstChunk; c <= t.lastChunk; c++ {
				w.parts = append(w.parts, attendPart{i, h, c})
			}
		}
	}
	for i := range w.tiles {
		t := &w.tiles[i]
		if t.cut < 0 {
			continue
		}
		n, r := t.lastChunk-t.firstChunk+1, t.rows*w.shape.Group
		size := w.shape.PartialFloats(r)
		for h := range w.heads {
			for c := range n {
				all[c] = w.shape.Partial(rest[:size], r)
				rest = rest[size:]
			}
			w.cut = append(w.cut, all[:n])
			w.left[t.cut+h].Store(int32(n))
			all = all[n:]
		}
	}
}

// reach returns the positions that a row sees.
func (p *pass) reach(row int, a *attending) kernels.Reach {
	hi := p.positions[row] + 1
	lo := int64(0)
	switch {
	case a.window > 0:
		lo = max(hi-a.window, 0)
	case a.chunk > 0:
		lo = (hi - 1) / a.chunk * a.chunk
	}
	return kernels.Reach{Lo: int(lo), Hi: int(hi)}
}

// attendPart computes one chunk, and the tile's output where it is the last one.
func (e *Engine) attendPart(worker, part int) {
	p := &e.pass
	w := &p.attend
	it := w.parts[part]
	t := &w.tiles[it.tile]
	a := &e.blocks[p.layer].attends
	l := &e.local[worker].attend
	r := t.rows * w.shape.Group
	e.gatherQueries(l, t, it.head, a)
	from, to := 0, l.reach[t.rows-1].Hi
	partials := l.one[:]
	if t.cut >= 0 {
		from, to = it.chunk*splitLength, min(to, (it.chunk+1)*splitLength)
		partials = w.cut[t.cut+it.head]
	} else {
		l.partial = fit(l.partial, w.shape.PartialFloats(r))
		l.one[0] = w.shape.Partial(l.partial, r)
	}
	out := partials[max(it.chunk-t.firstChunk, 0)]
	head := p.segments[t.segment].state.head(e.blocks[p.layer].kv, it.head*a.together/(a.heads/a.kvHeads))
	e.attendTo(out, &w.shape, head, l.q, l.reach, from, to, &l.spans)
	if t.cut >= 0 && w.left[t.cut+it.head].Add(-1) > 0 {
		return
	}
	for i := range r {
		head := it.head*w.shape.Group + i%w.shape.Group
		e.set.Combine(a.sums(e.s.att, t.first+i/w.shape.Group, head), &w.shape, partials, i, e.blocks[p.layer].beside(head))
	}
}

// gatherQueries copies the queries of a tile together.
func (e *Engine) gatherQueries(l *attendLocal, t *tile, head int, a *attending) {
	d, group := a.dim, a.together
	l.q, l.reach = fit(l.q, t.rows*group*d), fit(l.reach, t.rows)
	for r := range t.rows {
		l.reach[r] = e.pass.reach(t.first+r, a)
		at := ((t.first+r)*a.heads + head*group) * d
		copy(l.q[r*group*d:(r+1)*group*d], e.s.q[at:])
	}
}

// sums returns one head of one row of x[T][Heads][values].
func (a *attending) sums(x []float32, row, head int) []float32 {
	at := (row*a.heads + head) * a.value
	return x[at : at+a.value]
}
