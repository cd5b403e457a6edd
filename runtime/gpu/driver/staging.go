package driver

import "sync"

// Staging buffers are pinned: the device copies from one while the next is
// being filled, and the source may be pages of a file that are not in memory
// yet. Large ones for weights, small ones so that a few bytes do not occupy a
// large one until the stream has come to them.
const (
	largeSlot, largeSlots = 4 << 20, 4
	smallSlot, smallSlots = 64 << 10, 16
)

// staging hands out slots.
type staging struct {
	device       *Device
	large, small chan *slot
}

// A slot is one staging buffer, allocated when it is first used.
type slot struct {
	size   int64
	pinned *Pinned
	event  *Event // behind the last copy from it
	busy   bool   // event was recorded and not yet waited for
	home   chan *slot
	fill   sync.Once
	err    error
}

func newStaging(d *Device) *staging {
	s := &staging{device: d, large: make(chan *slot, largeSlots), small: make(chan *slot, smallSlots)}
	for range largeSlots {
		s.large <- &slot{size: largeSlot, home: s.large}
	}
	for range smallSlots {
		s.small <- &slot{size: smallSlot, home: s.small}
	}
	return s
}

// take waits for a slot that fits n bytes, or as many as a large one holds.
func (s *staging) take(n int64) (*slot, error) {
	from := s.large
	if n <= smallSlot {
		from = s.small
	}
	t := <-from
	t.fill.Do(func() {
		if t.pinned, t.err = s.device.Pinned(t.size); t.err == nil {
			t.event, t.err = s.device.Event()
		}
	})
	err := t.err
	if err == nil && t.busy {
		err = t.event.done.wait() // whoever's upload failed is told by the stream
		t.busy = false
	}
	if err != nil {
		t.give()
		return nil, err
	}
	return t, nil
}

// give returns a slot.
func (t *slot) give() { t.home <- t }
