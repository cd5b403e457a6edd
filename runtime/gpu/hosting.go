package gpu

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// A hosting says where each page of a pool lies that has more pages than the card holds: places below
// card are the card's, the others the host's. Kernels read and write both by the same addresses, so that
// no bit depends on it ([0032]). Pages change places between passes alone, before any table of a pass is
// sent: those that a pass writes, the newest and the first come to the card, and for them those leave it
// that nobody holds, or else those that steps chose least; every everySteps steps the most chosen return.
//
// [0032]: docs/decisions/0032-pages-in-host-memory.md
type hosting struct {
	e      *Engine
	buffer driver.Buffer
	hostRoom
	card  int32
	place []int32   // of each page
	page  []int32   // at each place
	uses  []float32 // of each page: how often heads chose it in everySteps steps, smoothed
	since []int64   // of each page: the pass before which it came to the card
	moved []int64   // of each page: the last pass before which it was to stay where it is
	pass  int64
	steps int // passes of few rows since counts were asked for
	asked asked
	words []int32
	// failed is what a move failed with: pages are not where they are said to lie, so that no pass may read any.
	failed error

	in, out int64 // pages that came to the card, and that left it, with what they hold
}

// hostRoom is what a hosting has in the work space.
type hostRoom struct {
	planes, moves, counts hip.Address // see hip.MovePages, and hip.Follow.Uses
	planeBytes            []byte
	countBytes            int64
}

// asked are counts on their way down, and whose they are.
type asked struct {
	counts *driver.Pinned
	known  *driver.Event
	under  bool
	tables []slotPages
}

// slotPages are the pages that the state of a slot had.
type slotPages struct {
	slot  int
	pages []int32
}

const (
	mostMoves   = 512 // of a launch
	everySteps  = 32  // passes of few rows between two looks at what was chosen
	mostReturns = 32  // pages that come back then
	paysWithin  = 4   // looks within which a page that returns has spared the link what it cost
	newestKept  = 2   // whole pages behind the one that is written, with those of windows
)

// placeHosted lays out what moves of pages need.
func (e *Engine) placeHosted(slots int, a *arena) {
	if e.kvHost == 0 {
		return
	}
	r := &e.hostRoom
	r.planeBytes = hip.AppendMovePlanes(nil, e.pool.layers) // their number counts yet
	r.countBytes = 4 * int64(slots) * int64(e.pool.tablePages)
	r.planes, r.moves, r.counts = a.take(int64(len(r.planeBytes))), a.take(4*4*mostMoves), a.take(r.countBytes)
}

// makeHosting begins with the first pages on the card.
func (e *Engine) makeHosting(buffer driver.Buffer) (err error) {
	h := &hosting{e: e, buffer: buffer, hostRoom: e.hostRoom, card: int32(e.plan.Pages - e.plan.HostPages)}
	e.pool.hosts = h
	n := int(e.plan.Pages)
	h.planeBytes = hip.AppendMovePlanes(nil, e.pool.layers)
	h.place, h.page, h.uses, h.since, h.moved = make([]int32, n), make([]int32, n), make([]float32, n), make([]int64, n), make([]int64, n)
	for i := range h.place {
		h.place[i], h.page[i] = int32(i), int32(i)
	}
	if h.asked.counts, err = e.m.device.Pinned(h.countBytes); err != nil {
		return err
	}
	h.asked.known, err = e.m.device.Event()
	return err
}

// send fills what stands still.
func (h *hosting) send() error {
	if h == nil {
		return nil
	}
	if err := h.e.m.stream.Upload(driver.Buffer{Address: h.planes, Size: int64(len(h.planeBytes))}, h.planeBytes); err != nil {
		return err
	}
	return h.clearCounts()
}

func (h *hosting) clearCounts() error {
	return h.e.m.stream.Fill(driver.Buffer{Address: h.counts, Size: h.countBytes}, 0)
}

// clearSlot has a slot begin without what the sequence chose that had it before.
func (h *hosting) clearSlot(slot int32) error {
	if h == nil {
		return nil
	}
	n := 4 * int64(h.e.pool.tablePages)
	return h.e.m.stream.Fill(driver.Buffer{Address: h.counts + hip.Address(n*int64(slot)), Size: n}, 0)
}

// forget drops the pages of a slot whose counts are on their way: others may take them.
func (h *hosting) forget(slot int32) {
	if h != nil {
		h.asked.tables = slices.DeleteFunc(h.asked.tables, func(t slotPages) bool { return t.slot == int(slot) })
	}
}

