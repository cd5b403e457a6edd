package gpu

import (
	"fmt"
	goruntime "runtime"
	"sync"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// PageSize is the positions of a page of the cache.
const PageSize = hip.PagePositions

// A pool is the pages of all caches of an Engine. Page i is the i-th in every
// layer's [hip.KV]. It is made for one sequence of the whole context and grows,
// by copying, where more sequences want more.
type pool struct {
	layers []hip.KV
	buffer driver.Buffer
	pages  int // in all
	// table is which page holds what, i32 [slots][tablePages]: a row for each
	// cache, kept in step by kv.send.
	// The ropes that depend on a sequence's length have their frequencies behind it.
	table      driver.Buffer
	slots      int
	tablePages int

	mu   sync.Mutex // caches return theirs when they are collected
	free []int32    // pages that nobody holds, the next to give last
	idle []int32    // rows of the table that nobody holds
}

// A kv is the cache of one sequence.
type kv struct {
	e        *Engine
	capacity int64 // positions
	len      int64
	held     *held
	growth   int     // of the Engine when the following was sent
	sent     int     // pages that the table holds already
	regimes  []int64 // of each rope, for which the table has frequencies; -1: none
}

// held is what a cache holds of the pool, apart from it: both return when
// nobody can reach the cache any more.
type held struct {
	pages []int32
	slot  int32
}

var _ device.Cache = (*kv)(nil)

// cacheLayers are the layers' shapes, without memory.
func cacheLayers(g *model.Graph, f cpu.KVFormat) []hip.KV {
	layers := make([]hip.KV, len(g.Blocks))
	for i := range g.Blocks {
		a := &g.Blocks[i].Attn
		layers[i] = hip.KV{Format: f, Heads: int(a.KVHeads), Dim: int(a.HeadDim)}
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

// place gives the layers their memory: so many pages from an arena on.
func placePages(layers []hip.KV, pages int, a *arena) {
	for i := range layers {
		layers[i].Pages = pages
		layers[i].Base = a.take(layers[i].Bytes())
	}
}

// pagesOf returns the pages of so many positions.
func pagesOf(positions int64) int64 { return (positions + PageSize - 1) / PageSize }

// cacheBytes is the memory of a cache of so many positions, an error where an
// int64 does not hold it.
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

// NewCache implements device.Backend.
func (e *Engine) NewCache(capacity int64) (device.Cache, error) {
	if p := e.g.Embed.Positions; p != "" && capacity > e.g.Context {
		err := formats.Unsupportedf("", p, "a context of %d positions: the model has learned %d", capacity, e.g.Context)
		err.Hint = "give a shorter context (--ctx)"
		return nil, err
	}
	if capacity < 1 || capacity > e.context {
		return nil, fmt.Errorf("a cache of %d positions: the device is laid out for %d", capacity, e.context)
	}
	slot, err := e.newSlot()
	if err != nil {
		return nil, err
	}
	c := &kv{e: e, capacity: capacity, held: &held{slot: slot}, growth: -1, regimes: make([]int64, len(e.ropes))}
	goruntime.AddCleanup(c, e.pool.release, c.held)
	return c, nil
}

// release takes back what a cache held.
func (p *pool) release(h *held) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, h.pages...)
	p.idle = append(p.idle, h.slot)
}

// CacheBytes implements device.Backend.
func (e *Engine) CacheBytes(positions int64) (int64, error) {
	return cacheBytes(e.pool.layers, positions)
}

// Len implements device.Cache.
func (c *kv) Len() int64 { return c.len }

// Bytes implements device.Cache.
func (c *kv) Bytes() int64 { return int64(len(c.held.pages)) * pageBytes(c.e.pool.layers) }

// Truncate implements device.Cache. Pages are kept for reuse.
func (c *kv) Truncate(n int64) {
	if n < 0 || n > c.len {
		panic(fmt.Sprintf("gpu: truncate to %d of %d positions", n, c.len))
	}
	c.len = n
}

// reserve makes room for n positions in all.
func (c *kv) reserve(n int64) error {
	if n > c.capacity {
		panic(fmt.Sprintf("gpu: %d positions exceed the capacity of %d", n, c.capacity))
	}
	pages := int(pagesOf(n))
	for len(c.held.pages) < pages {
		page, err := c.e.newPage()
		if err != nil {
			return err
		}
		c.held.pages = append(c.held.pages, page)
	}
	return nil
}

// send brings the cache's row of the device's table up to date.
func (c *kv) send() error {
	p := &c.e.pool
	if c.growth != c.e.growth {
		c.growth, c.sent = c.e.growth, 0
		for i := range c.regimes {
			c.regimes[i] = -1
		}
	}
	news := c.held.pages[c.sent:]
	if len(news) == 0 {
		return nil
	}
	at := 4 * (int64(c.held.slot)*int64(p.tablePages) + int64(c.sent))
	if err := upload(c.e, p.table.At(at, 4*int64(len(news))), news); err != nil {
		return err
	}
	c.sent = len(c.held.pages)
	return nil
}

// newPage returns a page that nobody holds.
func (e *Engine) newPage() (int32, error) {
	p := &e.pool
	p.mu.Lock()
	n := len(p.free)
	p.mu.Unlock()
	if n == 0 {
		if err := e.growPool(); err != nil {
			return 0, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	page := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	return page, nil
}

// newSlot returns a row of the table that nobody holds.
func (e *Engine) newSlot() (int32, error) {
	p := &e.pool
	p.mu.Lock()
	n := len(p.idle)
	p.mu.Unlock()
	if n == 0 {
		if err := e.growTable(); err != nil {
			return 0, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	slot := p.idle[len(p.idle)-1]
	p.idle = p.idle[:len(p.idle)-1]
	return slot, nil
}
