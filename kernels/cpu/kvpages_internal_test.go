package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// pageOf returns a block of random keys and values, and what it stores of them, turned
// where the format turns.
func pageOf(r *rand.Rand, f KVFormat, d, v int) (b KVBlock, keys, values [][]float64) {
	b = NewKVBlocks(f, 1, d, v)[0]
	s := newSet(LevelGeneric)
	for row := range KVPositions {
		key, value := make([]float32, d), make([]float32, v)
		for i := range key {
			key[i] = float32(r.NormFloat64() + 3*math.Sin(float64(i)))
		}
		for i := range value {
			value[i] = float32(r.NormFloat64() + math.Cos(float64(i)))
		}
		s.StoreKV(f, &b, row, key, value)
		f.Turn(key, d, v)
		f.Turn(value, d, v)
		keys, values = append(keys, wide(key)), append(values, wide(value))
	}
	return b, keys, values
}

func wide(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

// Summaries are the means and variances of what was stored, at every level and in every
// format; what is foretold and what stands in follow from them.
func TestKVPages(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, f := range []KVFormat{KVF32, KVF16, KVQ8, KVQ5, KVQ4, KVQ3} {
		tolerance := map[KVFormat]float64{KVQ8: 0.02, KVQ5: 0.05, KVQ4: 0.08, KVQ3: 0.16}[f] + 2e-3
		for _, c := range []struct{ d, v int }{{1, 1}, {7, 7}, {64, 64}, {80, 80}, {96, 64}, {128, 128}} {
			a := Attention{Format: f, Dim: c.d, Value: c.v, Group: 3, Scale: 0.2}
			b, keys, values := pageOf(r, f, c.d, c.v)
			const row = 37
			want := NewKVPages(c.d, c.v)
			for _, l := range Levels() {
				name := fmt.Sprintf("%v %v D=%d V=%d", f, l, c.d, c.v)
				s, p := newSet(l), NewKVPages(c.d, c.v)
				if !s.Summarize(&p, row, &a, &b, &AttendScratch{}) {
					t.Errorf("%s: not finite", name)
				}
				if l == LevelGeneric {
					want = p.Clone()
				} else if !same16(p.spread, want.spread) || !same16(p.means.keys, want.means.keys) || !same16(p.means.values, want.means.values) {
					t.Errorf("%s: summaries differ from those of plain Go", name)
				}
				mean, spread := moments(keys, c.d)
				value, _ := moments(values, c.v)
				q := make([]float32, 3*c.d)
				for i := range q {
					q[i] = float32(r.NormFloat64())
				}
				const ld = 2*KVPositions + 1
				got := make([]float32, 3*ld)
				s.Foretell(got, ld, &a, []KVPages{NewKVPages(c.d, c.v), p}, q, make([]float32, len(q)))
				for i := range 3 {
					var dot, variance, size float64
					for j := range c.d {
						x := float64(q[i*c.d+j])
						dot, variance, size = dot+x*mean[j], variance+x*x*spread[j], size+x*x
					}
					z := math.Log(KVPositions) + 0.2*dot + spreadTrust/2*0.04*variance
					if d := math.Abs(float64(got[i*ld+KVPositions+row]) - z); !(d <= tolerance*(1+math.Sqrt(size)+size)) {
						t.Errorf("%s: %g foretold, want %g", name, got[i*ld+KVPositions+row], z)
					}
				}
				dst, weights := make([]float32, 3*KVWidth(c.v)), make([]float32, 3*KVPositions)
				weights[KVPositions+row] = 0.5
				s.StandIn(dst, &a, &p, weights, row+1)
				for j := range c.v {
					if d := math.Abs(float64(dst[KVWidth(c.v)+j]) - 0.5*value[j]); !(d <= tolerance) || dst[j] != 0 {
						t.Fatalf("%s: a mean of %g, want %g", name, 2*dst[KVWidth(c.v)+j], value[j])
					}
				}
			}
		}
	}
}

func moments(x [][]float64, n int) (mean, spread []float64) {
	mean, spread = make([]float64, n), make([]float64, n)
	for i := range n {
		for _, row := range x {
			mean[i] += row[i] / float64(len(x))
		}
		for _, row := range x {
			spread[i] += (row[i] - mean[i]) * (row[i] - mean[i]) / float64(len(x))
		}
	}
	return mean, spread
}

// same16 reports whether numbers in half precision are the same but for their last bit.
func same16(a, b []byte) bool {
	for i := 0; i < len(a); i += 2 {
		x, y := int(a[i])|int(a[i+1])<<8, int(b[i])|int(b[i+1])<<8
		if d := x - y; (d > 1 || d < -1) && (x|y)&0x7fff > 0x0400 {
			return false
		}
	}
	return len(a) == len(b)
}

// A page with what is not finite says nothing, and that it does.
func TestKVPagesAreFinite(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 7))
	for _, x := range []float32{float32(math.NaN()), float32(math.Inf(1)), 1e30} {
		for _, ofValue := range []bool{false, true} {
			b, _, _ := pageOf(r, KVF32, 16, 16)
			if ofValue {
				b.valueFloats[20] = x
			} else {
				b.keyFloats[20] = x
			}
			a, p, s := Attention{Format: KVF32, Dim: 16, Group: 1, Scale: 1}, NewKVPages(16, 16), Best()
			if s.Summarize(&p, 3, &a, &b, &AttendScratch{}) {
				t.Errorf("%g in a value: %v: finite", x, ofValue)
			}
			dst := make([]float32, 16)
			weights := make([]float32, KVPositions)
			weights[3] = 1
			if s.StandIn(dst, &a, &p, weights, KVPositions); dst[4] != 0 {
				t.Errorf("its mean is %g", dst[4])
			}
		}
	}
}