// renew has a page begin that nothing was chosen of.
func (h *hosting) renew(page int32) { h.uses[page], h.since[page] = 0, h.pass }

// release gives everything back.
func (h *hosting) release() error {
	if h == nil {
		return nil
	}
	var errs []error
	if h.asked.known != nil {
		errs = append(errs, h.asked.known.Free())
	}
	if h.asked.counts != nil {
		errs = append(errs, h.asked.counts.Free())
	}
	return errors.Join(append(errs, h.e.m.device.Free(h.buffer))...)
}

// placesOf returns where pages lie: they themselves where all lie on the card.
func (h *hosting) placesOf(pages []int32) []int32 {
	if h == nil {
		return pages
	}
	h.words = h.words[:0]
	for _, p := range pages {
		h.words = append(h.words, h.place[p])
	}
	return h.words
}

// settle brings pages to where the pass of a batch shall find them. Once a move failed, every pass does.
func (h *hosting) settle(b *device.Batch, many bool) error {
	if h == nil {
		return nil
	}
	if h.failed != nil {
		return h.failed
	}
	h.pass++
	if !many {
		h.steps++
	}
	looks := h.steps >= everySteps && !many
	if looks {
		if err := h.look(); err != nil { // before any page is said to lie elsewhere
			return err
		}
	}
	absent := h.absent(b, many)
	if len(absent) == 0 && !looks {
		return nil
	}
	holders := h.e.pool.pages.Holders(nil)
	held := func(page int32) bool { return int(page) < len(holders) && holders[page] > 0 }
	moves := h.bring(absent, held)
	if looks {
		moves = append(moves, h.returns(held)...)
	}
	return h.move(moves)
}

// A wanted page is one that a pass wants on the card, and whether it holds anything yet.
type wanted struct {
	page   int32
	filled bool
	whole  bool // it is wanted only as its sequence is read as a whole
}

// absent has the pages stay that the rows of a batch write, then the newest behind those, the first, and of
// sequences that are read as a whole all others; it returns those that lie in the host's memory, in this order.
func (h *hosting) absent(b *device.Batch, many bool) (all []wanted) {
	whole := false
	want := func(s *state, i int64) {
		page := s.Pages()[i]
		if h.moved[page] == h.pass {
			return
		}
		h.moved[page] = h.pass
		if i >= pagesOf(s.Len()) {
			h.renew(page)
		}
		if h.place[page] >= h.card {
			all = append(all, wanted{page: page, filled: i < pagesOf(s.Len()), whole: whole})
		}
	}
	each := func(f func(s *state, first, end int64)) {
		for i := range b.Segments {
			s := b.Segments[i].State.(*state)
			f(s, s.Len()/PageSize, pagesOf(s.Len()+int64(b.Segments[i].Rows())))
		}
	}
	each(func(s *state, first, end int64) {
		for i := first; i < end; i++ {
			want(s, i)
		}
	})
	each(func(s *state, first, _ int64) {
		for i := first - 1; i >= max(first-h.e.newestRead, 0); i-- {
			want(s, i)
		}
		want(s, 0)
	})
	whole = true
	each(func(s *state, first, _ int64) {
		if many || s.Len() >= h.e.follow.policy.Least {
			return
		}
		for i := range first {
			want(s, i)
			h.uses[s.Pages()[i]] = everySteps * float32(h.e.follow.heads)
		}
	})
	return all
}

// bring finds places on the card for pages, as far as others may leave it. For those of sequences that are read as
// a whole, which come last, only those leave that nobody holds or that are chosen less than half as often: where
// the passes of a step share too small a card, each would else bring its own and send those of the others away.
func (h *hosting) bring(pages []wanted, held func(int32) bool) (moves []hip.Move) {
	leave := h.leaving(len(pages), held)
	for i, w := range pages[:len(leave)] {
		if w.whole && held(leave[i]) && 2*h.uses[leave[i]] >= h.uses[w.page] {
			break
		}
		moves = append(moves, h.swap(leave[i], w.page, held(leave[i]), w.filled))
	}
	return moves
}

