package cpu_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/ops"
)

func random(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

func wantSame(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: element %d is %g, want %g to the bit", what, i, got[i], want[i])
		}
	}
}

// Any split over threads gives the same bits, and so does any company of tokens
// on one side of the limit below which rows are not packed.
func TestGemmDoesNotDependOnTheSplit(t *testing.T) {
	eachLevel(t, func(t *testing.T, s *cpu.Set) {
		const tokens, n, k = 40, 203, 700
		r := rand.New(rand.NewPCG(1, 1))
		a, w := random(r, tokens*k), random(r, n*k)
		rows := func(dst []float32, row int) { copy(dst, w[row*k:]) }
		var scratch cpu.GemmScratch
		whole := make([]float32, tokens*n)
		s.Gemm(whole, n, a, k, tokens, 0, n, k, rows, &scratch)
		for _, threads := range []int{1, 2, 3, 5} {
			pool, scratches := cpu.NewPool(threads), make([]cpu.GemmScratch, threads)
			for _, parts := range []int{1, 2, 7, 50} {
				c := make([]float32, tokens*n)
				pool.RunWorkers(parts, func(worker, part int) {
					n0, n1 := cpu.Span(n, 1, parts, part)
					s.Gemm(c, n, a, k, tokens, n0, n1, k, rows, &scratches[worker])
				})
				wantSame(t, "split", c, whole)
			}
			pool.Close()
		}
		for fewer := 1; fewer < tokens; fewer++ {
			c := make([]float32, fewer*n)
			s.GemmMany(c, n, a, k, fewer, 0, n, k, rows, &scratch)
			wantSame(t, "fewer tokens", c, whole[:fewer*n])
			c = make([]float32, fewer*n)
			s.GemmMany(c, n, a, k, fewer, 17, 150, k, rows, &scratch)
			for i := range fewer {
				wantSame(t, "some outputs", c[i*n+17:i*n+150], whole[i*n+17:i*n+150])
			}
			if fewer > cpu.FewTokens {
				s.Gemm(c, n, a, k, fewer, 0, n, k, rows, &scratch)
				wantSame(t, "fewer tokens", c, whole[:fewer*n])
			}
		}
	})
}

func TestRowsAreDots(t *testing.T) {
	eachLevel(t, func(t *testing.T, s *cpu.Set) {
		r := rand.New(rand.NewPCG(2, 2))
		for _, k := range []int{1, 17, 64, 300} {
			const n = 11
			w, x := random(r, n*k), random(r, k)
			y, dots := make([]float32, n), make([]float32, n)
			s.MatVecF32(y, w, x)
			for i := range dots {
				dots[i] = s.Dot(w[i*k:(i+1)*k], x)
			}
			wantSame(t, "MatVecF32", y, dots)
		}
	})
}

// With one and the same weights, few tokens are rows times tokens, whatever the weights
// are stored in: each token has the bits that it has alone.
func TestFewTokensAreDots(t *testing.T) {
	eachLevel(t, func(t *testing.T, s *cpu.Set) {
		const n = 23
		for _, k := range []int{8, 130, 300, 1025, 9000} {
			r := rand.New(rand.NewPCG(3, 3))
			w := random(r, n*k)
			bf16, f16 := make([]byte, 2*n*k), make([]byte, 2*n*k)
			s.EncodeBF16(bf16, w)
			s.EncodeF16(f16, w)
			for _, c := range []struct {
				name   string
				matVec func(y, x []float32)
				row    cpu.RowDecoder
			}{
				{"f32", func(y, x []float32) { s.MatVecF32(y, w, x) }, func(dst []float32, row int) { copy(dst, w[row*k:]) }},
				{"bf16", func(y, x []float32) { s.MatVecBF16(y, bf16, x) }, func(dst []float32, row int) { s.DecodeBF16(dst, bf16[2*row*k:2*(row+1)*k]) }},
				{"f16", func(y, x []float32) { s.MatVecF16(y, f16, x) }, func(dst []float32, row int) { s.DecodeF16(dst, f16[2*row*k:2*(row+1)*k]) }},
			} {
				var scratch cpu.GemmScratch
				a := random(r, cpu.FewTokens*k)
				for tokens := 1; tokens <= cpu.FewTokens; tokens++ {
					out, y := make([]float32, tokens*n), make([]float32, n)
					s.Gemm(out, n, a, k, tokens, 0, n, k, c.row, &scratch)
					for i := range tokens {
						c.matVec(y, a[i*k:(i+1)*k])
						wantSame(t, c.name, out[i*n:(i+1)*n], y)
					}
				}
			}
		}
	})
}

