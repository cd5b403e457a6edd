package cpu

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats/scheme"
)

func codedFormats() []KVFormat { return []KVFormat{KVQ5, KVQ4, KVQ3} }

// Every level spreads any bytes to the levels of the reference, and writes nothing else.
func TestLevels(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, f := range codedFormats() {
		levels := kvLevels(f.Bits())
		for _, groups := range []int{0, 1, 2, 5} {
			for _, l := range Levels() {
				s := newSet(l)
				check := func(name string, got, want levelsKernel, sources, room int) {
					src := make([]byte, sources)
					for i := range src {
						src[i] = byte(r.Uint32())
					}
					a, b := bytes.Repeat([]byte{mark}, room+40), bytes.Repeat([]byte{mark}, room+40)
					got(a[:room], src, groups, &levels)
					want(b[:room], src, groups, &levels)
					if !bytes.Equal(a, b) {
						t.Errorf("%v: %s of %v differ from the reference, %d groups", l, name, f, groups)
					}
				}
				i := f.Bits() - 3
				check("keys", s.panel.keyLevels[i], levelsByFeature(f.Bits()), groups*4*f.Bits()*KVPositions, groups*codedGroup*KVPositions)
				check("values", s.panel.valueLevels[i], levelsInOrder(f.Bits()), groups*4*f.Bits(), groups*codedGroup)
			}
		}
	}
}

// Codes are found again where they were put, at any distance.
func TestPackCodes(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	for _, f := range codedFormats() {
		c := newKVCoder(f.Bits())
		for _, ld := range []int{1, 3, KVPositions} {
			var codes [codedGroup]byte
			for i := range codes {
				codes[i] = byte(r.IntN(1 << f.Bits()))
			}
			dst := make([]byte, 4*f.Bits()*ld)
			c.pack(dst, ld, &codes)
			for i := range codes {
				if got := codeAt(dst, ld, f.Bits(), i); got != codes[i] {
					t.Fatalf("%v, bytes %d apart: code %d is %d, stored %d", f, ld, i, got, codes[i])
				}
			}
		}
	}
}

// storedVector reads position row of a block's keys or values back.
func storedVector(f KVFormat, b *KVBlock, row, n, d, v int, key bool) []float32 {
	levels, x := kvLevels(f.Bits()), make([]float32, codedGroups(n)*codedGroup)
	for i := range x {
		g := i / codedGroup
		src, ld, scales := b.values[row*f.codedBytes(v)+g*4*f.Bits():], 1, b.coded.valueScales
		if key {
			src, ld, scales = b.keys[g*4*f.Bits()*KVPositions+row:], KVPositions, b.coded.keyScales
		}
		at := 2 * (g*KVPositions + row)
		scale := f16ToFloat(uint16(scales[at]) | uint16(scales[at+1])<<8)
		x[i] = scale / 128 * float32(levels[codeAt(src, ld, f.Bits(), i%codedGroup)])
	}
	x = x[:n]
	for h, at := turnLength(d, v), 0; h > 1 && at < n; at += h {
		scheme.Hadamard(x[at : at+h])
	}
	return x
}

// What is stored is near to the numbers, as near at every magnitude, and leaves other
// positions alone. Heads of any size are stored.
func TestStoreCoded(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 6))
	// Of normal numbers, the root of the mean squared error, over that of the numbers,
	// that groups of 32 leave: .042, .075 and .153 on average; shorter ones vary.
	most := map[KVFormat]float64{KVQ5: 0.08, KVQ4: 0.14, KVQ3: 0.28}
	for _, f := range codedFormats() {
		for _, shape := range [][2]int{{64, 64}, {128, 128}, {80, 80}, {96, 96}, {256, 256}, {24, 40}, {33, 33}, {7, 7}, {1, 1}, {576, 512}, {1024, 1024}} {
			d, v := shape[0], shape[1]
			for _, size := range []float32{1, 1000, 1e-3} {
				key, value := make([]float32, d), make([]float32, v)
				for i := range key {
					key[i] = float32(r.NormFloat64()) * size
				}
				for i := range value {
					value[i] = float32(r.NormFloat64()) * size
				}
				b := NewKVBlocks(f, 1, d, v)[0]
				for _, p := range b.parts() {
					for i := range p {
						p[i] = mark
					}
				}
				Best().StoreKV(f, &b, 37, key, value)
				for _, c := range []struct {
					x   []float32
					key bool
				}{{key, true}, {value, false}} {
					got := storedVector(f, &b, 37, len(c.x), d, v, c.key)
					var e, n float64
					for i := range c.x {
						e += math.Pow(float64(got[i]-c.x[i]), 2)
						n += math.Pow(float64(c.x[i]), 2)
					}
					if e = math.Sqrt(e / n); !(e <= most[f]) {
						t.Errorf("%v of %d and %d numbers of size %g, key %v: error %.3f", f, d, v, size, c.key, e)
					}
					other := storedVector(f, &b, 36, len(c.x), d, v, c.key)
					blank := NewKVBlocks(f, 1, d, v)[0]
					for _, p := range blank.parts() {
						for i := range p {
							p[i] = mark
						}
					}
					if want := storedVector(f, &blank, 36, len(c.x), d, v, c.key); !slices.Equal(other, want) {
						t.Errorf("%v of %d numbers: a neighbour was overwritten", f, len(c.x))
					}
				}
			}
		}
	}
}

// Zeros stay zeros; what is no number shows as such, in all numbers that are turned
// together; a large number alone is kept well.
func TestStoreCodedSpecials(t *testing.T) {
	for _, f := range codedFormats() {
		store := func(x []float32) []float32 {
			b := NewKVBlocks(f, 1, len(x), len(x))[0]
			Best().StoreKV(f, &b, 5, x, x)
			return storedVector(f, &b, 5, len(x), len(x), len(x), true)
		}
		x := make([]float32, 64)
		if got := store(x); !slices.Equal(got, x) {
			t.Errorf("%v: zeros became %v", f, got)
		}
		x[9] = 1000
		if got := store(x); math.Abs(float64(got[9]-1000)) > 100 || math.Abs(float64(got[40])) > 100 {
			t.Errorf("%v: 1000 and zeros became %v", f, got)
		}
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
			x[9] = bad
			for i, v := range store(x) {
				if v == v {
					t.Fatalf("%v: number %d beside %g is %g", f, i, bad, v)
				}
			}
		}
	}
}

// Blocks go through bytes whole, and have the size that was foretold.
func TestCodedBlockBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 7))
	for _, f := range codedFormats() {
		for _, d := range []int{64, 80, 7} {
			b, c := NewKVBlocks(f, 1, d, d)[0], NewKVBlocks(f, 1, d, d)[0]
			for row := range KVPositions {
				x := make([]float32, d)
				for i := range x {
					x[i] = float32(r.NormFloat64())
				}
				Best().StoreKV(f, &b, row, x, x)
			}
			raw := b.AppendTo(nil)
			if int64(len(raw)) != f.BlockBytes(d, d) || len(c.Set(raw)) != 0 {
				t.Errorf("%v of %d numbers: %d bytes, foretold %d", f, d, len(raw), f.BlockBytes(d, d))
			}
			if fmt.Sprint(b.parts()) != fmt.Sprint(c.parts()) {
				t.Errorf("%v of %d numbers: another block came back", f, d)
			}
			if bits := float64(len(raw)) * 8 / KVPositions / float64(2*d); d == 64 && bits != float64(f.Bits())+0.5 {
				t.Errorf("%v: %g bits a number", f, bits)
			}
		}
	}
}
