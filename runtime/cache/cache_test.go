package cache

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
)

func newCache(format cpu.KVFormat, layers []Layer, capacity int64) (*KV, error) {
	for i := range layers {
		layers[i].Format = format
	}
	s, err := NewStore(cpu.Best(), layers, (max(capacity, 1)-1)/PageSize+1)
	if err != nil {
		return nil, err
	}
	return s.New(capacity), nil
}

// read returns the keys and values of a head at some positions, by attending to
// each alone: its value is then the result, and its key is found by queries
// that pick one number.
func read(c *KV, layer, head, d int, pos int64) (key, value []float32) {
	s := cpu.Best()
	var sc cpu.AttendScratch
	a := cpu.Attention{Format: c.store.layers[layer].Format, Dim: d, Group: d, Scale: 1}
	q := make([]float32, d*d)
	for i := range d {
		q[i*d+i] = 1
	}
	out := a.Partial(make([]float32, a.PartialFloats(d)), d)
	s.Attend(out, &a, c.Blocks(layer, head), q, []cpu.Reach{{Lo: int(pos), Hi: int(pos) + 1}}, 0, int(c.Len()), &sc)
	value = make([]float32, d)
	s.Combine(value, &a, []cpu.Partial{out}, 0, float32(math.Inf(-1)))
	return out.Top, value
}

