package cpu

// A partsKernel multiplies float32 on a matrix unit that takes bfloat16: each number is
// a sum of three of these, exact but for numbers below 2^-103, whose last part the unit takes
// for zero, and six of the nine products of parts are added up in float32; the others are below
// 2^-24 of the product. An infinity is a NaN, as a part is taken from it. Tiles are 16 rows of 32 numbers, or 32 rows of 16 columns, two numbers of a
// sum in a word of 32 bits, numbers j and j+16 of 32. nil: there is none.
type partsKernel struct {
	split    func(dst, src []float32, stride, second int) (rest uint32)
	multiply func(c []float32, ldc int, a, b []float32, steps int, exact, add bool)
	pack     func(dst []float32, nr int, src []float32, k0 int) // see gemmKernel
}

const (
	partRows   = 16                       // rows or columns of a tile
	partDepth  = 32                       // numbers of a sum in a tile
	partWords  = partRows * partDepth / 2 // of a tile
	partSide   = 2 * partRows             // rows and columns that are multiplied at once
	partStep   = 2 * 3 * partWords        // words of partSide rows and partDepth numbers
	partSteps  = 16                       // steps of partTokens rows that are split at once: 768 KiB, of L2
	partTokens = 8 * partSide
	partFloats = 1 << 24 // 64 MiB: columns that are split at once
)

// A Parts is the memory of [Set.GemmWhole]. The zero value is ready; it grows to the
// largest shape met and serves one call at a time.
type Parts struct {
	columns []float32 // [panels][steps][2][3] tiles, or of an exact panel [steps][2]
	exact   []bool    // panels that are bfloat16 as they are
	workers []partsScratch
}

// A partsScratch is the memory of one worker.
type partsScratch struct {
	rows    []float32 // [partTokens/partSide][partSteps][2][3] tiles
	decoded []float32 // [partRows][K, zeros to a multiple of partDepth]
	turn    []float32 // three tiles
	edge    []float32 // [partSide][partSide]
}

// Arithmetic names the instructions that sums of many products are computed by: the level,
// and the matrix unit where there is one.
func (s *Set) Arithmetic() string {
	if s.parts != nil {
		return s.level.String() + " with tiles of bf16"
	}
	return s.level.String()
}

// Whole reports whether the set has [Set.GemmWhole].
func (s *Set) Whole() bool { return s.parts != nil }

// Bytes returns what p holds.
func (p *Parts) Bytes() int64 {
	floats := cap(p.columns)
	for _, sc := range p.workers {
		floats += cap(sc.rows) + cap(sc.decoded) + cap(sc.turn) + cap(sc.edge)
	}
	return 4 * int64(floats)
}

// GemmWhole computes C[T][N] = A[T][K] W[N][K]^T on a pool's threads, on a matrix unit, with
// no larger errors than [Set.GemmMany] and other last digits. c and a have rows at distance
// ldc and lda; rows are called from several goroutines at once. An element's bits depend on
// its row and column alone, and not on t or the number of threads.
func (s *Set) GemmWhole(pool *Pool, c []float32, ldc int, a []float32, lda, t, n, k int, rows RowDecoder, p *Parts) {
	want(s.parts != nil && gemmFits(len(c), ldc, len(a), lda, t, 0, n, k), "GemmWhole", len(c), ldc, len(a), lda, t, n, k)
	if t == 0 {
		return
	}
	p.begin(pool.Threads())
	most := max(partFloats/(partStepsOf(k)*partStep), 1) * partSide
	for first := 0; first < n; first += most {
		here := min(most, n-first)
		panels := p.room(here, k)
		pool.RunWorkers(panels, func(worker, panel int) {
			s.parts.columns(p, &p.workers[worker], panel, here, k, func(dst []float32, row int) { rows(dst, first+row) })
		})
		tokens := min(partTokens, (t+pool.Threads()*partSide-1)/(pool.Threads()*partSide)*partSide)
		pool.RunWorkers((t+tokens-1)/tokens, func(worker, part int) {
			lo, hi := part*tokens, min((part+1)*tokens, t)
			s.parts.pass(p, &p.workers[worker], c[lo*ldc+first:], ldc, a[lo*lda:], lda, hi-lo, here, k)
		})
	}
}

