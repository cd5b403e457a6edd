package fit

import (
	"context"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/cpu"
)

// answer fits w[n][k] to dst with feedback: columns from first to last, each
// aiming at its weights plus what errors before it owe. It returns the
// calibrated error of each row.
func answer(ctx context.Context, dst []byte, w []float32, n, k int, s *scheme.Scheme, l *layout, f *factor, set *cpu.Set, o Options) ([]float64, error) {
	loss := make([]float64, n)
	err := spread(ctx, n, o, func() func(from, to int) {
		a := newAnswerer(s, l, f, set, batches(n, o.threads()), turns(o.Effort))
		return func(from, to int) {
			a.fit(dst[len(dst)/n*from:len(dst)/n*to], w[from*k:to*k], loss[from:to])
		}
	})
	return loss, err
}

// An answerer is the work space of one goroutine.
type answerer struct {
	f      *factor
	set    *cpu.Set
	band   *band
	errors []float32   // [rows] at distance errorStride: weights, and errors of the columns chosen
	owed   []float32   // [rows] at distance squareStride
	left   []cpu.Fixed // errors by panel
}

func newAnswerer(s *scheme.Scheme, l *layout, f *factor, set *cpu.Set, rows, turns int) *answerer {
	return &answerer{f: f, set: set, band: newBand(s, l, set, turns), errors: make([]float32, rows*f.errorStride()), owed: make([]float32, rows*squareStride), left: make([]cpu.Fixed, len(f.squares))}
}

// errorStride is the distance of rows of errors.
func (f *factor) errorStride() int { return f.k + rowGap }

// fillErrors copies w[n][K] to rows of errors, and zeros to fill bands.
func (f *factor) fillErrors(errors, w []float32) (rows int) {
	ld, n := f.errorStride(), len(w)/f.k
	rows = (n + lanes - 1) / lanes * lanes
	for r := range n {
		copy(errors[r*ld:], w[r*f.k:(r+1)*f.k])
	}
	clear(errors[n*ld : rows*ld])
	return rows
}

// fit fits some rows, whose number may be any: bands are filled with zeros.
func (a *answerer) fit(dst []byte, w []float32, loss []float64) {
	n, ld := len(loss), a.f.errorStride()
	whole := a.f.fillErrors(a.errors, w)
	rowBytes := len(dst) / n
	clear(loss)
	for p := range a.f.squares {
		from, to := a.f.bounds(p)
		owe(a.owed, a.left, whole, a.f, p, a.set)
		for r := 0; r < n; r += lanes {
			rows := min(lanes, n-r)
			load(a.band.e, a.errors[r*ld+from:], lanes, to-from, ld)
			load(a.band.z, a.owed[r*squareStride:], lanes, to-from, squareStride)
			a.band.loss = [lanes]float64{}
			a.band.answered(dst[r*rowBytes+from/a.band.scheme.Block*a.band.scheme.BlockBytes:], rowBytes, rows, a.f, p)
			store(a.errors[r*ld+from:], a.band.e[:to-from], rows, ld)
			for l := range rows {
				loss[r+l] += a.band.loss[l]
			}
		}
		fixErrors(&a.left[p], a.errors, whole, a.f, p, a.set)
	}
	a.f.undamp(loss, a.errors)
}

// owe computes what errors of rows before panel p, by panel, owe to its columns.
func owe(owed []float32, left []cpu.Fixed, rows int, f *factor, p int, set *cpu.Set) {
	clear(owed[:rows*squareStride])
	for q := range f.answers[p] {
		set.FixedAdd(owed, squareStride, &left[q], &f.answers[p][q])
	}
}

// fixErrors makes the errors of panel p ready for products; those of the last
// panel are owed to none.
func fixErrors(dst *cpu.Fixed, errors []float32, rows int, f *factor, p int, set *cpu.Set) {
	if from, to := f.bounds(p); to < f.k {
		set.FixLeft(dst, errors[from:], f.errorStride(), rows, to-from)
	}
}

// undamp takes what the damping costs out of errors by row.
func (f *factor) undamp(loss []float64, e []float32) {
	ld := f.errorStride()
	for r := range loss {
		var sum float64
		for _, v := range e[r*ld : r*ld+f.k] {
			sum += float64(float64(v) * float64(v))
		}
		loss[r] = max(0, loss[r]-float64(f.damping*sum))
	}
}

