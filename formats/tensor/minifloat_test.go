package tensor_test

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/testdata/packed"
)

// smallTypes are the types of smallfloats.f32.
var smallTypes = map[string]tensor.DType{
	"float8_e4m3fn": tensor.F8E4M3, "float8_e5m2": tensor.F8E5M2,
	"float8_e4m3fnuz": tensor.F8E4M3Z, "float8_e5m2fnuz": tensor.F8E5M2Z, "float8_e8m0fnu": tensor.F8E8M0,
	"float6_e2m3fn": tensor.F6E2M3, "float6_e3m2fn": tensor.F6E3M2, "float4_e2m1fn": tensor.F4E2M1,
}

// pack packs codes of a type, whatever its width.
func pack(codes []uint8, bits int) []byte {
	out := make([]byte, (len(codes)*bits+7)/8)
	for i, c := range codes {
		for b := range bits {
			at := i*bits + b
			out[at/8] |= c >> b & 1 << (at % 8)
		}
	}
	return out
}

func unpack(src []byte, n, bits int) []uint8 {
	codes := make([]uint8, n)
	for i := range codes {
		for b := range bits {
			at := i*bits + b
			codes[i] |= src[at/8] >> (at % 8) & 1 << b
		}
	}
	return codes
}

// smallValues returns every code's value as ml_dtypes has it.
func smallValues(t *testing.T) map[tensor.DType][]float32 {
	t.Helper()
	raw, err := os.ReadFile("../../testdata/vectors/schemes.json")
	if err != nil {
		t.Fatal(err)
	}
	var index struct{ Smallfloats [][2]any }
	if err := json.Unmarshal(raw, &index); err != nil {
		t.Fatal(err)
	}
	raw = packed.Read(t, "../../testdata/vectors/smallfloats.f32")
	values := map[tensor.DType][]float32{}
	for _, row := range index.Smallfloats {
		d, ok := smallTypes[row[0].(string)]
		if !ok {
			t.Fatalf("unknown type %v", row[0])
		}
		for range int(row[1].(float64)) {
			values[d] = append(values[d], math.Float32frombits(binary.LittleEndian.Uint32(raw)))
			raw = raw[4:]
		}
	}
	if len(raw) != 0 || len(values) != len(smallTypes) {
		t.Fatalf("%d types, %d bytes left", len(values), len(raw))
	}
	return values
}

// TestSmallDecode holds every code of the types of 8 bits and fewer to
// ml_dtypes.
func TestSmallDecode(t *testing.T) {
	for d, want := range smallValues(t) {
		codes := make([]uint8, len(want))
		for i := range codes {
			codes[i] = uint8(i)
		}
		got := make([]float32, len(want))
		if err := tensor.ToFloat32(got, pack(codes, d.Bits()), d); err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if got[i] != want[i] && !(got[i] != got[i] && want[i] != want[i]) ||
				got[i] == got[i] && math.Signbit(float64(got[i])) != math.Signbit(float64(want[i])) {
				t.Errorf("%v code %#02x is %v, want %v", d, i, got[i], want[i])
			}
		}
	}
}

// nearest is the definition of rounding: among the finite codes of the right
// sign the nearest value, at a tie the even code, beyond the largest the
// largest.
func nearest(values []float32, x float32) uint8 {
	best, least := -1, math.Inf(1)
	for c, v := range values {
		if v != v || math.IsInf(float64(v), 0) || math.Signbit(float64(v)) != math.Signbit(float64(x)) {
			continue
		}
		if e := math.Abs(float64(v) - float64(x)); e < least || e == least && c&1 == 0 {
			best, least = c, e
		}
	}
	return uint8(best)
}

