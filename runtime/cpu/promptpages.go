package cpu

import (
	"math"
	"slices"

	kernels "github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/cache"
	"github.com/nstf/nstf/runtime/device"
)

// A queryBlock is the rows of a segment whose positions are one page of its sequence. They
// choose the pages that they read together.
type queryBlock struct{ segment, first int }

// chooses reports whether the rows from first on, of end, begin with a block of queries that
// chooses pages in the layer in progress. Rows whose page another pass shares do not, so that a
// row's bits do not depend on where its prompt was cut, as far as it is cut between pages.
func (e *Engine) chooses(first, end int) bool {
	p := &e.pass
	at := p.positions[first]
	return p.many && e.policy.ForPrompts() && e.blocks[p.layer].followed &&
		at%cache.PageSize == 0 && first+cache.PageSize <= end && at >= e.policy.Least
}

// pageStart returns the first row of the page that a row lies on, of those that its segment has.
func (p *pass) pageStart(row int) int {
	s := &p.segments[p.owner[row]]
	return max(s.first, row-int(p.positions[row]%cache.PageSize))
}

// toPage returns how many rows there are from a row to the end of its page.
func (p *pass) toPage(row int) int { return cache.PageSize - int(p.positions[row]%cache.PageSize) }

// A pageChooser is one worker's memory, for the queries of one head in one block.
type pageChooser struct {
	q, squares []float32 // [R][D]
	logs       []float32 // [R][pages]: of what pages are foretold to add up to; page 0: what is read in any case does
	block      []float32 // [R][KVPositions]
	weights    []float64 // [pages]
	order      []int32   // pages that may be chosen, then those that are
	list       []kernels.KVBlock
	sums       []float32 // of the partials
	reach      []kernels.Reach
	spans      spans
}

func (w *pageChooser) bytes() int64 {
	return 4*int64(cap(w.q)+cap(w.squares)+cap(w.logs)+cap(w.block)+cap(w.sums)+cap(w.order)) + 8*int64(cap(w.weights)) + w.spans.bytes()
}

// A choosing is one head of one block of queries in progress.
type choosing struct {
	*pageChooser
	e           *Engine
	attends     *attending
	shape       kernels.Attention
	head, group int // key-value head, and its query heads
	first, page int // row and page
	cache       headCache
	summary     *summary
	near, far   kernels.Partial // what is read in any case, and some of the others
}

// chooseAll attends with the blocks of queries of a layer.
func (e *Engine) chooseAll(a *attending) {
	p := &e.pass
	p.ends = p.ends[:0]
	for i, b := range p.queryBlocks {
		if i+1 == len(p.queryBlocks) || p.queryBlocks[i+1].segment != b.segment {
			p.ends = append(p.ends, b)
		}
	}
	e.pool.RunWorkers(len(p.ends)*a.kvHeads, e.part.extend)
	e.pool.RunWorkers(len(p.queryBlocks)*a.kvHeads, e.part.pages)
}

// chooser returns one head of a block of queries.
func (e *Engine) chooser(worker, head int, q queryBlock) choosing {
	p := &e.pass
	b := &e.blocks[p.layer]
	a := &b.attends
	state := p.segments[q.segment].state
	c := choosing{pageChooser: &e.local[worker].choose, e: e, attends: a, head: head, group: a.heads / a.kvHeads,
		first: q.first, page: int(p.positions[q.first] / cache.PageSize), cache: state.head(b.kv, head), summary: &state.past.layers[b.kv][head]}
	c.shape = kernels.Attention{Format: e.formatOf(p.layer), Dim: a.dim, Value: a.value, Group: c.group, Scale: a.scale, Softcap: a.softcap}
	return c
}

// known returns how many pages are behind those that the block reads in any case, the first
// among them.
func (c *choosing) known() int { return c.page + 1 - newestPages }

// room returns how many of them it may read.
func (c *choosing) room() int {
	share := c.e.policy.PromptShare(c.e.span.Lo+c.e.pass.layer, c.head)
	return device.PromptPages(share, c.page+1) - newestPages
}

// extendPart brings the summaries of a head up to the last block of a segment.
func (e *Engine) extendPart(worker, part int) {
	a := &e.blocks[e.pass.layer].attends
	c := e.chooser(worker, part%a.kvHeads, e.pass.ends[part/a.kvHeads])
	if c.room() < c.known() {
		c.summary.extend(e.set, &c.shape, a.dim, a.value, c.cache.all, c.known(), &c.spans.AttendScratch)
	}
}

// pagesPart attends with one head of one block of queries.
func (e *Engine) pagesPart(worker, part int) {
	p := &e.pass
	b := &e.blocks[p.layer]
	a := &b.attends
	c := e.chooser(worker, part%a.kvHeads, p.queryBlocks[part/a.kvHeads])
	c.gather()
	read := c.page + 1
	if room := c.room(); room >= c.known() {
		c.attendAll()
	} else {
		c.attendNear()
		c.foretell(b)
		c.choose(room)
		c.attendFar()
		read = 1 + len(c.order) + newestPages
	}
	e.pagesRead.Add(int64(cache.PageSize * read))
	e.pagesHeld.Add(int64(cache.PageSize * (c.page + 1)))
	for i := range c.near.Top {
		head := c.head*c.group + i%c.group
		e.set.Combine(a.sums(e.s.att, c.first+i/c.group, head), &c.shape, []kernels.Partial{c.near}, i, b.beside(head))
	}
}

