// Package cache keeps the keys and values of one sequence, in pages of
// [PageSize] positions that are allocated when the first of them is written.
//
// In and out are float32 rows per layer, position and head. Within a page a
// head's positions lie together, [KVHeads][PageSize][HeadDim], so that
// attention reads one head of one page as a small dense matrix.
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
)

// PageSize is the positions of a page.
const PageSize = 64

// A Layer is the shape of one layer's keys and values.
type Layer struct{ KVHeads, HeadDim int }

// A KV is a cache of all layers for one sequence.
type KV struct {
	layers   []Layer
	keys     [][][]float32 // [layer][page][KVHeads*PageSize*HeadDim]
	values   [][][]float32
	capacity int64
	len      int64
}

// Bytes returns the size of a cache of the given number of positions, rounded
// up to pages, or an error where an int64 does not hold it.
func Bytes(layers []Layer, positions int64) (int64, error) {
	var perPage uint64
	for _, l := range layers {
		hi, row := bits.Mul64(uint64(l.KVHeads), uint64(l.HeadDim))
		hi2, page := bits.Mul64(row, 2*4*PageSize)
		if hi|hi2 != 0 || perPage+page < page {
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

// New returns an empty cache of up to capacity positions. It fails where
// their number of bytes overflows; memory is taken later, page by page.
func New(layers []Layer, capacity int64) (*KV, error) {
	if capacity < 1 {
		return nil, fmt.Errorf("a cache of %d positions makes no sense", capacity)
	}
	n, err := Bytes(layers, capacity)
	if err != nil {
		return nil, err
	}
	if n > math.MaxInt {
		return nil, fmt.Errorf("a cache of %d positions (%d bytes) exceeds the address space", capacity, n)
	}
	return &KV{layers: layers, keys: make([][][]float32, len(layers)), values: make([][][]float32, len(layers)), capacity: capacity}, nil
}

// Len returns the number of valid positions.
func (c *KV) Len() int64 { return c.len }

// Capacity returns the number of positions that fit.
func (c *KV) Capacity() int64 { return c.capacity }

// Bytes returns the memory held.
func (c *KV) Bytes() int64 {
	if len(c.keys) == 0 {
		return 0
	}
	n, err := Bytes(c.layers, int64(len(c.keys[0]))*PageSize)
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
	pages := int((c.len + n + PageSize - 1) / PageSize)
	for i, l := range c.layers {
		for len(c.keys[i]) < pages {
			page := make([]float32, 2*l.KVHeads*PageSize*l.HeadDim)
			half := len(page) / 2
			c.keys[i] = append(c.keys[i], page[:half:half])
			c.values[i] = append(c.values[i], page[half:])
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
	l := c.layers[layer]
	page, row := pos/PageSize, int(pos%PageSize)
	k, v := c.keys[layer][page], c.values[layer][page]
	for h := range l.KVHeads {
		at := (h*PageSize + row) * l.HeadDim
		copy(k[at:at+l.HeadDim], key[h*l.HeadDim:])
		copy(v[at:at+l.HeadDim], value[h*l.HeadDim:])
	}
}

// Page returns the keys and values of one head in one page, [PageSize][HeadDim]
// each. Rows that were not written hold anything.
func (c *KV) Page(layer, page, head int) (keys, values []float32) {
	n := PageSize * c.layers[layer].HeadDim
	return c.keys[layer][page][head*n : (head+1)*n], c.values[layer][page][head*n : (head+1)*n]
}