func partStepsOf(k int) int { return (k + partDepth - 1) / partDepth }

// begin makes room for workers.
func (p *Parts) begin(workers int) {
	for len(p.workers) < workers {
		p.workers = append(p.workers, partsScratch{rows: make([]float32, partTokens/partSide*partSteps*partStep),
			turn: make([]float32, 3*partWords), edge: make([]float32, partSide*partSide)})
	}
}

// room makes room for n columns of k numbers and returns their panels.
func (p *Parts) room(n, k int) int {
	panels := (n + partSide - 1) / partSide
	p.columns = grown(p.columns, panels*partStepsOf(k)*partStep)
	if panels > len(p.exact) {
		p.exact = make([]bool, panels)
	}
	return panels
}

// pass multiplies up to partTokens rows with n columns.
func (g *partsKernel) pass(p *Parts, sc *partsScratch, c []float32, ldc int, a []float32, lda, t, n, k int) {
	steps := partStepsOf(k)
	for s := 0; s < steps; s += partSteps {
		depth := min(partSteps, steps-s)
		for i := 0; i < t; i += partSide {
			g.rows(sc, sc.rows[i/partSide*partSteps*partStep:], a[i*lda+s*partDepth:], lda, min(partSide, t-i), min(depth*partDepth, k-s*partDepth))
		}
		for j := 0; j < n; j += partSide {
			panel := j / partSide
			exact, step := p.exact[panel], partStep
			if exact {
				step = partStep / 3
			}
			b, wide := p.columns[panel*steps*partStep+s*step:], min(partSide, n-j)
			for i := 0; i < t; i += partSide {
				rows, m := sc.rows[i/partSide*partSteps*partStep:], min(partSide, t-i)
				if m == partSide && wide == partSide {
					g.multiply(c[i*ldc+j:], ldc, rows, b, depth, exact, s > 0)
					continue
				}
				for r := range m {
					copy(sc.edge[r*partSide:], c[(i+r)*ldc+j:(i+r)*ldc+j+wide])
				}
				g.multiply(sc.edge, partSide, rows, b, depth, exact, s > 0)
				for r := range m {
					copy(c[(i+r)*ldc+j:(i+r)*ldc+j+wide], sc.edge[r*partSide:])
				}
			}
		}
	}
}

// rows splits up to partSide rows of k numbers, with zeros behind them.
func (g *partsKernel) rows(sc *partsScratch, dst, a []float32, lda, m, k int) {
	for s := 0; s < k; s += partDepth {
		for h := range 2 {
			to := dst[(s/partDepth*2+h)*3*partWords:][:3*partWords]
			n, first := min(m-h*partRows, partRows), h*partRows*lda+s
			switch {
			case n <= 0:
				clear(to)
			case n == partRows && k-s >= partDepth:
				g.split(to, a[first:], lda, partRows)
			default:
				x := sc.turn[:partRows*partDepth]
				clear(x)
				for r := range n {
					copy(x[r*partDepth:(r+1)*partDepth], a[first+r*lda:][:min(k-s, partDepth)])
				}
				g.split(to, x, partDepth, partRows)
			}
		}
	}
}

// columns decodes the rows of W that are columns of a panel of n, and splits them.
func (g *partsKernel) columns(p *Parts, sc *partsScratch, panel, n, k int, rows RowDecoder) {
	steps := partStepsOf(k)
	wide := steps * partDepth
	sc.decoded = grown(sc.decoded, partSide*wide)
	for r := range partSide {
		row := sc.decoded[r*wide : (r+1)*wide]
		if j := panel*partSide + r; j < n {
			rows(row[:k], j)
			clear(row[k:])
		} else {
			clear(row)
		}
	}
	dst := p.columns[panel*steps*partStep:][:steps*partStep]
	p.exact[panel] = true
	for s := 0; s < steps && p.exact[panel]; s++ {
		for h := range 2 {
			if g.split(sc.turn, sc.decoded[h*partRows*wide+s*partDepth:], wide, partRows) != 0 {
				p.exact[panel] = false
			}
			g.turned(dst[(2*s+h)*partWords:][:partWords], sc.turn)
		}
	}
	if p.exact[panel] {
		return
	}
	for s := range steps {
		for h := range 2 {
			g.split(sc.turn, sc.decoded[h*partRows*wide+s*partDepth:], wide, partRows)
			g.turned(dst[(2*s+h)*3*partWords:][:3*partWords], sc.turn)
		}
	}
}

