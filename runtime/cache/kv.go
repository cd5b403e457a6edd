package cache

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/nstf/nstf/kernels/cpu"
)

// PageSize is the positions of a page.
const PageSize = cpu.KVPositions

// A Layer is the shape of one layer's keys and values: heads, numbers of a key and
// of a value of each, and how they are stored.
type Layer struct {
	KVHeads, HeadDim, ValueDim int
	Format                     cpu.KVFormat
}

// A Store is the memory of a pool's pages: each is made when it is first used.
type Store struct {
	pool   *Pages
	set    *cpu.Set
	layers []Layer
	pages  [][][]cpu.KVBlock // [page][layer][head]
	newest *Store            // of layers that are kept in codes: see newestLayers; nil: there are none
}

// A KV is the keys and values of all layers for one sequence.
type KV struct {
	*Table
	store  *Store
	blocks [][][]cpu.KVBlock // [layer][head], of the table's pages in order
	filled []int32           // the pages that blocks has
	newest *KV               // the newest positions and the first in half precision; nil: none are kept so
}

// newestLayers are the layers of what is kept of the newest positions and of the first:
// those in codes in half precision, turned as the codes are, others without heads; nil
// where no layer is in codes.
func newestLayers(layers []Layer) []Layer {
	var newest []Layer
	for i, l := range layers {
		if !l.Format.Coded() {
			continue
		}
		if newest == nil {
			newest = make([]Layer, len(layers))
		}
		l.Format = cpu.KVF16
		newest[i] = l
	}
	return newest
}

// Bytes returns the size of the keys and values of the given number of positions, rounded
// up to pages, or an error where an int64 does not hold it.
func Bytes(layers []Layer, positions int64) (int64, error) {
	n, err := bytesOf(layers, positions)
	if newest := newestLayers(layers); newest != nil && err == nil {
		var more int64
		if more, err = bytesOf(newest, NewestHeld(positions)*PageSize); more > math.MaxInt64-n {
			return 0, fmt.Errorf("a cache of %d positions is larger than 2^63 bytes", positions)
		}
		n += more
	}
	return n, err
}

func bytesOf(layers []Layer, positions int64) (int64, error) {
	var perPage uint64
	for _, l := range layers {
		hi, page := uint64(1), uint64(0)
		if max(l.HeadDim, l.ValueDim) <= math.MaxInt32 {
			hi, page = bits.Mul64(uint64(l.KVHeads), uint64(l.Format.BlockBytes(l.HeadDim, l.ValueDim)))
		}
		if hi != 0 || perPage+page < page {
			return 0, fmt.Errorf("a cache of %d key-value heads of %d numbers does not fit memory", l.KVHeads, max(l.HeadDim, l.ValueDim))
		}
		perPage += page
	}
	if positions < 0 || positions > math.MaxInt64-PageSize {
		return 0, fmt.Errorf("a cache of %d positions makes no sense", positions)
	}
	hi, n := bits.Mul64(perPage, uint64((positions+PageSize-1)/PageSize))
	if hi != 0 || n > math.MaxInt64 {
		return 0, fmt.Errorf("a cache of %d positions is larger than 2^63 bytes", positions)
	}
	return int64(n), nil
}

// NewStore returns the memory of a pool of so many pages; set stores what is put
// into it. It fails where the number of bytes overflows; memory is taken later,
// page by page.
func NewStore(set *cpu.Set, layers []Layer, pages int64) (*Store, error) {
	n, err := Bytes(layers, pages*PageSize)
	if err != nil {
		return nil, err
	}
	if n > math.MaxInt {
		return nil, fmt.Errorf("a cache of %d pages (%d bytes) exceeds the address space", pages, n)
	}
	s := &Store{pool: NewPages(pages, PageSize), set: set, layers: layers}
	if newest := newestLayers(layers); newest != nil {
		// A table has fewer of these than of the others: they are never used up first.
		s.newest = &Store{pool: NewPages(pages, PageSize), set: set, layers: newest}
	}
	return s, nil
}

