// Package cache keeps the keys and values of one sequence, in pages of
// [PageSize] positions that are allocated when the first of them is written.
//
// In are float32 rows per layer and position, out are the blocks that
// kernels/cpu attends to: one per page and head, in float32, in half precision
// or in scaled bytes.
//
// Invariants: rows [0, Len) are valid in every layer; those at Len and beyond
// may be written by the pass in progress and become valid with Advance. A
// cache is used by one goroutine at a time, except that different heads may be
// read and different rows written concurrently. Layers with a sliding window
// keep all positions, so that Truncate can go back to any.
//
// Compatibility: in memory only, no promise about the layout.
package cache

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/nstf/nstf/kernels/cpu"
)

// PageSize is the positions of a page.
const PageSize = cpu.KVPositions

// A Layer is the shape of one layer's keys and values.
type Layer struct{ KVHeads, HeadDim int }

// A KV is a cache of all layers for one sequence.
type KV struct {
	set      *cpu.Set
	format   cpu.KVFormat
	layers   []Layer
	blocks   [][][]cpu.KVBlock // [layer][head][page]
	pages    int64
	capacity int64
	len      int64
}

// Bytes returns the size of a cache of the given number of positions, rounded
// up to pages, or an error where an int64 does not hold it.
func Bytes(format cpu.KVFormat, layers []Layer, positions int64) (int64, error) {
	var perPage uint64
	for _, l := range layers {
		hi, page := uint64(1), uint64(0)
		if l.HeadDim <= math.MaxInt32 {
			hi, page = bits.Mul64(uint64(l.KVHeads), uint64(format.BlockBytes(l.HeadDim)))
		}
		if hi != 0 || perPage+page < page {
			return 0, fmt.Errorf("a cache of %d key-value heads of %d numbers does not fit memory", l.KVHeads, l.HeadDim)
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

// New returns an empty cache of up to capacity positions; set stores what is
// put into it. It fails where the number of bytes overflows; memory is taken
// later, page by page.
func New(set *cpu.Set, format cpu.KVFormat, layers []Layer, capacity int64) (*KV, error) {
	if capacity < 1 {
		return nil, fmt.Errorf("a cache of %d positions makes no sense", capacity)
	}
	n, err := Bytes(format, layers, capacity)
	if err != nil {
		return nil, err
	}
	if n > math.MaxInt {
		return nil, fmt.Errorf("a cache of %d positions (%d bytes) exceeds the address space", capacity, n)
	}
	c := &KV{set: set, format: format, layers: layers, blocks: make([][][]cpu.KVBlock, len(layers)), capacity: capacity}
	for i, l := range layers {
		c.blocks[i] = make([][]cpu.KVBlock, l.KVHeads)
	}
	return c, nil
}

// Len returns the number of valid positions.
func (c *KV) Len() int64 { return c.len }

// Capacity returns the number of positions that fit.
func (c *KV) Capacity() int64 { return c.capacity }

// Format returns how keys and values are stored.
func (c *KV) Format() cpu.KVFormat { return c.format }

// Bytes returns the memory held.
func (c *KV) Bytes() int64 {
	n, err := Bytes(c.format, c.layers, c.pages*PageSize)
	if err != nil {
		panic(err) // New has computed a larger one
	}
	return n
}

// Grow makes room for n positions beyond Len. It panics beyond the capacity.
func (c *KV) Grow(n int64) {
	if n < 0 || n > c.capacity-c.len {
		panic(fmt.Sprintf("cache: %d positions beyond %d exceed the capacity of %d", n, c.len, c.capacity))
	}
	for pages := (c.len + n + PageSize - 1) / PageSize; c.pages < pages; c.pages++ {
		for i, l := range c.layers {
			for h, b := range cpu.NewKVBlocks(c.format, l.KVHeads, l.HeadDim) {
				c.blocks[i][h] = append(c.blocks[i][h], b)
			}
		}
	}
}

// Advance makes n rows beyond Len valid. All layers have been written.
func (c *KV) Advance(n int64) { c.len += n }

// Truncate forgets all positions from n on. Their pages are kept for reuse.
// It panics where n is negative or beyond Len.
func (c *KV) Truncate(n int64) {
	if n < 0 || n > c.len {
		panic(fmt.Sprintf("cache: truncate to %d of %d positions", n, c.len))
	}
	c.len = n
}

// Put stores one position of a layer: key and value hold KVHeads*HeadDim
// numbers. Grow has made room for it.
func (c *KV) Put(layer int, pos int64, key, value []float32) {
	d := c.layers[layer].HeadDim
	for h, blocks := range c.blocks[layer] {
		c.set.StoreKV(c.format, &blocks[pos/PageSize], int(pos%PageSize), key[h*d:(h+1)*d], value[h*d:(h+1)*d])
	}
}

// Blocks returns the pages of one head, the first of which begins at position
// 0. Rows that were not written hold anything. The next Grow may replace the
// slice.
func (c *KV) Blocks(layer, head int) []cpu.KVBlock { return c.blocks[layer][head] }
