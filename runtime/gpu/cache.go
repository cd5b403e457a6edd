package gpu

import (
	"fmt"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/cache"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// PageSize is the positions of a page of the cache.
const PageSize = hip.PagePositions

// A pool is the pages of all states of an Engine, and a slot for each state.
// Page i is the i-th in every layer's [hip.KV], or where some lie in the host's memory
// the one that hosting says. All of it is planned when the engine is made, so that no
// address changes.
type pool struct {
	pages  *cache.Pages
	layers []hip.KV
	buffer driver.Buffer
	hosts  *hosting // nil: all pages lie on the card
	states []*state // by slot, nil where nobody holds it
	// table is which page holds what, i32 [slots][tablePages]: a row for each
	// state, kept in step by state.send.
	// The ropes that depend on a sequence's length have their frequencies by slot too.
	table      hip.Address
	tablePages int
	// newest are the pages in half precision of the first and newest positions, beside
	// codes; nil: there are none. Which holds what is in the second half of a row of table.
	newest *cache.Pages
	idle   []int32 // slots that nobody holds, the next to give last
}

// placesOf returns how many states an engine has places for.
func placesOf(o *Options) int {
	if o.Places > 0 {
		return o.Places
	}
	return device.UsualPlaces(o.Sequences)
}

// A state is what one sequence remembers.
type state struct {
	*cache.Table
	newest  *cache.Table // of pool.newest; nil: there is none
	e       *Engine
	slot    int32
	place   int32      // of what is kept beside pages; -1: none
	placed  int32      // the place that the device knows
	sent    [2][]int32 // pages that the device's table holds, and those of newest
	regimes []int64    // of each rope, for which the device has frequencies; -1: none
	told    int64      // positions whose tokens the device's history holds
	sampler settings   // that the device has for the slot
	past    past
}

var _ device.State = (*state)(nil)

// cacheLayers are the shapes of the layers of a span that have keys and values of
// their own, without memory.
func (e *Engine) cacheLayers(kept cpu.KVFormats) []hip.KV {
	var layers []hip.KV
	of := map[int]int{} // by block
	for i := e.span.Lo; i < e.span.Hi; i++ {
		if kv, own := kvOf(&e.g.Blocks[i], kept.Of(i)); own {
			of[i] = len(layers)
			layers = append(layers, kv)
		}
	}
	for i, first := range e.follow.first {
		if from, ok := e.g.KeysOf(e.span.Lo + i); ok && first >= 0 {
			layers[of[from]].Summarized = true
		}
	}
	e.follow.kept = kept
	return layers
}

// kvOf returns the shape of what a block keeps of a position, if it keeps anything of
// its own.
func kvOf(b *graph.Block, f cpu.KVFormat) (hip.KV, bool) {
	switch a, n := b.Attn, b.Latent; {
	case a != nil && !a.Borrows():
		return hip.KV{Format: f, Heads: int(a.KVHeads), Dim: int(a.HeadDim)}, true
	case n != nil:
		return hip.KV{Format: f, Heads: 1, Dim: int(n.KeyDim()), Value: int(n.Rank)}, true
	}
	return hip.KV{}, false
}

// pageBytes is what one page takes in all layers.
func pageBytes(layers []hip.KV) (n int64) {
	for i := range layers {
		n += layers[i].PageBytes()
	}
	return n
}

// planeBytes is that without summaries, which lie on the card in any case.
func planeBytes(layers []hip.KV) (n int64) {
	for i := range layers {
		n += layers[i].PlaneBytes()
	}
	return n
}

// placePages gives the layers their memory: so many pages from an arena on, and so many of
// the newest positions where they are beside others; and so many behind those from another
// arena on, which counts in the host's memory.
func placePages(layers []hip.KV, pages, newest int, a *arena, hosted int, host *arena) {
	for i := range layers {
		layers[i].Pages, layers[i].NewestPages, layers[i].HostPages = pages, newest, hosted
		layers[i].Base = a.take(layers[i].Bytes())
		layers[i].Host = host.take(layers[i].HostBytes())
	}
}

// newestBytes is what one page of the newest positions takes in all layers, 0 where no layer
// is in codes.
func newestBytes(layers []hip.KV) (n int64) {
	for i := range layers {
		p := layers[i].NewestPlanes()
		n += p[0] + p[1]
	}
	return n
}

// newestPages returns how many pages there are for the newest positions of so many
// sequences, of pages in all: twice what they hold between passes, as prompts are kept and
// forked, and the rows of a pass.
func newestPages(layers []hip.KV, pages, sequences, rows int64) int64 {
	if newestBytes(layers) == 0 {
		return 0
	}
	return min(pages, 2*sequences*cache.NewestHeld(cache.NewestMost)+sequences+pagesOf(rows))
}

// pagesOf returns the pages of so many positions.
func pagesOf(positions int64) int64 { return (positions + PageSize - 1) / PageSize }

// cacheBytes is the memory of so many positions, an error where an int64 does not
// hold it.
func cacheBytes(layers []hip.KV, positions int64) (int64, error) {
	if positions < 0 || positions > 1<<40 {
		return 0, fmt.Errorf("a cache of %d positions makes no sense", positions)
	}
	pages := pagesOf(positions)
	n := pageBytes(layers)
	if n > 0 && pages > (1<<62)/n {
		return 0, fmt.Errorf("a cache of %d positions is larger than 2^62 bytes", positions)
	}
	return pages * n, nil
}

// makePool takes the memory of all pages.
func (e *Engine) makePool() (err error) {
	p := &e.pool
	pages, newest := e.plan.Pages, e.plan.newest
	p.pages = cache.NewPages(pages, PageSize)
	if newest > 0 {
		p.newest = cache.NewPages(newest, PageSize)
	}
	hosted := e.plan.HostPages
	var size, host arena
	placePages(slices.Clone(p.layers), int(pages-hosted), int(newest), &size, int(hosted), &host)
	if p.buffer, err = e.m.alloc(size.used); err != nil {
		return err
	}
	var hostBuffer driver.Buffer
	if hosted > 0 {
		if hostBuffer, err = e.m.device.AllocShared(host.used); err != nil {
			return err
		}
	}
	placePages(p.layers, int(pages-hosted), int(newest), &arena{base: p.buffer.Address}, int(hosted), &arena{base: hostBuffer.Address})
	p.states = make([]*state, e.places)
	if hosted > 0 {
		if err := e.makeHosting(hostBuffer); err != nil {
			return err
		}
	}
	for i := e.places - 1; i >= 0; i-- {
		p.idle = append(p.idle, int32(i))
	}
	return nil
}

// NewState implements device.Stage.
func (e *Engine) NewState(capacity int64) (device.State, error) {
	if p := e.g.Embed.Positions; p != "" && capacity > e.g.Context {
		err := formats.Unsupportedf("", p, "a context of %d positions: the model has learned %d", capacity, e.g.Context)
		err.Hint = "give a shorter context (--ctx)"
		return nil, err
	}
	if capacity < 1 || capacity > e.context {
		return nil, fmt.Errorf("a sequence of %d positions: the device is laid out for %d", capacity, e.context)
	}
	var newest *cache.Table
	if e.pool.newest != nil {
		newest = e.pool.newest.NewestTable(capacity)
	}
	return e.newState(e.pool.pages.NewTable(capacity), newest)
}

func (e *Engine) newState(t, newest *cache.Table) (device.State, error) {
	p := &e.pool
	last := len(p.idle) - 1
	if last < 0 {
		t.Release()
		newest.Release()
		return nil, &cache.PlacesError{Places: e.s.chooser.slots}
	}
	if err := p.hosts.clearSlot(p.idle[last]); err != nil {
		t.Release()
		newest.Release()
		return nil, err
	}
	s := &state{Table: t, newest: newest, e: e, slot: p.idle[last], place: -1, placed: -1, regimes: make([]int64, len(e.ropes))}
	for i := range s.regimes {
		s.regimes[i] = -1
	}
	p.idle = p.idle[:last]
	p.states[s.slot] = s
	return s, nil
}

// Room implements device.Stage.
func (e *Engine) Room() device.Room {
	p := &e.pool
	r := device.Room{PageSize: PageSize, Pages: p.pages.Len(), Free: p.pages.Free(), Places: e.s.chooser.slots, Idle: len(p.idle), Onward: p.newest != nil || e.kept.floats > 0}
	if e.kept.floats > 0 { // states, and what is kept of them
		r.Places, r.Idle = min(r.Places, e.kept.places.Len()), min(r.Idle, e.kept.places.Free())
	}
	return r
}

// StateBytes implements device.Stage.
func (e *Engine) StateBytes(positions int64) (int64, error) {
	n, err := cacheBytes(e.pool.layers, positions)
	if positions > 0 {
		n += cache.NewestHeld(positions)*newestBytes(e.pool.layers) + e.kept.bytes()
	}
	return n, err
}

// Bytes implements device.State.
func (s *state) Bytes() int64 {
	n := s.Held() * pageBytes(s.e.pool.layers)
	if s.newest != nil {
		n += s.newest.Held() * newestBytes(s.e.pool.layers)
	}
	if s.place >= 0 {
		n += s.e.kept.bytes()
	}
	return n
}

// Reserve implements device.State.
func (s *state) Reserve(n int64) error {
	fresh := s.place < 0 && n > 0
	if fresh {
		var err error
		if s.place, err = s.e.kept.take(); err != nil {
			return err
		}
	}
	err := s.reserve(n)
	if err != nil && s.newest != nil {
		s.newest.Rewind(s.Len())
	}
	if err != nil && fresh {
		s.give()
	}
	return err
}

func (s *state) reserve(n int64) error {
	if s.newest != nil {
		copies, err := s.newest.Reserve(n)
		if err != nil {
			return err
		}
		for _, c := range copies {
			for i := range s.e.pool.layers {
				l := &s.e.pool.layers[i]
				planes := l.NewestPlanes()
				if err := s.e.copyPlanes(l.Newest(), planes[:], l.NewestPages, c); err != nil {
					return err
				}
			}
		}
	}
	copies, err := s.Table.Reserve(n)
	if err != nil {
		return err
	}
	for _, c := range copies {
		if h := s.e.pool.hosts; h != nil {
			if err := h.move([]hip.Move{{From: h.place[c.From], To: h.place[c.To], Out: true}}); err != nil {
				return err
			}
			h.renew(c.To)
			continue
		}
		for i := range s.e.pool.layers {
			l := &s.e.pool.layers[i]
			planes := l.Planes()
			if err := s.e.copyPlanes(l.Base, planes[:], l.Pages, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyPlanes copies one page in each of some planes of so many, one behind the other.
func (e *Engine) copyPlanes(at hip.Address, planes []int64, pages int, c cache.Copy) error {
	for _, n := range planes {
		from, to := at+hip.Address(n*int64(c.From)), at+hip.Address(n*int64(c.To))
		if err := e.m.stream.Copy(driver.Buffer{Address: to, Size: n}, driver.Buffer{Address: from, Size: n}, n); err != nil {
			return err
		}
		at += hip.Address(n * int64(pages))
	}
	return nil
}

// Advance makes n positions behind Len valid, which a pass writes.
func (s *state) Advance(n int64) {
	s.Table.Advance(n)
	if s.newest != nil {
		s.newest.Advance(n)
	}
}

// Rewind implements device.State.
func (s *state) Rewind(n int64) int64 {
	if s.e.kept.floats > 0 && n < s.Len() {
		n = 0
	}
	if s.newest != nil {
		n = s.newest.Back(n)
		s.newest.Rewind(n)
	}
	if n < s.Len() {
		s.past.cut(n)
	}
	s.Table.Rewind(n)
	s.told = min(s.told, n)
	if n == 0 {
		s.give()
	}
	return n
}

// Snapshot implements device.State.
func (s *state) Snapshot() (device.Snapshot, error) {
	place, err := s.copied()
	if err != nil {
		return nil, err
	}
	numbers, err := s.learnedNumbers()
	if err != nil {
		s.e.kept.places.Give(place)
		return nil, err
	}
	return &snapshot{s.Table.Fork(), s.newestFork(), s.e, place, s.past, numbers}, nil
}

// newestFork returns a fork of the table of the newest positions, nil where there is none.
func (s *state) newestFork() *cache.Table {
	if s.newest == nil {
		return nil
	}
	return s.newest.Fork()
}

// Restore implements device.State.
func (s *state) Restore(from device.Snapshot) error {
	f := from.(*snapshot)
	switch {
	case f.place < 0:
		s.give()
	case s.place < 0:
		var err error
		if s.place, err = s.e.kept.take(); err != nil {
			return err
		}
	}
	if f.place >= 0 {
		if err := s.e.copyMemory(s.place, f.place); err != nil {
			return err
		}
	}
	s.Table.Restore(f.Table)
	if s.newest != nil {
		s.newest.Restore(f.newest)
	}
	s.told, s.past = 0, f.past
	if f.numbers == nil {
		return nil
	}
	return upload(s.e, s.histories(), f.numbers)
}

// Fork implements device.State.
func (s *state) Fork() (device.State, error) {
	place, err := s.copied()
	if err != nil {
		return nil, err
	}
	f, err := s.e.newState(s.Table.Fork(), s.newestFork())
	if err != nil {
		s.e.kept.places.Give(place)
		return nil, err
	}
	to := f.(*state)
	to.place, to.past = place, s.past
	if s.past.learned {
		if err := s.e.m.stream.Copy(to.histories(), s.histories(), s.histories().Size); err != nil {
			f.Release()
			return nil, err
		}
	}
	return f, nil
}

// Release implements device.State.
func (s *state) Release() {
	s.Table.Release()
	s.newest.Release()
	s.give()
	s.e.pool.hosts.forget(s.slot)
	s.e.pool.idle = append(s.e.pool.idle, s.slot)
	s.e.pool.states[s.slot] = nil
}

// send brings the state's row of the device's table up to date.
func (s *state) send() error {
	if err := s.sendPlace(); err != nil {
		return err
	}
	row := int(s.slot) * s.e.pool.tablePages
	if err := s.sendPages(0, s.e.pool.hosts.placesOf(s.Pages()), row); err != nil || s.newest == nil {
		return err
	}
	return s.sendPages(1, s.newest.Pages(), row+s.e.pool.tablePages/2)
}

// sendPages brings one half of the row up to date, which begins at a number of the table.
func (s *state) sendPages(half int, pages []int32, at int) error {
	sent, same := s.sent[half], 0
	for same < len(pages) && same < len(sent) && (pages[same] == sent[same] || pages[same] == cache.Gone) {
		same++
	}
	news := pages[same:]
	s.sent[half] = append(sent[:same], news...)
	if len(news) == 0 {
		return nil
	}
	return upload(s.e, driver.Buffer{Address: s.e.pool.table + hip.Address(4*(at+same)), Size: 4 * int64(len(news))}, news)
}
