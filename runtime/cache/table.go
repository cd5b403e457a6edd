package cache

import (
	"fmt"

	"github.com/nstf/nstf/kernels/cpu"
)

// A Table is the pages of one sequence, in order.
type Table struct {
	pool     *Pages
	pages    []int32
	len      int64 // valid positions
	capacity int64
	// of a table of the newest positions:
	newest bool
	gone   int // pages from firstPages on to here are [Gone]
}

// Gone stands for a page that a table of the newest positions has given back.
const Gone = -1

// What a table of the newest positions keeps, beside the page that is being filled: those
// that rows see in half precision, and more whole ones, so that a sequence goes back by so
// many positions at least.
const (
	firstPages  = cpu.KVFirst
	newestPages = cpu.KVNewest
	sparePages  = 1
)

// NewestHeld returns how many pages a table of the newest positions holds of so many.
func NewestHeld(positions int64) int64 {
	n := (positions + PageSize - 1) / PageSize
	return n - max(positions/PageSize-newestPages-sparePages-firstPages, 0)
}

// NewestMost is a number of positions of which NewestHeld holds as many pages as of any.
const NewestMost = (firstPages+newestPages+sparePages+1)*PageSize - 1

// A Copy says that the content of a page belongs into another.
type Copy struct{ From, To int32 }

// NewTable returns the table of an empty sequence of up to capacity positions.
func (p *Pages) NewTable(capacity int64) *Table { return &Table{pool: p, capacity: capacity} }

// NewestTable returns a table of the newest positions, and of the first, of an empty
// sequence: the pages between are Gone. Its pages have PageSize positions.
func (p *Pages) NewestTable(capacity int64) *Table {
	return &Table{pool: p, capacity: capacity, newest: true, gone: firstPages}
}

// Len returns the number of valid positions.
func (t *Table) Len() int64 { return t.len }

// Capacity returns the number of positions that fit.
func (t *Table) Capacity() int64 { return t.capacity }

// Pages returns the pages in order. The caller must not change them; the next
// call on the table may.
func (t *Table) Pages() []int32 { return t.pages }

// Held returns how many pages there are that are not Gone.
func (t *Table) Held() int64 { return int64(len(t.pages) - max(t.gone-firstPages, 0)) }

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

// Advance makes n positions behind Len valid, which were reserved and written. A table of
// the newest positions gives back what no row sees that comes.
func (t *Table) Advance(n int64) {
	t.len += n
	to := t.firstHeld(t.len)
	for ; t.gone < to; t.gone++ {
		t.pool.release(t.pages[t.gone : t.gone+1])
		t.pages[t.gone] = Gone
	}
}

// firstHeld returns the first page behind firstPages that is held of so many positions.
func (t *Table) firstHeld(positions int64) int {
	if !t.newest {
		return 0
	}
	return int(positions)/t.pool.size - newestPages - sparePages
}

// Skip makes an empty table one of n positions. Of the newest positions it has the first
// pages and those from first on, which is what Advance has left, or one more where the
// sequence went back then; of another table first is 0. It fails as Reserve does, and where
// rows behind n see pages before first.
func (t *Table) Skip(n int64, first int) error {
	gone := max(t.firstHeld(n), t.gone)
	if first < gone || first > max(gone, int(n)/t.pool.size-newestPages) {
		return fmt.Errorf("cache: %d positions whose newest pages begin with page %d", n, first)
	}
	gone = first
	all := t.pool.pagesOf(n)
	fresh, err := t.pool.take(all - (gone - t.gone))
	if err != nil {
		return err
	}
	front := min(t.gone, all)
	t.pages = append(t.pages, fresh[:front]...)
	for ; t.gone < gone; t.gone++ {
		t.pages = append(t.pages, Gone)
	}
	t.pages = append(t.pages, fresh[front:]...)
	t.len = n
	return nil
}

// Back returns how many positions are left where a sequence is to go back to n: n, or what
// the first pages hold where a table of the newest positions lacks pages that rows behind
// n see.
func (t *Table) Back(n int64) int64 {
	if t.gone > firstPages && int(n)/t.pool.size-newestPages < t.gone {
		return min(n, int64(firstPages*t.pool.size))
	}
	return n
}

// Rewind forgets all positions from n on and gives their pages back. It panics
// where n is negative or beyond Len, or cannot be gone back to: see Back.
func (t *Table) Rewind(n int64) {
	if n < 0 || n > t.len || t.Back(n) != n {
		panic(fmt.Sprintf("cache: rewind to %d of %d positions", n, t.len))
	}
	t.len = n
	t.cut(t.pool.pagesOf(n))
}

// cut keeps the first pages.
func (t *Table) cut(keep int) {
	t.pool.release(t.pages[keep:])
	t.pages = t.pages[:keep]
	if t.newest && keep <= firstPages {
		t.gone = firstPages
	}
}

// Release gives all pages back; the table, which may be nil, is empty then.
func (t *Table) Release() {
	if t == nil {
		return
	}
	t.len = 0
	t.cut(0)
}

// Fork returns a table of the same positions, which shares the pages.
func (t *Table) Fork() *Table {
	f := &Table{pool: t.pool, pages: append([]int32(nil), t.pages[:t.pool.pagesOf(t.len)]...), len: t.len, capacity: t.capacity, newest: t.newest, gone: t.gone}
	t.pool.retain(f.pages)
	return f
}

// Restore makes the table one of the same positions as another, a fork of it or
// of its sequence, which stays as it is.
func (t *Table) Restore(from *Table) {
	f := from.Fork()
	t.cut(0)
	t.pages, t.len, t.gone = f.pages, f.len, f.gone
}
