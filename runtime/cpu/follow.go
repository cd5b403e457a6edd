package cpu

import (
	"math"
	"slices"

	kernels "github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/cache"
	"github.com/nstf/nstf/runtime/device"
)

// Numbers of the policy. Measured: docs/perf/attention.md.
const (
	// newestPages are read in any case, the one that is being filled among them.
	newestPages = 2
	// ratioKept is how much of what was known of a page stays when it is read again, and
	// ratioTrust how much of that counts.
	ratioKept, ratioTrust = 0.7, 0.5
	// errorsKept is the same of the errors that steps find which read all, leftKept of the
	// share that is left out.
	errorsKept, leftKept = 0.5, 0.9
	// leftJump has a step read all where it would leave out so much more than usual, not
	// sooner than restSteps after the last.
	leftJump, restSteps = 0.4, 16
)

// A followed is neighbouring rows of a segment that attend by the policy.
type followed struct{ segment, first, rows int }

// follows reports whether a row of the layer in progress attends by the policy.
func (e *Engine) follows(row int) bool {
	p := &e.pass
	return e.policy != nil && !p.many && e.blocks[p.layer].followed && p.positions[row] >= e.policy.Least
}

// A follower is one worker's memory, for the queries of one head.
type follower struct {
	shape        kernels.Attention
	stride       int       // numbers of a row of logs, foretold and shares: pages+1 at least
	logs         []float32 // [R][stride]: of what a page's positions sum up to, and the sink
	foretold     []float32 // [R][stride]: the same as the keys alone foretell it
	shares       []float32 // [R][stride]: logs as shares of all
	weights      []float64 // [pages]
	order        []int32   // of pages that may be chosen
	list         []int32   // of pages to be read
	chosen       []bool    // [pages]
	taken, left  []float32 // [stride]: 1 for pages that are chosen, 0 for others; 0, 1, until learn takes its room
	seen, weight []float32 // [pages]
	block        []float32 // [R][KVPositions]
	squares      []float32 // [R][D]
	sums         []float32 // of the partial
	some         kernels.Partial
	without      []float32 // [R][V]
	with, middle []float32 // [R][V]; [R][KVWidth(V)]
	spans        spans
}

func (w *follower) bytes() int64 {
	n := 0
	for _, b := range [][]float32{w.logs, w.foretold, w.shares, w.taken, w.left, w.seen, w.weight, w.block, w.squares, w.sums, w.without, w.with, w.middle} {
		n += cap(b)
	}
	return 4*int64(n) + 8*int64(cap(w.weights)) + 4*int64(cap(w.order)+cap(w.list)) + int64(cap(w.chosen)) + w.spans.bytes()
}

// A step is one head of one row in progress.
type step struct {
	*follower
	e       *Engine
	block   *block
	head    int // key-value head
	group   int // its query heads
	at      int // the first of them
	row     int
	share   float64 // of its pages that it may read
	pages   int     // of the sequence, the last of them in part
	hi      int     // positions that the row sees
	known   int     // pages that are summarised: those that need not be read, and the first
	cache   headCache
	q       []float32
	summary *summary
	history *history
}

// followPart attends with one head of one segment, row after row: a row's history is that
// of the rows before it.
func (e *Engine) followPart(worker, part int) {
	p := &e.pass
	b := &e.blocks[p.layer]
	a := &b.attends
	f := p.followed[part/a.kvHeads]
	state := p.segments[f.segment].state
	s := step{follower: &e.local[worker].follow, e: e, block: b, head: part % a.kvHeads, group: a.heads / a.kvHeads}
	s.at = s.head * s.group
	s.cache = state.head(b.kv, s.head)
	s.summary, s.history = &state.past.layers[b.kv][s.head], &state.past.heads[p.layer][s.head]
	s.shape = kernels.Attention{Format: e.formatOf(p.layer), Dim: a.dim, Value: a.value, Group: s.group, Scale: a.scale, Softcap: a.softcap}
	for s.row = f.first; s.row < f.first+f.rows; s.row++ {
		s.run()
	}
}

