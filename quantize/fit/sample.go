package fit

import (
	"errors"

	"github.com/nstf/nstf/formats/scheme"
)

// spans are some of the rows of a matrix, in their order.
type spans [][2]int

// tiles takes whole tiles of rows, evenly spread, of at most so many rows; all
// rows where they are no more than that.
func tiles(n, most int) spans {
	const tile = scheme.TCQTile
	if n <= most {
		return spans{{0, n}}
	}
	parts := most / tile
	out := make(spans, parts)
	for i := range out {
		at := (2*i + 1) * (n / tile) / (2 * parts) * tile
		out[i] = [2]int{at, at + tile}
	}
	return out
}

// of copies the rows out of w.
func (s spans) of(w []float32, k int) []float32 {
	var out []float32
	for _, r := range s {
		out = append(out, w[r[0]*k:r[1]*k]...)
	}
	return out
}

// from copies the rows out of a matrix.
func (s spans) from(rows Rows) (out []float32, err error) {
	for _, r := range s {
		w, err := rows(r[0], r[1]-r[0])
		if err != nil {
			return nil, err
		}
		out = append(out, w...)
	}
	return out, nil
}

// within returns what lies in the rows [first, first+n), counted from first.
func (s spans) within(first, n int) (out spans) {
	for _, r := range s {
		if lo, hi := max(r[0], first), min(r[1], first+n); lo < hi {
			out = append(out, [2]int{lo - first, hi - first})
		}
	}
	return out
}

// count returns how many rows they are.
func (s spans) count() (n int) {
	for _, r := range s {
		n += r[1] - r[0]
	}
	return n
}

// row returns the matrix's row that is row i of them.
func (s spans) row(i int) int {
	for _, r := range s {
		if i < r[1]-r[0] {
			return r[0] + i
		}
		i -= r[1] - r[0]
	}
	panic("fit: a row beyond a sample")
}

// blamed names the matrix's row in an error of a weight in a sample.
func (s spans) blamed(err error) error {
	if v, ok := errors.AsType[*ValueError](err); ok {
		v.Row = s.row(v.Row)
	}
	return err
}
