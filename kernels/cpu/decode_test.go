package cpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/cpu"
)

// Decoders give the bits of the reference, whatever rows are asked for, and write nothing
// beyond. Random bytes make scales that are infinite, not a number and subnormal, too.
func TestDecodersAreTheReference(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var cases []*scheme.Matrix
	add := func(name string, n, k int, params map[string]int64) {
		cases = append(cases, opened(t, name, n, k, params, func(part string, raw []byte) {
			if name == "tcq" && part != "codes" {
				fillNumbers(raw, tensor.F16, func() float32 { return float32(r.NormFloat64()) })
				return
			}
			for i := range raw {
				raw[i] = byte(r.Uint32())
			}
		}))
	}
	for _, name := range cpu.Integers() {
		s, _ := scheme.ByName(name)
		for _, blocks := range []int{1, 3, 1024 / s.Block} {
			add(name, 9, blocks*s.Block, nil)
		}
	}
	add("nvfp4", 9, 192, map[string]int64{"rows": 2})
	for _, book := range []scheme.TCQCodebook{scheme.TCQBytes4, scheme.TCQBytes2, scheme.TCQFine4} {
		for bits := scheme.TCQMinBits; bits <= scheme.TCQMaxBits; bits++ {
			for i, in := range []int{1, 2, 8, 16, 64, 128} {
				for j, out := range []int{1, 4, 8, 16, 32, 64, 128} {
					p := scheme.TCQ{Bits: bits, Codebook: book, RotateIn: in, RotateOut: out, Seed: int64(bits), InScales: i%2 == 0, OutScales: j%2 == 0}
					add("tcq", 128, []int{128, 256, 384}[(i+j)%3], p.Params())
					if in <= 16 && (i+j)%3 == 0 {
						add("tcq", 160*out/min(out, 32), 144, p.Params())
					}
				}
			}
		}
	}
	eachLevel(t, func(t *testing.T, s *cpu.Set) {
		for _, m := range cases {
			d, n, k := s.Decoder(m), int(m.N), int(m.K)
			want, got := make([]float32, n*k), make([]float32, n*k+1)
			m.DecodeRows(want, 0, m.N)
			for _, rows := range [][2]int{{0, n}, {n / 3, n - n/3}, {n - 1, 1}, {1, n / 2}, {0, n - 1}} {
				row, count := rows[0], rows[1]
				got[count*k] = 42
				d.Decode(got, row, count)
				if got[count*k] != 42 {
					t.Fatalf("%s %v K=%d: wrote beyond %d rows", m.Scheme, m.Params, k, count)
				}
				for i, w := range want[row*k : (row+count)*k] {
					if math.Float32bits(got[i]) != math.Float32bits(w) && (got[i] == got[i] || w == w) {
						t.Fatalf("%s %v K=%d: weight %d of %d rows from %d on is %g, want %g", m.Scheme, m.Params, k, i, count, row, got[i], w)
					}
				}
			}
		}
	})
}

// BenchmarkDecode tells float32 written in a second by one core, again and again into the
// same 8 MiB.
func BenchmarkDecode(b *testing.B) {
	const n, k = 512, 4096
	r := rand.New(rand.NewPCG(1, 2))
	matrices := map[string]*scheme.Matrix{}
	fill := func(part string, raw []byte) {
		for i := range raw {
			if raw[i] = byte(r.Uint32()); part != "codes" {
				raw[i] &= 0x3f
			}
		}
	}
	for _, name := range []string{"q4_0", "q8_0", "q2_k", "q4_k", "q6_k", "iq2_s"} {
		matrices[name] = opened(b, name, n, k, nil, fill)
	}
	for bits := 2; bits <= 4; bits++ {
		p := scheme.TCQ{Bits: bits, Codebook: scheme.TCQBytes4, RotateIn: 128, RotateOut: 128, InScales: true, OutScales: true}
		matrices[fmt.Sprintf("tcq%d", bits)] = opened(b, "tcq", n, k, p.Params(), fill)
	}
	dst := make([]float32, n*k)
	for name, m := range matrices {
		run := func(level string, decode func()) {
			b.Run(name+"/"+level, func(b *testing.B) {
				b.SetBytes(4 * n * k)
				for b.Loop() {
					decode()
				}
			})
		}
		run("reference", func() { m.DecodeRows(dst, 0, n) })
		for _, l := range cpu.Levels()[1:] {
			s, err := cpu.ForLevel(l)
			if err != nil {
				b.Fatal(err)
			}
			d := s.Decoder(m)
			run(l.String(), func() { d.Decode(dst, 0, n) })
		}
	}
}
