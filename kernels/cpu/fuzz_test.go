package cpu_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/ops"
)

// floats reads bytes as float32, at most n of them.
func floats(b []byte, n int) []float32 {
	x := make([]float32, min(n, len(b)/4))
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return x
}

// wantNear compares two levels. size is the sum of the magnitudes that were
// added: where that overflows, infinities depend on the order and nothing is
// asked, and where it is NaN so must be both.
func wantNear(t *testing.T, what string, generic, other float32, size, tolerance float64) {
	t.Helper()
	switch {
	case math.IsNaN(size):
		if generic == generic || other == other {
			t.Errorf("%s: %g generic, %g in assembly, want NaN", what, generic, other)
		}
	case size > math.MaxFloat32/2:
	case !(math.Abs(float64(generic)-float64(other)) <= tolerance*size+tolerance*0x1p-126):
		t.Errorf("%s: %g generic, %g in assembly, terms of %g", what, generic, other, size)
	}
}

// FuzzLevels runs the same bytes through plain Go and through every level with
// assembly.
func FuzzLevels(f *testing.F) {
	f.Add([]byte("one two three four five six seven eight nine ten eleven twelve"), uint8(3))
	f.Add(bytes.Repeat([]byte{0, 0, 0x80, 0x7f, 1, 0, 0, 0}, 40), uint8(70))
	f.Add(bytes.Repeat([]byte{0, 0, 0x80, 0x3f, 0xcd, 0xcc, 0x4c, 0xbe}, 200), uint8(33))
	generic, err := cpu.ForLevel(cpu.LevelGeneric)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte, width uint8) {
		for _, l := range cpu.Levels()[1:] {
			s, err := cpu.ForLevel(l)
			if err != nil {
				t.Fatal(err)
			}
			fuzzHalves(t, generic, s, data)
			fuzzRows(t, generic, s, floats(data, 4096), int(width)+1)
			fuzzExp(t, generic, s, floats(data, 4096))
			fuzzPanels(t, generic, s, data, int(width)%40)
			fuzzNorms(t, generic, s, floats(data, 4096))
		}
	})
}

func fuzzHalves(t *testing.T, generic, s *cpu.Set, data []byte) {
	data = data[:len(data)&^1]
	a, b := make([]float32, len(data)/2), make([]float32, len(data)/2)
	generic.DecodeF16(a, data)
	s.DecodeF16(b, data)
	wantSame(t, "DecodeF16", b, a)
	generic.DecodeBF16(a, data)
	s.DecodeBF16(b, data)
	wantSame(t, "DecodeBF16", b, a)
	x := floats(data, len(data))
	p, q := make([]byte, 2*len(x)), make([]byte, 2*len(x))
	generic.EncodeF16(p, x)
	s.EncodeF16(q, x)
	if !bytes.Equal(p, q) {
		t.Errorf("EncodeF16 of %x: %x generic, %x in assembly", data, p, q)
	}
	generic.EncodeBF16(p, x)
	s.EncodeBF16(q, x)
	if !bytes.Equal(p, q) {
		t.Errorf("EncodeBF16 of %x: %x generic, %x in assembly", data, p, q)
	}
}

// fuzzRows takes the first k values as x and the rest as rows of a matrix, for
// the products and, a token a row, for Gemm.
func fuzzRows(t *testing.T, generic, s *cpu.Set, v []float32, k int) {
	if len(v) < 2*k {
		return
	}
	x, n := v[:k], len(v)/k-1
	w := v[k : k+n*k]
	tolerance := 2 * float64(k+4) * 0x1p-24
	size := func(row int) float64 {
		sum := 0.0
		for i, a := range x {
			sum += math.Abs(float64(a) * float64(w[row*k+i]))
		}
		return sum
	}
	a, b := make([]float32, n), make([]float32, n)
	compare := func(what string) {
		for i := range a {
			wantNear(t, what, a[i], b[i], size(i), tolerance)
		}
	}
	generic.MatVecF32(a, w, x)
	s.MatVecF32(b, w, x)
	compare("MatVecF32")
	var scratch cpu.GemmScratch
	rows := func(dst []float32, _ int) { copy(dst, x) }
	generic.Gemm(a, 1, w, k, n, 0, 1, k, rows, &scratch)
	s.Gemm(b, 1, w, k, n, 0, 1, k, rows, &scratch)
	compare("Gemm")
}