// Attention to some pages is that to their positions, and what each of them sums up to is
// what it would alone, in every format.
func TestAttendPages(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 9))
	const d, v, group, held, hi, ld = 40, 24, 3, 9, 9*KVPositions - 21, 11
	for _, f := range []KVFormat{KVF32, KVF16, KVQ8, KVQ4} {
		var blocks []KVBlock
		for range held {
			b, _, _ := pageOf(r, f, d, v)
			blocks = append(blocks, b)
		}
		q := make([]float32, group*d)
		for i := range q {
			q[i] = float32(r.NormFloat64())
		}
		for _, l := range Levels() {
			for _, softcap := range []float32{0, 5} {
				for _, pages := range [][]int32{{}, {3}, {8}, {0, 2, 3, 8}, {1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 4, 5, 6, 7, 8}} {
					name := fmt.Sprintf("%v %v %v softcap %g", f, l, pages, softcap)
					s, a := newSet(l), Attention{Format: f, Dim: d, Value: v, Group: group, Scale: 0.3, Softcap: softcap}
					partial := func() Partial {
						p := a.Partial(make([]float32, a.PartialFloats(group)), group)
						p.Clear()
						return p
					}
					var sc AttendScratch
					got, sum, one := partial(), partial(), partial()
					logs := make([]float32, group*ld)
					s.AttendPages(got, &a, blocks, q, pages, hi, logs, ld, &sc)
					reach := []Reach{{0, hi}}
					for _, page := range pages {
						s.Attend(one, &a, blocks, q, reach, int(page)*KVPositions, int(page+1)*KVPositions, &sc)
						s.Merge(sum, &a, one)
						for i := range group {
							want, at := float64(one.Top[i])+math.Log(float64(one.Sum[i])), i*ld+int(page)
							if d := math.Abs(float64(logs[at]) - want); !(d < 4e-6*(1+math.Abs(want))) {
								t.Errorf("%s: page %d sums up to %g, want %g", name, page, logs[at], want)
							}
							logs[at] = 0
						}
					}
					for i, x := range logs {
						if x != 0 {
							t.Errorf("%s: %g of a page that is not read, number %d", name, x, i)
						}
					}
					to, want := make([]float32, v), make([]float32, v)
					for i := range group {
						s.Combine(to, &a, []Partial{got}, i, 0.5)
						s.Combine(want, &a, []Partial{sum}, i, 0.5)
						for j := range to {
							if d := math.Abs(float64(to[j] - want[j])); !(d < 1e-5) {
								t.Fatalf("%s: query %d, number %d: %g, want %g", name, i, j, to[j], want[j])
							}
						}
					}
				}
			}
		}
	}
}

