package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/hip"
)

// numbers carries a Decode out, and returns what it wrote as it lies in memory.
func (m *machine) numbers(t testing.TB, o hip.Decode) []byte {
	t.Helper()
	y := m.put(t, make([]byte, o.N*o.K*o.Type.Bits()/8))
	o.Y = y.address()
	defer y.release()
	if table := o.Format.DecodeTable(); table != nil {
		at := m.put(t, table)
		defer at.release()
		o.Table = at.address()
	}
	m.run(t, o.Calls(m.target))
	got := make([]byte, o.N*o.K*o.Type.Bits()/8)
	y.get(t, got)
	return got
}

// sameNumbers compares with what is rounded from float32.
func sameNumbers(t testing.TB, what string, got []byte, kind tensor.DType, want []float32) {
	t.Helper()
	raw := make([]byte, len(got))
	if err := tensor.FromFloat32(raw, want, kind); err != nil {
		t.Fatal(err)
	}
	have, should := make([]float32, len(want)), make([]float32, len(want))
	if err := tensor.ToFloat32(have, got, kind); err != nil {
		t.Fatal(err)
	}
	if err := tensor.ToFloat32(should, raw, kind); err != nil {
		t.Fatal(err)
	}
	sameBits(t, what, have, should)
}

// blockScales returns the scales of a tensor's blocks, d first.
func blockScales(s *stored) (all [2][]float32) {
	data := s.matrix.Data(0)
	for at := 0; at < len(data); at += s.scheme.BlockBytes {
		b := data[at : at+s.scheme.BlockBytes]
		for i, place := range s.scheme.ScaleAt {
			switch s.scheme.Scale {
			case scheme.ScaleF16:
				all[i] = append(all[i], halfOf(b[place], b[place+1]))
			case scheme.ScaleNibbles:
				all[0] = append(all[0], halfOf(b[place+1]>>4|b[place+3]>>4<<4, b[place+5]>>4|b[place+7]>>4<<4))
			}
		}
	}
	return all
}

func halfOf(low, high byte) float32 {
	var f [1]float32
	if err := tensor.ToFloat32(f[:], []byte{low, high}, tensor.F16); err != nil {
		panic(err)
	}
	return f[0]
}

// decodeOf brings a tensor of blocks to the device as it is stored.
func (m *machine) decodeOf(t testing.TB, s *stored) hip.Decode {
	t.Helper()
	params := s.Params
	if s.scheme.Name == "nvfp4" {
		params = nil // the factors of rows are the caller's
	}
	f, err := hip.FormatOf(s.scheme, params, s.matrix.K)
	if err != nil {
		t.Fatal(err)
	}
	o := hip.Decode{Format: f, Type: tensor.F32, N: s.n(), Of: s.n(), K: s.k(), From: m.put(t, s.matrix.Data(0)).address()}
	scales := blockScales(s)
	for i, to := range []*hip.Address{&o.D, &o.M} {
		if scales[i] != nil {
			*to = m.put(t, scales[i]).address()
		}
	}
	return o
}

// TestDecodeBlocks writes every scheme of blocks in every type, all rows and some, of which it lacks a few.
func TestDecodeBlocks(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(7, 1))
	for _, v := range varieties(t) {
		if v.blocks == nil || v.params != nil || !taken(t) {
			continue
		}
		t.Run(v.String(), func(t *testing.T) {
			for _, n := range []int{1, 37} {
				s := v.make(t, r, n, 3*max(v.scheme.Block, 32))
				o, want := m.decodeOf(t, s), s.floats()
				for _, kind := range hip.DecodeTypes {
					o.Type = kind
					sameNumbers(t, fmt.Sprintf("%d rows as %v", n, kind), m.numbers(t, o), kind, want)
				}
				rows := []int64{int64(n - 1), 0, -1, int64(n / 2), int64(n), 0, -100, 1 << 32, math.MinInt64, 0}
				var some []float32
				for _, row := range rows {
					if row < 0 || row >= int64(n) {
						some = append(some, slices.Repeat([]float32{float32(math.NaN())}, o.K)...)
						continue
					}
					some = append(some, want[int(row)*o.K:(int(row)+1)*o.K]...)
				}
				o.Rows, o.N = m.put(t, rows).address(), len(rows)
				for _, o.Type = range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16} {
					sameNumbers(t, fmt.Sprintf("some rows as %v", o.Type), m.numbers(t, o), o.Type, some)
				}
			}
		})
	}
}

