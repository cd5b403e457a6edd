package cache

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

func fill(n int, v float32) []float32 { return slices.Repeat([]float32{v}, n) }

// What was put at a position is found in its page, head by head, before and
// after truncation and overwriting.
func TestPutAndPage(t *testing.T) {
	layers := []Layer{{KVHeads: 2, HeadDim: 3}, {KVHeads: 1, HeadDim: 5}}
	c, err := New(layers, 200)
	if err != nil {
		t.Fatal(err)
	}
	put := func(from, to int64, sign float32) {
		c.Grow(to - from)
		for pos := from; pos < to; pos++ {
			for i, l := range layers {
				key := make([]float32, l.KVHeads*l.HeadDim)
				for j := range key {
					key[j] = sign * float32(int(pos)*100+i*50+j)
				}
				value := slices.Clone(key)
				slices.Reverse(value)
				c.Put(i, pos, key, value)
			}
		}
		c.Advance(to - from)
	}
	check := func(pos int64, sign float32) {
		t.Helper()
		for i, l := range layers {
			for h := range l.KVHeads {
				k, v := c.Page(i, int(pos/PageSize), h)
				for d := range l.HeadDim {
					at, j := int(pos%PageSize)*l.HeadDim+d, h*l.HeadDim+d
					wantK := sign * float32(int(pos)*100+i*50+j)
					wantV := sign * float32(int(pos)*100+i*50+l.KVHeads*l.HeadDim-1-j)
					if k[at] != wantK || v[at] != wantV {
						t.Fatalf("position %d, layer %d, head %d: %v and %v, want %v and %v", pos, i, h, k[at], v[at], wantK, wantV)
					}
				}
			}
		}
	}
	put(0, 70, 1)
	put(70, 200, 1)
	for pos := range int64(200) {
		check(pos, 1)
	}
	before := c.Bytes()
	c.Truncate(100)
	put(100, 150, -1)
	check(99, 1)
	check(100, -1)
	check(149, -1)
	if c.Len() != 150 || c.Capacity() != 200 || c.Bytes() != before {
		t.Errorf("length %d, capacity %d, %d bytes instead of %d", c.Len(), c.Capacity(), c.Bytes(), before)
	}
}

func TestMemoryIsTakenByPage(t *testing.T) {
	layers := []Layer{{4, 8}, {4, 8}}
	c, err := New(layers, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	const page = 2 * 2 * 4 * 8 * 4 * PageSize
	for _, step := range []struct{ n, pages int64 }{{0, 0}, {1, 1}, {63, 1}, {1, 2}, {200, 5}} {
		c.Grow(step.n)
		c.Advance(step.n)
		if c.Bytes() != step.pages*page {
			t.Errorf("%d bytes at length %d, want %d pages of %d", c.Bytes(), c.Len(), step.pages, page)
		}
	}
}

// Sizes that overflow are errors, before any memory is asked for.
func TestSizesAreChecked(t *testing.T) {
	big := Layer{math.MaxInt32, math.MaxInt32}
	for _, c := range []struct {
		layers    []Layer
		positions int64
		ok        bool
	}{
		{[]Layer{{8, 128}}, 131072, true},
		{[]Layer{{8, 128}}, math.MaxInt64, false},
		{[]Layer{{8, 128}}, math.MaxInt64 / 2, false},
		{[]Layer{{8, 128}}, -1, false},
		{[]Layer{{8, 128}}, 0, false},
		{[]Layer{big}, 1, false},
		{[]Layer{big, big, big}, 1, false},
		{[]Layer{{math.MaxInt, 2}}, 1, false},
	} {
		_, err := New(c.layers, c.positions)
		if (err == nil) != c.ok {
			t.Errorf("%v, %d positions: %v", c.layers, c.positions, err)
		}
	}
	if n, err := Bytes([]Layer{{8, 128}}, 65); err != nil || n != 2*8*128*4*128 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestMisuse(t *testing.T) {
	for name, f := range map[string]func(c *KV){
		"beyond the capacity": func(c *KV) { c.Grow(11) },
		"negative growth":     func(c *KV) { c.Grow(-1) },
		"truncate upwards":    func(c *KV) { c.Truncate(1) },
		"truncate below zero": func(c *KV) { c.Truncate(-1) },
	} {
		c, err := New([]Layer{{1, 2}}, 10)
		if err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f(c)
		}()
	}
}

// One layer of two heads, three positions.
func Example() {
	c, err := New([]Layer{{KVHeads: 2, HeadDim: 2}}, 100)
	if err != nil {
		panic(err)
	}
	c.Grow(3)
	for pos := range int64(3) {
		x := float32(pos)
		c.Put(0, pos, []float32{x, x, x + 10, x + 10}, fill(4, -x))
	}
	c.Advance(3)
	keys, values := c.Page(0, 0, 1) // layer 0, page 0, head 1
	fmt.Println(c.Len(), keys[:6], values[:6])
	// Output: 3 [10 10 11 11 12 12] [-0 -0 -1 -1 -2 -2]
}