// Pool returns the store's pages.
func (s *Store) Pool() *Pages { return s.pool }

// Onward reports whether sequences keep something of their newest positions alone: see
// [KV.Back].
func (s *Store) Onward() bool { return s.newest != nil }

// New returns the keys and values of an empty sequence of up to capacity
// positions.
func (s *Store) New(capacity int64) *KV {
	c := s.of(s.pool.NewTable(capacity))
	if s.newest != nil {
		c.newest = s.newest.of(s.newest.pool.NewestTable(capacity))
	}
	return c
}

func (s *Store) of(t *Table) *KV {
	c := &KV{Table: t, store: s, blocks: make([][][]cpu.KVBlock, len(s.layers))}
	for i, l := range s.layers {
		c.blocks[i] = make([][]cpu.KVBlock, l.KVHeads)
	}
	return c
}

// page returns the blocks of a page.
func (s *Store) page(n int32) [][]cpu.KVBlock {
	for int(n) >= len(s.pages) {
		s.pages = append(s.pages, nil)
	}
	if s.pages[n] == nil {
		s.pages[n] = make([][]cpu.KVBlock, len(s.layers))
		for i, l := range s.layers {
			s.pages[n][i] = cpu.NewKVBlocks(l.Format, l.KVHeads, l.HeadDim, l.ValueDim)
		}
	}
	return s.pages[n]
}

// Bytes returns the memory of the pages held.
func (c *KV) Bytes() int64 {
	n, err := bytesOf(c.store.layers, c.Held()*PageSize)
	if err != nil {
		panic(err) // NewStore has computed a larger one
	}
	if c.newest != nil {
		n += c.newest.Bytes()
	}
	return n
}

// Reserve is [Table.Reserve] with the copies made.
func (c *KV) Reserve(n int64) error {
	if c.newest != nil {
		if err := c.newest.Reserve(n); err != nil {
			return err
		}
	}
	copies, err := c.Table.Reserve(n)
	if err != nil {
		if c.newest != nil {
			c.newest.Rewind(c.Len())
		}
		return err
	}
	for _, p := range copies {
		from, to := c.store.page(p.From), c.store.page(p.To)
		for layer := range from {
			for h := range from[layer] {
				to[layer][h].Copy(&from[layer][h])
			}
		}
	}
	c.fill()
	return nil
}

// Advance is [Table.Advance].
func (c *KV) Advance(n int64) {
	c.Table.Advance(n)
	if c.newest != nil {
		c.newest.Advance(n)
	}
}

// Back is [Table.Back] of the newest positions.
func (c *KV) Back(n int64) int64 {
	if c.newest == nil {
		return n
	}
	return c.newest.Table.Back(n)
}

// Rewind is [Table.Rewind].
func (c *KV) Rewind(n int64) {
	c.Table.Rewind(n)
	if c.newest != nil {
		c.newest.Rewind(n)
	}
}

// Release is [Table.Release].
func (c *KV) Release() {
	c.Table.Release()
	if c.newest != nil {
		c.newest.Release()
	}
}

// Fork returns the same positions for another sequence.
func (c *KV) Fork() *KV {
	f := c.store.of(c.Table.Fork())
	f.fill()
	if c.newest != nil {
		f.newest = c.newest.Fork()
	}
	return f
}

// Restore is [Table.Restore].
func (c *KV) Restore(from *KV) {
	c.Table.Restore(from.Table)
	c.fill()
	if c.newest != nil {
		c.newest.Restore(from.newest)
	}
}

// fill brings the blocks up to date with the table; those of pages that are Gone are
// anything.
func (c *KV) fill() {
	pages, same := c.Pages(), 0
	for same < len(pages) && same < len(c.filled) && (pages[same] == c.filled[same] || pages[same] == Gone) {
		same++
	}
	c.filled = append(c.filled[:same], pages[same:]...)
	for i := range c.blocks {
		for h := range c.blocks[i] {
			c.blocks[i][h] = c.blocks[i][h][:same]
		}
	}
	for _, n := range pages[same:] {
		for i := range c.blocks {
			for h := range c.blocks[i] {
				var b cpu.KVBlock
				if n != Gone {
					b = c.store.page(n)[i][h]
				}
				c.blocks[i][h] = append(c.blocks[i][h], b)
			}
		}
	}
}