// What was put at a position is found there, head by head, before and after
// truncation and overwriting, in every format.
func TestPut(t *testing.T) {
	layers := []Layer{{KVHeads: 2, HeadDim: 3, ValueDim: 3}, {KVHeads: 1, HeadDim: 5, ValueDim: 5}}
	for format, tolerance := range map[cpu.KVFormat]float64{cpu.KVF32: 0, cpu.KVF16: 0x1p-11, cpu.KVQ8: 0.5 / 127} {
		c, err := newCache(format, layers, 200)
		if err != nil {
			t.Fatal(err)
		}
		number := func(pos int64, layer, i int, sign float32) float32 { return sign * float32(int(pos)*100+layer*50+i+1) }
		put := func(from, to int64, sign float32) {
			reserve(t, c, to)
			for pos := from; pos < to; pos++ {
				for i, l := range layers {
					key := make([]float32, l.KVHeads*l.HeadDim)
					for j := range key {
						key[j] = number(pos, i, j, sign)
					}
					value := slices.Clone(key)
					slices.Reverse(value)
					c.Put(i, pos, key, value)
				}
			}
			c.Advance(to - from)
		}
		near := func(got, want, most []float32) bool { // most holds the largest magnitude
			for i := range want {
				if math.Abs(float64(got[i]-want[i])) > tolerance*math.Abs(float64(slices.Max(most)))*1.01 {
					return false
				}
			}
			return true
		}
		check := func(pos int64, sign float32) {
			t.Helper()
			for i, l := range layers {
				for h := range l.KVHeads {
					key, value := read(c, i, h, l.HeadDim, pos)
					wantK, wantV := make([]float32, l.HeadDim), make([]float32, l.HeadDim)
					sizeK, sizeV := make([]float32, l.HeadDim), make([]float32, l.HeadDim)
					for d := range l.HeadDim {
						j := h*l.HeadDim + d
						wantK[d], wantV[d] = number(pos, i, j, sign), number(pos, i, l.KVHeads*l.HeadDim-1-j, sign)
						sizeK[d], sizeV[d] = sign*wantK[d], sign*wantV[d]
					}
					if !near(key, wantK, sizeK) || !near(value, wantV, sizeV) {
						t.Fatalf("%v, position %d, layer %d, head %d: %v and %v, want %v and %v", format, pos, i, h, key, value, wantK, wantV)
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
		c.Rewind(100)
		put(100, 150, -1)
		check(99, 1)
		check(100, -1)
		check(149, -1)
		if c.Len() != 150 || c.Capacity() != 200 || c.Bytes() != before/4*3 {
			t.Errorf("length %d, capacity %d, %d bytes instead of %d", c.Len(), c.Capacity(), c.Bytes(), before)
		}
	}
}

func TestMemoryIsTakenByPage(t *testing.T) {
	layers := []Layer{{4, 8, 8, 0}, {4, 8, 8, 0}}
	c, err := newCache(cpu.KVF32, layers, 1<<36)
	if err != nil {
		t.Fatal(err)
	}
	const page = 2 * 4 * (8 + 16) * 4 * PageSize // values are padded to 16
	for _, step := range []struct{ n, pages int64 }{{0, 0}, {1, 1}, {63, 1}, {1, 2}, {200, 5}} {
		reserve(t, c, c.Len()+step.n)
		c.Advance(step.n)
		if c.Bytes() != step.pages*page {
			t.Errorf("%d bytes at length %d, want %d pages of %d", c.Bytes(), c.Len(), step.pages, page)
		}
	}
}

// Sizes that overflow are errors, before any memory is asked for.
func TestSizesAreChecked(t *testing.T) {
	big := Layer{math.MaxInt32, math.MaxInt32, math.MaxInt32, 0}
	for _, c := range []struct {
		layers    []Layer
		positions int64
		ok        bool
	}{
		{[]Layer{{8, 128, 128, 0}}, 131072, true},
		{[]Layer{{8, 128, 128, 0}}, math.MaxInt64, false},
		{[]Layer{{8, 128, 128, 0}}, math.MaxInt64 / 2, false},
		{[]Layer{big}, 1, false},
		{[]Layer{big, big, big}, 1, false},
		{[]Layer{{math.MaxInt, 2, 2, 0}}, 1, false},
		{[]Layer{{2, math.MaxInt, math.MaxInt, 0}}, 1, false},
	} {
		_, err := newCache(cpu.KVF32, c.layers, c.positions)
		if (err == nil) != c.ok {
			t.Errorf("%v, %d positions: %v", c.layers, c.positions, err)
		}
	}
	for format, each := range map[cpu.KVFormat]int64{
		cpu.KVF32: 2 * 4 * 128, cpu.KVF16: 2 * 2 * 128, cpu.KVQ8: 2*128 + 4*(128/32) + 4,
	} {
		if n, err := Bytes([]Layer{{8, 128, 128, format}}, 65); err != nil || n != 8*128*each {
			t.Errorf("%v: %d bytes, %v", format, n, err)
		}
	}
}

func TestMisuse(t *testing.T) {
	for name, f := range map[string]func(c *KV){
		"beyond the capacity": func(c *KV) { c.Reserve(11) },
		"negative growth":     func(c *KV) { c.Reserve(-1) },
		"rewind upwards":      func(c *KV) { c.Rewind(1) },
		"rewind below zero":   func(c *KV) { c.Rewind(-1) },
	} {
		c, err := newCache(cpu.KVF32, []Layer{{1, 2, 2, 0}}, 10)
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

// One layer of one head, three positions whose values are 1, 2 and 3; a query
// of zeros weighs all alike.
func Example() {
	set := cpu.Best()
	s, err := NewStore(set, []Layer{{KVHeads: 1, HeadDim: 2, ValueDim: 2, Format: cpu.KVF16}}, 2)
	if err != nil {
		panic(err)
	}
	c := s.New(100)
	if err := c.Reserve(3); err != nil {
		panic(err)
	}
	for pos := range int64(3) {
		v := float32(pos + 1)
		c.Put(0, pos, []float32{v, v}, []float32{v, v})
	}
	c.Advance(3)

	a := cpu.Attention{Format: cpu.KVF16, Dim: 2, Group: 1, Scale: 1}
	out := a.Partial(make([]float32, a.PartialFloats(1)), 1)
	var scratch cpu.AttendScratch
	set.Attend(out, &a, c.Blocks(0, 0), []float32{0, 0}, []cpu.Reach{{Lo: 0, Hi: 3}}, 0, 3, &scratch)
	result := make([]float32, 2)
	set.Combine(result, &a, []cpu.Partial{out}, 0, float32(math.Inf(-1)))
	fmt.Println(c.Len(), result)
	// Output: 3 [2 2]
}

func reserve(t *testing.T, c *KV, n int64) {
	t.Helper()
	if err := c.Reserve(n); err != nil {
		t.Fatal(err)
	}
}
