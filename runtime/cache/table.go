package cache

import "fmt"

// A Table is the pages of one sequence, in order.
type Table struct {
	pool     *Pages
	pages    []int32
	len      int64 // valid positions
	capacity int64
}

// A Copy says that the content of a page belongs into another.
type Copy struct{ From, To int32 }

// NewTable returns the table of an empty sequence of up to capacity positions.
func (p *Pages) NewTable(capacity int64) *Table { return &Table{pool: p, capacity: capacity} }

// Len returns the number of valid positions.
func (t *Table) Len() int64 { return t.len }

// Capacity returns the number of positions that fit.
func (t *Table) Capacity() int64 { return t.capacity }

// Pages returns the pages in order. The caller must not change them; the next
// call on the table may.
func (t *Table) Pages() []int32 { return t.pages }

// Reserve makes positions [Len, n) writable: pages are taken from the pool, and
// shared ones among them are replaced by pages of the table's own, whose content
// the caller copies before anything is written. Where the pool has too few it
// fails with a [FullError], and nothing has changed. It panics where n lies
// beyond the capacity.
func (t *Table) Reserve(n int64) ([]Copy, error) {
	if n < t.len || n > t.capacity {
		panic(fmt.Sprintf("cache: %d positions reserved behind %d of a capacity of %d", n, t.len, t.capacity))
	}
	if n == t.len {
		return nil, nil
	}
	first, have := int(t.len)/t.pool.size, len(t.pages)
	var shared []int // places of pages that others hold too
	for i := first; i < have; i++ {
		if t.pool.shared(t.pages[i]) {
			shared = append(shared, i)
		}
	}
	more := max(t.pool.pagesOf(n)-have, 0)
	if more+len(shared) == 0 {
		return nil, nil
	}
	fresh, err := t.pool.take(more + len(shared))
	if err != nil {
		return nil, err
	}
	var copies []Copy
	for i, at := range shared {
		old := t.pages[at]
		if at == first && t.len%int64(t.pool.size) != 0 { // it holds positions that are kept
			copies = append(copies, Copy{old, fresh[i]})
		}
		t.pages[at] = fresh[i]
		t.pool.release([]int32{old})
	}
	t.pages = append(t.pages, fresh[len(shared):]...)
	return copies, nil
}

// Advance makes n positions behind Len valid, which were reserved and written.
func (t *Table) Advance(n int64) { t.len += n }

// Rewind forgets all positions from n on and gives their pages back. It panics
// where n is negative or beyond Len.
func (t *Table) Rewind(n int64) {
	if n < 0 || n > t.len {
		panic(fmt.Sprintf("cache: rewind to %d of %d positions", n, t.len))
	}
	t.len = n
	t.cut(t.pool.pagesOf(n))
}

// cut keeps the first pages.
func (t *Table) cut(keep int) {
	t.pool.release(t.pages[keep:])
	t.pages = t.pages[:keep]
}

// Release gives all pages back; the table is empty then.
func (t *Table) Release() { t.Rewind(0) }

// Fork returns a table of the same positions, which shares the pages.
func (t *Table) Fork() *Table {
	f := &Table{pool: t.pool, pages: append([]int32(nil), t.pages[:t.pool.pagesOf(t.len)]...), len: t.len, capacity: t.capacity}
	t.pool.retain(f.pages)
	return f
}

// Restore makes the table one of the same positions as another, a fork of it or
// of its sequence, which stays as it is.
func (t *Table) Restore(from *Table) {
	f := from.Fork()
	t.cut(0)
	t.pages, t.len = f.pages, f.len
}
