package cache

import (
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
}

// A KV is the keys and values of all layers for one sequence.
type KV struct {
	*Table
	store  *Store
	blocks [][][]cpu.KVBlock // [layer][head], of the table's pages in order
	filled []int32           // the pages that blocks has
}

// Bytes returns the size of the keys and values of the given number of positions, rounded
// up to pages, or an error where an int64 does not hold it.
func Bytes(layers []Layer, positions int64) (int64, error) {
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
	return &Store{pool: NewPages(pages, PageSize), set: set, layers: layers}, nil
}

// Pool returns the store's pages.
func (s *Store) Pool() *Pages { return s.pool }

// New returns the keys and values of an empty sequence of up to capacity
// positions.
func (s *Store) New(capacity int64) *KV { return s.of(s.pool.NewTable(capacity)) }

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
	n, err := Bytes(c.store.layers, int64(len(c.Pages()))*PageSize)
	if err != nil {
		panic(err) // NewStore has computed a larger one
	}
	return n
}

// Reserve is [Table.Reserve] with the copies made.
func (c *KV) Reserve(n int64) error {
	copies, err := c.Table.Reserve(n)
	if err != nil {
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

// Fork returns the same positions for another sequence.
func (c *KV) Fork() *KV {
	f := c.store.of(c.Table.Fork())
	f.fill()
	return f
}

// Restore is [Table.Restore].
func (c *KV) Restore(from *KV) {
	c.Table.Restore(from.Table)
	c.fill()
}

// fill brings the blocks up to date with the table.
func (c *KV) fill() {
	pages, same := c.Pages(), 0
	for same < len(pages) && same < len(c.filled) && pages[same] == c.filled[same] {
		same++
	}
	c.filled = append(c.filled[:same], pages[same:]...)
	for i := range c.blocks {
		for h := range c.blocks[i] {
			c.blocks[i][h] = c.blocks[i][h][:same]
		}
	}
	for _, n := range pages[same:] {
		for i, heads := range c.store.page(n) {
			for h := range heads {
				c.blocks[i][h] = append(c.blocks[i][h], heads[h])
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
	}
}

// Blocks returns the pages of one head, the first of which begins at position
// 0. Rows that were not written hold anything. The next Reserve may
// replace the slice.
func (c *KV) Blocks(layer, head int) []cpu.KVBlock { return c.blocks[layer][head] }

// PageBytes returns what [KV.AppendPage] writes.
func (c *KV) PageBytes() int {
	n, err := Bytes(c.store.layers, PageSize)
	if err != nil {
		panic(err) // NewStore has computed a larger one
	}
	return int(n)
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
