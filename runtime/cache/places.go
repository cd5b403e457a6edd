package cache

import "sync"

// Places is a pool of numbered memories of one size: what sequences of a
// recurrent model remember beside their pages, which nobody shares. It is safe
// for concurrent use.
type Places struct {
	limit int
	mu    sync.Mutex
	taken int     // numbers that were ever given
	free  []int32 // of those, the next to give last
}

// NewPlaces returns a pool of n free places.
func NewPlaces(n int) *Places { return &Places{limit: n} }

// Len returns the places of the pool.
func (p *Places) Len() int { return p.limit }

// Free returns how many places nobody holds.
func (p *Places) Free() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limit - p.taken + len(p.free)
}

// Take gives out a place, or fails with a [FullError].
func (p *Places) Take() (int32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.free) - 1; last >= 0 {
		n := p.free[last]
		p.free = p.free[:last]
		return n, nil
	}
	if p.taken >= p.limit {
		return -1, &FullError{States: int64(p.limit)}
	}
	p.taken++
	return int32(p.taken - 1), nil
}

// Give takes a place back; -1 is none.
func (p *Places) Give(n int32) {
	if n < 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, n)
}