// losses returns e H e' of each row of e[n][k]; H is the identity for a nil Input.
func (in *Input) losses(ctx context.Context, e []float32, k int, o Options) ([]float64, error) {
	if in != nil {
		return in.errors(ctx, e, o)
	}
	loss := make([]float64, len(e)/k)
	err := spread(ctx, len(loss), o, func() func(from, to int) {
		return func(from, to int) {
			for r := from; r < to; r++ {
				loss[r] = in.quadratic(e[r*k:(r+1)*k], 1)
			}
		}
	})
	return loss, err
}

// errors returns e H e' of each row of e[n][K], or for a nil Input the squares of all.
func (in *Input) errors(ctx context.Context, e []float32, o Options) ([]float64, error) {
	if in == nil {
		return []float64{in.quadratic(e, 1)}, ctx.Err()
	}
	loss := make([]float64, len(e)/in.k)
	if in.k%lanes != 0 {
		for r := range loss {
			loss[r] = in.quadratic(e[r*in.k:(r+1)*in.k], 1)
		}
		return loss, ctx.Err()
	}
	set := cpu.Best()
	f, err := in.factor(set, o.threads())
	if err != nil {
		return nil, err
	}
	err = spread(ctx, len(loss), o, func() func(from, to int) {
		rows := batches(len(loss), o.threads())
		m := meter{f: f, set: set, errors: make([]float32, rows*f.errorStride()), owed: make([]float32, rows*squareStride), left: make([]cpu.Fixed, len(f.squares))}
		return func(from, to int) { m.measure(loss[from:to], e[from*in.k:to*in.k]) }
	})
	return loss, err
}

// diagonalErrors is errors with the moments' diagonal alone: what is known
// without factors.
func (in *Input) diagonalErrors(ctx context.Context, e []float32, o Options) ([]float64, error) {
	loss := make([]float64, len(e)/in.k)
	err := spread(ctx, len(loss), o, func() func(from, to int) {
		return func(from, to int) {
			for r := from; r < to; r++ {
				row := e[r*in.k : (r+1)*in.k]
				for i, d := range in.own[:len(row)] {
					v := float64(row[i])
					loss[r] += float64(d * float64(v*v))
				}
			}
		}
	})
	return loss, err
}

// A meter is the work space of one goroutine.
type meter struct {
	f            *factor
	set          *cpu.Set
	errors, owed []float32
	left         []cpu.Fixed
	e            [factorPanel]cpu.Lane
	z            [lanes]cpu.Lane
}

// measure sums D_k |sum over i <= k of e_i M_ki|^2 of each row.
func (m *meter) measure(loss []float64, e []float32) {
	n, stride := len(loss), m.f.errorStride()
	whole := m.f.fillErrors(m.errors, e)
	for p := range m.f.squares {
		from, to := m.f.bounds(p)
		owe(m.owed, m.left, whole, m.f, p, m.set)
		fixErrors(&m.left[p], m.errors, whole, m.f, p, m.set)
		for r := 0; r < n; r += lanes {
			load(m.e[:], m.errors[r*stride+from:], lanes, to-from, stride)
			for t := 0; t < to-from; t += lanes {
				z := &m.z
				load(z[:], m.owed[r*squareStride+t:], lanes, lanes, squareStride)
				m.set.LaneAnswer(z, m.e[:t+lanes], m.f.own(p)[t*squareStride:], squareStride)
				for c := range z {
					d := float64(m.f.d[from+t+c])
					for l := range min(lanes, n-r) {
						v := float64(z[c][l])
						loss[r+l] += float64(d * float64(v*v))
					}
				}
			}
		}
	}
	m.f.undamp(loss, m.errors)
}

// referenceWork is the number of products that a reference is worth.
const referenceWork = 1 << 32

// measured returns the rows of n that say what a matrix does to its input, and whether they
// stand for all.
func (in *Input) measured(n int) (rows spans, scaled bool) {
	if in == nil {
		return spans{{0, n}}, false
	}
	return tiles(n, max(256, referenceWork/(in.k*in.k)/lanes*lanes)), true
}
