// Package fit chooses the codes of quantization schemes: float32 weights go
// in, packed rows come out. Where formats/scheme says what stored numbers
// mean and never changes, the choices made here may get better in every
// release and are tested by error bounds.
//
// A fitter minimises the sum over a row of importance times the squared error
// of each weight as the scheme's reference decode gives it. Without importance
// all count alike: on tiny-llama as q4_k that leaves a KL divergence of 0.0403,
// weighting by magnitude 0.0407 and by its square 0.0454. Fitters are
// deterministic: the same weights give the same bytes on every machine and at
// any number of goroutines, for all arithmetic that decides something has one
// order and no fused steps. They keep no state and may run concurrently. They
// never write a NaN or an infinity: weights that are not finite, or that the
// scheme cannot hold, are an error that names their place.
package fit

import (
	"fmt"
	"math"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/cpu"
)

// A Fitter packs whole rows of k weights into dst, which has the scheme's
// bytes for them. importance holds k non-negative weights of the squared
// error, one per column, or is nil for all alike. It fails with a
// [*ValueError]; wrong lengths are a caller's bug and panic.
type Fitter func(dst []byte, w, importance []float32, k int) error

// A ValueError says which weight or importance cannot be fitted, and why.
type ValueError struct {
	Row, Column int // Row is -1 for a value of the importance
	Value       float32
	Reason      string
	TooLarge    bool // finite, but more than the scheme holds: another may
}

// Error implements error.
func (e *ValueError) Error() string {
	if e.Row < 0 {
		return fmt.Sprintf("importance of column %d is %g: %s", e.Column, e.Value, e.Reason)
	}
	return fmt.Sprintf("weight at row %d, column %d is %g: %s", e.Row, e.Column, e.Value, e.Reason)
}

// For returns the fitter of a scheme, false for those that can only be read.
func For(s *scheme.Scheme) (Fitter, bool) {
	f, ok := fitters[s.Name]
	if !ok {
		return nil, false
	}
	return func(dst []byte, w, importance []float32, k int) error {
		return f.rows(s, dst, w, importance, k)
	}, true
}

// Fallback returns s where it can store rows of k weights, and otherwise the
// nearest scheme that can: see [scheme.Scheme]. What fits nothing else is f16.
func Fallback(s *scheme.Scheme, k int64) *scheme.Scheme {
	for !s.Fits(k) {
		name := s.Smaller
		if name == "" {
			name = "f16"
		}
		s, _ = scheme.ByName(name)
	}
	return s
}

// fitters lists the schemes that can be fitted.
var fitters = map[string]fitter{
	"f32":     {limit: math.MaxFloat32, cast: castF32},
	"f16":     {limit: math.Nextafter32(65520, 0), cast: castF16},
	"bf16":    {limit: math.Float32frombits(0x7F7F7FFF), cast: castBF16},
	"q4_0":    searched(&q40),
	"q4_1":    searched(&q41),
	"q5_0":    searched(&q50),
	"q5_1":    searched(&q51),
	"q8_0":    searched(&q80),
	"q2_k":    searched(&q2k),
	"q3_k":    searched(&q3k),
	"q4_k":    searched(&q4k),
	"q5_k":    searched(&q5k),
	"q6_k":    searched(&q6k),
	"mxfp4":   searched(&mxfp4),
	"q1_0":    searched(&q10),
	"q2_0":    searched(&q20),
	"iq2_xxs": searched(&iq2xxs),
	"iq2_xs":  searched(&iq2xs),
	"iq2_s":   searched(&iq2s),
	"iq3_xxs": searched(&iq3xxs),
	"iq3_s":   searched(&iq3s),
	"iq4_nl":  searched(&iq4nl),
	"iq4_xs":  searched(&iq4xs),
}

// maxHalf is the largest finite f16.
const maxHalf = 65504

// A fitter converts elements, or searches blocks of a layout. limit is a
// magnitude up to which weights neither overflow a scale nor, squared and
// summed, a float32.
type fitter struct {
	limit  float32
	cast   func(dst []byte, w []float32)
	layout *layout
}

// searched is the fitter of a layout.
func searched(l *layout) fitter { return fitter{limit: l.limit, layout: l} }

// rows checks the values and packs them block by block.
func (f fitter) rows(s *scheme.Scheme, dst []byte, w, importance []float32, k int) error {
	if k <= 0 || len(w)%k != 0 || !s.Fits(int64(k)) || importance != nil && len(importance) != k {
		panic(fmt.Sprintf("fit: %d weights in rows of %d with %d importances do not suit %s", len(w), k, len(importance), s.Name))
	}
	n := len(w) / k
	size, err := s.Size([]int64{int64(n), int64(k)}, nil)
	if err != nil || int64(len(dst)) != size {
		panic(fmt.Sprintf("fit: %d bytes for %d rows of %d weights as %s", len(dst), n, k, s.Name))
	}
	if err := f.check(s, w, importance, k); err != nil {
		return err
	}
	if s.Plain() {
		f.cast(dst, w)
		return nil
	}
	if n == 0 {
		return nil
	}
	b := newBand(s, f.layout, cpu.Best(), 1)
	rowBytes := int(size) / n
	for row := 0; row < n; row += lanes {
		rows := min(lanes, n-row)
		b.rounded(dst[row*rowBytes:], w[row*k:(row+rows)*k], nil, importance, rows, k)
	}
	return nil
}

// check refuses values that are not finite or too large.
func (f fitter) check(s *scheme.Scheme, w, importance []float32, k int) error {
	for i, v := range w {
		if !(v <= f.limit && v >= -f.limit) {
			e := &ValueError{Row: i / k, Column: i % k, Value: v, Reason: "not finite"}
			if math.Abs(float64(v)) <= math.MaxFloat32 {
				e.TooLarge, e.Reason = true, fmt.Sprintf("%s holds magnitudes up to %g", s.Name, f.limit)
			}
			return e
		}
	}
	for i, v := range importance {
		if !(v >= 0 && v <= math.MaxFloat32) {
			return &ValueError{Row: -1, Column: i, Value: v, Reason: "not finite and non-negative"}
		}
	}
	return nil
}