// What a query attends to, and how its sums are cut into parts, is its own: its bits
// are those that it has without the other queries.
func TestAttendDoesNotDependOnCompany(t *testing.T) {
	eachLevel(t, func(t *testing.T, s *cpu.Set) {
		const d, group, positions = 40, 3, 1100
		r := rand.New(rand.NewPCG(4, 4))
		reach := []cpu.Reach{{Lo: 0, Hi: 511}, {Lo: 0, Hi: 512}, {Lo: 0, Hi: 513}, {Lo: 3, Hi: 514}, {Lo: 200, Hi: 700}, {Lo: 201, Hi: 701}, {Lo: 1023, Hi: 1024}, {Lo: 790, Hi: 1100}}
		q := random(r, len(reach)*group*d)
		for format := range cpu.KVQ3 + 1 {
			a := cpu.Attention{Format: format, Dim: d, Group: group, Scale: 0.2, Softcap: 7 * float32(format%2)}
			var blocks []cpu.KVBlock
			for p := range positions {
				if p%cpu.KVPositions == 0 {
					blocks = append(blocks, cpu.NewKVBlocks(format, 1, d, d)...)
				}
				s.StoreKV(format, &blocks[len(blocks)-1], p%cpu.KVPositions, random(r, d), random(r, d))
			}
			attend := func(first, n int) []float32 {
				var sc cpu.AttendScratch
				var parts []cpu.Partial
				for from := 0; from < positions; from += 512 {
					p := a.Partial(make([]float32, a.PartialFloats(n*group)), n*group)
					s.Attend(p, &a, blocks, q[first*group*d:(first+n)*group*d], reach[first:first+n], from, min(from+512, positions), &sc)
					parts = append(parts, p)
				}
				out := make([]float32, n*group*d)
				for i := range n * group {
					s.Combine(out[i*d:(i+1)*d], &a, parts, i, 0.5)
				}
				return out
			}
			all := attend(0, len(reach))
			for i := range reach {
				wantSame(t, format.String(), all[i*group*d:(i+1)*group*d], attend(i, 1))
				wantSame(t, format.String(), all[i*group*d:], attend(i, len(reach)-i))
			}
		}
	})
}

// Rows are decoded once however many tokens there are.
func TestGemmDecodesEachRowOnce(t *testing.T) {
	eachLevel(t, func(t *testing.T, s *cpu.Set) {
		for _, tokens := range []int{1, 4, 5, 100} {
			const n, k = 150, 20
			counts := make([]int, n)
			rows := func(dst []float32, row int) {
				if len(dst) != k {
					t.Fatalf("RowDecoder was given %d elements, want %d", len(dst), k)
				}
				counts[row]++
				clear(dst)
			}
			var scratch cpu.GemmScratch
			s.Gemm(make([]float32, tokens*n), n, make([]float32, tokens*k), k, tokens, 10, n, k, rows, &scratch)
			for row, c := range counts {
				if want := min(1, row/10); c != want {
					t.Fatalf("%d tokens: row %d was decoded %d times, want %d", tokens, row, c, want)
				}
			}
		}
	})
}

