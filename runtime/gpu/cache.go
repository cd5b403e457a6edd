package gpu

import (
	"fmt"

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
// Page i is the i-th in every layer's [hip.KV]. All of it is planned when the
// engine is made, so that no address changes.
type pool struct {
	pages  *cache.Pages
	layers []hip.KV
	buffer driver.Buffer
	// table is which page holds what, i32 [slots][tablePages]: a row for each
	// state, kept in step by state.send.
	// The ropes that depend on a sequence's length have their frequencies by slot too.
	table      hip.Address
	tablePages int
	idle       []int32 // slots that nobody holds, the next to give last
}

// placesOf returns how many states an engine has places for: there are forks, and
// sequences that begin before others end.
func placesOf(o *Options) int {
	if o.Places > 0 {
		return o.Places
	}
	return 2*max(o.Sequences, 1) + 6
}

// A state is what one sequence remembers.
type state struct {
	*cache.Table
	e       *Engine
	slot    int32
	place   int32    // of what is kept beside pages; -1: none
	placed  int32    // the place that the device knows
	sent    []int32  // pages that the device's table holds
	regimes []int64  // of each rope, for which the device has frequencies; -1: none
	told    int64    // positions whose tokens the device's history holds
	sampler settings // that the device has for the slot
}

var _ device.State = (*state)(nil)

// cacheLayers are the shapes of the layers of a span that have keys and values of
// their own, without memory.
func cacheLayers(g *graph.Graph, span device.Span, kept cpu.KVFormats) []hip.KV {
	var layers []hip.KV
	for i := span.Lo; i < span.Hi; i++ {
		if kv, own := kvOf(&g.Blocks[i], kept.Of(i)); own {
			layers = append(layers, kv)
		}
	}
	return layers
}

// pageBytes is what one page takes in all layers.
func pageBytes(layers []hip.KV) (n int64) {
	for i := range layers {
		n += layers[i].PageBytes()
	}
	return n
}

// placePages gives the layers their memory: so many pages from an arena on.
func placePages(layers []hip.KV, pages int, a *arena) {
	for i := range layers {
		layers[i].Pages = pages
		layers[i].Base = a.take(layers[i].Bytes())
	}
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
func (e *Engine) makePool(layers []hip.KV) (err error) {
	p := &e.pool
	pages := int(e.plan.Pages)
	p.layers, p.pages = layers, cache.NewPages(int64(pages), PageSize)
	if p.buffer, err = e.m.alloc(pageBytes(layers) * int64(pages)); err != nil {
		return err
	}
	placePages(p.layers, pages, &arena{base: p.buffer.Address})
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
	return e.newState(e.pool.pages.NewTable(capacity))
}

func (e *Engine) newState(t *cache.Table) (device.State, error) {
	p := &e.pool
	last := len(p.idle) - 1
	if last < 0 {
		t.Release()
		return nil, &cache.PlacesError{Places: e.s.chooser.slots}
	}
	s := &state{Table: t, e: e, slot: p.idle[last], place: -1, placed: -1, regimes: make([]int64, len(e.ropes))}
	for i := range s.regimes {
		s.regimes[i] = -1
	}
	p.idle = p.idle[:last]
	return s, nil
}

// Room implements device.Stage.
func (e *Engine) Room() device.Room {
	p := &e.pool
	r := device.Room{PageSize: PageSize, Pages: p.pages.Len(), Free: p.pages.Free(), Places: e.s.chooser.slots, Idle: len(p.idle)}
	if e.kept.floats > 0 { // states, and what is kept of them
		r.Places, r.Idle = min(r.Places, e.kept.places.Len()), min(r.Idle, e.kept.places.Free())
	}
	return r
}

// StateBytes implements device.Stage.
func (e *Engine) StateBytes(positions int64) (int64, error) {
	n, err := cacheBytes(e.pool.layers, positions)
	if positions > 0 {
		n += e.kept.bytes()
	}
	return n, err
}

// Bytes implements device.State.
func (s *state) Bytes() int64 {
	n := int64(len(s.Pages())) * pageBytes(s.e.pool.layers)
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
	copies, err := s.Table.Reserve(n)
	if err != nil {
		if fresh {
			s.give()
		}
		return err
	}
	for _, c := range copies {
		for i := range s.e.pool.layers {
			if err := s.e.copyPage(&s.e.pool.layers[i], c); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyPage copies one page of a layer.
func (e *Engine) copyPage(l *hip.KV, c cache.Copy) error {
	at := l.Base
	for _, n := range l.Planes() {
		from, to := at+hip.Address(n*int64(c.From)), at+hip.Address(n*int64(c.To))
		if err := e.m.stream.Copy(driver.Buffer{Address: to, Size: n}, driver.Buffer{Address: from, Size: n}, n); err != nil {
			return err
		}
		at += hip.Address(n * int64(l.Pages))
	}
	return nil
}

// Rewind implements device.State.
func (s *state) Rewind(n int64) int64 {
	if s.e.kept.floats > 0 && n < s.Len() {
		n = 0
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
	return &snapshot{s.Table.Fork(), s.e, place}, nil
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
	s.told = 0
	return nil
}

// Fork implements device.State.
func (s *state) Fork() (device.State, error) {
	place, err := s.copied()
	if err != nil {
		return nil, err
	}
	f, err := s.e.newState(s.Table.Fork())
	if err != nil {
		s.e.kept.places.Give(place)
		return nil, err
	}
	f.(*state).place = place
	return f, nil
}

// Release implements device.State.
func (s *state) Release() {
	s.Table.Release()
	s.give()
	s.e.pool.idle = append(s.e.pool.idle, s.slot)
}

// send brings the state's row of the device's table up to date.
func (s *state) send() error {
	if err := s.sendPlace(); err != nil {
		return err
	}
	pages, same := s.Pages(), 0
	for same < len(pages) && same < len(s.sent) && pages[same] == s.sent[same] {
		same++
	}
	news := pages[same:]
	s.sent = append(s.sent[:same], news...)
	if len(news) == 0 {
		return nil
	}
	row := at(s.e.pool.table, int(s.slot)*s.e.pool.tablePages+same, 1)
	return upload(s.e, driver.Buffer{Address: row, Size: 4 * int64(len(news))}, news)
}