func fuzzExp(t *testing.T, generic, s *cpu.Set, x []float32) {
	a, b := make([]float32, len(x)), make([]float32, len(x))
	for _, act := range []ops.Activation{ops.SiLU, ops.GELUTanh, ops.QuickGELU} {
		generic.Activate(act, a, x)
		s.Activate(act, b, x)
		for i, v := range x {
			size := math.Abs(float64(a[i])) * (1 + min(8*math.Abs(float64(v)), 1000))
			if math.IsInf(float64(v), 0) || size != size {
				wantKind(t, act.String(), a[i], b[i])
				continue
			}
			wantNear(t, act.String(), a[i], b[i], max(size, 1e-23), 0x1p-21)
		}
	}
	copy(a, x)
	copy(b, x)
	generic.Softmax(a)
	s.Softmax(b)
	for i := range a {
		if a[i] != a[i] {
			wantKind(t, "Softmax", a[i], b[i])
			continue
		}
		wantNear(t, "Softmax", a[i], b[i], max(float64(a[i]), 1e-23), 0x1p-15)
	}
}

// wantKind wants both NaN, or the same infinity or number.
func wantKind(t *testing.T, what string, generic, other float32) {
	t.Helper()
	if generic != other && (generic == generic || other == other) {
		t.Errorf("%s: %g generic, %g in assembly", what, generic, other)
	}
}

// fuzzPanels multiplies k ordinary numbers, and their negatives, with a panel of
// k rows of 16 out of the bytes.
func fuzzPanels(t *testing.T, generic, s *cpu.Set, data []byte, k int) {
	if len(data) < 32*k {
		return
	}
	a := make([]float32, 2*k)
	for i := range k {
		a[i], a[k+i] = float32(i)-7.5, 7.5-float32(i)
	}
	x, y, w, size := make([]float32, 32), make([]float32, 32), make([]float32, 16*k), make([]float32, 16)
	compare := func(what string) {
		for i, v := range x {
			wantNear(t, what, v, y[i], float64(size[i%16]), 2*float64(k+4)*0x1p-24)
		}
	}
	sizes := func() {
		clear(size)
		for i, v := range w {
			size[i%16] += float32(math.Abs(float64(v) * float64(a[i/16])))
		}
	}
	generic.DecodeF16(w, data[:32*k])
	sizes()
	generic.PanelF16(x, 16, a, k, data, 16, 2, 16, k, false)
	s.PanelF16(y, 16, a, k, data, 16, 2, 16, k, false)
	compare("PanelF16")
	generic.PanelF32(x, 16, a, k, w, 16, 2, 16, k, false)
	s.PanelF32(y, 16, a, k, w, 16, 2, 16, k, false)
	compare("PanelF32")
	for i := range w {
		w[i] = float32(int8(data[i]))
	}
	sizes()
	generic.PanelQ8(x, 16, a, k, data, 16, 2, 16, k, false)
	s.PanelQ8(y, 16, a, k, data, 16, 2, 16, k, false)
	compare("PanelQ8")
}

func fuzzNorms(t *testing.T, generic, s *cpu.Set, x []float32) {
	a, b := make([]float32, len(x)), make([]float32, len(x))
	compare := func(what string, size func(i int) float64) {
		for i := range a {
			if a[i] != a[i] || math.IsInf(float64(a[i]), 0) {
				wantKind(t, what, a[i], b[i])
				continue
			}
			wantNear(t, what, a[i], b[i], size(i), 0x1p-21)
		}
	}
	own := func(i int) float64 { return math.Abs(float64(a[i])) }
	generic.RMSNorm(a, x, x, 1e-5, 1)
	s.RMSNorm(b, x, x, 1e-5, 1)
	compare("RMSNorm", own)
	cos, sin := make([]float32, len(x)/2), make([]float32, len(x)/2)
	for i := range cos {
		cos[i], sin[i] = float32(math.Cos(float64(i))), float32(math.Sin(float64(i)))
	}
	for _, half := range []bool{true, false} {
		copy(a, x)
		copy(b, x)
		if half {
			generic.RopeHalf(a, cos, sin)
			s.RopeHalf(b, cos, sin)
		} else {
			generic.RopeInterleaved(a, cos, sin)
			s.RopeInterleaved(b, cos, sin)
		}
		compare("Rope", func(i int) float64 {
			j, h := i, len(cos)
			switch {
			case i >= 2*h:
			case !half:
				j = i ^ 1
			case i < h:
				j = i + h
			default:
				j = i - h
			}
			return math.Abs(float64(x[i])) + math.Abs(float64(x[j]))
		})
	}
}
