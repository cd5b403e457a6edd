package cpu

// Squares is the memory that [Set.AddSquares] works in. The zero value is ready;
// it grows to the largest shape met and serves one call at a time.
type Squares struct {
	columns []float32   // X transposed, [K][T]
	panels  []float32   // X in panels of nr features, [panels][T][nr]
	tiles   [][]float32 // products of a part, of each worker
	parts   Parts       // both sides, where a matrix unit multiplies
}

// A part of the triangle has about so many rows and columns: its products and
// the panels that it reads stay in a core's second-level cache.
const (
	squareRows    = 384
	squareColumns = 256
)

// AddSquares computes
//
//	sums[i*(i+1)/2+j] += sum over t of x[t*k+i] * x[t*k+j], for j <= i < k
//
// on a pool's threads: the lower triangle of X'X, row after row. Products are
// summed in float32, in the order of t in blocks of 256 (on a matrix unit of 512), and
// added in float64.
// A sum's bits do not depend on the number of threads. sums has k(k+1)/2
// elements, x a multiple of k.
//
// Both sides of a product are the same rows, so they are packed once for all
// tiles, and tiles above the diagonal are left out.
func (s *Set) AddSquares(pool *Pool, sums []float64, x []float32, k int, q *Squares) {
	want(k > 0 && len(x)%k == 0 && len(sums) == k*(k+1)/2, "AddSquares", len(sums), len(x), k)
	t := len(x) / k
	if t == 0 {
		return
	}
	if s.parts != nil {
		s.parts.squares(pool, sums, x, t, k, q)
		return
	}
	kernel := s.gemm
	if k < kernel.least {
		kernel = gemmGeneric()
	}
	q.pack(pool, x, t, k, kernel.nr)
	rows := (k + kernel.mr - 1) / kernel.mr // of tiles, whose heights are even
	strip := max(squareRows/kernel.mr, 1)
	strips, chunks := (rows+strip-1)/strip, (k+squareColumns-1)/squareColumns
	pool.RunWorkers(strips*chunks, func(worker, part int) {
		at := strips - 1 - part/chunks // those with most to do come first
		b := squareBlock{q: q, kernel: &kernel, t: t, k: k, rows: rows,
			first: at * strip, last: min((at+1)*strip, rows), column: part % chunks * squareColumns}
		if b.column >= b.row(b.last) {
			return
		}
		b.multiply(worker)
		b.add(worker, sums)
	})
}

// pack lays X out for both sides of the product.
func (q *Squares) pack(pool *Pool, x []float32, t, k, nr int) {
	panels := (k + nr - 1) / nr
	q.columns = grown(q.columns, k*t)
	q.panels = grown(q.panels, panels*nr*t)
	for len(q.tiles) < pool.Threads() {
		q.tiles = append(q.tiles, nil)
	}
	pool.Run(panels, func(p int) {
		lo, hi := p*nr, min((p+1)*nr, k)
		panel := q.panels[lo*t:][:nr*t]
		for r := range t {
			row := panel[r*nr : (r+1)*nr]
			clear(row[copy(row, x[r*k+lo:r*k+hi]):])
		}
		for i := range hi - lo {
			column := q.columns[(lo+i)*t:][:t]
			for r := range column {
				column[r] = panel[r*nr+i]
			}
		}
	})
}

// A squareBlock is the products of tiles first to last, counted in rows of
// tiles, with squareColumns features from column on.
type squareBlock struct {
	q           *Squares
	kernel      *gemmKernel
	t, k, rows  int
	first, last int
	column      int
}

// row is the first feature of a row of tiles.
func (b *squareBlock) row(tile int) int { return tile * b.k / b.rows }

// width is how many columns a row of tiles has in this block, whole panels that
// begin at or before its last feature.
func (b *squareBlock) width(tile int) int {
	nr := b.kernel.nr
	return min(max(b.row(tile+1)-b.column, 0)+nr-1, squareColumns) / nr * nr
}

func (b *squareBlock) multiply(worker int) {
	nr := b.kernel.nr
	out := grown(b.q.tiles[worker], (b.row(b.last)-b.row(b.first))*squareColumns)
	b.q.tiles[worker] = out
	for t0 := 0; t0 < b.t; t0 += blockK {
		depth := min(blockK, b.t-t0)
		for i := b.first; i < b.last; i++ {
			lo, hi := b.row(i), b.row(i+1)
			c := out[(lo-b.row(b.first))*squareColumns:]
			for j := 0; j < b.width(i); j += nr {
				panel := b.q.panels[(b.column+j)*b.t+t0*nr:]
				b.kernel.tile(hi-lo, b.q.columns[lo*b.t+t0:], b.t, panel, depth, c[j:], squareColumns, t0 > 0)
			}
		}
	}
}

func (b *squareBlock) add(worker int, sums []float64) {
	out := b.q.tiles[worker]
	first := b.row(b.first)
	for i := first; i < b.row(b.last); i++ {
		n := min(i+1-b.column, squareColumns)
		if n <= 0 {
			continue
		}
		row := sums[i*(i+1)/2+b.column:][:n]
		for j, v := range out[(i-first)*squareColumns:][:n] {
			row[j] += float64(v)
		}
	}
}