// leaving returns pages of the card that may leave it, at most n, those first that nobody holds, then those that
// are chosen least, then those that came first.
func (h *hosting) leaving(n int, held func(int32) bool) (pages []int32) {
	if n == 0 {
		return nil
	}
	for _, p := range h.page[:h.card] {
		if h.moved[p] != h.pass {
			pages = append(pages, p)
		}
	}
	slices.SortFunc(pages, func(a, b int32) int {
		x, y := held(a), held(b)
		if x != y {
			if x {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(h.uses[a], h.uses[b]), cmp.Compare(h.since[a], h.since[b]), cmp.Compare(a, b))
	})
	return pages[:min(n, len(pages))]
}

// swap has a page of the card and one of the host's memory change places, each with what it holds, if anything.
func (h *hosting) swap(leaves, comes int32, holds, filled bool) hip.Move {
	a, b := h.place[leaves], h.place[comes]
	h.place[leaves], h.place[comes], h.page[a], h.page[b] = b, a, comes, leaves
	h.moved[leaves], h.moved[comes], h.since[comes] = h.pass, h.pass, h.pass
	if holds {
		h.out++
	}
	if filled {
		h.in++
	}
	return hip.Move{From: a, To: b, Out: holds, In: filled}
}

// look takes over what was asked for before, and asks for what was chosen since.
func (h *hosting) look() error {
	h.steps = 0
	k, m := &h.asked, h.e.m
	if k.under {
		if err := k.known.Wait(); err != nil {
			return err
		}
		h.count()
		k.under = false
	}
	k.tables = k.tables[:0]
	for slot, s := range h.e.pool.states {
		if s != nil {
			k.tables = append(k.tables, slotPages{slot, slices.Clone(s.Pages())})
		}
	}
	if err := m.stream.Download(k.counts.Bytes(), driver.Buffer{Address: h.counts, Size: h.countBytes}); err != nil {
		return err
	}
	if err := m.stream.Record(k.known); err != nil {
		return err
	}
	k.under = true
	return h.clearCounts()
}

// count smooths what came down into the uses of pages.
func (h *hosting) count() {
	fresh := make([]float32, len(h.uses))
	for _, t := range h.asked.tables {
		counts := h.asked.counts.Bytes()[4*t.slot*h.e.pool.tablePages:]
		for i, p := range t.pages {
			fresh[p] += float32(binary.LittleEndian.Uint32(counts[4*i:]))
		}
	}
	for p, n := range fresh {
		h.uses[p] = 0.5*h.uses[p] + 0.5*n
	}
}

// returns finds pages of the host's memory that are chosen so much more often than some of the card that
// changing places costs less than reading them where they are, some looks ahead.
func (h *hosting) returns(held func(int32) bool) (moves []hip.Move) {
	var come []int32
	for _, p := range h.page[h.card:] {
		if h.moved[p] != h.pass && h.uses[p] > 0 && held(p) {
			come = append(come, p)
		}
	}
	slices.SortFunc(come, func(a, b int32) int { return cmp.Or(cmp.Compare(h.uses[b], h.uses[a]), cmp.Compare(a, b)) })
	come = come[:min(len(come), mostReturns)]
	for i, leaves := range h.leaving(len(come), held) {
		uses := h.uses[leaves]
		if !held(leaves) { // what was chosen of it is read no more
			uses = 0
		}
		if paysWithin*(h.uses[come[i]]-uses) <= float32(h.e.follow.heads) {
			break
		}
		moves = append(moves, h.swap(leaves, come[i], held(leaves), true))
	}
	return moves
}

// move queues moves; where one fails, the hosting has.
func (h *hosting) move(moves []hip.Move) error {
	if h.failed == nil {
		h.failed = h.queue(moves)
	}
	return h.failed
}

func (h *hosting) queue(moves []hip.Move) error {
	for len(moves) > 0 {
		n := min(len(moves), mostMoves)
		var words []int32
		for i := range moves[:n] {
			if m := &moves[i]; m.Out || m.In {
				words = m.Append(words)
			}
		}
		moves = moves[n:]
		if len(words) == 0 {
			continue
		}
		if err := upload(h.e, driver.Buffer{Address: h.moves, Size: 4 * int64(len(words))}, words); err != nil {
			return err
		}
		op := h.of(len(words) / 4)
		calls := op.Calls(h.e.m.target)
		if err := h.e.ready(calls); err != nil {
			return err
		}
		if err := h.e.m.launch(calls); err != nil {
			return err
		}
	}
	return nil
}

// of is so many moves.
func (h *hosting) of(n int) *hip.MovePages {
	return &hip.MovePages{Planes: h.planes, Count: len(h.planeBytes) / hip.MovePlaneBytes, Pages: int(h.card), Moves: h.moves, N: n}
}

// PagesMoved returns how many pages of keys and values came to the card from the host's memory, and how many
// left it for that.
func (e *Engine) PagesMoved() (in, out int64) {
	if h := e.pool.hosts; h != nil {
		return h.in, h.out
	}
	return 0, 0
}