// A page whose weight is beyond float32 beside its neighbours', or not a number, is told.
func TestAttendPagesFar(t *testing.T) {
	for _, l := range Levels() {
		s, a := newSet(l), Attention{Format: KVF32, Dim: 16, Group: 1, Scale: 1}
		blocks := []KVBlock{NewKVBlocks(KVF32, 1, 16, 16)[0], NewKVBlocks(KVF32, 1, 16, 16)[0]}
		for i := range KVPositions {
			blocks[1].keyFloats[i] = -500
		}
		q := make([]float32, 16)
		q[0] = 1
		p := a.Partial(make([]float32, a.PartialFloats(1)), 1)
		logs := make([]float32, 2)
		p.Clear()
		s.AttendPages(p, &a, blocks, q, []int32{0, 1}, 2*KVPositions, logs, 2, &AttendScratch{})
		if far := math.Abs(float64(logs[0]) - logKVPositions); !(far < 1e-5) || !(logs[1] < -80 && logs[1] > -100) {
			t.Errorf("%v: %v", l, logs)
		}
		blocks[1].keyFloats[3] = float32(math.NaN())
		p.Clear()
		s.AttendPages(p, &a, blocks, q, []int32{0, 1}, 2*KVPositions, logs, 2, &AttendScratch{})
		if logs[0] != logs[0] || logs[1] == logs[1] || p.Sum[0] == p.Sum[0] {
			t.Errorf("%v: %v of a page with a NaN, sum %g", l, logs, p.Sum[0])
		}
	}
}

// Logarithms are those of float64, rounded twice.
func TestLogAdd(t *testing.T) {
	for _, l := range Levels() {
		s := newSet(l)
		var x, y [1 << 12]float32
		r := rand.New(rand.NewPCG(5, 10))
		for i := range x {
			x[i] = float32(math.Exp(170*r.Float64() - 85))
			if i%4 == 0 {
				x[i] = float32(0.5 + r.Float64())
			}
			y[i] = float32(i % 3)
		}
		x[0], x[1], x[2], x[3] = leastSum, 1, math.MaxFloat32, 256
		s.logAdd(y[:], x[:])
		for i, got := range y {
			ln := math.Log(float64(x[i]))
			if d := math.Abs(float64(got) - float64(i%3) - ln); !(d <= 2.5e-7*(1+math.Abs(ln))) {
				t.Fatalf("%v: log %g = %g, want %g", l, x[i], got-float32(i%3), ln)
			}
		}
	}
}

// Partials of different positions merge to that of all.
func TestMerge(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 8))
	for _, l := range Levels() {
		s := newSet(l)
		a := Attention{Format: KVF32, Dim: 24, Group: 3, Scale: 0.7}
		var blocks []KVBlock
		for range 5 {
			b, _, _ := pageOf(r, KVF32, 24, 24)
			blocks = append(blocks, b)
		}
		q := make([]float32, 3*24)
		for i := range q {
			q[i] = float32(r.NormFloat64())
		}
		partial := func() Partial { return a.Partial(make([]float32, a.PartialFloats(3)), 3) }
		var sc AttendScratch
		reach := []Reach{{0, 300}}
		all, sum, one := partial(), partial(), partial()
		s.Attend(all, &a, blocks, q, reach, 0, 300, &sc)
		sum.Clear()
		for _, page := range []int{3, 0, 4, 1, 2} {
			s.Attend(one, &a, blocks, q, reach, page*KVPositions, min((page+1)*KVPositions, 300), &sc)
			s.Merge(sum, &a, one)
		}
		one.Clear()
		s.Merge(sum, &a, one) // of nothing
		got, want := make([]float32, 24), make([]float32, 24)
		for i := range 3 {
			s.Combine(got, &a, []Partial{sum}, i, 1.5)
			s.Combine(want, &a, []Partial{all}, i, 1.5)
			for j := range got {
				if d := math.Abs(float64(got[j] - want[j])); !(d < 1e-5) {
					t.Errorf("%v: query %d, number %d: %g, want %g", l, i, j, got[j], want[j])
				}
			}
		}
	}
}