// Put stores one position of a layer: key and value hold KVHeads*HeadDim and
// KVHeads*ValueDim numbers. Reserve has made room for it.
func (c *KV) Put(layer int, pos int64, key, value []float32) {
	l, s := &c.store.layers[layer], c.store
	d, v := l.HeadDim, l.ValueDim
	for h, blocks := range c.blocks[layer] {
		s.set.StoreKV(l.Format, &blocks[pos/PageSize], int(pos%PageSize), key[h*d:(h+1)*d], value[h*v:(h+1)*v])
		if l.Format.Coded() {
			s.set.StoreTurned(l.Format, &c.newest.blocks[layer][h][pos/PageSize], int(pos%PageSize), key[h*d:(h+1)*d], value[h*v:(h+1)*v])
		}
	}
}

// Newest returns the pages of one head that are in half precision, turned as its codes are:
// of the first positions and of the newest, as the caller's Blocks; nil where the layer is
// not kept in codes.
func (c *KV) Newest(layer, head int) []cpu.KVBlock {
	if !c.store.layers[layer].Format.Coded() {
		return nil
	}
	return c.newest.blocks[layer][head]
}

// Blocks returns the pages of one head, the first of which begins at position
// 0. Rows that were not written hold anything. The next Reserve may
// replace the slice.
func (c *KV) Blocks(layer, head int) []cpu.KVBlock { return c.blocks[layer][head] }

// PageBytes returns what [KV.AppendPage] writes.
func (c *KV) PageBytes() int {
	n, err := bytesOf(c.store.layers, PageSize)
	if err != nil {
		panic(err) // NewStore has computed a larger one
	}
	return int(n)
}

// AppendNewest appends which page is the first of the newest that are in half precision,
// and the content of the first pages and of those.
func (c *KV) AppendNewest(dst []byte) []byte {
	if c.newest == nil {
		return dst
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(c.newest.gone))
	for i, page := range c.newest.Pages() {
		if page != Gone {
			dst = c.newest.AppendPage(dst, i)
		}
	}
	return dst
}

// LoadNewest makes an empty sequence one of n positions, of which it takes over what
// AppendNewest wrote; it returns what follows. Who loads it sets the pages of codes.
func (c *KV) LoadNewest(n int64, src []byte) ([]byte, error) {
	if err := c.Table.Skip(n, 0); err != nil {
		return nil, err
	}
	c.fill()
	if c.newest == nil {
		return src, nil
	}
	if len(src) < 4 {
		return nil, fmt.Errorf("cache: the newest positions are cut short")
	}
	first := binary.LittleEndian.Uint32(src)
	src = src[4:]
	if err := c.newest.Table.Skip(n, int(first)); err != nil {
		return nil, err
	}
	c.newest.fill()
	for i, page := range c.newest.Pages() {
		if page == Gone {
			continue
		}
		if len(src) < c.newest.PageBytes() {
			return nil, fmt.Errorf("cache: the newest positions are cut short")
		}
		c.newest.SetPage(i, src)
		src = src[c.newest.PageBytes():]
	}
	return src, nil
}

// AppendPage appends the content of a page of the sequence, by layer and head.
func (c *KV) AppendPage(dst []byte, page int) []byte {
	dst = slices.Grow(dst, c.PageBytes())
	for _, heads := range c.blocks {
		for h := range heads {
			dst = heads[h][page].AppendTo(dst)
		}
	}
	return dst
}

// SetPage takes over what AppendPage wrote, PageBytes of it. The page is the sequence's
// own: Reserve has made room for it.
func (c *KV) SetPage(page int, src []byte) {
	for _, heads := range c.blocks {
		for h := range heads {
			src = heads[h][page].Set(src)
		}
	}
}