// run attends with one row.
func (s *step) run() {
	a, e := &s.block.attends, s.e
	s.hi = int(e.pass.positions[s.row]) + 1
	s.pages = (s.hi-1)/cache.PageSize + 1
	s.known = max(s.pages-newestPages, 1)
	from := (s.row*a.heads + s.at) * a.dim
	s.q = e.s.q[from : from+s.group*a.dim]
	s.fit(a)
	s.some.Clear()
	if s.share = e.policy.Share(e.span.Lo+e.pass.layer, s.head); s.share >= 1 && e.policy.Rank == nil {
		s.readAll()
		return
	}
	s.summary.extend(e.set, &s.shape, a.dim, a.value, s.cache.all, s.known, &s.spans.AttendScratch)
	s.history.ratio = grown(s.history.ratio, s.known)

	s.foretell()
	s.list = append(s.list[:0], 0)
	for page := s.known; page < s.pages; page++ {
		s.list = append(s.list, int32(page))
	}
	s.read(s.some)
	left := s.choose(s.weigh())
	all := s.readsAll(left)
	s.listThose(true)
	s.read(s.some)
	s.divide()
	s.answer(all)
	s.learn(all, left)
}

// readAll attends to all positions: nothing is chosen, and nothing is learned.
func (s *step) readAll() {
	a := &s.block.attends
	reach := [...]kernels.Reach{{Hi: s.hi}}
	s.e.attendTo(s.some, &s.shape, s.cache, s.q, reach[:], 0, s.hi, &s.spans)
	for i := range s.group {
		s.combine(a.sums(s.e.s.att, s.row, s.at+i), &s.some, i)
	}
	s.e.pagesRead.Add(int64(s.pages))
	s.e.pagesHeld.Add(int64(s.pages))
}

// fit makes room.
func (s *step) fit(a *attending) {
	m := s.pages/kernels.KVPositions*kernels.KVPositions + kernels.KVPositions + 1
	r := s.group
	s.stride = m
	s.logs, s.foretold, s.shares = fit(s.logs, r*m), fit(s.foretold, r*m), fit(s.shares, r*m)
	s.weights, s.chosen = fit(s.weights, s.pages), fit(s.chosen, s.pages)
	s.taken, s.left, s.seen, s.weight = fit(s.taken, m), fit(s.left, m), fit(s.seen, s.pages), fit(s.weight, s.pages)
	s.follower.block, s.squares = fit(s.follower.block, r*kernels.KVPositions), fit(s.squares, r*a.dim)
	s.sums = fit(s.sums, s.shape.PartialFloats(r))
	s.some = s.shape.Partial(s.sums, r)
	s.without, s.with, s.middle = fit(s.without, r*a.value), fit(s.with, r*a.value), fit(s.middle, r*kernels.KVWidth(a.value))
	for i := range r {
		s.logs[i*m+s.pages] = s.block.beside(s.at + i)
	}
}

// grown returns a slice of at least n elements that begins as b, zeros behind.
func grown(b []float32, n int) []float32 {
	for len(b) < n {
		b = append(b, 0)
	}
	return b
}

// foretell estimates the logarithms of what pages sum up to: by their keys' means and
// variances, and by how far that was off when they were read.
func (s *step) foretell() {
	m := s.stride
	s.e.set.Foretell(s.foretold, m, &s.shape, s.summary.blocks(s.known), s.q, s.squares)
	for i := range s.group {
		to := s.logs[i*m:][:s.known]
		copy(to, s.foretold[i*m:])
		s.e.set.Axpy(to, ratioTrust, s.history.ratio[:s.known])
	}
}

// listThose lists the pages that need not be read and are chosen, or are not.
func (s *step) listThose(chosen bool) {
	s.list = s.list[:0]
	for page := 1; page < s.known; page++ {
		if s.chosen[page] == chosen {
			s.list = append(s.list, int32(page))
		}
	}
}

// read attends to the pages of s.list, in their order, runs of those in half precision
// beside codes and of the others apart.
func (s *step) read(into kernels.Partial) {
	newest := int32(kernels.NewestFrom(int64(s.hi-1)) / cache.PageSize)
	halves := func(page int32) bool {
		return s.cache.newest != nil && (page < kernels.KVFirst || page >= newest)
	}
	coded := s.shape.Format
	for pages := s.list; len(pages) > 0; {
		blocks, n := s.cache.all, 1
		for n < len(pages) && halves(pages[n]) == halves(pages[0]) {
			n++
		}
		if s.shape.Format = coded; halves(pages[0]) {
			s.shape.Format, blocks = kernels.KVF16, s.cache.newest
		}
		s.e.set.AttendPages(into, &s.shape, blocks, s.q, pages[:n], s.hi, s.logs, s.stride, &s.spans.AttendScratch)
		pages = pages[n:]
	}
	s.shape.Format = coded
}

