package fit

import (
	"context"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// trellisMatrix fits trellis codes, with feedback where there are moments:
// a few rows without it say whether that is better.
func trellisMatrix(ctx context.Context, name string, w []float32, n, k, bits int, in *Input, o Options) (Result, error) {
	methods := []string{MethodPlain}
	if in != nil {
		methods = []string{MethodFeedback}
	}
	if in != nil && !o.sample && n > sampled {
		rows := tiles(n, sampled).of(w, k)
		var errs [2]float64
		for i, m := range []string{MethodPlain, MethodFeedback} {
			r, err := trellisFit(ctx, name, rows, len(rows)/k, k, bits, in, o, m)
			if err != nil {
				return Result{}, err
			}
			errs[i] = r.Error
		}
		if errs[0] < 1.1*errs[1] {
			methods = []string{MethodPlain, MethodFeedback}
		}
	}
	var best Result
	for _, m := range methods {
		r, err := trellisFit(ctx, name, w, n, k, bits, in, o, m)
		if err != nil {
			return Result{}, err
		}
		if best.Method == "" || r.Error < best.Error {
			best = r
		}
	}
	if o.sample {
		return best, nil
	}
	var err error
	best.Reference, err = in.reference(ctx, w, n, k, o.threads())
	return best, err
}

// trellisFit fits by one method; the result's reference is not set.
func trellisFit(ctx context.Context, name string, w []float32, n, k, bits int, in *Input, o Options, method string) (Result, error) {
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	q := TCQ{TCQ: trellisScheme(bits, n, k, o)}
	if method == MethodFeedback {
		var err error
		if q.Feedback, err = in.feedback(q.RotateIn, scheme.TCQTile, q.Seed, o.threads()); err != nil {
			return Result{}, formats.Errorf("", name, "%v", err)
		}
	}
	parts, err := q.Fit(w, n, k)
	if err != nil {
		return Result{}, err
	}
	blobs := make([]tensor.Blob, len(parts))
	for i, p := range parts {
		blobs[i] = tensor.BytesBlob(p)
	}
	s, _ := scheme.ByName("tcq")
	t, err := scheme.New(name, s, []int64{int64(n), int64(k)}, q.Params(), blobs...)
	if err != nil {
		return Result{}, err
	}
	e := make([]float32, len(w))
	if err := scheme.DecodeRows(e, &t, 0, int64(n)); err != nil {
		return Result{}, err
	}
	for i, v := range w {
		e[i] = v - e[i]
	}
	loss, err := in.errors(ctx, e, o.threads())
	return Result{Tensor: t, Error: sum(loss), Method: method}, err
}

func trellisScheme(bits, n, k int, o Options) scheme.TCQ {
	q := scheme.TCQ{Bits: bits, Codebook: scheme.TCQCodebookFor(bits), Seed: o.Seed, RotateIn: TCQRotation(k), RotateOut: TCQRotation(n)}
	if o.Lookup {
		q.RotateOut = 1
	}
	return q
}

// trellisBits returns 2 to 6 for "tcq2" to "tcq6", 0 for another recipe.
func trellisBits(recipe string) int {
	d, ok := strings.CutPrefix(recipe, "tcq")
	if !ok || len(d) != 1 || d[0] < '0'+scheme.TCQMinBits || d[0] > '0'+scheme.TCQMaxBits {
		return 0
	}
	return int(d[0] - '0')
}
