package cpu

// A RowDecoder writes the K weights of one output feature, W[row], to dst. Gemm
// calls it from one goroutine at a time for a given scratch, once for each row
// of the range that it was given, whatever the number of tokens.
type RowDecoder func(dst []float32, row int)

// A GemmScratch is the memory that one worker multiplies in. The zero value is
// ready; it grows to the largest shape met and is never shared by goroutines.
type GemmScratch struct {
	rows  []float32 // decoded rows, [rowGroup][K], or [fewGroup][K]
	panel []float32 // packed rows, [panels][K][nr]
	edge  []float32 // a tile that hangs over the edge of C, [mr][nr]; or T or fewGroup results
	short []float32 // fewer tokens than a tile has, with zeros behind: [least][K], and their results
}

// A gemmKernel multiplies one tile of C.
type gemmKernel struct {
	least, mr, nr int
	// c[i*ldc+j] = sum over k of a[i*lda+k] * w[k*nr+j] for i < m, j < nr and
	// k < kc, with least <= m <= mr; added to c where add is set. Each element is summed in the
	// order of k, whatever m.
	tile func(m int, a []float32, lda int, w []float32, kc int, c []float32, ldc int, add bool)
	// dst[k*nr+j] = src[j*k0+k] for j < rowGroup and k < k0: rows to columns.
	pack func(dst []float32, nr int, src []float32, k0 int)
}

const (
	rowGroup    = 8       // rows decoded before they are packed; divides every nr
	blockK      = 256     // K features of a panel that a tile reads while they stay in L1
	panelFloats = 1 << 19 // 2 MiB: the packed rows that a worker holds, if nr rows fit
	maxPanels   = 4
	leastTokens = 5       // tiles of at least so many tokens are never lower than a level's least
	fewFloats   = 8 << 10 // 32 KiB: the decoded rows that few tokens pass by together, in L1
	fewGroup    = 4       // and the most of them
)

// Gemm computes C[T][n0:n1] = A[T][K] W[n0:n1][K]^T: the outputs n0 to n1 of
// every token, for one worker; the pool splits N. a and c have rows at distance
// lda and ldc, in elements; c[0] is token 0 of output 0, not of n0. Row n of W
// comes from rows(dst, n), decoded once and used for all tokens. Products and
// sums are float32: of up to [FewTokens] tokens those of [Set.Dot], of more in
// blocks of 256 features. An element's bits depend on k and on whether t exceeds
// FewTokens, and not on n0, n1 or the other tokens.
func (s *Set) Gemm(c []float32, ldc int, a []float32, lda int, t, n0, n1, k int, rows RowDecoder, scratch *GemmScratch) {
	s.multiply(c, ldc, a, lda, t, n0, n1, k, rows, scratch, false, t > FewTokens)
}

// GemmAdd is Gemm with the product added to what c holds.
func (s *Set) GemmAdd(c []float32, ldc int, a []float32, lda int, t, n0, n1, k int, rows RowDecoder, scratch *GemmScratch) {
	s.multiply(c, ldc, a, lda, t, n0, n1, k, rows, scratch, true, t > FewTokens)
}

// GemmMany is Gemm as for more than FewTokens tokens, whatever t is: a row's bits
// are those that it has among them.
func (s *Set) GemmMany(c []float32, ldc int, a []float32, lda int, t, n0, n1, k int, rows RowDecoder, scratch *GemmScratch) {
	s.multiply(c, ldc, a, lda, t, n0, n1, k, rows, scratch, false, true)
}

// GemmFusedAdd is GemmAdd for at least 5 tokens, which are many, with the same bits
// at every level, results below 2^-126 aside: products are fused with the sum,
// blocks of 256 features are added up in order. What decides something is computed
// so; at LevelGeneric it is slow.
func (s *Set) GemmFusedAdd(c []float32, ldc int, a []float32, lda int, t, n0, n1, k int, rows RowDecoder, scratch *GemmScratch) {
	want(t >= leastTokens && gemmFits(len(c), ldc, len(a), lda, t, n0, n1, k), "GemmFusedAdd", len(c), ldc, len(a), lda, t, n0, n1, k)
	s.fused.multiply(c, ldc, a, lda, t, n0, n1, k, rows, scratch, true)
}

func gemmFits(c, ldc, a, lda, t, n0, n1, k int) bool {
	return 0 <= n0 && n0 <= n1 && k > 0 && rowsFit(a, t, lda, k) && rowsFit(c, t, ldc, n1)
}

func (s *Set) multiply(c []float32, ldc int, a []float32, lda int, t, n0, n1, k int, rows RowDecoder, sc *GemmScratch, add, many bool) {
	want(gemmFits(len(c), ldc, len(a), lda, t, n0, n1, k), "Gemm", len(c), ldc, len(a), lda, t, n0, n1, k)
	switch {
	case t == 0 || n0 == n1:
	case !many:
		s.multiplyFew(c, ldc, a, lda, t, n0, n1, k, rows, sc, add)
	case t < leastTokens:
		s.gemm.multiplyShort(c, ldc, a, lda, t, n0, n1, k, rows, sc, add)
	default:
		s.gemm.multiply(c, ldc, a, lda, t, n0, n1, k, rows, sc, add)
	}
}

