package tensor_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/x448/float16"

	"github.com/nstf/nstf/formats/tensor"
)

// TestF16 walks all patterns both ways against x448/float16.
func TestF16(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		got, want := tensor.F16ToF32(h), float16.Frombits(h).Float32()
		if math.Float32bits(got) != math.Float32bits(want) {
			t.Fatalf("%#04x is %v (%#08x), want %v (%#08x)", h, got, math.Float32bits(got), want, math.Float32bits(want))
		}
		if back := tensor.F32ToF16(got); back != h && !(got != got && back == h|0x200) {
			t.Fatalf("%#04x became %v became %#04x", h, got, back)
		}
	}
}

// TestF16Bulk holds the loop to the scalar conversion.
func TestF16Bulk(t *testing.T) {
	src := make([]byte, 2<<16)
	for i := range 1 << 16 {
		binary.LittleEndian.PutUint16(src[2*i:], uint16(i))
	}
	dst := make([]float32, 1<<16)
	if err := tensor.ToFloat32(dst, src, tensor.F16); err != nil {
		t.Fatal(err)
	}
	for i, got := range dst {
		if want := tensor.F16ToF32(uint16(i)); math.Float32bits(got) != math.Float32bits(want) {
			t.Fatalf("%#04x is %v, want %v", i, got, want)
		}
	}
}

// TestF16Rounding compares rounding on values about every representable one
// and on random bits.
func TestF16Rounding(t *testing.T) {
	check := func(b uint32) {
		f := math.Float32frombits(b)
		got, want := tensor.F32ToF16(f), uint16(float16.Fromfloat32(f))
		if got != want {
			t.Fatalf("%v (%#08x) rounds to %#04x, want %#04x", f, b, got, want)
		}
	}
	for i := range 1 << 16 {
		b := math.Float32bits(tensor.F16ToF32(uint16(i)))
		for _, d := range []uint32{0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF, 0x7FFFFF} {
			check(b + d)
			check(b - d)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1 << 20 {
		check(rng.Uint32())
	}
}

// TestBF16 walks all patterns and holds rounding to the definition: the
// nearer neighbour, the even one at a tie.
func TestBF16(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		f := tensor.BF16ToF32(h)
		if math.Float32bits(f) != uint32(h)<<16 {
			t.Fatalf("%#04x is %v", h, f)
		}
		if f != f {
			if back := tensor.F32ToBF16(f); back != h|0x40 {
				t.Fatalf("NaN %#04x became %#04x", h, back)
			}
			continue
		}
		for _, low := range []uint32{0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF} {
			b := uint32(h)<<16 | low
			want := h
			if low > 0x8000 || low == 0x8000 && h&1 == 1 {
				want++
			}
			if math.IsInf(float64(f), 0) && low != 0 {
				continue // a NaN
			}
			if got := tensor.F32ToBF16(math.Float32frombits(b)); got != want {
				t.Fatalf("%#08x rounds to %#04x, want %#04x", b, got, want)
			}
		}
	}
	// A NaN whose upper half is that of an infinity stays a NaN.
	if got := tensor.F32ToBF16(math.Float32frombits(0x7F800001)); got != 0x7FC0 {
		t.Errorf("a low NaN became %#04x", got)
	}
}

// TestWideTypes checks integers, booleans and f64 at their ends.
func TestWideTypes(t *testing.T) {
	le := binary.LittleEndian
	for _, c := range []struct {
		d    tensor.DType
		raw  []byte
		want float32
	}{
		{tensor.F64, le.AppendUint64(nil, math.Float64bits(1+0x1p-24)), 1},
		{tensor.F64, le.AppendUint64(nil, math.Float64bits(1+0x3p-24)), 1 + 0x1p-22},
		{tensor.F32, le.AppendUint32(nil, 0x80000001), -0x1p-149},
		{tensor.I64, le.AppendUint64(nil, 1<<63), -0x1p63},
		{tensor.U64, le.AppendUint64(nil, 1<<64-1), 0x1p64},
		{tensor.I32, le.AppendUint32(nil, 0xFFFFFFFF), -1},
		{tensor.U32, le.AppendUint32(nil, 0xFFFFFFFF), 0x1p32},
		{tensor.I16, le.AppendUint16(nil, 0x8000), -32768}, {tensor.U16, le.AppendUint16(nil, 0x8000), 32768},
		{tensor.I8, []byte{0x80}, -128}, {tensor.U8, []byte{0x80}, 128},
		{tensor.Bool, []byte{0}, 0}, {tensor.Bool, []byte{2}, 1},
	} {
		got := make([]float32, 1)
		if err := tensor.ToFloat32(got, c.raw, c.d); err != nil {
			t.Fatal(err)
		}
		if got[0] != c.want {
			t.Errorf("%v % x is %v, want %v", c.d, c.raw, got[0], c.want)
		}
	}
}

// TestUnaligned reads and writes f32 and f64 at odd addresses.
func TestUnaligned(t *testing.T) {
	raw := make([]byte, 13)
	want := []float32{1.5, -2.25, float32(math.Inf(1))}
	if err := tensor.FromFloat32(raw[1:], want, tensor.F32); err != nil {
		t.Fatal(err)
	}
	got := make([]float32, 3)
	if err := tensor.ToFloat32(got, raw[1:], tensor.F32); err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("element %d is %v, want %v", i, got[i], want[i])
		}
	}
}