// TestSmallEncode compares encoding with a search over all codes, on all
// values, all midpoints and their neighbours, and random numbers.
func TestSmallEncode(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for d, values := range smallValues(t) {
		var xs []float32
		for c, v := range values {
			if v != v || math.IsInf(float64(v), 0) {
				continue
			}
			for _, w := range values[c:min(c+2, len(values))] { // itself and its neighbour
				if m := (float64(v) + float64(w)) / 2; m == m && !math.IsInf(m, 0) && float64(float32(m)) == m {
					f := float32(m)
					xs = append(xs, f, math.Nextafter32(f, 1e30), math.Nextafter32(f, -1e30))
				}
			}
		}
		for range 2000 {
			xs = append(xs, float32(math.Ldexp(rng.Float64()*2-1, rng.IntN(40)-24)))
		}
		for _, x := range xs {
			if x < 0 && d == tensor.F8E8M0 || x == 0 && math.Signbit(float64(x)) || math.Abs(float64(x)) < 1e-44 {
				continue
			}
			want := nearest(values, x)
			if got := encode1(t, d, x); got != want && !(values[got] == 0 && values[want] == 0) &&
				!(d == tensor.F8E4M3Z || d == tensor.F8E5M2Z) {
				t.Fatalf("%v: %v became code %#02x (%v), want %#02x (%v)", d, x, got, values[got], want, values[want])
			} else if values[got] != values[want] && !(values[got] == 0 && x < 0) {
				t.Fatalf("%v: %v became %v, want %v", d, x, values[got], values[want])
			}
		}
	}
}

func encode1(t *testing.T, d tensor.DType, x float32) uint8 {
	t.Helper()
	dst := make([]byte, 1)
	if err := tensor.FromFloat32(dst, []float32{x}, d); err != nil {
		t.Fatal(err)
	}
	return unpack(dst, 1, d.Bits())[0]
}

// TestSpecials pins infinities, NaN and signs at the ends.
func TestSpecials(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		d    tensor.DType
		x    float32
		want uint8
	}{
		{tensor.F8E4M3, inf, 0x7E}, {tensor.F8E4M3, -inf, 0xFE}, {tensor.F8E4M3, nan, 0x7F}, {tensor.F8E4M3, 1e9, 0x7E},
		{tensor.F8E5M2, inf, 0x7C}, {tensor.F8E5M2, -inf, 0xFC}, {tensor.F8E5M2, nan, 0x7E}, {tensor.F8E5M2, -1e9, 0xFB},
		{tensor.F8E4M3Z, inf, 0x7F}, {tensor.F8E4M3Z, nan, 0x80}, {tensor.F8E4M3Z, float32(math.Copysign(0, -1)), 0},
		{tensor.F8E4M3Z, -1e-9, 0}, {tensor.F8E5M2Z, -inf, 0xFF}, {tensor.F8E5M2Z, nan, 0x80},
		{tensor.F8E4M3, float32(math.Copysign(0, -1)), 0x80},
		{tensor.F8E8M0, nan, 255}, {tensor.F8E8M0, -1, 255}, {tensor.F8E8M0, 0, 0}, {tensor.F8E8M0, inf, 254}, {tensor.F8E8M0, 1, 127},
		{tensor.F6E2M3, inf, 0x1F}, {tensor.F6E3M2, -inf, 0x3F}, {tensor.F4E2M1, 1e9, 7},
	} {
		if got := encode1(t, c.d, c.x); got != c.want {
			t.Errorf("%v: %v became %#02x, want %#02x", c.d, c.x, got, c.want)
		}
	}
	for _, d := range []tensor.DType{tensor.F6E2M3, tensor.F6E3M2, tensor.F4E2M1} {
		if err := tensor.FromFloat32(make([]byte, 1), []float32{nan}, d); err == nil {
			t.Errorf("%v took a NaN", d)
		}
	}
}

// TestPacked checks codes that cross bytes, at every length.
func TestPacked(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, d := range []tensor.DType{tensor.F6E2M3, tensor.F6E3M2, tensor.F4E2M1} {
		for n := range 17 {
			codes := make([]uint8, n)
			for i := range codes {
				codes[i] = uint8(rng.Uint32N(1 << d.Bits()))
			}
			packed := pack(codes, d.Bits())
			got := make([]float32, n)
			if err := tensor.ToFloat32(got, packed, d); err != nil {
				t.Fatal(err)
			}
			again := make([]byte, len(packed))
			if err := tensor.FromFloat32(again, got, d); err != nil {
				t.Fatal(err)
			}
			if string(again) != string(packed) {
				t.Errorf("%v: %d codes % x became % x", d, n, packed, again)
			}
		}
	}
}