// multiplyShort is multiply for fewer tokens than a tile takes.
func (g *gemmKernel) multiplyShort(c []float32, ldc int, a []float32, lda, t, n0, n1, k int, rows RowDecoder, sc *GemmScratch, add bool) {
	n := n1 - n0
	sc.short = grown(sc.short, leastTokens*(k+n))
	whole, out := sc.short[:leastTokens*k], sc.short[leastTokens*k:]
	clear(whole[t*k:])
	for i := range t {
		copy(whole[i*k:(i+1)*k], a[i*lda:])
	}
	g.multiply(out, n, whole, k, leastTokens, 0, n, k, func(dst []float32, row int) { rows(dst, n0+row) }, sc, false)
	for i := range t {
		put(c[i*ldc+n0:i*ldc+n1], out[i*n:], add)
	}
}

func (g *gemmKernel) multiply(c []float32, ldc int, a []float32, lda, t, n0, n1, k int, rows RowDecoder, sc *GemmScratch, add bool) {
	mr, nr := g.mr, g.nr
	most := nr * min(max(panelFloats/(nr*k), 1), maxPanels)
	tiles := (t + mr - 1) / mr
	for n := n0; n < n1; n += most {
		here := min(most, n1-n)
		g.packPanels(sc, rows, n, here, k)
		for k0 := 0; k0 < k; k0 += blockK {
			for i := range tiles {
				lo, hi := i*t/tiles, (i+1)*t/tiles // even heights, none under least
				g.multiplyTile(c[lo*ldc+n:], ldc, a[lo*lda+k0:], lda, hi-lo, here, k, k0, sc, add || k0 > 0)
			}
		}
	}
}

// multiplyTile runs m tokens against all packed panels, for one block of K.
func (g *gemmKernel) multiplyTile(c []float32, ldc int, a []float32, lda, m, here, k, k0 int, sc *GemmScratch, add bool) {
	nr, kc := g.nr, min(blockK, k-k0)
	for j := 0; j < here; j += nr {
		w := sc.panel[j*k+k0*nr:]
		if here-j >= nr {
			g.tile(m, a, lda, w, kc, c[j:], ldc, add)
			continue
		}
		sc.edge = grown(sc.edge, g.mr*nr)
		g.tile(m, a, lda, w, kc, sc.edge, nr, false)
		for i := range m {
			put(c[i*ldc+j:i*ldc+here], sc.edge[i*nr:], add)
		}
	}
}

// packPanels decodes rows n to n+here and lays them out a panel of nr after the
// other, features outermost. What the last panel holds for rows beyond is left
// over from earlier ones, and its products are dropped.
func (g *gemmKernel) packPanels(sc *GemmScratch, rows RowDecoder, n, here, k int) {
	nr := g.nr
	sc.rows = grown(sc.rows, rowGroup*k)
	sc.panel = grown(sc.panel, (here+nr-1)/nr*nr*k)
	for j := 0; j < here; j += nr {
		for first := 0; first < nr; first += rowGroup {
			for r := range rowGroup {
				if row := j + first + r; row < here {
					rows(sc.rows[r*k:(r+1)*k], n+row)
				}
			}
			g.pack(sc.panel[j*k+first:], nr, sc.rows, k)
		}
	}
}

// multiplyFew has the tokens pass by a few rows at a time, or takes one row to all
// of them where rows are long: an element is a dot product of its own either way.
func (s *Set) multiplyFew(c []float32, ldc int, a []float32, lda, t, n0, n1, k int, rows RowDecoder, sc *GemmScratch, add bool) {
	group := min(max(fewFloats/k, 1), fewGroup)
	sc.rows = grown(sc.rows, group*k)
	sc.edge = grown(sc.edge, max(t, fewGroup))
	for n := n0; n < n1; n += group {
		here := min(group, n1-n)
		for r := range here {
			rows(sc.rows[r*k:(r+1)*k], n+r)
		}
		if here > 1 {
			for i := range t {
				s.dotRowsF32(sc.edge[:here], sc.rows, k, a[i*lda:i*lda+k])
				put(c[i*ldc+n:i*ldc+n+here], sc.edge, add)
			}
			continue
		}
		s.dotRowsF32(sc.edge[:t], a, lda, sc.rows[:k])
		for i := range t {
			put(c[i*ldc+n:i*ldc+n+1], sc.edge[i:], add)
		}
	}
}

// put stores or adds the first len(dst) values of src.
func put(dst, src []float32, add bool) {
	if !add {
		copy(dst, src)
		return
	}
	for i := range dst {
		dst[i] += src[i]
	}
}

// grown returns a slice of n elements, b itself where it is long enough.
func grown(b []float32, n int) []float32 {
	if n <= cap(b) {
		return b[:n]
	}
	return make([]float32, n)
}
