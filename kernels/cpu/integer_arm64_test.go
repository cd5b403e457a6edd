//go:build linux && !noasm

package cpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"syscall"
	"testing"
)

// pageEnd returns n bytes in front of a page that must not be touched.
func pageEnd(t *testing.T, n int) []byte {
	page := syscall.Getpagesize()
	size := (n + page - 1) / page * page
	m, err := syscall.Mmap(-1, 0, size+page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(m) })
	if err := syscall.Mprotect(m[size:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return m[size-n : size : size]
}

// weightsOf fills runs with random codes and sensible scales, one of which is
// subnormal and one zero where they are float16.
func weightsOf(r *rand.Rand, k *Integer, w []byte) {
	extreme := r.IntN(3)
	for i := range w {
		if w[i] = byte(r.Uint32()); extreme == 0 {
			w[i] = 0x80 // the product of two of which is the largest
		}
	}
	scales := map[string][]int{"q4_1": {0, 2}, "q5_1": {0, 2}, "q2_k": {80, 82}, "q3_k": {108},
		"q4_k": {0, 2}, "q5_k": {0, 2}, "q6_k": {208}}[k.name]
	if scales == nil {
		scales = []int{0}
	}
	for b := 0; b < len(w); b += k.bytes {
		if k.name == "mxfp4" { // whose scale is an exponent: what float32 holds in sums
			w[b] = byte(107 + r.IntN(40))
			continue
		}
		for _, at := range scales {
			h := uint16(0x1c00 + r.IntN(0x2000) + r.IntN(2)<<15)
			if n := r.IntN(50); n < 2 {
				h = uint16(n)
			}
			binary.LittleEndian.PutUint16(w[b+at:], h)
		}
	}
}

// exactRow is the product in float64 of one row of runs and one token, and the
// magnitude of its terms as Integer's tolerance counts them.
func exactRow(k *Integer, w, a []byte, step, runs int) (y, size float64) {
	var u unpacked
	for i := range runs {
		k.unpack(&u, w[i*k.runBytes():(i+1)*k.runBytes()])
		rec := a[i*step:]
		for j, c := range u.codes {
			g := j / k.group
			d := float64(math.Float32frombits(binary.LittleEndian.Uint32(rec[atScale+j/k.group*4:])))
			dq := d * float64(int8(rec[j]))
			if k.mins {
				y += (float64(u.s[g])*float64(c) - float64(u.m[g])) * dq
				size += math.Abs(float64(u.s[g])*float64(c)*dq) + math.Abs(float64(u.m[g])*dq)
			} else {
				y += float64(u.s[g]) * (float64(c) - 128) * dq
				size += math.Abs(float64(u.s[g]) * max(float64(c), 128) * dq)
			}
		}
	}
	return y, size
}

// TestMatVecKernels holds every matrix-vector kernel of every level to the stated
// error, each token to the same bits whatever its company, outputs to their
// places, and reads to the weights and records given.
func TestMatVecKernels(t *testing.T) {
	for _, l := range Levels()[1:] {
		s := newSet(l)
		for _, k := range s.integers {
			if k.matVec[1] == nil {
				continue
			}
			t.Run(fmt.Sprintf("%v/%s", l, k.name), func(t *testing.T) { matVecCases(t, s, k) })
		}
	}
}

func matVecCases(t *testing.T, s *Set, k *Integer) {
	r := rand.New(rand.NewPCG(1, 2))
	worst := 0.0
	for _, runs := range []int{1, 2, 3, 16} {
		for rows := range 4 {
			ldw := runs*k.runBytes() + rows%2*2
			w := pageEnd(t, max(rows-1, 0)*ldw+min(rows, 1)*runs*k.runBytes())
			for n := range rows {
				weightsOf(r, k, w[n*ldw:n*ldw+runs*k.runBytes()])
			}
			x := make([]float32, 4*runs*256)
			for i := range x {
				x[i] = float32(r.NormFloat64())
			}
			step := 4 * recordBytes
			a := pageEnd(t, runs*step)
			quantize := s.quantize
			if k.group == fineGroup {
				quantize = s.quantizeFine
			}
			for i := range runs * 4 {
				quantize((*[recordBytes]byte)(a[i*recordBytes:]), (*[recordValues]float32)(x[i*recordValues:]))
			}
			if runs == 2 { // the extremes of what q may be
				for i := range a[:256] {
					a[i] = byte(127 - 254*(i/16%2))
				}
				requantizeSums(a, k, quantize)
			}
			var first []float32
			for _, m := range []int{4, 2, 1} {
				got := runMatVec(t, k, m, rows, w, ldw, a, step, runs)
				if first == nil {
					first = got
				}
				for i, v := range got {
					if math.Float32bits(v) != math.Float32bits(first[i]) {
						t.Fatalf("%d tokens, runs=%d: element %d is %g, %g with 4", m, runs, i, v, first[i])
					}
				}
			}
			for i, v := range first {
				y, size := exactRow(k, w[i%rows*ldw:], a[i/rows*recordBytes:], step, runs)
				if e := math.Abs(float64(v)-y) / size * 0x1p24; !(e <= 16) {
					t.Errorf("runs=%d rows=%d: element %d is %g, want %g: off by %.2f * 2^-24 of %g", runs, rows, i, v, y, e, size)
				} else {
					worst = max(worst, e)
				}
			}
		}
	}
	t.Logf("largest error %.2f * 2^-24 of the terms, 16 are allowed", worst)
}

// requantizeSums makes a record's sums fit its values, for one changed by hand.
func requantizeSums(rec []byte, k *Integer, quantize func(*[recordBytes]byte, *[recordValues]float32)) {
	var x [recordValues]float32
	for j := range x {
		d := math.Float32frombits(binary.LittleEndian.Uint32(rec[atScale+j/k.group*4:]))
		x[j] = d * float32(int8(rec[j]))
	}
	quantize((*[recordBytes]byte)(rec), &x)
}

func runMatVec(t *testing.T, k *Integer, m, rows int, w []byte, ldw int, a []byte, step, runs int) []float32 {
	const guard = 12345.5
	ldy := rows + 2
	buf := make([]float32, 4*ldy+8)
	for i := range buf {
		buf[i] = guard
	}
	for tok := 0; tok < 4; tok += m {
		k.matVec[m](buf[4+tok*ldy:], ldy, rows, w, ldw, a[tok*recordBytes:], step, runs)
	}
	var y []float32
	for i, v := range buf {
		if j := i - 4; j >= 0 && j < 4*ldy && j%ldy < rows {
			y = append(y, v)
		} else if v != guard {
			t.Fatalf("rows=%d: the word at %d was overwritten", rows, j)
		}
	}
	return y
}