func TestKernelsAllocateNothing(t *testing.T) {
	eachLevel(t, func(t *testing.T, s *cpu.Set) {
		const n, k = 40, 64
		x, y, w, raw := make([]float32, k), make([]float32, n), make([]float32, n*k), make([]byte, 2*n*k)
		a, c := make([]float32, 6*k), make([]float32, 6*n)
		rows := func(dst []float32, row int) { copy(dst, w[row*k:]) }
		var scratch cpu.GemmScratch
		var attend cpu.AttendScratch
		att, reach := cpu.Attention{Dim: k, Group: 2, Softcap: 5}, []cpu.Reach{{Hi: 3}, {Hi: 4}, {Hi: 5}}
		blocks := [][]cpu.KVBlock{cpu.NewKVBlocks(cpu.KVF32, 1, k, k), cpu.NewKVBlocks(cpu.KVF16, 1, k, k), cpu.NewKVBlocks(cpu.KVQ8, 1, k, k), cpu.NewKVBlocks(cpu.KVQ5, 1, k, k), cpu.NewKVBlocks(cpu.KVQ4, 1, k, k), cpu.NewKVBlocks(cpu.KVQ3, 1, k, k)}
		parts := []cpu.Partial{att.Partial(make([]float32, att.PartialFloats(6)), 6)}
		calls := func() {
			s.MatVecF32(y, w, x)
			s.MatVecBF16(y, raw, x)
			s.MatVecF16(y, raw, x)
			y[0] = s.Dot(x, x)
			s.Axpy(x, 2, x)
			s.AccumRows(x, y, w, k)
			s.Gemm(c, n, a, k, 6, 0, n, k, rows, &scratch)
			s.Gemm(c, n, a, k, 2, 0, n, k, rows, &scratch)
			s.Softmax(x)
			s.RMSNorm(x, x, x, 1e-5, 0)
			s.SiLUMul(x, x, w[:k])
			s.SwiGLU(ops.Gating{Alpha: 1.702, Limit: 7, Offset: 1}, x, x, w[:k])
			s.RopeHalf(x, w[:k/2], w[:k/2])
			s.LayerNorm(x, x, x, nil, 1e-5)
			for i := range blocks {
				att.Format = cpu.KVFormat(i)
				s.StoreKV(att.Format, &blocks[i][0], 3, x, w[:k])
				s.Attend(parts[0], &att, blocks[i], w[:6*k], reach, 0, 64, &attend)
				s.Combine(x[:k], &att, parts, 1, 0.5)
			}
		}
		calls()
		if allocs := testing.AllocsPerRun(100, calls); allocs != 0 {
			t.Errorf("%g allocations, want none", allocs)
		}
	})
}

func TestWrongLengthsPanic(t *testing.T) {
	s, x := cpu.Best(), make([]float32, 8)
	var scratch cpu.GemmScratch
	for name, call := range map[string]func(){
		"Dot":        func() { s.Dot(x, x[:7]) },
		"DotRows":    func() { s.DotRows(x, x, 1, x[:2]) },
		"MatVecF32":  func() { s.MatVecF32(x, x, x) },
		"MatVecBF16": func() { s.MatVecBF16(x[:2], make([]byte, 31), x) },
		"Gemm": func() {
			s.Gemm(x, 4, x, 4, 2, 0, 5, 4, func([]float32, int) {}, &scratch)
		},
		"AccumRows": func() { s.AccumRows(x, x[:2], x, 8) },
		"EncodeF16": func() { s.EncodeF16(make([]byte, 8), x) },
		"RMSNorm":   func() { s.RMSNorm(x, x, x[:4], 1e-5, 0) },
		"RopeHalf":  func() { s.RopeHalf(x, make([]float32, 5), make([]float32, 5)) },
		"PanelF32":  func() { s.PanelF32(x, 8, x, 1, x, 8, 1, 8, 1, false) }, // not a multiple of 16
		"PanelF16":  func() { s.PanelF16(make([]float32, 16), 16, x, 2, make([]byte, 63), 16, 1, 16, 2, false) },
		"PanelQ8":   func() { s.PanelQ8(make([]float32, 16), 16, x, 9, make([]byte, 144), 16, 1, 16, 9, false) },
		"StoreKV":   func() { s.StoreKV(cpu.KVQ8, &cpu.NewKVBlocks(cpu.KVQ8, 1, 9, 9)[0], 0, x, x) },
		"Attend": func() {
			a := cpu.Attention{Dim: 8, Group: 1}
			s.Attend(a.Partial(make([]float32, a.PartialFloats(1)), 1), &a, nil, x, []cpu.Reach{{Hi: 1}}, 0, 1, &cpu.AttendScratch{})
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s took slices that do not fit", name)
				}
			}()
			call()
		}()
	}
}
