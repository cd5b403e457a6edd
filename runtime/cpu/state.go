package cpu

import (
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/runtime/cache"
	"github.com/nstf/nstf/runtime/device"
)

// A state is what a sequence remembers: keys and values by page, and one place
// for all that recurrent mixers remember, which a sequence without positions lacks. A
// snapshot is a state as well.
type state struct {
	*cache.KV
	m     *memories
	place int32 // -1: none
	past  *past // nil: no policy of attention wants to know
}

var _ device.State = (*state)(nil)

// memories are the places of all sequences, each of so many numbers: made when it
// is first used.
type memories struct {
	size   int
	places *cache.Places
	of     [][]float32
}

// mostMemory bounds the numbers that a sequence remembers beside keys and values.
const mostMemory = 1 << 34

// newMemories counts what the blocks of a span remember.
func newMemories(g *graph.Graph, span device.Span, places int) (*memories, error) {
	m := &memories{places: cache.NewPlaces(places)}
	for i := span.Lo; i < span.Hi; i++ {
		n := g.Blocks[i].Memory()
		if n > mostMemory-int64(m.size) {
			return nil, formats.Unsupportedf("", "", "a sequence that remembers more than %d numbers", int64(mostMemory))
		}
		m.size += int(n)
	}
	return m, nil
}

func (m *memories) bytes() int64 { return 4 * int64(m.size) }

// take returns a place, whose numbers are anything; -1 where none are needed.
func (m *memories) take() (int32, error) {
	if m.size == 0 {
		return -1, nil
	}
	n, err := m.places.Take()
	if err != nil {
		return -1, err
	}
	for int(n) >= len(m.of) {
		m.of = append(m.of, nil)
	}
	if m.of[n] == nil {
		m.of[n] = make([]float32, m.size)
	}
	return n, nil
}

// numbers returns those of a place.
func (s *state) numbers() []float32 { return s.m.of[s.place] }

// matrix returns S of a head, of which the first begins at a number.
func (s *state) matrix(at, head int, size int64) []float32 {
	lo := at + head*int(size)
	return s.numbers()[lo : lo+int(size)]
}

// Bytes implements device.State.
func (s *state) Bytes() int64 {
	n := s.KV.Bytes()
	if s.place >= 0 {
		n += s.m.bytes()
	}
	return n + s.past.bytes(int64(len(s.Pages()))*cache.PageSize)
}

// Reserve implements device.State.
func (s *state) Reserve(n int64) error {
	fresh := s.place < 0 && n > 0
	if fresh {
		var err error
		if s.place, err = s.m.take(); err != nil {
			return err
		}
	}
	err := s.KV.Reserve(n)
	switch {
	case err != nil && fresh:
		s.give()
	case fresh && s.place >= 0:
		clear(s.numbers())
	}
	return err
}

func (s *state) give() {
	s.m.places.Give(s.place)
	s.place = -1
}

// Rewind implements device.State. What recurrent mixers remember is of all positions
// or none; of keys and values in codes the newest are remembered alone.
func (s *state) Rewind(n int64) int64 {
	if s.m.size > 0 && n < s.Len() {
		n = 0
	}
	n = s.Back(n)
	if n < s.Len() {
		s.past.cut(n)
	}
	s.KV.Rewind(n)
	if n == 0 {
		s.give()
	}
	return n
}

// copied returns another state of the same positions.
func (s *state) copied() (*state, error) {
	c := &state{m: s.m, place: -1}
	if s.Len() > 0 {
		var err error
		if c.place, err = s.m.take(); err != nil {
			return nil, err
		}
		if c.place >= 0 {
			copy(c.numbers(), s.numbers())
		}
	}
	c.KV, c.past = s.KV.Fork(), s.past.clone()
	return c, nil
}

// Snapshot implements device.State.
func (s *state) Snapshot() (device.Snapshot, error) { return s.copied() }

// Restore implements device.State.
func (s *state) Restore(from device.Snapshot) error {
	f := from.(*state)
	switch {
	case f.place < 0:
		s.give()
	case s.place < 0:
		var err error
		if s.place, err = s.m.take(); err != nil {
			return err
		}
	}
	if f.place >= 0 {
		copy(s.numbers(), f.numbers())
	}
	s.KV.Restore(f.KV)
	s.past = f.past.clone()
	return nil
}

// Fork implements device.State.
func (s *state) Fork() (device.State, error) { return s.copied() }

// Release implements device.State.
func (s *state) Release() {
	s.KV.Release()
	s.past.cut(0)
	s.give()
}
