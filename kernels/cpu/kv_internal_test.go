package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
)

// What is stored is the same bits at every level, only the position's own, and
// as near to the numbers as the format says.
func TestStoreKV(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	generic := newSet(LevelGeneric)
	for _, f := range []KVFormat{KVF32, KVF16, KVQ8} {
		for _, d := range []int{1, 7, 8, 9, 16, 23, 64, 80, 128} {
			for _, fill := range []float32{1, 1e-30, 1e-38, 1e-42, 1e30, 0, inf, nan} {
				key, value := make([]float32, d), make([]float32, d)
				for i := range key {
					key[i], value[i] = float32(r.NormFloat64()*math.Exp2(-float64(i/32)*9)), float32(r.NormFloat64())
					if fill == fill && !math.IsInf(float64(fill), 0) {
						key[i], value[i] = key[i]*fill, value[i]*fill
					}
				}
				if fill != fill || math.IsInf(float64(fill), 0) {
					key[d/2], value[d-1] = fill, -fill
				}
				name := fmt.Sprintf("%v D=%d fill=%g", f, d, fill)
				want := marked(f, d)
				generic.StoreKV(f, &want, 37, key, value)
				checkStored(t, name, f, &want, key, value)
				for _, l := range Levels()[1:] {
					got := marked(f, d)
					newSet(l).StoreKV(f, &got, 37, key, value)
					if fill == fill && !math.IsInf(float64(fill), 0) && !reflect.DeepEqual(got, want) {
						t.Errorf("%s: %v stores other bits than plain Go", name, l)
					}
					checkStored(t, name+" "+l.String(), f, &got, key, value)
				}
			}
		}
	}
}

const mark = 0x5a

// marked returns a block full of marks.
func marked(f KVFormat, d int) KVBlock {
	b := NewKVBlocks(f, 1, d, d)[0]
	for _, x := range [][]float32{b.keyFloats, b.valueFloats, b.keyScales, b.valueScales} {
		for i := range x {
			x[i] = mark
		}
	}
	for _, x := range [][]byte{b.keys, b.values} {
		for i := range x {
			x[i] = mark
		}
	}
	return b
}

// checkStored reads position 37 back and holds all others to their marks.
func checkStored(t *testing.T, name string, f KVFormat, b *KVBlock, key, value []float32) {
	t.Helper()
	d, width := len(key), KVWidth(len(key))
	check := func(what string, floats []float32, bytes []byte, scale func(j int) float64, n int, own func(i int) int, x []float32) {
		t.Helper()
		var most float64
		for _, v := range x {
			most = max(most, math.Abs(float64(v)))
		}
		for i := range n {
			j := own(i)
			got, untouched := numberAt(f, floats, bytes, i)
			switch {
			case j < 0 && !untouched:
				t.Fatalf("%s: number %d of the %s was overwritten", name, i, what)
			case j < 0:
				continue
			}
			if f == KVQ8 {
				got *= scale(j)
			}
			if e := math.Abs(got - float64(x[j])); !(e <= bound(f, float64(x[j]), most)) && !wrongAlike(f, got, float64(x[j]), most) {
				t.Fatalf("%s: %s %d is %g, stored %g", name, what, j, got, x[j])
			}
		}
	}
	keyScale := func(j int) float64 {
		v := 1.0
		for g := j / keyGroup; g < keyGroups(d); g++ {
			v *= float64(b.keyScales[g*KVPositions+37])
		}
		return v
	}
	check("keys", b.keyFloats, b.keys, keyScale, d*KVPositions, func(i int) int {
		if i%KVPositions == 37 {
			return i / KVPositions
		}
		return -1
	}, key)
	check("values", b.valueFloats, b.values, func(int) float64 { return float64(b.valueScales[37]) }, width*KVPositions, func(i int) int {
		if i/width == 37 && i%width < d {
			return i % width
		}
		return -1
	}, value)
	for _, scales := range [][]float32{b.keyScales, b.valueScales} {
		for i, v := range scales {
			if i%KVPositions != 37 && v != mark {
				t.Fatalf("%s: scales of position %d were overwritten", name, i%KVPositions)
			}
		}
	}
}

// numberAt reads number i, and says whether it is still the mark.
func numberAt(f KVFormat, floats []float32, bytes []byte, i int) (v float64, untouched bool) {
	switch f {
	case KVF32:
		return float64(floats[i]), floats[i] == mark
	case KVF16:
		return float64(f16ToFloat(uint16(bytes[2*i]) | uint16(bytes[2*i+1])<<8)), bytes[2*i] == mark && bytes[2*i+1] == mark
	}
	return float64(int8(bytes[i])), bytes[i] == mark
}

// bound is how far a stored number may be from v, the largest of whose vector
// is most.
func bound(f KVFormat, v, most float64) float64 {
	switch f {
	case KVF32:
		return 0
	case KVF16:
		return math.Abs(v)*0x1p-11 + 0x1p-25
	}
	return most/127*0.5001 + 0x1p-96
}

// wrongAlike reports whether v cannot be stored, and what is there says so.
func wrongAlike(f KVFormat, got, v, most float64) bool {
	switch {
	case f == KVQ8:
		return got != got && (math.IsInf(most, 0) || most != most)
	case f == KVF16 && math.Abs(v) > 65519:
		return math.IsInf(got, int(math.Copysign(1, v)))
	}
	return got != got && v != v || got == v
}
