package fit

import (
	"context"
	"errors"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// surelyAnswered is the share of its cost that an error of one variance in all
// columns keeps at most, answered, for feedback to be taken unseen: what answers
// add to the targets, and so to the errors, is far less than the rest.
const surelyAnswered = 0.7

// A trellisJob fits rows of a matrix to trellis codes.
type trellisJob struct {
	name string
	bits int
	n, k int
	in   *Input
	o    Options
}

func (j *trellisJob) check(w []float32) error { return checkRows(w, j.k) }

// methods says that there is feedback where there are moments: where these leave any doubt
// a few rows without it say whether that may be better.
func (j *trellisJob) methods(ctx context.Context, rows Rows) ([]string, error) {
	if j.in == nil {
		return []string{MethodPlain}, nil
	}
	answered := []string{MethodFeedback}
	if j.o.sample || j.n <= sampled {
		return answered, nil
	}
	q := trellisScheme(j.bits, j.n, j.k, j.o)
	f, err := j.in.feedback(q.RotateIn, scheme.TCQTile, q.Seed, j.o.threads())
	if err != nil {
		return nil, formats.Errorf("", j.name, "%v", err)
	}
	if f.trace < surelyAnswered*j.in.trace() {
		return answered, nil
	}
	both := []string{MethodPlain, MethodFeedback}
	some := tiles(j.n, sampled)
	w, err := some.from(rows)
	if err != nil {
		return nil, err
	}
	few := *j
	few.n = some.count()
	var errs [2]float64
	for i, m := range both {
		_, loss, err := few.fit(ctx, w, m)
		if err != nil {
			return nil, some.blamed(err)
		}
		errs[i] = sum(loss)
	}
	if errs[0] < 1.1*errs[1] {
		return both, nil
	}
	return answered, nil
}

// fit fits rows by one method, and returns their calibrated errors too.
func (j *trellisJob) fit(ctx context.Context, w []float32, method string) (t formats.Tensor, loss []float64, err error) {
	if err := ctx.Err(); err != nil {
		return t, nil, err
	}
	q := TCQ{TCQ: trellisScheme(j.bits, j.n, j.k, j.o), Seam: trellisSeam(j.o.Effort), Threads: j.o.threads(), Searcher: j.o.Searcher, Turn: j.o.Turn}
	if method == MethodFeedback {
		if q.Feedback, err = j.in.feedback(q.RotateIn, scheme.TCQTile, q.Seed, j.o.threads()); err != nil {
			return t, nil, formats.Errorf("", j.name, "%v", err)
		}
	}
	n := len(w) / j.k
	if t, err = q.tensor(ctx, j.name, w, n, j.k); err != nil {
		return t, nil, err
	}
	e, err := misses(&t, w, n, j.k, j.o.threads())
	if err == nil {
		loss, err = j.losses(ctx, e)
	}
	return t, loss, err
}

func (j *trellisJob) losses(ctx context.Context, e []float32) ([]float64, error) {
	return j.in.losses(ctx, e, j.k, j.o)
}

func (j *trellisJob) measured() (spans, bool) { return j.in.measured(j.n) }

// misses returns w[n][k] less what was stored of it.
func misses(t *formats.Tensor, w []float32, n, k, threads int) ([]float32, error) {
	e := make([]float32, len(w))
	errs := make([]error, n/scheme.TCQTile)
	rotationBlocks(n, threads, func(from, to int) {
		part := e[from*k : to*k]
		errs[from/scheme.TCQTile] = scheme.DecodeRows(part, t, int64(from), int64(to-from))
		for i, v := range w[from*k : to*k] {
			part[i] = v - part[i]
		}
	})
	return e, errors.Join(errs...)
}

// tensor fits w[n][k].
func (q TCQ) tensor(ctx context.Context, name string, w []float32, n, k int) (formats.Tensor, error) {
	parts, err := q.Fit(ctx, w, n, k)
	if err != nil {
		return formats.Tensor{}, err
	}
	blobs := make([]tensor.Blob, len(parts))
	for i, p := range parts {
		blobs[i] = tensor.BytesBlob(p)
	}
	s, _ := scheme.ByName("tcq")
	return scheme.New(name, s, []int64{int64(n), int64(k)}, q.Params(), blobs...)
}

// trellisEstimate takes the error of rotated weights, which hardly depends on
// which they are, from one tile of rows, and what it costs from the factors.
func trellisEstimate(ctx context.Context, w []float32, n, k, bits int, in *Input, o Options) (float64, error) {
	const rows, most = scheme.TCQTile, 8 * scheme.TCQMaxRotate
	q := TCQ{TCQ: trellisScheme(bits, rows, k, o), Seam: trellisSeam(o.Effort), Threads: o.threads()}
	cols := min(k, most)
	x := make([]float32, 0, rows*cols)
	at := n / scheme.TCQTile / 2 * scheme.TCQTile
	for r := at; r < at+rows; r++ {
		x = append(x, w[r*k:r*k+cols]...)
	}
	t, err := q.tensor(ctx, "", x, rows, cols)
	if err != nil {
		return 0, err
	}
	y := make([]float32, len(x))
	if err := scheme.DecodeRows(y, &t, 0, rows); err != nil {
		return 0, err
	}
	for i, v := range x {
		y[i] = v - y[i]
	}
	var none *Input
	part := none.quadratic(x, 1)
	if part == 0 {
		return 0, nil
	}
	part = none.quadratic(y, 1) / part
	if in == nil {
		return part, nil
	}
	f, err := in.feedback(q.RotateIn, scheme.TCQTile, q.Seed, o.threads())
	if err != nil {
		return 0, formats.Errorf("", "", "%v", err)
	}
	many := tiles(n, sampledReference).of(w, k)
	loss, err := in.errors(ctx, many, o)
	if err != nil {
		return 0, err
	}
	if total := sum(loss); total > 0 {
		return part * none.quadratic(many, 1) / float64(k) * f.trace / total, nil
	}
	return 0, nil
}

// trellisSeam is the effort of the search for trellis codes: the least takes 0.6 of
// the time and leaves 2 to 3 % more error (docs/perf/trellis.md).
func trellisSeam(effort int) int {
	if effort == 1 {
		return 16
	}
	return 0 // the default
}

func trellisScheme(bits, n, k int, o Options) scheme.TCQ {
	q := scheme.TCQ{Bits: bits, Codebook: scheme.TCQCodebookFor(bits), Seed: o.Seed, RotateIn: TCQRotation(k), RotateOut: TCQRotation(n)}
	if o.Lookup {
		q.RotateOut = 1
	}
	return q
}