// turned swaps rows and columns of tiles.
func (g *partsKernel) turned(dst, src []float32) {
	for at := 0; at < len(dst); at += partWords {
		g.pack(dst[at:], partRows, src[at:], partRows)
		g.pack(dst[at+rowGroup:], partRows, src[at+rowGroup*partRows:], partRows)
	}
}

// squares is AddSquares. Features are rows of the product and columns of it: a tile of columns
// is one of rows turned.
func (g *partsKernel) squares(pool *Pool, sums []float64, x []float32, t, k int, q *Squares) {
	p, panels := &q.parts, (k+partSide-1)/partSide
	p.begin(pool.Threads())
	for len(q.tiles) < pool.Threads() {
		q.tiles = append(q.tiles, nil)
	}
	for ; t > 0; x, t = x[min(t, partSteps*partDepth)*k:], t-min(t, partSteps*partDepth) {
		here := min(t, partSteps*partDepth)
		steps := partStepsOf(here)
		p.columns, q.columns = grown(p.columns, panels*steps*partStep), grown(q.columns, panels*steps*partStep)
		pool.RunWorkers(panels, func(worker, panel int) {
			at := panel * steps * partStep
			g.bothSides(&p.workers[worker], q.columns[at:], p.columns[at:], x[:here*k], k, panel*partSide)
		})
		strips, chunks := (k+squareRows-1)/squareRows, (k+squareColumns-1)/squareColumns
		pool.RunWorkers(strips*chunks, func(worker, part int) {
			first, column := (strips-1-part/chunks)*squareRows, part%chunks*squareColumns // those with most to do come first
			last := min(first+squareRows, k)
			if column >= last {
				return
			}
			out := grown(q.tiles[worker], squareRows*squareColumns)
			q.tiles[worker] = out
			for j := column; j < min(column+squareColumns, last); j += partSide {
				for i := max(first, j); i < last; i += partSide {
					g.multiply(out[(i-first)*squareColumns+j-column:], squareColumns, q.columns[i/partSide*steps*partStep:], p.columns[j/partSide*steps*partStep:], steps, false, false)
				}
			}
			for i := max(first, column); i < last; i++ {
				n := min(i+1-column, squareColumns)
				row := sums[i*(i+1)/2+column:][:n]
				for j, v := range out[(i-first)*squareColumns:][:n] {
					row[j] += float64(v)
				}
			}
		})
	}
}

// bothSides splits partSide features of x[..][k] from first on: tiles of columns, whose rows are
// x's, and turned ones of rows.
func (g *partsKernel) bothSides(sc *partsScratch, rows, columns, x []float32, k, first int) {
	t := len(x) / k
	for s := 0; s < t; s += partDepth {
		for h := range 2 {
			at := (s/partDepth*2 + h) * 3 * partWords
			from := first + h*partRows
			to := columns[at:][:3*partWords]
			if t-s >= partDepth && k-from >= partRows {
				g.split(to, x[s*k+from:], k, partRows*k)
			} else {
				y := sc.turn[:partRows*partDepth]
				clear(y)
				for r := range min(t-s, partDepth) {
					if from < k {
						copy(y[r*partRows:(r+1)*partRows], x[(s+r)*k+from:(s+r+1)*k])
					}
				}
				g.split(to, y, partRows, partRows*partRows)
			}
			g.turned(rows[at:][:3*partWords], to)
		}
	}
}