// gather copies the queries together, and makes room for what they add up.
func (c *choosing) gather() {
	a, d := c.attends, c.attends.dim
	r := cache.PageSize * c.group
	c.q = fit(c.q, r*d)
	for row := range cache.PageSize {
		at := ((c.first+row)*a.heads + c.head*c.group) * d
		copy(c.q[row*c.group*d:(row+1)*c.group*d], c.e.s.q[at:])
	}
	size := c.shape.PartialFloats(r)
	c.sums = fit(c.sums, 2*size)
	c.near, c.far = c.shape.Partial(c.sums[:size], r), c.shape.Partial(c.sums[size:], r)
}

// tiles calls f with what rows of the block attend with together, and what they add up in p.
func (c *choosing) tiles(p kernels.Partial, f func(out kernels.Partial, q []float32, first int)) {
	step, width, d := max(attendQueries/c.group, 1), kernels.KVWidth(c.attends.value), c.attends.dim
	for first := 0; first < cache.PageSize; first += step {
		rows := min(step, cache.PageSize-first)
		lo, hi := first*c.group, (first+rows)*c.group
		c.reach = fit(c.reach, rows)
		f(kernels.Partial{Top: p.Top[lo:hi], Sum: p.Sum[lo:hi], Acc: p.Acc[lo*width : hi*width]}, c.q[lo*d:hi*d], first)
	}
}

// attendAll has c.near of all positions, as without a policy.
func (c *choosing) attendAll() {
	at := c.page * cache.PageSize
	c.tiles(c.near, func(out kernels.Partial, q []float32, first int) {
		for i := range c.reach {
			c.reach[i] = kernels.Reach{Hi: at + first + i + 1}
		}
		c.e.attendTo(out, &c.shape, c.cache, q, c.reach, 0, c.reach[len(c.reach)-1].Hi, &c.spans)
	})
}

// halves reports whether the block's rows have a page in half precision, beside codes.
func (c *choosing) halves(page int) bool {
	return c.cache.newest != nil && (page < kernels.KVFirst || page >= c.page-kernels.KVNewest)
}

// attendNear has c.near of the first page and the newest.
func (c *choosing) attendNear() {
	shape, pages := c.shape, c.cache.all
	if c.cache.newest != nil {
		shape.Format, pages = kernels.KVF16, c.cache.newest
	}
	c.list = append(append(c.list[:0], pages[0]), pages[c.known():c.page+1]...)
	seen := (len(c.list) - 1) * cache.PageSize
	c.tiles(c.near, func(out kernels.Partial, q []float32, first int) {
		for i := range c.reach {
			c.reach[i] = kernels.Reach{Hi: seen + first + i + 1}
		}
		c.e.set.Attend(out, &shape, c.list, q, c.reach, 0, c.reach[len(c.reach)-1].Hi, &c.spans.AttendScratch)
	})
}

// foretell estimates the share of what the queries see that each page has, the mean over them.
func (c *choosing) foretell(b *block) {
	r, known := len(c.near.Top), c.known()
	blocks := c.summary.blocks(known)
	m := len(blocks)*kernels.KVPositions + 1
	c.logs, c.squares = fit(c.logs, r*m), fit(c.squares, len(c.q))
	c.e.set.Foretell(c.logs, m, &c.shape, blocks, c.q, c.squares)
	c.weights = fit(c.weights, known)
	clear(c.weights)
	for i := range r {
		row := c.logs[i*m:][:known+1]
		row[0] = c.near.Top[i] + float32(math.Log(float64(c.near.Sum[i])))
		row[known] = b.beside(c.head*c.group + i%c.group)
		c.e.set.Softmax(row)
		for page, x := range row[:known] {
			c.weights[page] += float64(x)
		}
	}
}

// choose lists the pages that the block reads beside the others, in their order: those of the
// most weight, equal ones from the first on. Whatever is not finite is read.
func (c *choosing) choose(room int) {
	c.order = c.order[:0]
	for page := 1; page < c.known(); page++ {
		if c.summary.odd[page] || math.IsNaN(c.weights[page]) {
			c.weights[page] = math.Inf(1)
		}
		c.order = append(c.order, int32(page))
	}
	slices.SortFunc(c.order, func(a, b int32) int {
		switch x, y := c.weights[a], c.weights[b]; {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return int(a - b)
	})
	n := room - 1 // page 0 is read
	for n < len(c.order) && math.IsInf(c.weights[c.order[n]], 1) {
		n++
	}
	c.order = c.order[:n]
	slices.Sort(c.order)
}

// attendFar adds to c.near what the chosen pages add up to.
func (c *choosing) attendFar() {
	coded, halves := c.shape, c.shape
	halves.Format = kernels.KVF16
	c.attendList(&halves, c.cache.newest, true)
	c.attendList(&coded, c.cache.all, false)
}

// attendList is attendFar of pages that are kept in halves beside codes, or of the others.
func (c *choosing) attendList(a *kernels.Attention, pages []kernels.KVBlock, halves bool) {
	c.list = c.list[:0]
	for _, page := range c.order {
		if c.halves(int(page)) == halves {
			c.list = append(c.list, pages[page])
		}
	}
	if len(c.list) == 0 {
		return
	}
	n := len(c.list) * cache.PageSize
	c.tiles(c.far, func(out kernels.Partial, q []float32, _ int) {
		for i := range c.reach {
			c.reach[i] = kernels.Reach{Hi: n}
		}
		c.e.set.Attend(out, a, c.list, q, c.reach, 0, n, &c.spans.AttendScratch)
	})
	c.e.set.Merge(c.near, a, c.far)
}
