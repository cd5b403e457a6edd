package tokenizer

// A symbol is a run of a word on its way through BPE merges: a doubly linked
// list within a slice.
type symbol struct {
	id         int32 // the vocabulary's id, or -1 for a character outside it
	start, end int32 // in the word, in units that only this word shares
	prev, next int32 // indexes, -1 at the ends
	gone       bool  // merged into its left neighbour
}

// A candidate is a possible merge of two neighbours. It is stale when either
// has changed since, which their ends tell.
type candidate struct {
	rank     uint32 // smaller merges first
	pos      int32  // index of the left symbol; decides among equal ranks
	mid, end int32  // ends of the two symbols when this was found
	id       int32  // of the merged symbol
}

func (c *candidate) less(d *candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.pos < d.pos
}

// scratch holds the buffers of one Encode.
type scratch struct {
	words []piece
	syms  []symbol
	heap  []candidate
	best  []bestPath
	out   []int32
	bytes []byte
}

// merge applies merges to sc.syms until none is left, always the one with
// the least rank and among equals the leftmost: O(n log n) whatever the text.
// find says whether two neighbours merge, at which rank and into which id.
func (sc *scratch) merge(find func(l, r *symbol) (rank uint32, id int32, ok bool)) {
	syms := sc.syms
	sc.heap = sc.heap[:0]
	try := func(i int32) {
		l := &syms[i]
		r := &syms[l.next]
		if rank, id, ok := find(l, r); ok {
			sc.push(candidate{rank, i, l.end, r.end, id})
		}
	}
	for i := 0; i+1 < len(syms); i++ {
		try(int32(i))
	}
	for len(sc.heap) > 0 {
		c := sc.pop()
		l := &syms[c.pos]
		if l.gone || l.end != c.mid || l.next < 0 || syms[l.next].end != c.end {
			continue
		}
		r := &syms[l.next]
		r.gone = true
		l.id, l.end, l.next = c.id, r.end, r.next
		if l.next >= 0 {
			syms[l.next].prev = c.pos
			try(c.pos)
		}
		if l.prev >= 0 {
			try(l.prev)
		}
	}
}

// link sets the neighbours of freshly filled symbols.
func (sc *scratch) link() {
	for i := range sc.syms {
		sc.syms[i].prev, sc.syms[i].next = int32(i)-1, int32(i)+1
	}
	if n := len(sc.syms); n > 0 {
		sc.syms[n-1].next = -1
	}
}

func (sc *scratch) push(c candidate) {
	h := append(sc.heap, c)
	i := len(h) - 1
	for i > 0 {
		p := (i - 1) / 2
		if !h[i].less(&h[p]) {
			break
		}
		h[i], h[p] = h[p], h[i]
		i = p
	}
	sc.heap = h
}

func (sc *scratch) pop() candidate {
	h := sc.heap
	top := h[0]
	n := len(h) - 1
	h[0] = h[n]
	h = h[:n]
	for i := 0; ; {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && h[c+1].less(&h[c]) {
			c++
		}
		if !h[c].less(&h[i]) {
			break
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
	sc.heap = h
	return top
}
