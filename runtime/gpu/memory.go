package gpu

import (
	"fmt"

	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/cache"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// memories are the places of what sequences remember beside their pages, of one size
// each, planned when the engine is made: states and snapshots have one each from
// their first position on.
type memories struct {
	floats int64 // of a place; 0: the span remembers nothing so
	count  int
	places *cache.Places
	buffer driver.Buffer
	table  hip.Address // i32 [slots]: the place of each state, kept in step by state.send
}

// memoriesOf counts what the blocks of a span remember. A sequence is kept as it was
// once.
func memoriesOf(g *graph.Graph, span device.Span, o *Options) memories {
	var m memories
	for _, b := range g.Blocks[span.Lo:span.Hi] {
		m.floats += b.Memory()
	}
	m.count = max(o.Places, 2*max(o.Sequences, 1)) + 1
	m.places = cache.NewPlaces(m.count)
	return m
}

// bytes is the memory of one place, all that of all of them.
func (m *memories) bytes() int64 { return 4 * m.floats }
func (m *memories) all() int64   { return m.bytes() * int64(m.count) }

// check refuses what no device has.
func (m *memories) check() error {
	if m.floats > 1<<40/int64(m.count) {
		return fmt.Errorf("%d places of %d numbers are larger than 2^42 bytes", m.count, m.floats)
	}
	return nil
}

// makeMemories takes the memory of all places.
func (e *Engine) makeMemories() (err error) {
	if e.kept.floats > 0 {
		e.kept.buffer, err = e.m.alloc(e.kept.all())
	}
	return err
}

// take returns a place, whose numbers are anything; -1 where none are needed.
func (m *memories) take() (int32, error) {
	if m.floats == 0 {
		return -1, nil
	}
	return m.places.Take()
}

func (s *state) give() {
	s.e.kept.places.Give(s.place)
	s.place = -1
}

// copied returns another place with what the state remembers, -1 where that is
// nothing.
func (s *state) copied() (int32, error) {
	if s.Len() == 0 {
		return -1, nil
	}
	place, err := s.e.kept.take()
	if err != nil || place < 0 {
		return -1, err
	}
	if err := s.e.copyMemory(place, s.place); err != nil {
		s.e.kept.places.Give(place)
		return -1, err
	}
	return place, nil
}

func (e *Engine) copyMemory(to, from int32) error {
	n := e.kept.bytes()
	at := func(place int32) driver.Buffer { return e.kept.buffer.At(int64(place)*n, n) }
	return e.m.stream.Copy(at(to), at(from), n)
}

// sendPlace tells the device the state's place.
func (s *state) sendPlace() error {
	if s.place < 0 || s.place == s.placed {
		return nil
	}
	s.placed = s.place
	return upload(s.e, driver.Buffer{Address: at(s.e.kept.table, int(s.slot), 1), Size: 4}, []int32{s.place})
}

// A snapshot is a state that was kept.
type snapshot struct {
	*cache.Table
	newest  *cache.Table
	e       *Engine
	place   int32
	past    past
	numbers []float32 // of histories, nil: there are none
}

// Release implements device.Snapshot.
func (s *snapshot) Release() {
	s.Table.Release()
	s.newest.Release()
	s.e.kept.places.Give(s.place)
	s.place = -1
}
