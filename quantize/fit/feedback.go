package fit

import (
	"fmt"
	"math"
	"runtime"

	"github.com/nstf/nstf/kernels/cpu"
)

// A Feedback says how errors already made in some columns of a matrix are
// best answered in the columns that are still to be chosen, when the loss of
// an error E[N][K] is tr(E H E') with H[K][K] the second moments of the
// input. It holds the unit block-lower-triangular L of H = L D L', for blocks
// of columns: columns go from last to first, and those of block j aim at
//
//	Z_j = W_j + sum over i > j of E_i L_ij,   E = W - (what was chosen)
//
// (LDLQ: Chee et al., QuIP, 2023, arXiv 2307.13304; with blocks as in QuIP#,
// arXiv 2402.04396). A Feedback is immutable; [Feedback.Answers] makes what
// computes by it.
type Feedback struct {
	K, Block int
	Damping  float64 // what was added to the diagonal, over its mean

	set *cpu.Set
	// behind[p][c] is what errors in the columns behind panel p do to its column c,
	// [columns of the panel][K-to]; within[p] the same for the columns of the panel,
	// zero for those of c's block and before.
	behind, within [][]float32
	// trace is what an error of variance 1 in all columns of a row costs with all
	// of it answered.
	trace float64
}

// feedbackPanel is the number of columns that are answered together.
const feedbackPanel = 128

// Damping begins at this share of the diagonal's mean and doubles until the
// matrix is positive definite: field practice, exllamav3's value.
const leastDamping = 0.025

// NewFeedback factors second moments h[K][K], a full symmetric matrix. Columns
// that no input reached (zero on the diagonal) get no feedback. It panics where
// block does not divide K or 128, and fails where h holds NaN or infinities.
func NewFeedback(h []float64, k, block int) (*Feedback, error) {
	return newFeedback(h, k, block, 1, 0, runtime.GOMAXPROCS(0))
}

// newFeedback is NewFeedback for an input rotated in blocks.
func newFeedback(h []float64, k, block, rotate int, seed int64, threads int) (*Feedback, error) {
	if k%block != 0 || feedbackPanel%block != 0 || len(h) != k*k {
		panic(fmt.Sprintf("fit: %d moments for %d columns in blocks of %d", len(h), k, block))
	}
	for i := range k {
		if d := h[i*k+i]; !(d >= 0 && d <= math.MaxFloat64) {
			return nil, &MomentError{Column: i, Value: d}
		}
	}
	set, pool := cpu.Best(), cpu.NewPool(threads)
	defer pool.Close()
	// The factor goes through columns from first to last: they are reversed.
	f, err := factored(&moments{h: h, k: k, reversed: true, rotate: rotate, seed: seed}, leastDamping, true, set, pool)
	if err != nil {
		return nil, err
	}
	mean := f.damping / f.share
	out := &Feedback{K: k, Block: block, Damping: f.damping / mean, set: set}
	count := (k + feedbackPanel - 1) / feedbackPanel
	out.behind, out.within = make([][]float32, count), make([][]float32, count)
	traces := make([]float64, count)
	pool.Run(count, func(p int) { traces[p] = out.panel(f, p) })
	out.trace = max(0, sum(traces)-float64(f.damping*float64(k)))
	return out, nil
}

// bounds returns the columns of panel p; the last is the shorter one.
func (f *Feedback) bounds(p int) (from, to int) {
	return p * feedbackPanel, min((p+1)*feedbackPanel, f.K)
}

// panel takes the rows of the factor that answer panel p: those of a block
// J are M_JJ^-1 M_J, since its columns are chosen together. It returns the trace
// of M_JJ' D_J M_JJ.
func (f *Feedback) panel(m *factor, p int) (trace float64) {
	from, to := f.bounds(p)
	w, behind := to-from, f.K-to
	f.behind[p], f.within[p] = make([]float32, w*behind), make([]float32, w*w)
	r := make([]float32, f.K)
	x := make([]float64, f.Block*f.K)
	for first := from; first < to; first += f.Block {
		last := first + f.Block
		n := f.K - last
		for c := last - 1; c >= first; c-- {
			m.row(r, f.K-1-c) // columns behind c are reversed before it
			for d := c; d < last; d++ {
				v := float64(r[f.K-1-d])
				trace += float64(float64(m.d[f.K-1-c]) * float64(v*v))
			}
			out := x[(c-first)*n : (c-first+1)*n]
			for i := range out {
				out[i] = float64(r[n-1-i])
			}
			for d := c + 1; d < last; d++ { // the block's own columns, solved already
				v := float64(r[f.K-1-d])
				for i, u := range x[(d-first)*n : (d-first+1)*n] {
					out[i] -= float64(v * u)
				}
			}
			for i, v := range out[:to-last] {
				f.within[p][(c-from)*w+last-from+i] = float32(v)
			}
			for i, v := range out[to-last:] {
				f.behind[p][(c-from)*behind+i] = float32(v)
			}
		}
	}
	return trace
}

// Answers computes by a Feedback for 16 rows. It serves one goroutine.
type Answers struct {
	f       *Feedback
	panel   int // the one that owed is for, -1 for none
	owed    [lanes * (feedbackPanel + rowGap)]float32
	e       [feedbackPanel]cpu.Lane
	scratch cpu.GemmScratch
}

// Answers returns what computes answers for 16 rows.
func (f *Feedback) Answers() *Answers { return &Answers{f: f, panel: -1} }

// Answer adds to z[16][Block] what block j owes to the errors e[16][K] of the
// columns behind it. Blocks are asked for from last to first, after those
// behind them; a new matrix begins with the last.
func (a *Answers) Answer(z, e []float32, j int) {
	f := a.f
	const ld = feedbackPanel + rowGap
	first := j * f.Block
	p := first / feedbackPanel
	from, to := f.bounds(p)
	if a.panel != p || first+f.Block == f.K {
		a.panel = p
		clear(a.owed[:])
		if behind := f.K - to; behind > 0 {
			f.set.GemmFusedAdd(a.owed[:], ld, e[to:], f.K, lanes, 0, to-from, behind,
				func(dst []float32, n int) { copy(dst, f.behind[p][n*behind:]) }, &a.scratch)
		}
	}
	n := to - first - f.Block // columns of the panel that are chosen
	load(a.e[:], e[to-n:], lanes, n, f.K)
	for c0 := 0; c0 < f.Block; c0 += lanes {
		cols := min(lanes, f.Block-c0)
		var t [lanes]cpu.Lane
		load(t[:], a.owed[first-from+c0:], lanes, cols, ld)
		if cols == lanes {
			w := to - from
			f.set.LaneAnswer(&t, a.e[:n], f.within[p][(first-from+c0)*w+w-n:], w)
		}
		for l := range lanes {
			for c := range cols {
				z[l*f.Block+c0+c] += t[c][l]
			}
		}
	}
}