// divide turns logarithms into shares of all that a query sees.
func (s *step) divide() {
	for i := range s.group {
		row := s.shares[i*s.stride:][:s.pages+1]
		copy(row, s.logs[i*s.stride:])
		s.e.set.Softmax(row)
	}
}

// weigh divides, and returns the shares of pages, the mean over the queries.
func (s *step) weigh() []float64 {
	s.divide()
	clear(s.weights)
	for i := range s.group {
		weights := s.weights
		for page, x := range s.shares[i*s.stride:][:len(weights)] {
			weights[page] += float64(x)
		}
	}
	for page := range s.weights {
		s.weights[page] /= float64(s.group)
	}
	return s.weights
}

// choose marks the pages to be read, and returns the share that is estimated to be left
// out: those of the most weight, equal ones from the first on.
func (s *step) choose(weights []float64) float64 {
	p := s.e.policy
	if p.Rank != nil {
		s.rank(p)
		defer s.weigh()
	}
	clear(s.chosen)
	s.order = s.order[:0]
	share := s.share
	if p.Rank == nil {
		share -= 1 / float64(p.Refresh) // of the steps that read all
	}
	have, room := 0., max(int(math.Ceil(share*float64(s.pages))), 1)
	room = max(room, int(p.LeastPages()))
	take := func(page int) {
		s.chosen[page] = true
		have += weights[page]
		room--
	}
	take(0)
	for page := s.known; page < s.pages; page++ {
		take(page)
	}
	for page := 1; page < s.known; page++ {
		if s.summary.odd[page] || math.IsNaN(weights[page]) {
			take(page)
			continue
		}
		s.order = append(s.order, int32(page))
	}
	heaviest(s.order, weights, room)
	if room = max(min(room, len(s.order)), 0); p.Mass < 1 {
		slices.SortFunc(s.order[:room], func(a, b int32) int {
			if before(weights, a, b) {
				return -1
			}
			return 1
		})
	}
	for _, page := range s.order[:room] {
		if p.Mass < 1 && have >= p.Mass {
			break
		}
		take(int(page))
	}
	clear(s.taken)
	left := 0.
	for page, x := range weights {
		if s.left[page] = 1; s.chosen[page] {
			s.taken[page], s.left[page] = 1, 0
		} else {
			left += x
		}
	}
	return left
}

// before reports whether page a is chosen rather than b.
func before(weights []float64, a, b int32) bool {
	return weights[a] > weights[b] || weights[a] == weights[b] && a < b
}

// heaviest puts the n pages first that are chosen rather than others, in any order, by
// cutting the list at one of its pages until n are in front.
func heaviest(pages []int32, weights []float64, n int) {
	for 0 < n && n < len(pages) {
		middle, last := len(pages)/2, len(pages)-1
		pages[middle], pages[last] = pages[last], pages[middle]
		cut, at := pages[last], 0
		for i, page := range pages[:last] {
			if before(weights, page, cut) {
				pages[i], pages[at] = pages[at], page
				at++
			}
		}
		pages[at], pages[last] = cut, pages[at]
		if n <= at {
			pages = pages[:at]
		} else {
			pages, n = pages[at+1:], n-at-1
		}
	}
}

// readsAll reports whether the step is to read all pages: the first, those of the period,
// and those that would leave out far more than usual.
func (s *step) readsAll(left float64) bool {
	h, p := s.history, s.e.policy
	if p.Rank != nil {
		return false
	}
	return h.steps == 0 || h.steps >= p.Refresh || h.steps >= restSteps && left > h.left+leftJump
}

// answer writes what the row attends to, from the chosen pages, with or without the means of
// the others, or from all.
func (s *step) answer(all bool) {
	a, h := &s.block.attends, s.history
	stand := all || s.e.policy.Rank == nil && h.with < h.without
	for i := range s.group {
		s.combine(s.without[i*a.value:(i+1)*a.value], &s.some, i)
	}
	out := s.without
	if stand {
		s.standIn()
		out = s.with
	}
	if all {
		s.listThose(false)
		s.read(s.some)
	}
	for i := range s.group {
		to := a.sums(s.e.s.att, s.row, s.at+i)
		if !all {
			copy(to, out[i*a.value:])
			continue
		}
		s.combine(to, &s.some, i)
	}
	if all {
		s.compare()
	}
	read := s.pages
	if !all {
		read = 0
		for _, c := range s.chosen {
			if c {
				read++
			}
		}
	}
	s.e.pagesRead.Add(int64(read))
	s.e.pagesHeld.Add(int64(s.pages))
}

