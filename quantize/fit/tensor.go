package fit

import (
	"errors"
	"runtime"
	"sync"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// chunk is the number of weights that are decoded and fitted at a time, by
// all cores together: 16 MiB of float32.
const chunk = 1 << 22

// Tensor returns t fitted to a scheme, with importance per column or nil.
// Nothing is computed before the parts are read, and then in chunks of rows,
// each by all cores; the bytes do not depend on their number.
//
// It fails with an UnsupportedError where the scheme has no fitter or its
// block does not divide t's rows (see [Fallback]); reading the parts fails
// with a FormatError that names the weight that cannot be fitted.
func Tensor(t formats.Tensor, to *scheme.Scheme, importance []float32) (formats.Tensor, error) {
	if err := scheme.Check(&t); err != nil {
		return formats.Tensor{}, err
	}
	f, ok := For(to)
	if !ok {
		return formats.Tensor{}, formats.Unsupportedf("", t.Name, "quantizing to %s: it can only be read", to.Name)
	}
	n, k := t.Rows()
	if !to.Fits(k) {
		return formats.Tensor{}, formats.Unsupportedf("", t.Name, "rows of %d weights as %s", k, to.Name)
	}
	size, err := to.Size(t.Shape, nil)
	if err != nil {
		return formats.Tensor{}, err
	}
	step := n
	if n*k > chunk {
		step = max(1, chunk/k)
	}
	if n > step {
		if _, err := scheme.Slice(t, step, 0); err != nil {
			step = n // the source can only be read whole
		}
	}
	var blobs []tensor.Blob
	for row := int64(0); row < n && k > 0; row += step {
		rows := min(step, n-row)
		blobs = append(blobs, tensor.Computed(size/n*rows, func() ([]byte, error) {
			return fitRows(f, t, row, rows, size/n, importance)
		}))
	}
	return scheme.New(t.Name, to, t.Shape, nil, tensor.Concat(blobs...))
}

// fitRows fits rows [row, row+n), spread over the cores.
func fitRows(f Fitter, t formats.Tensor, row, n, rowBytes int64, importance []float32) ([]byte, error) {
	_, k := t.Rows()
	dst := make([]byte, n*rowBytes)
	w := make([]float32, n*k)
	if err := scheme.DecodeRows(w, &t, row, n); err != nil {
		return nil, err
	}
	workers := min(int64(runtime.GOMAXPROCS(0)), n)
	errs := make([]error, workers)
	var wait sync.WaitGroup
	for i := range workers {
		from, to := n*i/workers, n*(i+1)/workers
		wait.Go(func() {
			err := f(dst[from*rowBytes:to*rowBytes], w[from*k:to*k], importance, int(k))
			if v, ok := errors.AsType[*ValueError](err); ok && v.Row >= 0 {
				v.Row += int(row + from)
			}
			errs[i] = err
		})
	}
	wait.Wait()
	for _, err := range errs { // the first in row order, at any number of cores
		if err != nil {
			return nil, formats.Errorf("", t.Name, "cannot be quantized: %v", err)
		}
	}
	return dst, nil
}