// TestDecodeBlockVectors holds the vectors' blocks to the reference.
func TestDecodeBlockVectors(t *testing.T) {
	m := open(t)
	for _, v := range vectors(t) {
		if s, ok := scheme.ByName(v.Scheme); !ok || s.BlockBytes == 0 || v.Params != nil || !sampled(t) {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			s := v.read(t)
			sameNumbers(t, v.Name, m.numbers(t, m.decodeOf(t, s)), tensor.F32, s.floats())
		})
	}
}

// TestDecodeOtherScales puts other numbers in the place of a block's scales.
func TestDecodeOtherScales(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(7, 2))
	for _, v := range varieties(t) {
		if v.scheme.Name != "q4_0" && v.scheme.Name != "q4_k" {
			continue
		}
		s := v.make(t, r, 5, 512)
		o, want := m.decodeOf(t, s), s.floats()
		scales := blockScales(s)
		for i, to := range []*hip.Address{&o.D, &o.M} {
			for j := range scales[i] {
				scales[i][j] *= 1.5 // one bit more, so that all is exact as before
			}
			if scales[i] != nil {
				*to = m.put(t, scales[i]).address()
			}
		}
		var got []float32
		raw := m.numbers(t, o)
		got = make([]float32, len(want))
		if err := tensor.ToFloat32(got, raw, tensor.F32); err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if e := 1.5 * want[i]; math.Abs(float64(got[i]-e)) > 1e-5*math.Abs(float64(e))+1e-6 {
				t.Fatalf("%v: number %d is %g, want %g", v, i, got[i], e)
			}
		}
	}
}

// TestDecodeTCQ writes trellis codes with every number of bits and size of rotated block.
func TestDecodeTCQ(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(7, 3))
	for _, c := range []struct{ bits, in, out, n, k, scales int }{
		{3, 128, 128, 256, 128, 3}, {3, 1, 1, 48, 80, 0}, {2, 64, 32, 96, 192, 1}, {4, 16, 64, 192, 144, 2}, {5, 2, 2, 16, 16, 3},
		{6, 4, 8, 144, 32, 3}, {3, 32, 16, 16, 160, 0}, {4, 8, 4, 32, 16, 1}, {2, 128, 1, 80, 256, 2}, {3, 1, 128, 128, 48, 1},
	} {
		if !taken(t) {
			continue
		}
		p := scheme.TCQ{Bits: c.bits, Codebook: scheme.TCQCodebookFor(c.bits), RotateIn: c.in, RotateOut: c.out, Seed: int64(c.n), InScales: c.scales&1 != 0, OutScales: c.scales&2 != 0}
		if c.bits == 4 && c.in == 8 {
			p.Codebook = scheme.TCQBytes2
		}
		s := trellis(t, r, p, int64(c.n), int64(c.k))
		f, err := hip.FormatOf(s.scheme, s.Params, s.matrix.K)
		if err != nil {
			t.Fatal(err)
		}
		o := hip.Decode{Format: f, Type: tensor.F32, N: s.n(), K: s.k(), From: m.put(t, s.matrix.Data(0)).address()}
		specs, err := s.scheme.Parts(s.Shape, s.Params)
		if err != nil {
			t.Fatal(err)
		}
		for i, spec := range specs[1:] {
			x := make([]float32, spec.Bytes/2)
			if err := tensor.ToFloat32(x, s.matrix.Data(i+1), tensor.F16); err != nil {
				t.Fatal(err)
			}
			*map[string]*hip.Address{"scales": &o.Units, "in": &o.In, "out": &o.Out}[spec.Name] = m.put(t, x).address()
		}
		for _, kind := range hip.DecodeTypes {
			o.Type = kind
			sameNumbers(t, fmt.Sprintf("%+v as %v", c, kind), m.numbers(t, o), kind, s.floats())
		}
	}
}
