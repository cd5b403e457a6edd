package decompose

import (
	"context"
	"fmt"
)

// A Core is one core of a tensor train: [Rows][RankIn][Columns][RankOut].
type Core struct {
	Rows, RankIn, Columns, RankOut int
	W                              []float32
}

// Chain makes a tensor train of a table w[V][K] (TT-SVD: Oseledets, 2011):
// rows and columns are split into digits, V into rows[0] ... and K into
// columns[0] ..., and one digit after the other is separated from the rest by a
// truncated singular value decomposition with ranks[i] values at most. Rows
// beyond V count as zero. It returns the cores and the squared error, at most
// the sum of what the truncations left; all errors count alike. It panics where
// the digits do not make the table.
func Chain(ctx context.Context, w []float32, v, k int, rows, columns, ranks []int) ([]Core, float64, error) {
	allRows, allColumns := 1, 1
	for i := range rows {
		allRows *= rows[i]
		allColumns *= columns[i]
	}
	if len(w) != v*k || allRows < v || allColumns != k || len(columns) != len(rows) || len(ranks) != len(rows)-1 {
		panic(fmt.Sprintf("decompose: digits %v and %v for a table of %d x %d", rows, columns, v, k))
	}
	full := append(append([]float32(nil), w...), make([]float32, (allRows-v)*k)...)
	var cores []Core
	var left float64
	in := 1
	restRows, restColumns := allRows, allColumns
	for i := range ranks {
		// full is [in][restRows][restColumns]; its first digits go to the front.
		restRows, restColumns = restRows/rows[i], restColumns/columns[i]
		x := digits(full, in, rows[i], restRows, columns[i], restColumns)
		m, n := in*rows[i]*columns[i], restRows*restColumns
		f, err := Factor(ctx, x, m, n, nil, Options{Rank: ranks[i]})
		if err != nil {
			return nil, 0, err
		}
		rank := min(ranks[i], m, n)
		left += f.Loss(rank)
		a, b := f.Take(rank)
		if got := len(f.Values); got < rank {
			a, b = widenRank(a, m, got, rank), append(b, make([]float32, (rank-got)*n)...)
		}
		cores = append(cores, core(a, in, rows[i], columns[i], rank))
		full, in = b, rank
	}
	last := len(rows) - 1
	return append(cores, core(full, in, rows[last], columns[last], 1)), left, nil
}

// digits reorders x[in][v][rest v][k][rest k], stored as [in][v rest v][k rest
// k], to [in][v][k][rest v][rest k].
func digits(x []float32, in, v, restV, k, restK int) []float32 {
	out := make([]float32, 0, len(x))
	for a := range in {
		for i := range v {
			for j := range k {
				for r := range restV {
					at := (((a*v+i)*restV+r)*k + j) * restK
					out = append(out, x[at:at+restK]...)
				}
			}
		}
	}
	return out
}

// core reorders g[in][v][k][out] to rows of [in][k][out].
func core(g []float32, in, v, k, out int) Core {
	c := Core{Rows: v, RankIn: in, Columns: k, RankOut: out, W: make([]float32, 0, len(g))}
	for i := range v {
		for a := range in {
			at := (a*v + i) * k * out
			c.W = append(c.W, g[at:at+k*out]...)
		}
	}
	return c
}

// ChainLosses returns the squared errors of trains of two cores by the rank
// between them, from 0 to the most asked for, and the bound of what a large
// factorization may have missed in each step.
func ChainLosses(ctx context.Context, w []float32, v, k int, rows, columns []int, rank int) (losses []float64, missed float64, err error) {
	full := append(append([]float32(nil), w...), make([]float32, (rows[0]*rows[1]-v)*k)...)
	m, n := rows[0]*columns[0], rows[1]*columns[1]
	f, err := Factor(ctx, digits(full, 1, rows[0], rows[1], columns[0], columns[1]), m, n, nil, Options{Rank: rank})
	if err != nil {
		return nil, 0, err
	}
	for r := range len(f.Values) + 1 {
		losses = append(losses, f.Loss(r))
	}
	return losses, f.Missed, nil
}