// TestRefusals wants errors, not panics, for lengths and types that do not
// suit.
func TestRefusals(t *testing.T) {
	for d := tensor.Invalid; d < 40; d++ {
		for _, size := range []int{0, 1, 3, 7, 8, 9} {
			want, err := tensor.Size(d, []int64{2})
			ok := err == nil && int64(size) == want && d != tensor.C64
			if err := tensor.ToFloat32(make([]float32, 2), make([]byte, size), d); (err == nil) != ok {
				t.Errorf("%v: 2 elements from %d bytes: %v", d, size, err)
			}
			if err := tensor.FromFloat32(make([]byte, size), make([]float32, 2), d); err == nil && !ok {
				t.Errorf("%v: 2 elements into %d bytes", d, size)
			}
		}
	}
	for _, d := range []tensor.DType{tensor.I32, tensor.U8, tensor.Bool, tensor.C64} {
		size, _ := tensor.Size(d, []int64{1})
		if err := tensor.FromFloat32(make([]byte, size), []float32{1}, d); err == nil {
			t.Errorf("f32 converted to %v", d)
		}
	}
}

func BenchmarkToFloat32(b *testing.B) {
	const n = 1 << 16
	dst := make([]float32, n)
	for _, d := range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16, tensor.F8E4M3} {
		src := make([]byte, n*d.Bits()/8)
		rng := rand.New(rand.NewPCG(1, 1))
		for i := range dst {
			dst[i] = float32(rng.NormFloat64()) * 0.02
		}
		if err := tensor.FromFloat32(src, dst, d); err != nil {
			b.Fatal(err)
		}
		b.Run(d.String(), func(b *testing.B) {
			for b.Loop() {
				if err := tensor.ToFloat32(dst, src, d); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*n/b.Elapsed().Seconds()/1e6, "Melements/s")
		})
	}
}

func BenchmarkFromFloat32(b *testing.B) {
	const n = 1 << 16
	src := make([]float32, n)
	for i := range src {
		src[i] = float32(math.Sin(float64(i))) * 0.02
	}
	for _, d := range []tensor.DType{tensor.F16, tensor.BF16, tensor.F8E4M3} {
		dst := make([]byte, n*d.Bits()/8)
		b.Run(d.String(), func(b *testing.B) {
			for b.Loop() {
				if err := tensor.FromFloat32(dst, src, d); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*n/b.Elapsed().Seconds()/1e6, "Melements/s")
		})
	}
}
