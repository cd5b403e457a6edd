package gpu

import "github.com/nstf/nstf/kernels/hip"

// everything lists the kernels of all passes that may come: of few rows and of a
// prompt's, however many, of which any may be chosen behind or give logits.
func (e *Engine) everything() []hip.Unit {
	u := &unitSet{seen: map[hip.Unit]bool{}}
	if e.span.Head {
		u.add(hip.Unit{File: "sample.hip"}, hip.Unit{File: "advance.hip"})
	}
	for rows := 1; rows <= min(fewRows, e.plan.Rows); rows++ {
		e.passes(u, rows, false)
	}
	for rows := 1; rows <= e.plan.Rows; rows++ {
		if rows <= mostTile || rows%leastTile == 1 || rows == e.plan.Rows || e.shape.experts > 0 {
			e.passes(u, rows, true)
		}
	}
	return u.list
}

// What kernels depend on the rows of a prompt for: into how many tiles of tokens they
// are divided, of leastTile at least, and whether they fill one, of mostTile at most.
const leastTile, mostTile = 8, 256

// passes adds the kernels of passes of so many rows of one order: all wanted, the last,
// or none.
func (e *Engine) passes(u *unitSet, rows int, many bool) {
	for _, from := range []int{0, rows - 1, rows} {
		u.addPass(e, rows, many, from)
	}
}
