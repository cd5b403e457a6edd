// Package cache keeps what sequences remember. [Pages] and [Table] are the
// bookkeeping that all backends share: which pages of a pool hold the keys and
// values of a sequence, in which order, and who else reads them. [KV] is the
// processor's memory behind it. [Places] are the same for what is not kept by
// position.
//
// A pool has a fixed number of pages, planned when a model is opened. Sequences
// that begin alike share pages: a table that is about to write to a page which
// another holds gets one of its own first ([Table.Reserve] says which to copy).
//
// Invariants: positions [0, Len) of a table are valid; those behind may be
// written by the pass in progress and become valid with Advance. Pages return
// to the pool by Release, Rewind and Restore, never by garbage collection. Pages
// is safe for concurrent use; a table is used by one goroutine at a time. Layers
// with a sliding window keep all positions, so that Rewind goes back to any.
//
// Compatibility: in memory only, no promise about the layout.
package cache

import (
	"fmt"
	"math"
	"sync"
)

// A FullError says that a pool has no page left, or no place. Nothing has changed.
type FullError struct {
	Pages  int64 // of the pool
	Size   int   // positions of each
	States int64 // places of the pool that is full; 0: it is one of pages
}

// Error implements error.
func (e *FullError) Error() string {
	if e.States > 0 {
		return fmt.Sprintf("the memory for recurrent states is full: all %d are in use", e.States)
	}
	return fmt.Sprintf("the memory for keys and values is full: all %d positions of the sequences are in use", e.Pages*int64(e.Size))
}

// A PlacesError says that a device has no place for another sequence.
type PlacesError struct{ Places int } // that it has

// Error implements error.
func (e *PlacesError) Error() string {
	return fmt.Sprintf("the device has places for %d sequences, and all are in use", e.Places)
}

// Pages is a pool: numbers of pages, and how many tables hold each.
type Pages struct {
	limit int64 // pages in all, at most 2^31-1
	size  int   // positions of a page
	mu    sync.Mutex
	refs  []int32 // of the pages that were ever taken
	free  []int32 // of those, the next to give last
}

// NewPages returns a pool of n free pages of so many positions.
func NewPages(n int64, size int) *Pages { return &Pages{limit: min(n, math.MaxInt32), size: size} }

// Len returns the pages of the pool.
func (p *Pages) Len() int64 { return p.limit }

// Free returns how many pages nobody holds.
func (p *Pages) Free() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left()
}

// Holders appends how many tables hold each page that was ever taken, the others follow those.
func (p *Pages) Holders(dst []int32) []int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append(dst, p.refs...)
}

func (p *Pages) left() int64 { return p.limit - int64(len(p.refs)) + int64(len(p.free)) }

// take gives out n pages, or none.
func (p *Pages) take(n int) ([]int32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if int64(n) > p.left() {
		return nil, &FullError{Pages: p.limit, Size: p.size}
	}
	var out []int32
	for ; n > 0; n-- {
		last := len(p.free) - 1
		if last < 0 {
			p.refs, out = append(p.refs, 1), append(out, int32(len(p.refs)))
			continue
		}
		page := p.free[last]
		p.free, p.refs[page] = p.free[:last], 1
		out = append(out, page)
	}
	return out, nil
}

func (p *Pages) retain(pages []int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, page := range pages {
		if page != Gone {
			p.refs[page]++
		}
	}
}

func (p *Pages) release(pages []int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, page := range pages {
		if page == Gone {
			continue
		}
		if p.refs[page]--; p.refs[page] == 0 {
			p.free = append(p.free, page)
		}
	}
}

func (p *Pages) shared(page int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refs[page] > 1
}

// pagesOf returns the pages of so many positions.
func (p *Pages) pagesOf(positions int64) int {
	return int((positions + int64(p.size) - 1) / int64(p.size))
}