// combine writes what one query has summed up.
func (s *step) combine(dst []float32, p *kernels.Partial, i int) {
	s.e.set.Combine(dst, &s.shape, []kernels.Partial{*p}, i, s.logs[i*s.stride+s.pages])
}

// standIn writes to s.with what s.without is with the means of the values of pages that are
// not chosen, weighted as their keys foretell.
func (s *step) standIn() {
	a, m := &s.block.attends, s.stride
	width := kernels.KVWidth(a.value)
	clear(s.middle)
	for lo := 0; lo < s.known; lo += kernels.KVPositions {
		n := min(kernels.KVPositions, s.known-lo)
		for i := range s.group {
			to := s.follower.block[i*kernels.KVPositions:][:n]
			copy(to, s.shares[i*m+lo:])
			s.e.set.Mul(to, s.left[lo:lo+n])
		}
		s.e.set.StandIn(s.middle, &s.shape, &s.summary.pages[lo/kernels.KVPositions], s.follower.block, n)
	}
	for i := range s.group {
		share := s.shares[i*m+s.pages] // of the sink, whose value is 0
		share += s.e.set.Dot(s.shares[i*m:][:s.pages], s.taken[:s.pages])
		mean, to := s.middle[i*width:][:a.value], s.with[i*a.value:(i+1)*a.value]
		s.shape.Format.Turn(mean, a.dim, a.value)
		copy(to, s.without[i*a.value:])
		s.e.set.Scale(to, share)
		s.e.set.Add(to, mean)
	}
}

// compare takes over how far the step would have been off that has read all.
func (s *step) compare() {
	a, h := &s.block.attends, s.history
	var without, with float64
	for i := range s.group {
		for j, x := range a.sums(s.e.s.att, s.row, s.at+i) {
			d, f := float64(s.without[i*a.value+j]-x), float64(s.with[i*a.value+j]-x)
			without, with = without+d*d, with+f*f
		}
	}
	keep := errorsKept
	if h.steps == 0 {
		keep = 0
	}
	h.without, h.with = keep*h.without+(1-keep)*without, keep*h.with+(1-keep)*with
}

// learn has the history take over what the step has seen.
func (s *step) learn(all bool, left float64) {
	h, m, n := s.history, s.stride, s.known
	if all && h.steps == 0 {
		h.left = left
	} else {
		h.left = leftKept*h.left + (1-leftKept)*left
	}
	keep := float32(ratioKept)
	if all {
		s.divide()
		keep = 0
	}
	seen, weight, off := s.seen[:n], s.weight[:n], s.left[:n]
	clear(seen)
	clear(weight)
	for i := range s.group {
		copy(off, s.logs[i*m:])
		s.e.set.Axpy(off, -1, s.foretold[i*m:][:n])
		s.e.set.Mul(off, s.shares[i*m:][:n])
		s.e.set.Add(seen, off)
		s.e.set.Add(weight, s.shares[i*m:][:n])
	}
	for page := 1; page < n; page++ {
		if (s.chosen[page] || all) && weight[page] > 0 {
			h.saw(page, seen[page]/weight[page], keep)
		}
	}
	if all {
		h.steps = 0
	}
	h.steps++
}

// rank has pages weighed by another method.
func (s *step) rank(p *device.Policy) {
	a := &s.block.attends
	var sc kernels.AttendScratch
	r := device.Ranking{Block: s.e.pass.layer, Head: s.head, Position: int64(s.hi - 1), Queries: s.q, Scale: a.scale, Weights: s.weights}
	r.Keys = func(page int) []float32 { return s.e.set.StoredKeys(&s.shape, &s.cache.all[page], &sc) }
	measured := false
	real := make([]float64, s.pages)
	r.Mass = func(page int) float64 {
		if !measured {
			measured = true
			unused := s.shape.Partial(make([]float32, s.shape.PartialFloats(s.group)), s.group)
			logs, weights := slices.Clone(s.logs), slices.Clone(s.weights)
			unused.Clear()
			s.list = s.list[:0]
			for page := 1; page < s.known; page++ {
				s.list = append(s.list, int32(page))
			}
			s.read(unused)
			copy(real, s.weigh())
			copy(s.logs, logs)
			copy(s.weights, weights)
		}
		return real[page]
	}
	clear(s.weights)
	p.Rank(&r)
}
